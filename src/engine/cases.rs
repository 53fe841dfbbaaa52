//! Commands that are open, for people and workers: list them, say what was found out, cancel. Owns the
//! translation of a case into acts; rules are the core's.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::claims::{Held, queue_full, verdict};
use super::clock::Deadline;
use super::counters::count;
use super::draft::{Draft, OpenRow, Verdict};
use super::staging::Staging;
use crate::core::act::{Act, Finding, Start};
use crate::core::case::Case;
use crate::core::claim::{Open, Phase, StepState};
use crate::core::decide::Asked;
use crate::core::effect::Staged;
use crate::core::error::{BoxError, Error, ErrorKind};
use crate::core::fact::{Evidence, check_actor};
use crate::core::fingerprint::{Compare, Fingerprint, Parts};
use crate::core::imprint::Imprint;
use crate::core::name::{Scope, ScopeDigest};
use crate::core::outcome::Outcome;
use crate::core::policy::Policy;
use crate::core::record::Record;
use crate::core::reply::{Refused, Reply, Status};
use crate::core::row::{Row, RowKey};
use crate::core::text::Text;
use crate::core::time::millis;
use crate::db::history::Place;

/// The code of a command that was cancelled before it ran.
pub const CANCELLED_CODE: u16 = 499;
/// Rows that are read at once.
const PAGE_ROWS: usize = 256;

/// A command that was taken over: who asked, what holds, what is known.
type Taken = (Arc<Asked>, Policy, Arc<Open>);

/// Scopes with their status, and where to go on.
type Outcomes = (Vec<(Scope, Status)>, Option<Place>);

