//! What is asked of a scope (to run, to be claimed, to be moved on, to be judged) or of messages. Owns the
//! closed list of acts; must not know whether one is allowed (`decide`).

use bytes::Bytes;

use super::claim::{NewStep, Open, Point, StepState};
use super::fact::{Evidence, Fact};
use super::message::step::{End, Event, Move};
use super::outcome::Digest;
use super::row::{Content, RowKey};
use super::text::Text;
use super::time::Timestamp;

/// One act on one scope.
#[derive(Clone)]
pub(crate) enum Act {
    /// A closure has run: its outcome and effects are to be committed.
    Execute,
    /// Work is to begin that reaches outside.
    Begin(Start),
    /// A worker goes on with a command whose last claim, of this token, is over.
    TakeOver { token: u64, start: Start },
    /// The owner of a claim moves it on, or ends it.
    Claimed { token: u64, moves: Moves, deed: Deed },
    /// Its owner is gone, and nobody may go on.
    Lapse,
    /// It is not to run, or to stop.
    Cancel,
    /// Somebody found out what became of it; `version` is the entry that was known, `token` its claim.
    Found { version: u64, token: u64, finding: Finding, evidence: Evidence },
    /// Messages are made without a command; the nonce tells them from those of any other call.
    Enqueue { nonce: [u8; 16] },
    /// What workers and people do to messages, each by itself.
    Post { moves: Vec<Move>, evidence: Option<Evidence> },
    /// A job of this service has run: what it did and its end, or neither.
    Job(Move),
    /// Another store is to decide about the tenant.
    HandOver { to: Text },
    /// Rows of a tenant that is another store's are to go.
    /// `arrival` is the entry that began to read what another store exported.
    Clear { arrival: Option<u64>, keys: Vec<RowKey> },
    /// What another store exported under an epoch is to be read.
    Arrive { from: Text, epoch: u64 },
    /// Rows of it.
    Bring { arrival: u64, rows: Vec<(RowKey, Option<Timestamp>, Content)> },
    /// An outcome of it.
    BringOutcome { arrival: u64, generation: u32, facts: Vec<Fact> },
    /// A command that is open in it.
    BringOpen { arrival: u64, open: Box<Open> },
    /// All of it was read.
    Own { arrival: u64 },
}

/// What goes into a claim's own commit.
#[derive(Clone, Default)]
pub(crate) struct Start {
    pub steps: Vec<NewStep>,
    pub input: Option<Bytes>,
    /// How long the claim lasts without a heartbeat, in milliseconds.
    pub lease: u64,
}

/// What an owner has to say of its steps.
#[derive(Clone, Default)]
pub(crate) struct Moves {
    pub declared: Vec<NewStep>,
    pub closed: Vec<Closing>,
    /// Why.
    pub note: Option<Evidence>,
}

/// The end of a step.
#[derive(Clone)]
pub(crate) struct Closing {
    pub step: Text,
    pub state: StepState,
    pub evidence: Option<Evidence>,
}

/// What an owner does.
#[derive(Clone)]
pub(crate) enum Deed {
    /// It goes on; with a point, effects are committed under its name.
    Advance {
        point: Option<Point>,
    },
    Finish,
    /// Nothing happened.
    Abort,
    /// Something may have happened.
    Unsure,
}

/// What somebody found out.
#[derive(Clone)]
pub(crate) enum Finding {
    /// Of one step; `None` is not enough to tell.
    Step { name: Text, state: Option<StepState> },
    /// All of it is over, with this outcome.
    Finished,
    /// None of it happened.
    NotApplied,
}

