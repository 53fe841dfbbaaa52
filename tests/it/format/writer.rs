//! The same pieces as bytes again, for tests that change a file with every checksum right.

use super::reader::{
    Block, Content, INDEX_NUMBER, Image, JOURNAL_NUMBER, Resource, Row, State, Swept, framed,
};

pub fn put_number(out: &mut Vec<u8>, number: u64) {
    let little = number.to_le_bytes();
    match number {
        0..=250 => out.push(little[0]),
        251..=0xFFFF => out.extend([&[251], &little[..2]].concat()),
        0x1_0000..=0xFFFF_FFFF => out.extend([&[252], &little[..4]].concat()),
        _ => out.extend([&[253], &little[..]].concat()),
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend(bytes);
}

fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    number.into_iter().for_each(|number| put_number(out, number));
}

impl State {
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.epoch, self.last_time, self.last_seq] {
            put_number(&mut out, number);
        }
        put_option(&mut out, self.clock_settled);
        put_number(&mut out, self.merged_to);
        put_number(&mut out, self.sweep_to);
        let Swept { scope, row } = &self.swept;
        out.push(u8::from(scope.is_some()));
        scope.iter().for_each(|last| out.extend(last));
        out.push(u8::from(row.is_some()));
        row.iter().for_each(|last| put_bytes(&mut out, last));
        let Self { records, rows, executed, blocks, indexed, index_rows, settled, .. } = *self;
        for number in [records, rows, executed, blocks, indexed, index_rows, settled] {
            put_number(&mut out, number);
        }
        put_number(&mut out, self.heads.len() as u64);
        for head in &self.heads {
            for number in [head.class, head.seq, head.entries] {
                put_number(&mut out, number);
            }
            out.extend(head.link);
        }
        out
    }
}

impl Row {
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.version, self.made.0, self.made.1] {
            put_number(&mut out, number);
        }
        put_option(&mut out, self.event_time);
        match &self.content {
            Content::Value(codec, bytes) => {
                out.push(0);
                put_number(&mut out, *codec);
                put_bytes(&mut out, bytes);
            }
            Content::Removed => out.push(1),
            Content::Held(Resource { kind, id, shared }) => {
                out.push(2);
                put_bytes(&mut out, kind.as_bytes());
                put_bytes(&mut out, id.as_bytes());
                out.push(u8::from(*shared));
            }
        }
        out
    }
}

/// A row of `index`.
pub fn scopes_value(key: &[u8; 16], scopes: &[([u8; 16], [u8; 10])]) -> Vec<u8> {
    let body = scopes.iter().flat_map(|(scope, position)| [&scope[..], position].concat());
    framed(INDEX_NUMBER, key, 8, &body.collect::<Vec<_>>())
}

impl Block {
    pub fn value(&self, key: &[u8; 10]) -> Vec<u8> {
        let mut directory = Vec::new();
        put_number(&mut directory, self.entries.len() as u64);
        for listed in &self.entries {
            put_number(&mut directory, listed.above);
            put_number(&mut directory, listed.frame.len() as u64);
            directory.push(u8::from(listed.scope.is_some()));
            directory.extend(listed.scope.iter().flatten());
        }
        let mut tail = Vec::new();
        put_number(&mut tail, self.rows.len() as u64);
        for (key, image) in &self.rows {
            put_bytes(&mut tail, key);
            match image {
                Image::Here(frame) => {
                    tail.push(0);
                    put_bytes(&mut tail, frame);
                }
                Image::Removed => tail.push(1),
                Image::Settled => tail.push(2),
            }
        }
        tail.push(u8::from(self.state.is_some()));
        tail.extend(self.state.iter().flat_map(State::body));
        let mut value = framed(JOURNAL_NUMBER, key, 6, &directory);
        self.entries.iter().for_each(|listed| value.extend(&listed.frame));
        value.extend(framed(JOURNAL_NUMBER, key, 7, &tail));
        value
    }
}
