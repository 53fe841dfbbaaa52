//! The transition table of one message. The only place where a message changes its stage.
//!
//! | from | event | guard | to |
//! | --- | --- | --- | --- |
//! | (none) | enqueued | not known under its key | waiting; queued behind another of its ordering key |
//! | queued | the one before it is over, or skipped | | waiting |
//! | waiting | taken | version, due | flying: to send, or to do |
//! | unsure | taken | version, due | flying: to ask |
//! | flying | ended: delivered | token | delivered |
//! | flying | ended: refused | token | dead |
//! | flying, to send or do | ended: not applied | token | waiting after a pause; dead if none is left |
//! | flying, to ask | ended: not applied | token; the attempt cannot arrive any more | the same |
//! | flying, to ask | ended: not applied | token; it still can | unsure, due when it cannot |
//! | flying, to do | ended: unknown, or lapsed | | as not applied: its end would be in the same commit |
//! | flying, to send | ended: unknown, or lapsed | `Idempotent` | as not applied |
//! | flying, to send | the same | `Queryable` | unsure after a pause |
//! | flying, to send | the same | `Neither` | unknown |
//! | flying, to ask | ended: unknown, or lapsed | | unsure after a pause, or unknown when asked too often |
//! | flying | ended: never called | token | as before it was taken |
//! | unsure, unknown, flying to ask | ended: delivered, refused, not applied | token in doubt | as flying |
//! | unsure, unknown, dead, flying to ask | settled: delivered | | delivered |
//! | the same | settled: send again | | waiting, with all attempts before it |
//! | the same | settled: discard | | discarded |
//!
//! Nothing else exists. *Version* is the entry that wrote the message last, so of two workers that saw the
//! same message one takes it; *token* is the entry that an attempt began with, so the end of an attempt that
//! is not the last any more changes nothing; *token in doubt* is that of the attempt which may have arrived.
//! *Lapsed* is an attempt whose lease is over on the monotonic clock, or that an earlier process began.

use bytes::Bytes;

use super::{ANSWER_BYTES_MAX, Errand, Flight, MessageId, Settle, Stage, Status, reason};
use crate::core::claim::{Contract, Uptime};
use crate::core::text::Text;
use crate::core::time::Timestamp;

/// What happens to one message.
#[derive(Clone)]
pub(crate) struct Move {
    pub id: MessageId,
    pub guard: Guard,
    pub event: Event,
}

/// What must be so of the message.
#[derive(Clone, Copy)]
pub(crate) enum Guard {
    /// It was written last by this entry.
    Version(u64),
    /// Its last attempt began with this entry.
    Token(u64),
    /// Its stage alone says whether the event may happen.
    Stage,
}

#[derive(Clone)]
pub(crate) enum Event {
    /// A worker takes it: to send it or ask for it, or to do it here.
    Taken {
        is_job: bool,
    },
    Ended(End),
    /// Its worker is gone, or has taken too long.
    Lapsed,
    Settled(Settle),
}

/// What came of an attempt.
#[derive(Clone)]
pub(crate) enum End {
    Delivered(Option<Bytes>),
    /// It did not arrive and will not; when to try again, in milliseconds, if somebody said so.
    NotApplied {
        retry_after: Option<u64>,
        why: Text,
    },
    /// It was refused for good.
    Refused(Text),
    Unknown(Text),
    /// The worker gave it back before it called anybody.
    Returned,
}

/// When something happens.
#[derive(Clone, Copy)]
pub(crate) struct When {
    pub now: Timestamp,
    pub uptime: Uptime,
    /// The number of the entry that tells it.
    pub seq: u64,
}

/// The longest pause that the other side may ask for, in milliseconds: a day.
const RETRY_AFTER_MAX: u64 = 24 * 3600 * 1000;
/// What an attempt whose worker did not come back leaves as its reason.
const LAPSED: &str = "no end of the attempt was recorded";

impl Status {
    /// The message after an event; none if that may not happen to it. Total and deterministic.
    pub fn after(&self, version: u64, guard: Guard, event: &Event, when: &When) -> Option<Self> {
        if let Guard::Version(known) = guard
            && known != version
        {
            return None;
        }
        match event {
            Event::Taken { is_job } => self.taken(*is_job, when),
            Event::Lapsed => self.lapsed(when),
            Event::Settled(how) => self.settled(*how, when),
            Event::Ended(end) => {
                let Guard::Token(token) = guard else { return None };
                match &self.stage {
                    Stage::Flying(flight) if flight.token == token => self.ended(*flight, end, when),
                    _ if self.doubted() == Some(token) => self.ended_late(end, when),
                    _ => None,
                }
            }
        }
    }

