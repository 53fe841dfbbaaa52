//! What stands in a store of commands that were begun, as `docs/format.md` describes it. Shares nothing with
//! `src/`.

use super::reader::{Cursor, Fingerprint, put, sha};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub scope: [String; 3],
    pub fingerprint: Fingerprint,
    pub generation: u64,
    pub phase: Phase,
    pub since: u64,
    pub attempt: u64,
    pub token: u64,
    pub granted: Moment,
    pub lease: u64,
    pub owner: String,
    pub input: Option<Vec<u8>>,
    pub steps: Vec<Step>,
    pub points: Vec<(String, Vec<u8>)>,
    pub stop_asked: bool,
    pub evidence: Vec<Evidence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Processing,
    Unknown { since: u64, settled: bool },
}

/// Epoch, and milliseconds of its clock.
pub type Moment = (u64, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub contract: u64,
    pub settles_within: u64,
    pub started: Moment,
    pub state: StepState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepState {
    Open,
    Answered(Vec<u8>),
    NotApplied,
}

impl Open {
    pub fn read(here: &mut Cursor<'_>) -> Self {
        Self {
            scope: [here.text(), here.text(), here.text()],
            fingerprint: here.fingerprint(),
            generation: here.number(),
            phase: match here.number() {
                0 => Phase::Processing,
                1 => Phase::Unknown { since: here.number(), settled: here.bool() },
                other => panic!("a phase of kind {other}"),
            },
            since: here.number(),
            attempt: here.number(),
            token: here.number(),
            granted: (here.number(), here.number()),
            lease: here.number(),
            owner: here.text(),
            input: here.option(Cursor::bytes),
            steps: here.list(Step::read),
            points: here.list(|cursor| (cursor.text(), cursor.bytes())),
            stop_asked: here.bool(),
            evidence: here.list(Evidence::read),
        }
    }

    /// What the row digest is over.
    pub fn layout(&self, out: &mut Vec<u8>) {
        for text in &self.scope {
            put(out, text.as_bytes());
        }
        self.fingerprint.layout(out);
        put_u32(out, self.generation);
        match self.phase {
            Phase::Processing => out.push(0),
            Phase::Unknown { since, settled } => {
                out.push(1);
                put_u64(out, since);
                out.push(u8::from(settled));
            }
        }
        put_u64(out, self.since);
        put_u32(out, self.attempt);
        put_u64(out, self.token);
        put_moment(out, self.granted);
        put_u64(out, self.lease);
        put(out, self.owner.as_bytes());
        out.push(u8::from(self.input.is_some()));
        self.input.iter().for_each(|input| put(out, input));
        put_u32(out, self.steps.len() as u64);
        self.steps.iter().for_each(|step| step.layout(out));
        put_u32(out, self.points.len() as u64);
        for (name, value) in &self.points {
            put(out, name.as_bytes());
            put(out, value);
        }
        out.push(u8::from(self.stop_asked));
        put_u32(out, self.evidence.len() as u64);
        self.evidence.iter().for_each(|evidence| evidence.layout(out));
    }

    /// What is sent along with the calls of a step.
    pub fn operation_id(&self, step: &str) -> String {
        let mut out = b"onecho operation 1".to_vec();
        for text in &self.scope {
            put(&mut out, text.as_bytes());
        }
        put_u32(&mut out, self.generation);
        put(&mut out, step.as_bytes());
        sha(&[&out])[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Step {
    fn read(here: &mut Cursor<'_>) -> Self {
        Self {
            name: here.text(),
            contract: here.number(),
            settles_within: here.number(),
            started: (here.number(), here.number()),
            state: match here.number() {
                0 => StepState::Open,
                1 => StepState::Answered(here.bytes()),
                2 => StepState::NotApplied,
                other => panic!("a step of state {other}"),
            },
        }
    }

    fn layout(&self, out: &mut Vec<u8>) {
        put(out, self.name.as_bytes());
        out.push(u8::try_from(self.contract).unwrap());
        put_u64(out, self.settles_within);
        put_moment(out, self.started);
        match &self.state {
            StepState::Open => out.push(0),
            StepState::Answered(answer) => {
                out.push(1);
                put(out, answer);
            }
            StepState::NotApplied => out.push(2),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub source: String,
    pub text: String,
}

impl Evidence {
    pub fn read(cursor: &mut Cursor<'_>) -> Self {
        Self { source: cursor.text(), text: cursor.text() }
    }

    fn layout(&self, out: &mut Vec<u8>) {
        put(out, self.source.as_bytes());
        put(out, self.text.as_bytes());
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Declared(String),
    Answered(String, [u8; 32], u64),
    NotApplied(String),
    Reached(String, [u8; 32]),
    Because(Evidence),
    Brought(u64, u8, u64, u64),
}

impl Fact {
    pub fn read(cursor: &mut Cursor<'_>) -> Self {
        match cursor.number() {
            0 => Self::Declared(cursor.text()),
            1 => Self::Answered(cursor.text(), cursor.array(), cursor.number()),
            2 => Self::NotApplied(cursor.text()),
            3 => Self::Reached(cursor.text(), cursor.array()),
            4 => Self::Because(Evidence::read(cursor)),
            5 => Self::Brought(cursor.number(), cursor.byte(), cursor.number(), cursor.number()),
            other => panic!("a fact of kind {other}"),
        }
    }

    pub fn layout(&self, out: &mut Vec<u8>) {
        match self {
            Self::Declared(step) => {
                out.push(0);
                put(out, step.as_bytes());
            }
            Self::Answered(step, digest, len) => {
                out.push(1);
                put(out, step.as_bytes());
                out.extend(digest);
                out.extend(len.to_be_bytes());
            }
            Self::NotApplied(step) => {
                out.push(2);
                put(out, step.as_bytes());
            }
            Self::Reached(point, digest) => {
                out.push(3);
                put(out, point.as_bytes());
                out.extend(digest);
            }
            Self::Because(evidence) => {
                out.push(4);
                evidence.layout(out);
            }
            Self::Brought(at, ended_by, made, count) => {
                out.push(5);
                put_u64(out, *at);
                out.push(*ended_by);
                put_u64(out, *made);
                put_u32(out, *count);
            }
        }
    }
}

/// The key of the row of a scope.
pub fn open_key(scope: [u8; 16]) -> Vec<u8> {
    let digits: String = scope.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("o{digits}").into_bytes()
}

fn put_u32(out: &mut Vec<u8>, number: u64) {
    out.extend(u32::try_from(number).unwrap().to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_be_bytes());
}

fn put_moment(out: &mut Vec<u8>, (epoch, millis): Moment) {
    put_u64(out, epoch);
    put_u64(out, millis);
}
