//! Rows of each kind, as the golden bytes have them.

use super::*;

pub(super) fn row(content: Content) -> Row {
    Row { version: 300, made: Position { seq: 7, ..POSITION }, event_time: None, content }
}

pub(super) fn value_of(codec: Codec, bytes: &'static [u8]) -> Row {
    row(Content::Value { codec, bytes: Bytes::from_static(bytes) })
}

pub(super) fn moment(monotonic: u64) -> Moment {
    Moment { epoch: 7, monotonic }
}

pub(super) fn step(name: &str, contract: Contract, state: StepState) -> StepRecord {
    StepRecord { name: name.into(), contract, settles_within: 600_000, started: moment(251), state }
}

/// Nothing that may be left out.
pub(super) fn begun() -> Open {
    Open {
        scope: scope(),
        fingerprint: Fingerprint::of(&parts(), Compare::Canonical).unwrap(),
        generation: 1,
        phase: Phase::Processing,
        since: Timestamp(1_796_040_000_000),
        attempt: 1,
        token: 300,
        granted: moment(250),
        lease: 30_000,
        owner: "edge-7".into(),
        input: None,
        steps: Vec::new(),
        points: Vec::new(),
        cancel_asked: false,
        evidence: Vec::new(),
    }
}

/// Everything that an open command can hold, its steps in each state.
pub(super) fn unknown(is_settled: bool) -> Open {
    let charge = if is_settled { StepState::NotApplied } else { StepState::Open };
    Open {
        generation: 2,
        phase: Phase::Unknown { since: Timestamp(1_796_040_060_000), is_settled },
        attempt: 3,
        token: 299,
        input: Some(Bytes::from_static(b"{\"cents\":1200}")),
        steps: vec![
            step("charge", Contract::Queryable, charge),
            step("reserve", Contract::Idempotent, StepState::Answered(Bytes::from_static(b"r-9"))),
            step("mail", Contract::Neither, StepState::NotApplied),
        ],
        points: vec![Point { name: "reserved".into(), value: Bytes::from_static(b"r-9") }],
        cancel_asked: true,
        evidence: vec![Evidence::new("dashboard", "captured"), Evidence::new("", "")],
        ..begun()
    }
}

pub(super) fn open_row(open: Open) -> Row {
    row(Content::Open(Arc::new(open)))
}

pub(super) const MESSAGE: MessageId = MessageId { seq: 300, ordinal: 251 };

/// Everything that a message can have.
pub(super) fn message() -> Status {
    let errand = Errand::Ask { token: 301, started: moment(252) };
    Status {
        tenant: "shop".into(),
        destination: "payments".into(),
        order: Some("customer-7".into()),
        operation: [0xAD; 16],
        terms: Terms {
            contract: Contract::Queryable,
            on_dead: OnDead::Skip,
            lease: 60_000,
            settles_within: 900_000,
            backoff: (1_000, 3_600_000),
            attempts_max: 64,
        },
        not_before: Timestamp(1_796_040_000_000),
        since: Timestamp(1_796_040_000_001),
        attempts: 3,
        left: 61,
        asked: 2,
        stage: Stage::Flying(Flight { token: 302, errand, started: moment(253) }),
        why: Some("no answer".into()),
        next: Some(MessageId { seq: 303, ordinal: 0 }),
    }
}

pub(super) fn bare_message() -> Status {
    Status { order: None, stage: Stage::Queued, why: None, next: None, ..message() }
}

pub(super) fn letter() -> Letter {
    Letter {
        headers: vec![("trace".into(), "4bf92f35".into())],
        payload: Bytes::from_static(b"{\"cents\":1200}"),
        event: Some(EventStamp {
            inbox: "forge/mirror".into(),
            id: "evt_17".into(),
            time: Some(Timestamp(251)),
            stream: Some("onecho".into()),
        }),
    }
}

pub(super) fn ordering_key() -> Queue {
    Queue { head: MESSAGE, tail: MESSAGE, count: 1, blocked: Some(Timestamp(1_000)) }
}
