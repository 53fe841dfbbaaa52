//! What stands in a store of messages, as `docs/format.md` describes it. Shares nothing with `src/`.

use super::claims::Moment;
use super::reader::{Cursor, put};

/// The entry that made it, and which one of that entry it is.
pub type Id = (u64, u64);

/// What a row of messages holds, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    pub what: What,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Status(Box<Status>),
    Letter { headers: Vec<(String, String)>, payload: Vec<u8>, event: Option<Event> },
    Queue { head: Id, tail: Id, count: u64, blocked: Option<u64> },
    Known(Id),
    Mark,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub inbox: String,
    pub id: String,
    pub time: Option<u64>,
    pub stream: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub tenant: String,
    pub destination: String,
    pub order: Option<String>,
    pub operation: [u8; 16],
    pub contract: u64,
    pub on_dead: u64,
    pub lease: u64,
    pub settles_within: u64,
    pub backoff: (u64, u64),
    pub attempts_max: u64,
    pub not_before: u64,
    pub since: u64,
    pub attempts: u64,
    pub left: u64,
    pub asked: u64,
    pub stage: Stage,
    pub why: Option<String>,
    pub next: Option<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    Queued,
    Waiting(u64),
    Flying(Flight),
    Unsure(u64, Flight),
    Unknown(u64, Flight),
    Dead(u64),
    Delivered(u64, Option<Vec<u8>>),
    Discarded(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    pub token: u64,
    pub errand: Errand,
    pub started: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    Send,
    Ask(u64, Moment),
    Job,
}

impl Post {
    pub fn read(here: &mut Cursor<'_>) -> Self {
        let before = here.0;
        let what = match here.number() {
            0 => What::Status(Box::new(Status::read(here))),
            1 => What::Letter {
                headers: here.list(|cursor| (cursor.text(), cursor.text())),
                payload: here.bytes(),
                event: here.option(|cursor| Event {
                    inbox: cursor.text(),
                    id: cursor.text(),
                    time: cursor.option(Cursor::number),
                    stream: cursor.option(Cursor::text),
                }),
            },
            2 => What::Queue {
                head: id(here),
                tail: id(here),
                count: here.number(),
                blocked: here.option(Cursor::number),
            },
            3 => What::Known(id(here)),
            4 => What::Mark,
            other => panic!("a row of messages of kind {other}"),
        };
        Self { what, bytes: before[..before.len() - here.0.len()].to_vec() }
    }

    /// What a message is counted as: waiting, in doubt, dead; an ordering key that is blocked.
    pub fn counted(&self) -> Option<usize> {
        match &self.what {
            What::Queue { blocked: Some(_), .. } => Some(3),
            What::Status(status) => match &status.stage {
                Stage::Unsure(..) | Stage::Unknown(..) => Some(1),
                Stage::Flying(Flight { errand: Errand::Ask(..), .. }) => Some(1),
                Stage::Dead(_) => Some(2),
                Stage::Delivered(..) | Stage::Discarded(_) => None,
                Stage::Queued | Stage::Waiting(_) | Stage::Flying(_) => Some(0),
            },
            _ => None,
        }
    }

    /// What the row digest is over.
    pub fn layout(&self, out: &mut Vec<u8>) {
        match &self.what {
            What::Status(status) => {
                out.push(0);
                status.layout(out);
            }
            What::Letter { headers, payload, event } => {
                out.push(1);
                put_u32(out, headers.len() as u64);
                for (name, value) in headers {
                    put(out, name.as_bytes());
                    put(out, value.as_bytes());
                }
                put(out, payload);
                out.push(u8::from(event.is_some()));
                if let Some(event) = event {
                    put(out, event.inbox.as_bytes());
                    put(out, event.id.as_bytes());
                    put_time(out, event.time);
                    put_text(out, event.stream.as_deref());
                }
            }
            What::Queue { head, tail, count, blocked } => {
                out.push(2);
                put_id(out, *head);
                put_id(out, *tail);
                put_u64(out, *count);
                put_time(out, *blocked);
            }
            What::Known(known) => {
                out.push(3);
                put_id(out, *known);
            }
            What::Mark => out.push(4),
        }
    }
}

impl Status {
    fn read(here: &mut Cursor<'_>) -> Self {
        Self {
            tenant: here.text(),
            destination: here.text(),
            order: here.option(Cursor::text),
            operation: here.array(),
            contract: here.number(),
            on_dead: here.number(),
            lease: here.number(),
            settles_within: here.number(),
            backoff: (here.number(), here.number()),
            attempts_max: here.number(),
            not_before: here.number(),
            since: here.number(),
            attempts: here.number(),
            left: here.number(),
            asked: here.number(),
            stage: Stage::read(here),
            why: here.option(Cursor::text),
            next: here.option(id),
        }
    }

