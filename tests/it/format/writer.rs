//! The same pieces as bytes again, for tests that change a file with every checksum right.

use super::Unit;
use super::claims::{Evidence, Fact, Moment, Open, Phase, StepState};
use super::reader::{
    Block, Content, Entry, Fingerprint, INDEX_NUMBER, Image, JOURNAL_NUMBER, KeptBody, Resource, Row, State,
    Swept, framed,
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

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
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
        for number in [self.records, self.rows, self.own_rows, self.open, self.unknown] {
            put_number(&mut out, number);
        }
        self.posts.iter().for_each(|number| put_number(&mut out, *number));
        for number in [self.executed, self.resolved, self.differences] {
            put_number(&mut out, number);
        }
        for number in [self.blocks, self.indexed, self.index_rows, self.settled] {
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
            Content::Held(holder) => {
                out.push(2);
                put_resource(&mut out, holder);
            }
            Content::Open(open) => {
                out.push(3);
                open.put(&mut out);
            }
            Content::Post(post) => {
                out.push(4);
                out.extend(&post.bytes);
            }
            Content::Unit(unit) => {
                let (number, name, epoch) = match unit {
                    Unit::Owned(epoch) => (0, None, epoch),
                    Unit::HandedOver(to, epoch) => (1, Some(to), epoch),
                    Unit::Arriving(from, epoch) => (2, Some(from), epoch),
                };
                out.extend([5, number]);
                name.iter().for_each(|name| put_text(&mut out, name));
                put_number(&mut out, *epoch);
            }
        }
        out
    }
}

fn put_resource(out: &mut Vec<u8>, Resource { kind, id, shared }: &Resource) {
    put_text(out, kind);
    put_text(out, id);
    out.push(u8::from(*shared));
}

impl Fingerprint {
    fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.scheme);
        out.push(self.policy);
        out.extend(self.digest);
        out.push(u8::from(self.exact.is_some()));
        out.extend(self.exact.iter().flatten());
        put_number(out, self.prints.len() as u64);
        for print in &self.prints {
            put_text(out, &print.name);
            out.extend(print.exact);
            out.push(u8::from(print.canonical.is_some()));
            out.extend(print.canonical.iter().flatten());
        }
    }
}

impl Evidence {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.source);
        put_text(out, &self.text);
    }
}

impl Open {
    fn put(&self, out: &mut Vec<u8>) {
        self.scope.iter().for_each(|text| put_text(out, text));
        self.fingerprint.put(out);
        put_number(out, self.generation);
        match self.phase {
            Phase::Processing => out.push(0),
            Phase::Unknown { since, settled } => {
                out.push(1);
                put_number(out, since);
                out.push(u8::from(settled));
            }
        }
        for number in [self.since, self.attempt, self.token] {
            put_number(out, number);
        }
        put_moment(out, self.granted);
        put_number(out, self.lease);
        put_text(out, &self.owner);
        out.push(u8::from(self.input.is_some()));
        self.input.iter().for_each(|input| put_bytes(out, input));
        put_number(out, self.steps.len() as u64);
        for step in &self.steps {
            put_text(out, &step.name);
            put_number(out, step.contract);
            put_number(out, step.settles_within);
            put_moment(out, step.started);
            match &step.state {
                StepState::Open => out.push(0),
                StepState::Answered(answer) => {
                    out.push(1);
                    put_bytes(out, answer);
                }
                StepState::NotApplied => out.push(2),
            }
        }
        put_number(out, self.points.len() as u64);
        for (name, value) in &self.points {
            put_text(out, name);
            put_bytes(out, value);
        }
        out.push(u8::from(self.stop_asked));
        put_number(out, self.evidence.len() as u64);
        self.evidence.iter().for_each(|evidence| evidence.put(out));
    }
}

fn put_moment(out: &mut Vec<u8>, (epoch, millis): Moment) {
    put_number(out, epoch);
    put_number(out, millis);
}

impl Entry {
    pub fn body(&self) -> Vec<u8> {
        let mut out = vec![self.transition];
        put_number(&mut out, self.at);
        put_number(&mut out, self.generation);
        self.scope.iter().for_each(|text| put_text(&mut out, text));
        self.fingerprint.put(&mut out);
        out.push(u8::from(self.failed));
        put_number(&mut out, self.code);
        put_number(&mut out, self.meta.len() as u64);
        for (name, value) in &self.meta {
            put_text(&mut out, name);
            put_bytes(&mut out, value);
        }
        out.push(u8::from(self.resource.is_some()));
        self.resource.iter().for_each(|resource| put_resource(&mut out, resource));
        match &self.body {
            KeptBody::Kept(bytes) => {
                out.push(0);
                put_bytes(&mut out, bytes);
            }
            KeptBody::NotKept(digest, len) => {
                out.push(1);
                out.extend(digest);
                put_number(&mut out, *len);
            }
        }
        put_text(&mut out, &self.actor);
        put_number(&mut out, self.token);
        put_number(&mut out, self.facts.len() as u64);
        self.facts.iter().for_each(|fact| fact.put(&mut out));
        put_number(&mut out, self.notes.len() as u64);
        for note in &self.notes {
            put_bytes(&mut out, &note.row);
            out.push(note.verb);
            out.push(u8::from(note.digest.is_some()));
            out.extend(note.digest.iter().flatten());
        }
        out
    }
}

impl Fact {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Declared(step) => {
                out.push(0);
                put_text(out, step);
            }
            Self::Answered(step, digest, len) => {
                out.push(1);
                put_text(out, step);
                out.extend(digest);
                put_number(out, *len);
            }
            Self::NotApplied(step) => {
                out.push(2);
                put_text(out, step);
            }
            Self::Reached(point, digest) => {
                out.push(3);
                put_text(out, point);
                out.extend(digest);
            }
            Self::Because(evidence) => {
                out.push(4);
                evidence.put(out);
            }
            Fact::Brought(at, ended_by, made, count) => {
                out.push(5);
                put_number(out, *at);
                out.push(*ended_by);
                put_number(out, *made);
                put_number(out, *count);
            }
        }
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
            directory.push(u8::from(listed.is_outcome));
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
