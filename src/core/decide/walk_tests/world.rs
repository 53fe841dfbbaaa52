//! A small world: what the file says of a few keys, who believes to hold what, and what has really happened.
//! Owns what may happen next and what must hold at every step, in words of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::*;
use crate::core::act::{Closing, Deed, Finding, Moves, Start};
use crate::core::claim::{Contract, Moment, NewStep, Point, StepState};
use crate::core::fact::Evidence;
use crate::core::fingerprint::Compare;
use crate::core::name::{Key, Operation, ScopeMode, Tenant};
use crate::core::outcome::Outcome;
use crate::core::policy::{Takeover, Windows};
use crate::core::record::ClassId;
use crate::core::text::Text;

const SETTLES: u64 = 1_000;

/// Which world is walked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub owners: usize,
    pub keys: usize,
    pub contract: Contract,
    pub takeover: Takeover,
    pub attempts_max: u32,
    /// Whether the tenant may be handed over.
    pub hands_over: bool,
    /// Whether people and workers find out about one step, and not only about all of a command.
    pub verdicts: bool,
}

/// One state of a world: what the file says, who holds what, and what has really happened.
#[derive(Clone)]
pub(super) struct World {
    pub seq: u64,
    epoch: u64,
    pub keys: Vec<Scoped>,
    /// The claim that each owner believes to hold: a key and a token.
    owners: Vec<Option<(usize, u64)>>,
    /// Who decides about the tenant, once it was handed over.
    unit: Option<Row>,
}

#[derive(Clone, Default)]
pub(super) struct Scoped {
    pub record: Option<Record>,
    pub row: Option<Row>,
    /// The last claim's lease is not over.
    pub is_live: bool,
    /// No request can arrive any more.
    is_settled: bool,
    /// What really happened: sets of effects that were committed as an outcome.
    outcomes: u32,
    /// Calls that may have been made outside and of which nobody knows the end.
    calls_out: u32,
    /// Points that were committed.
    points: u32,
    /// The newest entry about it.
    pub seq: u64,
    pub last: Option<Transition>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Execute {
        key: usize,
    },
    Begin {
        owner: usize,
        key: usize,
    },
    Declare {
        owner: usize,
    },
    Answer {
        owner: usize,
    },
    NotApplied {
        owner: usize,
    },
    /// In one commit: the call did not apply, and is made again.
    Again {
        owner: usize,
    },
    Transact {
        owner: usize,
    },
    Finish {
        owner: usize,
    },
    Abort {
        owner: usize,
    },
    Unsure {
        owner: usize,
    },
    LeaseOver {
        key: usize,
    },
    Settled {
        key: usize,
    },
    Crash,
    HandOver,
    Lapse {
        key: usize,
    },
    TakeOver {
        owner: usize,
        key: usize,
    },
    Cancel {
        key: usize,
    },
    Judge {
        key: usize,
        applied: Option<bool>,
    },
    Resolve {
        key: usize,
        finished: bool,
    },
    /// A decision on a state that is over.
    ResolveLate {
        key: usize,
    },
}

fn asked(key: usize) -> Asked {
    let scope = Scope {
        tenant: Tenant::new("t"),
        operation: Operation::new("o"),
        key: Key::parse(&format!("k{key}")).unwrap(),
    };
    let mut parts = Parts::new();
    parts.bytes("body", b"x");
    let fingerprint = Fingerprint::of(&parts, Compare::Exact).unwrap();
    let digest = ScopeDigest::of(&scope, ScopeMode::PerOperation);
    let imprint = Imprint::of(digest, &scope, &fingerprint);
    Asked { scope, digest, parts, fingerprint, imprint, is_protected: true }
}

const STEP: Text = Text::constant("charge");

impl World {
    pub fn new(rules: Rules) -> Self {
        let keys = vec![Scoped::default(); rules.keys];
        Self { seq: 0, epoch: 1, keys, owners: vec![None; rules.owners], unit: None }
    }