/// A closure that says how a command ended.
pub(crate) type Conclude<'r> = &'r dyn Fn(&mut Staging<'_>) -> Result<Outcome, BoxError>;

impl Engine {
    /// What is known of a scope after a row or without one.
    pub(super) fn status_of(&self, scope: ScopeDigest, row: &Row) -> Option<Status> {
        let open = row.open()?;
        let policy = self.settings.policy(&open.scope.operation);
        let left = self.leases.left(scope, open, &self.uptime(self.clock.monotonic()));
        let is_processing = open.phase == Phase::Processing;
        if is_processing && (!left.is_zero() || open.may_be_taken_over(policy)) {
            let owner = open.owner.to_string();
            return Some(Status::Processing { since: open.since, lease_left: left, owner });
        }
        Some(Status::Unknown(Case::of(open, row.version)))
    }

    /// Open commands after a key, a page of them: those whose owner is gone among them.
    pub fn open_rows(&self, after: Option<&RowKey>) -> Result<Vec<(RowKey, Row)>, Error> {
        self.rows_after(RowKey::all_open(), after, PAGE_ROWS)
    }

    /// What is known of an open command by the key of its row; none if it is not open any more.
    pub fn open_status(&self, key: &RowKey) -> Result<Option<Status>, Error> {
        let Some(row) = self.row(key)? else { return Ok(None) };
        let scope = row.open().map(|open| ScopeDigest::of(&open.scope, self.settings.scope_mode));
        Ok(scope.and_then(|scope| self.status_of(scope, &row)))
    }

    /// Outcomes in the journal after a place, and the place after them.
    pub fn outcomes(&self, after: Option<Place>) -> Result<Outcomes, Error> {
        let (records, last) = self.read(|db| db.outcomes_after(after))?;
        let (now, settled) = (self.clock.now(), self.clock.settled());
        let known = records.into_iter().map(|record| {
            let status = record.status(now, settled);
            (record.entry.scope.clone(), status)
        });
        Ok((known.collect(), last))
    }

    /// All that the journal says of a scope, in the order in which it was written. Reads the whole journal.
    pub fn history(&self, scope: &Scope) -> Result<Vec<Record>, Error> {
        self.not_inside()?;
        let digest = ScopeDigest::of(scope, self.settings.scope_mode);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (records, last) = self.read(|db| db.history_after(digest, after))?;
            all.extend(records);
            if last.is_none() {
                break;
            }
            after = last;
        }
        // Classes lie one behind the other in the journal.
        all.sort_unstable_by_key(|record| record.position.seq);
        Ok(all)
    }

    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Whether the file is open, and neither stopped nor closed.
    pub fn is_open(&self) -> bool {
        self.file.is_open()
    }

    /// Commands whose owner is gone and which nobody has told so yet, or which may be gone on with.
    pub fn is_lapsed(&self, open: &Open) -> bool {
        let scope = ScopeDigest::of(&open.scope, self.settings.scope_mode);
        let uptime = self.uptime(self.clock.monotonic());
        open.phase == Phase::Processing && self.leases.left(scope, open, &uptime).is_zero()
    }

    /// How long it lasts until nothing of a step can arrive any more.
    pub fn settles_in(&self, open: &Open, step: &str) -> Duration {
        let uptime = self.uptime(self.clock.monotonic());
        let left = open.step(step).map_or(0, |step| step.settles_in(&uptime));
        Duration::from_millis(left)
    }

    /// Says what was found out of one step.
    pub fn judge(
        &self,
        case: &Case,
        step: &Text,
        state: Option<StepState>,
        evidence: &Evidence,
        actor: &str,
    ) -> Result<Status, Error> {
        let finding = Finding::Step { name: step.clone(), state };
        self.found(case, &finding, evidence, actor, None)
    }

    /// Ends a whole command: with an outcome, or as if it had never been begun.
    pub fn resolve(
        &self,
        case: &Case,
        conclude: Option<Conclude<'_>>,
        evidence: &Evidence,
        actor: &str,
    ) -> Result<Status, Error> {
        let finding = if conclude.is_some() { Finding::Finished } else { Finding::NotApplied };
        self.found(case, &finding, evidence, actor, conclude)
    }

    fn found(
        &self,
        case: &Case,
        finding: &Finding,
        evidence: &Evidence,
        actor: &str,
        conclude: Option<Conclude<'_>>,
    ) -> Result<Status, Error> {
        self.not_inside()?;
        check_actor(actor)?;
        self.check_authority(&case.scope)?;
        let actor: Arc<str> = actor.into();
        let asked = self.asked_of(&case.open.scope, &case.open.fingerprint);
        let policy = *self.settings.policy(&case.scope.operation);
        let version = self.told_of_lapse(case, &asked, &policy)?;
        let token = case.open.token;
        let settled = self.settle(&case.scope.tenant, Deadline::after(policy.wait), |staging| {
            let (finding, evidence) = (finding.clone(), evidence.clone());
            let act = Act::Found { version, token, finding, evidence };
            match conclude {
                None => Draft::note(&asked, &policy, act, Staged::default(), &actor),
                Some(conclude) => {
                    let outcome = self.call(conclude, staging).map_err(|error| self.aborted(error))?;
                    let staged = staging.take_staged();
                    Draft::new(&asked, &policy, act, outcome, staged, &actor)
                }
            }
            .map(|draft| (draft, ()))
        })?;
        match verdict(settled)? {
            Verdict::Done(record) => {
                self.index.publish(&asked.imprint, &record);
                Ok(Status::Finished(record.finished(self.clock.now())))
            }
            Verdict::Open(OpenRow { open, version }) => Ok(Status::Unknown(Case::of(&open, version))),
            Verdict::Gone => Ok(Status::Absent),
            Verdict::Stale => Err(stale()),
            other => Err(self.lost(&Held { asked: &asked, policy: &policy, token }, other)),
        }
    }

    /// The entry that a decision on the case is for: where nobody has told the file yet that its owner is
    /// gone, that is told first.
    fn told_of_lapse(&self, case: &Case, asked: &Arc<Asked>, policy: &Policy) -> Result<u64, Error> {
        if case.open.phase != Phase::Processing {
            return Ok(case.version);
        }
        match self.lapse(asked, policy)? {
            Some(OpenRow { open, version }) if is_all_the_same(&case.open, &open) => Ok(version),
            _ => Err(stale()),
        }
    }

    /// A free scope never runs; a command that is open is asked to stop; a finished one stays as it is.
    pub fn cancel(&self, scope: &Scope) -> Result<Status, Error> {
        self.not_inside()?;
        let mut parts = Parts::new();
        parts.bytes("body", b"");
        let fingerprint = Fingerprint::of(&parts, Compare::Exact)
            .map_err(|fault| Error::new(ErrorKind::Invalid, fault.to_string()))?;
        let asked = self.asked_of(scope, &fingerprint);
        self.check_authority(scope)?;
        let policy = *self.settings.policy(&scope.operation);
        let outcome = Outcome::failed(CANCELLED_CODE);
        let draft =
            Draft::new(&asked, &policy, Act::Cancel, outcome, Staged::default(), &self.settings.owner)?;
        match self.submit_one(draft, Deadline::after(policy.wait))? {
            Some(Verdict::Fault(error)) => Err(error),
            Some(Verdict::Reply { reply: Reply::Refused(Refused::NotAuthoritative { owner }), .. }) => {
                Err(Error::not_authoritative(&owner))
            }
            Some(_) => self.status(scope),
            None => Err(queue_full()),
        }
    }

    /// A scope as the engine carries it, where nobody asks anything of it.
    pub(super) fn asked_of(&self, scope: &Scope, fingerprint: &Fingerprint) -> Arc<Asked> {
        let digest = ScopeDigest::of(scope, self.settings.scope_mode);
        Arc::new(Asked {
            scope: scope.clone(),
            digest,
            parts: Parts::new(),
            imprint: Imprint::of(digest, scope, fingerprint),
            fingerprint: fingerprint.clone(),
            is_protected: true,
        })
    }

    /// What a worker needs to take over a command that it found in the file.
    pub fn begin_again(&self, open: &Open) -> Result<Option<Taken>, Error> {
        let asked = self.asked_of(&open.scope, &open.fingerprint);
        let policy = *self.settings.policy(&open.scope.operation);
        let start = Start { lease: millis(policy.lease), ..Start::default() };
        let act = Act::TakeOver { token: open.token, start };
        let draft = Draft::note(&asked, &policy, act, Staged::default(), &self.settings.owner)?;
        match self.submit_one(draft, Deadline::after(policy.wait))? {
            Some(Verdict::Open(OpenRow { open, .. })) => {
                count(&self.counters.claims);
                Ok(Some((asked, policy, open)))
            }
            Some(Verdict::Fault(error)) => Err(error),
            Some(_) => Ok(None),
            None => Err(queue_full()),
        }
    }

    /// Tells the file that the owner of an open command is gone; true if it then is in Unknown.
    pub fn lapse_open(&self, open: &Open) -> Result<bool, Error> {
        let asked = self.asked_of(&open.scope, &open.fingerprint);
        let policy = *self.settings.policy(&open.scope.operation);
        let row = self.lapse(&asked, &policy)?;
        Ok(row.is_some_and(|row| row.open.phase != Phase::Processing))
    }
}

/// Whether nothing but that its owner is gone has become known since `seen`: an owner whose lease is over may
/// still have moved on.
fn is_all_the_same(seen: &Open, now: &Open) -> bool {
    Open { phase: seen.phase, ..now.clone() } == *seen
}

fn stale() -> Error {
    Error::new(ErrorKind::Conflict, "what was known of the command is out of date: look at it again")
}