    /// The message as it leaves its store at `now`: an attempt under way is one whose end is not known.
    pub fn leaving(&self, now: Timestamp) -> Self {
        let when = When { now, uptime: Uptime::default(), seq: 0 };
        match &self.stage {
            Stage::Flying(flight) => self.doubtful(*flight, LAPSED, &when),
            _ => self.clone(),
        }
    }

    /// The message as it arrives in another store, whose numbers and clock know nothing of an attempt that is
    /// in doubt: until nothing of it can arrive any more is counted anew.
    pub fn arriving(&self, when: &When) -> Self {
        let anew = Flight { token: when.seq, errand: Errand::Send, started: when.uptime.now };
        let stage = match &self.stage {
            Stage::Unsure { due, .. } => Stage::Unsure { due: *due, flight: anew },
            Stage::Unknown { since, .. } => Stage::Unknown { since: *since, flight: anew },
            other => other.clone(),
        };
        Self { stage, ..self.clone() }
    }

    fn taken(&self, is_job: bool, when: &When) -> Option<Self> {
        let flight = |errand| Flight { token: when.seq, errand, started: when.uptime.now };
        let mut next = self.clone();
        match &self.stage {
            Stage::Waiting { due } if *due <= when.now && self.left > 0 => {
                next.attempts = self.attempts.saturating_add(1);
                next.left -= 1;
                next.asked = 0;
                next.stage = Stage::Flying(flight(if is_job { Errand::Job } else { Errand::Send }));
            }
            Stage::Unsure { due, flight: doubted } if *due <= when.now && !is_job => {
                next.asked = self.asked.saturating_add(1);
                let errand = Errand::Ask { token: doubted.token, started: doubted.started };
                next.stage = Stage::Flying(flight(errand));
            }
            _ => return None,
        }
        Some(next)
    }

    fn ended(&self, flight: Flight, end: &End, when: &When) -> Option<Self> {
        Some(match end {
            End::Delivered(answer) => self.delivered(answer.as_ref(), when),
            End::Refused(why) => self.dead(why, when),
            End::NotApplied { retry_after, why } => match flight.errand {
                Errand::Ask { token, started } => {
                    let within = self.terms.settles_within;
                    // The answer is as old as its question may be: of what arrived since, it says nothing.
                    if when.uptime.until(flight.started).since(started) >= within {
                        return Some(self.again(Some(retry_after.unwrap_or(0)), why, when));
                    }
                    let left = within.saturating_sub(when.uptime.since(started));
                    let due = Timestamp(when.now.0.saturating_add(left));
                    let flight = Flight { token, errand: Errand::Send, started };
                    Self { why: Some(why.clone()), stage: Stage::Unsure { due, flight }, ..self.clone() }
                }
                Errand::Send | Errand::Job => self.again(*retry_after, why, when),
            },
            End::Unknown(why) => self.doubtful(flight, why, when),
            End::Returned => self.returned(flight, when),
        })
    }

    /// The end of an attempt that was in doubt already: what its own call says is no guess.
    fn ended_late(&self, end: &End, when: &When) -> Option<Self> {
        match end {
            End::Delivered(answer) => Some(self.delivered(answer.as_ref(), when)),
            End::Refused(why) => Some(self.dead(why, when)),
            End::NotApplied { retry_after, why } => Some(self.again(*retry_after, why, when)),
            End::Unknown(_) | End::Returned => None,
        }
    }

    fn lapsed(&self, when: &When) -> Option<Self> {
        match &self.stage {
            Stage::Flying(flight) if self.is_lapsed(*flight, &when.uptime) => {
                Some(self.doubtful(*flight, LAPSED, when))
            }
            _ => None,
        }
    }