    /// Everything that can happen next.
    pub fn events(&self, rules: Rules) -> Vec<Event> {
        let mut events = vec![Event::Crash];
        if rules.hands_over && self.unit.is_none() {
            events.push(Event::HandOver);
        }
        for key in 0..rules.keys {
            events.extend([
                Event::Execute { key },
                Event::LeaseOver { key },
                Event::Settled { key },
                Event::Lapse { key },
                Event::Resolve { key, finished: true },
                Event::Resolve { key, finished: false },
            ]);
            if rules.verdicts {
                events.extend([Event::Cancel { key }, Event::ResolveLate { key }]);
                events.extend([None, Some(true), Some(false)].map(|applied| Event::Judge { key, applied }));
            }
            for owner in 0..rules.owners {
                events.extend([Event::Begin { owner, key }, Event::TakeOver { owner, key }]);
            }
        }
        for owner in 0..rules.owners {
            if self.owners[owner].is_some() {
                events.extend([
                    Event::Declare { owner },
                    Event::Answer { owner },
                    Event::NotApplied { owner },
                    Event::Again { owner },
                    Event::Transact { owner },
                    Event::Finish { owner },
                    Event::Abort { owner },
                    Event::Unsure { owner },
                ]);
            }
        }
        events
    }

    /// What the world is after an event; `None` where it is of no interest here.
    pub fn after(&self, event: Event, rules: Rules) -> Option<Self> {
        let mut next = self.clone();
        match event {
            Event::Crash => {
                next.epoch += 1;
                // Leases are counted anew; what an owner had in memory is gone, but its words may still be
                // on their way.
                for scoped in &mut next.keys {
                    scoped.is_live = scoped.row.is_some();
                    scoped.is_settled = false;
                }
            }
            Event::HandOver => next.hand_over(rules),
            Event::LeaseOver { key } => next.keys[key].is_live = false,
            Event::Settled { key } => next.keys[key].is_settled = !self.keys[key].is_live,
            _ => return next.acted(event, rules),
        }
        Some(next)
    }

    /// The tenant is another store's from now on: one row says so, and no other changes.
    fn hand_over(&mut self, rules: Rules) {
        let asked = Asked { is_protected: false, ..asked(0) };
        let act = Act::HandOver { to: Text::constant("south") };
        let told = Arc::new(told_of(&asked, Event::HandOver, &act));
        let Changes { entry, mut rows } = self.decided(0, &asked, &act, &told, rules).changes;
        assert!(entry.is_some_and(|entry| entry.transition == Transition::HandedOver));
        let (key, row) = rows.pop().unwrap();
        assert!(rows.is_empty() && key == RowKey::unit(&asked.scope.tenant));
        self.seq += 1;
        self.unit = row;
    }

    fn acted(mut self, event: Event, rules: Rules) -> Option<Self> {
        let (key, act) = self.act_of(event, rules)?;
        let before = self.keys[key].clone();
        let asked = asked(key);
        let told = Arc::new(told_of(&asked, event, &act));
        let decision = self.decided(key, &asked, &act, &told, rules);
        let (answer, Changes { entry, rows }) = (decision.answer, decision.changes);
        self.check(&before, event, &act, &answer, entry.as_ref(), rules);
        let Some(entry) = entry else {
            // It changed nothing but what a caller knows.
            return None;
        };
        self.seq += 1;
        let scoped = &mut self.keys[key];
        for (row_key, row) in rows {
            assert_eq!(row_key, RowKey::open(asked.digest));
            scoped.row = row;
        }
        if let Some(open) = scoped.row.as_ref().and_then(Row::open) {
            if open.attempt > rules.attempts_max {
                return None;
            }
            if entry.transition.is_grant() {
                scoped.is_live = true;
                let (Event::Begin { owner, .. } | Event::TakeOver { owner, .. }) = event else {
                    panic!("{event:?} granted a claim")
                };
                self.owners[owner] = Some((key, open.token));
            }
        }
        let scoped = &mut self.keys[key];
        (scoped.seq, scoped.last) = (self.seq, Some(entry.transition));
        scoped.happened(event, &entry);
        // 7: what may have been called is known to the file as open.
        if let Some(open) = scoped.row.as_ref().and_then(Row::open)
            && scoped.calls_out > 0
        {
            let is_open = open.step(&STEP).is_some_and(|step| step.state == StepState::Open);
            assert!(is_open, "{event:?} left a call that nobody knows of");
        }
        if entry.transition.is_outcome() {
            let position = Position { class: ClassId(1), seq: self.seq };
            let windows = Windows { body: 1_000, key: 1_000, tombstone: u64::MAX };
            assert!(before.record.is_none(), "a second outcome: {event:?}");
            scoped.record = Some(Record { position, windows, entry });
        }
        Some(self)
    }