    fn layout(&self, out: &mut Vec<u8>) {
        put(out, self.tenant.as_bytes());
        put(out, self.destination.as_bytes());
        put_text(out, self.order.as_deref());
        out.extend(self.operation);
        out.extend([self.contract, self.on_dead].map(|choice| u8::try_from(choice).unwrap()));
        for number in [self.lease, self.settles_within, self.backoff.0, self.backoff.1] {
            put_u64(out, number);
        }
        put_u32(out, self.attempts_max);
        put_u64(out, self.not_before);
        put_u64(out, self.since);
        for number in [self.attempts, self.left, self.asked] {
            put_u32(out, number);
        }
        self.stage.layout(out);
        put_text(out, self.why.as_deref());
        out.push(u8::from(self.next.is_some()));
        self.next.iter().for_each(|next| put_id(out, *next));
    }

    /// The other rows that a message has beside its own: its letter, one in a list, its ordering key.
    pub fn beside(&self, id: Id) -> Vec<Vec<u8>> {
        let digits = format!("{:016x}{:08x}", id.0, id.1);
        let key = |text: String| text.into_bytes();
        let mut keys = Vec::new();
        if !matches!(self.stage, Stage::Delivered(..) | Stage::Discarded(_)) {
            keys.push(key(format!("p{digits}")));
        }
        match self.stage {
            Stage::Waiting(due) | Stage::Unsure(due, _) => {
                keys.push(key(format!("d{}\0{due:016x}{digits}", self.destination)));
            }
            Stage::Flying(_) => keys.push(key(format!("a{digits}"))),
            _ => {}
        }
        keys
    }
}

impl Stage {
    fn read(here: &mut Cursor<'_>) -> Self {
        match here.number() {
            0 => Self::Queued,
            1 => Self::Waiting(here.number()),
            2 => Self::Flying(Flight::read(here)),
            3 => Self::Unsure(here.number(), Flight::read(here)),
            4 => Self::Unknown(here.number(), Flight::read(here)),
            5 => Self::Dead(here.number()),
            6 => Self::Delivered(here.number(), here.option(Cursor::bytes)),
            7 => Self::Discarded(here.number()),
            other => panic!("a stage of kind {other}"),
        }
    }

    fn layout(&self, out: &mut Vec<u8>) {
        let mut put_stage = |number: u8, time: Option<u64>, flight: Option<&Flight>| {
            out.push(number);
            time.into_iter().for_each(|time| put_u64(out, time));
            flight.into_iter().for_each(|flight| flight.layout(out));
        };
        match self {
            Self::Queued => put_stage(0, None, None),
            Self::Waiting(due) => put_stage(1, Some(*due), None),
            Self::Flying(flight) => put_stage(2, None, Some(flight)),
            Self::Unsure(due, flight) => put_stage(3, Some(*due), Some(flight)),
            Self::Unknown(since, flight) => put_stage(4, Some(*since), Some(flight)),
            Self::Dead(since) => put_stage(5, Some(*since), None),
            Self::Delivered(at, answer) => {
                put_stage(6, Some(*at), None);
                out.push(u8::from(answer.is_some()));
                answer.iter().for_each(|answer| put(out, answer));
            }
            Self::Discarded(at) => put_stage(7, Some(*at), None),
        }
    }
}

impl Flight {
    fn read(here: &mut Cursor<'_>) -> Self {
        Self {
            token: here.number(),
            errand: match here.number() {
                0 => Errand::Send,
                1 => Errand::Ask(here.number(), (here.number(), here.number())),
                2 => Errand::Job,
                other => panic!("an errand of kind {other}"),
            },
            started: (here.number(), here.number()),
        }
    }

    fn layout(&self, out: &mut Vec<u8>) {
        put_u64(out, self.token);
        match self.errand {
            Errand::Send => out.push(0),
            Errand::Ask(token, (epoch, millis)) => {
                out.push(1);
                [token, epoch, millis].into_iter().for_each(|number| put_u64(out, number));
            }
            Errand::Job => out.push(2),
        }
        put_u64(out, self.started.0);
        put_u64(out, self.started.1);
    }
}

fn id(here: &mut Cursor<'_>) -> Id {
    (here.number(), here.number())
}

fn put_id(out: &mut Vec<u8>, (seq, ordinal): Id) {
    put_u64(out, seq);
    put_u32(out, ordinal);
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_be_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: u64) {
    out.extend(u32::try_from(number).unwrap().to_be_bytes());
}

fn put_time(out: &mut Vec<u8>, time: Option<u64>) {
    out.push(u8::from(time.is_some()));
    time.into_iter().for_each(|time| put_u64(out, time));
}

fn put_text(out: &mut Vec<u8>, text: Option<&str>) {
    out.push(u8::from(text.is_some()));
    text.into_iter().for_each(|text| put(out, text.as_bytes()));
}