impl Act {
    /// What the entry says of it beside the outcome.
    pub fn facts(&self) -> Vec<Fact> {
        match self {
            Self::Execute
            | Self::TakeOver { .. }
            | Self::Lapse
            | Self::Cancel
            | Self::Enqueue { .. }
            | Self::Clear { .. }
            | Self::Bring { .. }
            | Self::BringOpen { .. }
            | Self::Own { .. }
            | Self::Job(_) => Vec::new(),
            Self::BringOutcome { facts, .. } => facts.clone(),
            Self::Arrive { from, .. } => vec![Fact::Because(Evidence::new("exported by", from.as_str()))],
            Self::HandOver { to } => vec![Fact::Because(Evidence::new("handed over to", to.as_str()))],
            Self::Post { evidence, .. } => evidence.clone().map(Fact::Because).into_iter().collect(),
            Self::Begin(start) => start.steps.iter().map(declared).collect(),
            Self::Claimed { moves, deed, .. } => {
                let mut facts = Vec::new();
                for closing in &moves.closed {
                    facts.extend(closed(&closing.step, &closing.state));
                    facts.extend(closing.evidence.clone().map(Fact::Because));
                }
                facts.extend(moves.declared.iter().map(declared));
                if let Deed::Advance { point: Some(point) } = deed {
                    let digest = Digest::of(&point.value);
                    facts.push(Fact::Reached { point: point.name.clone(), digest });
                }
                facts.extend(moves.note.clone().map(Fact::Because));
                facts
            }
            Self::Found { finding, evidence, .. } => {
                let mut facts = Vec::new();
                if let Finding::Step { name, state: Some(state) } = finding {
                    facts.extend(closed(name, state));
                }
                facts.push(Fact::Because(evidence.clone()));
                facts
            }
        }
    }

    /// Whether it is about who decides, and not about what is decided.
    pub fn is_of_authority(&self) -> bool {
        matches!(
            self,
            Self::HandOver { .. }
                | Self::Clear { .. }
                | Self::Arrive { .. }
                | Self::Bring { .. }
                | Self::BringOutcome { .. }
                | Self::BringOpen { .. }
                | Self::Own { .. }
        )
    }

    /// The token of the claim that it speaks of; 0 without one.
    pub fn token(&self) -> u64 {
        match self {
            Self::Claimed { token, .. } | Self::Found { token, .. } => *token,
            _ => 0,
        }
    }

    /// How many bytes it adds to what is kept of the command.
    pub fn bytes(&self) -> usize {
        let of_state =
            |state: &StepState| if let StepState::Answered(bytes) = state { bytes.len() } else { 0 };
        match self {
            Self::Bring { rows, .. } => {
                rows.iter().map(|(key, _, content)| key.as_bytes().len() + content.bytes()).sum()
            }
            Self::BringOpen { open, .. } => open.bytes(),
            Self::Clear { keys, .. } => keys.iter().map(|key| key.as_bytes().len()).sum(),
            Self::Post { moves, .. } => moves.iter().map(of_move).sum(),
            Self::Begin(start) => start.input.as_ref().map_or(0, Bytes::len),
            Self::Claimed { moves, deed, .. } => {
                let point = match deed {
                    Deed::Advance { point: Some(point) } => point.value.len(),
                    Deed::Advance { point: None } | Deed::Finish | Deed::Abort | Deed::Unsure => 0,
                };
                point + moves.closed.iter().map(|closing| of_state(&closing.state)).sum::<usize>()
            }
            Self::Found { finding: Finding::Step { state: Some(state), .. }, .. } => of_state(state),
            _ => 0,
        }
    }
}

/// What a move adds to what is kept of a message: its answer or its reason.
fn of_move(one: &Move) -> usize {
    match &one.event {
        Event::Ended(End::Delivered(Some(answer))) => answer.len(),
        Event::Ended(End::NotApplied { why, .. } | End::Refused(why) | End::Unknown(why)) => why.len(),
        Event::Ended(End::Delivered(None) | End::Returned)
        | Event::Taken { .. }
        | Event::Lapsed
        | Event::Settled(_) => 0,
    }
}

fn declared(step: &NewStep) -> Fact {
    Fact::Declared { step: step.name.clone() }
}

fn closed(step: &Text, state: &StepState) -> Option<Fact> {
    let step = step.clone();
    match state {
        StepState::Open => None,
        StepState::Answered(answer) => {
            Some(Fact::Answered { step, digest: Digest::of(answer), len: answer.len() as u64 })
        }
        StepState::NotApplied => Some(Fact::NotApplied { step }),
    }
}