    /// The act that an event is, and the key it is about.
    fn act_of(&self, event: Event, rules: Rules) -> Option<(usize, Act)> {
        let declared = || NewStep { name: STEP, contract: rules.contract, settles_within: SETTLES };
        let claimed = |owner: usize, moves: Moves, deed: Deed| {
            let (key, token) = self.owners[owner]?;
            Some((key, Act::Claimed { token, moves, deed }))
        };
        let closing =
            |state| Moves { closed: vec![Closing { step: STEP, state, evidence: None }], ..Moves::default() };
        let advance = || Deed::Advance { point: None };
        let found = |key: usize, version: u64, finding: Finding| {
            let token = self.keys[key].row.as_ref().and_then(Row::open).map_or(0, |open| open.token);
            (key, Act::Found { version, token, finding, evidence: Evidence::new("people", "looked") })
        };
        let version = |key: usize| self.keys[key].row.as_ref().map_or(0, |row| row.version);
        Some(match event {
            Event::Execute { key } => (key, Act::Execute),
            Event::Begin { key, .. } => (key, Act::Begin(Start { lease: 1, ..Start::default() })),
            Event::Declare { owner } => {
                claimed(owner, Moves { declared: vec![declared()], ..Moves::default() }, advance())?
            }
            Event::Answer { owner } => {
                claimed(owner, closing(StepState::Answered(Bytes::from_static(b"1"))), advance())?
            }
            Event::NotApplied { owner } => claimed(owner, closing(StepState::NotApplied), advance())?,
            Event::Again { owner } => {
                let moves = Moves { declared: vec![declared()], ..closing(StepState::NotApplied) };
                claimed(owner, moves, advance())?
            }
            Event::Transact { owner } => {
                let point = Some(Point { name: Text::constant("p"), value: Bytes::new() });
                claimed(owner, Moves::default(), Deed::Advance { point })?
            }
            Event::Finish { owner } => claimed(owner, Moves::default(), Deed::Finish)?,
            Event::Abort { owner } => claimed(owner, Moves::default(), Deed::Abort)?,
            Event::Unsure { owner } => claimed(owner, Moves::default(), Deed::Unsure)?,
            Event::Lapse { key } => (key, Act::Lapse),
            Event::TakeOver { key, .. } => {
                let token = self.keys[key].row.as_ref().and_then(Row::open).map_or(0, |open| open.token);
                (key, Act::TakeOver { token, start: Start { lease: 1, ..Start::default() } })
            }
            Event::Cancel { key } => (key, Act::Cancel),
            Event::Judge { key, applied } => {
                let state = applied.map(|applied| match applied {
                    true => StepState::Answered(Bytes::from_static(b"1")),
                    false => StepState::NotApplied,
                });
                found(key, version(key), Finding::Step { name: STEP, state })
            }
            Event::Resolve { key, finished: true } => found(key, version(key), Finding::Finished),
            Event::Resolve { key, finished: false } => found(key, version(key), Finding::NotApplied),
            Event::ResolveLate { key } => found(key, version(key).wrapping_sub(1), Finding::Finished),
            Event::Crash | Event::HandOver | Event::LeaseOver { .. } | Event::Settled { .. } => return None,
        })
    }