    fn settled(&self, how: Settle, when: &When) -> Option<Self> {
        if !self.is_unknown() && !matches!(self.stage, Stage::Dead { .. }) {
            return None;
        }
        Some(match how {
            Settle::Delivered => self.delivered(None, when),
            Settle::Discard => Self { stage: Stage::Discarded { at: when.now }, ..self.clone() },
            Settle::SendAgain => Self {
                left: self.terms.attempts_max,
                asked: 0,
                stage: Stage::Waiting { due: when.now },
                ..self.clone()
            },
        })
    }

    /// Whether nobody is at it any more: its process is gone, or its time is over.
    pub fn is_lapsed(&self, flight: Flight, uptime: &Uptime) -> bool {
        flight.started.epoch != uptime.now.epoch || uptime.since(flight.started) >= self.terms.lease
    }

    /// The attempt that may have arrived, while nobody has found out.
    fn doubted(&self) -> Option<u64> {
        match &self.stage {
            Stage::Unsure { flight, .. } | Stage::Unknown { flight, .. } => Some(flight.token),
            Stage::Flying(Flight { errand: Errand::Ask { token, .. }, .. }) => Some(*token),
            _ => None,
        }
    }

    fn delivered(&self, answer: Option<&Bytes>, when: &When) -> Self {
        let answer = answer.filter(|answer| answer.len() <= ANSWER_BYTES_MAX).cloned();
        Self { stage: Stage::Delivered { at: when.now, answer }, why: None, ..self.clone() }
    }

    fn dead(&self, why: &str, when: &When) -> Self {
        Self { stage: Stage::Dead { since: when.now }, why: Some(reason(why)), ..self.clone() }
    }

    /// To be sent again, if it may be.
    fn again(&self, retry_after: Option<u64>, why: &str, when: &When) -> Self {
        if self.left == 0 {
            let why = format!("{} attempts are used up; the last: {why}", self.attempts);
            return self.dead(&why, when);
        }
        let pause = retry_after.map_or_else(|| self.pause(self.attempts), |pause| pause.min(RETRY_AFTER_MAX));
        let due = Timestamp(when.now.0.saturating_add(pause));
        Self { why: Some(reason(why)), stage: Stage::Waiting { due }, ..self.clone() }
    }

    /// It may have arrived.
    fn doubtful(&self, flight: Flight, why: &str, when: &When) -> Self {
        let doubted = match flight.errand {
            Errand::Job => return self.again(None, why, when),
            Errand::Send if self.terms.contract == Contract::Idempotent => {
                return self.again(None, why, when);
            }
            Errand::Send => flight,
            Errand::Ask { token, started } => Flight { token, errand: Errand::Send, started },
        };
        let can_be_asked = self.terms.contract == Contract::Queryable && self.asked < self.terms.attempts_max;
        let stage = if can_be_asked {
            let pause = self.pause(self.asked.saturating_add(1));
            Stage::Unsure { due: Timestamp(when.now.0.saturating_add(pause)), flight: doubted }
        } else {
            Stage::Unknown { since: when.now, flight: doubted }
        };
        Self { why: Some(reason(why)), stage, ..self.clone() }
    }

    /// As if nobody had taken it.
    fn returned(&self, flight: Flight, when: &When) -> Self {
        let mut next = self.clone();
        match flight.errand {
            Errand::Send | Errand::Job => {
                next.attempts = self.attempts.saturating_sub(1);
                next.left = self.left.saturating_add(1);
                next.stage = Stage::Waiting { due: when.now };
            }
            Errand::Ask { token, started } => {
                next.asked = self.asked.saturating_sub(1);
                let flight = Flight { token, errand: Errand::Send, started };
                next.stage = Stage::Unsure { due: when.now, flight };
            }
        }
        next
    }

    /// How long to wait after attempt `number`, in milliseconds: twice as long each time, up to the longest,
    /// of which the second half is spread so that messages which failed together do not come together again.
    /// Spread by what the message is, so that it is the same when this is decided again.
    fn pause(&self, number: u32) -> u64 {
        let (first, longest) = self.terms.backoff;
        let doublings = number.saturating_sub(1).min(63);
        let whole = first.saturating_mul(1 << doublings).min(longest);
        let half = whole / 2;
        let mut seed = [0; 8];
        seed.copy_from_slice(&self.operation[..8]);
        half + spread(u64::from_be_bytes(seed) ^ u64::from(number)) % (whole - half + 1)
    }
}

/// A number that looks like chance, the same for the same seed: the finalizer of `SplitMix64`.
fn spread(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