    fn decided(&self, key: usize, asked: &Asked, act: &Act, told: &Arc<Told>, rules: Rules) -> Decision {
        let scoped = &self.keys[key];
        let started = scoped.row.as_ref().and_then(Row::open).and_then(|open| open.step(&STEP));
        let began = started.map_or(0, |step| step.started.monotonic);
        let monotonic = if scoped.is_settled { began + SETTLES } else { began };
        let lease_left = Duration::from_millis(u64::from(scoped.is_live));
        let open = scoped.row.as_ref().and_then(|row| Some(OpenView { open: row.open()?, row, lease_left }));
        let view = View {
            record: scoped.record.as_ref(),
            open,
            rows: &UnitRow(self.unit.as_ref()),
            position: Position { class: ClassId(1), seq: self.seq + 1 },
            clock_settled: None,
            uptime: Uptime { now: Moment { epoch: self.epoch, monotonic }, opened: began },
            has_room: true,
            units: if self.unit.is_some() { Units::Listed { owns_rest: true } } else { Units::AllOurs },
        };
        let policy = Policy::new().takeover(rules.takeover);
        let command = Command::Act { act, told, staged: &Staged::default() };
        decide(&view, asked, &command, Timestamp(1), &policy)
    }

    /// What must hold at every step, whatever it is.
    fn check(
        &self,
        before: &Scoped,
        event: Event,
        act: &Act,
        answer: &Answer,
        entry: Option<&Entry>,
        rules: Rules,
    ) {
        let open = before.row.as_ref().and_then(Row::open);
        let changes = entry.filter(|entry| entry.transition != Transition::Differed);
        // A tenant that was handed over changes no more, and nobody is told to run.
        if self.unit.is_some() {
            assert!(changes.is_none(), "{event:?} changed what was handed over");
            let is_told = matches!(answer, Answer::Reply(Reply::Refused(_)) | Answer::FenceLost)
                || matches!((answer, act), (Answer::DoneBefore, Act::Claimed { .. }));
            assert!(is_told, "{event:?} was not refused");
        }
        // 6: a stale token changes nothing.
        if let Act::Claimed { token, .. } = act {
            let holds = open.is_some_and(|open| open.token == *token && open.phase == Phase::Processing);
            assert!(
                holds || changes.is_none(),
                "{event:?} of a stale token: {:?}",
                entry.map(|e| e.transition)
            );
        }
        // 3: nothing changes a finished scope, and nothing opens it again.
        assert!(before.record.is_none() || changes.is_none(), "{event:?} changed a finished scope");
        // 7: a call that may have been made is not made again unless that changes nothing.
        let makes_call =
            matches!(event, Event::Declare { .. } | Event::Again { .. }) && matches!(answer, Answer::Open(_));
        if makes_call && rules.contract != Contract::Idempotent {
            let is_same_owner =
                matches!(act, Act::Claimed { .. }) && before.calls_out > 0 && before.is_own(act);
            assert!(before.calls_out == 0 || is_same_owner, "{event:?} makes a call again");
        }
        // Not applied counts only when nothing can arrive.
        if let (Some(entry), Event::Resolve { finished: false, .. }) = (entry, event)
            && entry.transition == Transition::Released
        {
            assert!(before.calls_out == 0 || before.is_settled, "released with a request on its way");
            assert_eq!(before.points, 0, "released what was committed");
        }
        // An abort says that nothing happened.
        if entry.is_some_and(|entry| entry.transition == Transition::Aborted) {
            assert!(before.calls_out == 0 && before.points == 0, "aborted what has happened");
        }
        // Nobody takes over from a live owner, or what may have happened.
        if entry.is_some_and(|entry| entry.transition.is_grant()) {
            assert!(
                open.is_none() || !before.is_live || matches!(open.unwrap().phase, Phase::Unknown { .. })
            );
            assert!(
                before.calls_out == 0 || rules.contract == Contract::Idempotent,
                "{event:?} granted a claim on what may have happened"
            );
        }
        // 1: an outcome is the only one.
        if entry.is_some_and(|entry| entry.transition.is_outcome()) {
            assert_eq!(before.outcomes, 0, "{event:?} is a second outcome");
        }
    }

    /// The state without what only tells its history: numbers by their order alone.
    pub fn essence(&self) -> Vec<u8> {
        let mut numbers = BTreeSet::new();
        for scoped in &self.keys {
            numbers.extend(scoped.row.as_ref().and_then(Row::open).map(|open| open.token));
            numbers.extend(scoped.record.as_ref().map(|record| record.entry.token));
        }
        numbers.extend(self.owners.iter().flatten().map(|(_, token)| *token));
        let rank = |number: u64| numbers.iter().position(|known| *known == number).unwrap_or(99) as u8;
        let mut essence = vec![u8::from(self.unit.is_some())];
        for scoped in &self.keys {
            essence.extend([u8::from(scoped.is_live), u8::from(scoped.is_settled)]);
            essence.extend([scoped.outcomes as u8, scoped.calls_out.min(1) as u8, scoped.points as u8]);
            match &scoped.record {
                None => essence.push(255),
                Some(record) => {
                    let entry = &record.entry;
                    essence.extend([entry.transition as u8, entry.code as u8, rank(entry.token)]);
                }
            }
            match scoped.row.as_ref().and_then(Row::open) {
                None => essence.push(255),
                Some(open) => {
                    let phase = match open.phase {
                        Phase::Processing => 0,
                        Phase::Unknown { is_settled: false, .. } => 1,
                        Phase::Unknown { is_settled: true, .. } => 2,
                    };
                    let step = open.step(&STEP).map_or(0, |step| match step.state {
                        StepState::Open => 1,
                        StepState::Answered(_) => 2,
                        StepState::NotApplied => 3,
                    });
                    let is_old = open.granted.epoch != self.epoch;
                    essence.extend([phase, step, open.points.len() as u8, rank(open.token)]);
                    essence.extend([open.attempt as u8, u8::from(open.cancel_asked), u8::from(is_old)]);
                }
            }
        }
        for owner in &self.owners {
            essence.extend(owner.map_or([255, 255], |(key, token)| [key as u8, rank(token)]));
        }
        essence
    }
}

impl Scoped {
    /// What an entry really did.
    fn happened(&mut self, event: Event, entry: &Entry) {
        match entry.transition {
            Transition::Executed | Transition::Finished | Transition::Resolved => {
                self.outcomes += 1;
                self.calls_out = 0;
            }
            Transition::Cancelled => self.outcomes += 1,
            Transition::Advanced => match event {
                // Its owner makes the call now.
                Event::Declare { .. } | Event::Again { .. } => {
                    (self.calls_out, self.is_settled) = (1, false);
                }
                Event::Answer { .. } | Event::NotApplied { .. } => self.calls_out = 0,
                Event::Transact { .. } => self.points += 1,
                _ => panic!("{event:?} advanced"),
            },
            Transition::Judged if !matches!(event, Event::Judge { applied: None, .. }) => self.calls_out = 0,
            Transition::Released => self.calls_out = 0,
            _ => {}
        }
    }

    /// Whether the act is of the owner whose call is out.
    fn is_own(&self, act: &Act) -> bool {
        let open = self.row.as_ref().and_then(Row::open);
        matches!((act, open), (Act::Claimed { token, .. }, Some(open)) if open.token == *token)
    }
}

fn told_of(asked: &Asked, event: Event, act: &Act) -> Told {
    let actor = Arc::from("walk");
    let code = match event {
        Event::Finish { owner } => 1 + owner as u16,
        Event::Execute { .. } => 10,
        Event::Cancel { .. } => 11,
        _ => 12,
    };
    Told::new(&asked.scope, &asked.fingerprint, Outcome::succeeded(code), &actor)
        .saying(act.token(), act.facts())
}

/// The row of the tenant and no other.
struct UnitRow<'r>(Option<&'r Row>);

impl Rows for UnitRow<'_> {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.0.filter(|_| key.is_unit())
    }
}
