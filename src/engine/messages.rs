//! Messages: made without a command, taken, ended, looked at. Owns the order draft, submit, tell; rules are
//! the core's, and who calls anybody is a worker's business.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::claims::queue_full;
use super::clock::Deadline;
use super::counters::{count, count_many};
use super::draft::{Draft, Verdict};
use super::execute::Settled;
use super::staging::{STAGED_BYTES_MAX, Staging};
use crate::core::act::Act;
use crate::core::claim::Uptime;
use crate::core::decide::Asked;
use crate::core::effect::Staged;
use crate::core::error::{BoxError, Error, ErrorKind};
use crate::core::fact::Evidence;
use crate::core::fingerprint::{Compare, Fingerprint, Parts};
use crate::core::imprint::Imprint;
use crate::core::message::step::{End, Event, Move};
use crate::core::message::{Letter, MESSAGES_MAX, MessageId, NewMessage, Post, Stage, Status};
use crate::core::name::{Key, Operation, Scope, ScopeDigest, Tenant};
use crate::core::record::Entry;
use crate::core::reply::{Refused, Reply};
use crate::core::row::{Row, RowKey};
use crate::core::text::Text;
use crate::core::time::Timestamp;

/// Under what the journal lists what was done to messages. Names that nobody else can have.
const MESSAGES: Operation = Operation(Text::constant("onecho:messages"));
const ALL: Key = Key(Text::constant("all"));
/// Whose the entries are that tell of messages of several tenants.
const STORE: Tenant = Tenant(Text::constant("onecho:store"));
/// How long a worker, or who makes messages, waits for room in the queue.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows of what is due that are read in one go.
const DUE_ROWS: usize = 64;

/// What came of a job.
pub(crate) enum JobEnd {
    Done,
    /// Somebody else has it, or has ended it.
    NotOurs,
    Failed(Error),
}

impl Engine {
    /// Makes messages in one commit; those that are known under their key are only named.
    pub fn enqueue(&self, tenant: &Tenant, messages: Vec<NewMessage>) -> Result<Vec<MessageId>, Error> {
        self.not_inside()?;
        messages.iter().try_for_each(NewMessage::check)?;
        if messages.len() > MESSAGES_MAX {
            let text = format!("{} messages in one call, more than {MESSAGES_MAX}", messages.len());
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        if messages.iter().map(NewMessage::bytes).sum::<usize>() > STAGED_BYTES_MAX {
            let text = format!("the messages of one call have more than {STAGED_BYTES_MAX} bytes");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let asked = self.post_asked(tenant)?;
        self.check_authority(&asked.scope)?;
        if !self.has_room() {
            return Err(Error::new(ErrorKind::Unavailable, "the disk is full: nothing was written"));
        }
        let many = messages.len() as u64;
        let messages = messages.into_iter().map(Arc::new).collect();
        let staged = Staged { messages, ..Staged::default() };
        let act = Act::Enqueue { nonce: super::random()? };
        match self.submit_post(&asked, act, staged, &self.settings.owner)? {
            Verdict::Enqueued(ids) => {
                count_many(&self.counters.messages_enqueued, many);
                Ok(ids)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Moves messages on; none of one that could not be, for somebody was faster.
    pub fn post(&self, moves: &[Move]) -> Result<Vec<Option<Status>>, Error> {
        if moves.is_empty() {
            return Ok(Vec::new());
        }
        let asked = self.post_asked(&STORE)?;
        let act = Act::Post { moves: moves.to_vec(), evidence: None };
        match self.submit_post(&asked, act, Staged::default(), &self.settings.owner)? {
            Verdict::Posted(moved) => {
                for (one, after) in moves.iter().zip(&moved) {
                    self.tally_move(one, after.as_ref());
                }
                Ok(moved)
            }
            other => Err(unexpected(other)),
        }
    }

    /// Ends one message as somebody says, with his evidence.
    pub fn settle_message(&self, one: Move, evidence: Evidence, actor: &str) -> Result<(), Error> {
        self.not_inside()?;
        let Some(status) = self.message(one.id)? else {
            return Err(Error::invalid(format!("there is no message {}", one.id)));
        };
        let (id, asked) = (one.id, self.post_asked(&status.tenant())?);
        self.check_authority(&asked.scope)?;
        let act = Act::Post { moves: vec![one], evidence: Some(evidence) };
        match self.submit_post(&asked, act, Staged::default(), &Arc::from(actor))? {
            Verdict::Posted(moved) if moved.iter().all(Option::is_some) => Ok(()),
            Verdict::Posted(_) => {
                let text = format!("message {id} is neither dead nor unknown now: nothing was changed");
                Err(Error::invalid(text))
            }
            other => Err(unexpected(other)),
        }
    }

    /// Runs a job and commits what it did together with its end.
    pub fn job(
        &self,
        end: &Move,
        tenant: &Tenant,
        run: &dyn Fn(&mut Staging<'_>) -> Result<(), BoxError>,
    ) -> Result<JobEnd, Error> {
        let policy = self.settings.default_policy;
        let asked = self.post_asked(tenant)?;
        // A failure of the closure is the job's, any other is the store's.
        let mut failed = None;
        let settled = self.settle(tenant, Deadline::after(PATIENCE), |staging| {
            if let Err(error) = self.call(run, staging) {
                failed = Some(Error::from_closure(error));
                return Err(Error::new(ErrorKind::Aborted, "the job failed"));
            }
            let (act, staged) = (Act::Job(end.clone()), staging.take_staged());
            Draft::note(&asked, &policy, act, staged, &self.settings.owner).map(|draft| (draft, ()))
        });
        match settled {
            Err(_) if failed.is_some() => {
                count(&self.counters.aborted);
                Ok(failed.map_or(JobEnd::NotOurs, JobEnd::Failed))
            }
            Err(error) => Err(error),
            Ok(Settled::Full) => Err(queue_full()),
            Ok(Settled::Verdict(verdict, ())) => Ok(match verdict {
                Verdict::Posted(moved) => {
                    self.tally_move(end, moved.first().and_then(Option::as_ref));
                    JobEnd::Done
                }
                // It is taken, or over, or its tenant another store's.
                Verdict::Stale | Verdict::Reply { reply: Reply::Refused(_), .. } => JobEnd::NotOurs,
                Verdict::Again { resource, .. } => {
                    count(&self.counters.conflicts);
                    let text = format!("rows kept changing under the job ({resource})");
                    JobEnd::Failed(Error::new(ErrorKind::Conflict, text))
                }
                Verdict::Reply { reply: Reply::Duplicate { held, .. }, .. } => {
                    count(&self.counters.duplicates);
                    let text = format!("what the job makes exists, or its name is taken ({held})");
                    JobEnd::Failed(Error::new(ErrorKind::Conflict, text))
                }
                other => JobEnd::Failed(unexpected(other)),
            }),
        }
    }

    /// A message as it is committed now.
    pub fn message(&self, id: MessageId) -> Result<Option<Status>, Error> {
        Ok(self.message_row(id)?.and_then(|row| row.status().cloned()))
    }

    /// The same with its version.
    pub fn message_row(&self, id: MessageId) -> Result<Option<Row>, Error> {
        self.row(&RowKey::message(id))
    }

    /// What a message sends; none of one that is over.
    pub fn letter(&self, id: MessageId) -> Result<Option<Letter>, Error> {
        let row = self.row(&RowKey::letter(id))?;
        Ok(row.and_then(|row| match row.post() {
            Some(Post::Letter(letter)) => Some(letter.clone()),
            _ => None,
        }))
    }

    /// All that the journal says of a message, oldest first, each with its number. Reads the whole journal.
    pub fn message_history(&self, id: MessageId) -> Result<Vec<(u64, Entry)>, Error> {
        self.not_inside()?;
        let row = RowKey::message(id);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (entries, last) = self.read(|db| db.row_history_after(&row, after))?;
            all.extend(entries);
            if last.is_none() {
                break;
            }
            after = last;
        }
        // Classes lie one behind the other in the journal.
        all.sort_unstable_by_key(|(seq, _)| *seq);
        Ok(all)
    }

    /// The newest event of a stream.
    pub fn newest_event(&self, stream: &RowKey) -> Result<Option<Timestamp>, Error> {
        Ok(self.row(stream)?.and_then(|row| row.event_time))
    }

    /// Up to `limit` messages that are due at a destination, that the caller can do something for, and that
    /// nobody else of this process is taking; each with its version. They are reserved for the caller, who
    /// gives them free with [`Engine::released`].
    pub fn due(
        &self,
        destination: &str,
        limit: usize,
        can_do: impl Fn(&Status) -> bool,
    ) -> Result<Vec<(MessageId, u64)>, Error> {
        let mut due = Vec::new();
        let scanned = self.scan_due(destination, limit, can_do, &mut due);
        if let Err(error) = scanned {
            self.released(&due);
            return Err(error);
        }
        Ok(due)
    }

    fn scan_due(
        &self,
        destination: &str,
        limit: usize,
        can_do: impl Fn(&Status) -> bool,
        due: &mut Vec<(MessageId, u64)>,
    ) -> Result<(), Error> {
        let now = self.clock.now();
        let (prefix, front) = (RowKey::all_due(destination), self.post.front(destination));
        let mut after = front.after.clone();
        let mut is_first = true;
        loop {
            let page = self.rows_after(prefix.as_bytes(), after.as_ref(), DUE_ROWS)?;
            if std::mem::take(&mut is_first) {
                self.post.found(destination, &front, page.first().map(|(key, _)| key));
            }
            if page.is_empty() {
                return Ok(());
            }
            for (key, _) in &page {
                let (Some(at), Some(id)) = (key.due_at(), key.message_id()) else { continue };
                if at > now || due.len() == limit {
                    return Ok(());
                }
                if !self.post.reserve(id) {
                    continue;
                }
                due.push((id, 0));
                match self.message_row(id)? {
                    Some(row) if row.status().is_some_and(&can_do) => {
                        due.pop();
                        due.push((id, row.version));
                    }
                    // Another program's, or somebody has just had it.
                    _ => self.post.release(due.pop().map(|(id, _)| id).into_iter()),
                }
            }
            after = page.last().map(|(key, _)| key.clone());
        }
    }

    /// When the first message of a destination is due.
    pub fn first_due(&self, destination: &str) -> Result<Option<Timestamp>, Error> {
        let (prefix, front) = (RowKey::all_due(destination), self.post.front(destination));
        let page = self.rows_after(prefix.as_bytes(), front.after.as_ref(), 1)?;
        Ok(page.first().and_then(|(key, _)| key.due_at()))
    }

    /// Gives free what was reserved.
    pub fn released(&self, due: &[(MessageId, u64)]) {
        self.post.release(due.iter().map(|(id, _)| *id));
    }

    /// Up to `limit` messages after `after` that somebody is at.
    pub fn flying(&self, after: Option<MessageId>, limit: usize) -> Result<Vec<MessageId>, Error> {
        let after = after.map(RowKey::flying);
        let page = self.rows_after(RowKey::all_flying(), after.as_ref(), limit)?;
        Ok(page.iter().filter_map(|(key, _)| key.message_id()).collect())
    }

    /// This process's time, and the time of day.
    pub fn moment(&self) -> (Timestamp, Duration, Uptime) {
        let (now, monotonic) = self.clock.both();
        (now, monotonic, self.uptime(monotonic))
    }

    pub fn post_office(&self) -> &super::post::PostOffice {
        &self.post
    }

    pub(super) fn submit_post(
        &self,
        asked: &Arc<Asked>,
        act: Act,
        staged: Staged,
        actor: &Arc<str>,
    ) -> Result<Verdict, Error> {
        let draft = Draft::note(asked, &self.settings.default_policy, act, staged, actor)?;
        self.submit_one(draft, Deadline::after(PATIENCE))?.ok_or_else(queue_full)
    }

    /// What the journal lists an act on messages under.
    pub(super) fn post_asked(&self, tenant: &Tenant) -> Result<Arc<Asked>, Error> {
        let scope = Scope { tenant: tenant.clone(), operation: MESSAGES, key: ALL };
        let mut parts = Parts::new();
        parts.bytes("messages", b"");
        let fingerprint =
            Fingerprint::of(&parts, Compare::Exact).map_err(|fault| Error::invalid(fault.to_string()))?;
        let digest = ScopeDigest::of(&scope, self.settings.scope_mode);
        let imprint = Imprint::of(digest, &scope, &fingerprint);
        Ok(Arc::new(Asked { scope, digest, parts, fingerprint, imprint, is_protected: false }))
    }

    /// Counts what became of a move.
    fn tally_move(&self, one: &Move, after: Option<&Status>) {
        let counters = &self.counters;
        match (&one.event, after) {
            (Event::Taken { .. }, Some(_)) => count(&counters.messages_attempted),
            (Event::Ended(End::Returned) | Event::Settled(_) | Event::Taken { .. }, _)
            | (Event::Lapsed, None) => {}
            // It came too late: somebody else has ended the message, or is at it.
            (Event::Ended(_), None) => count(&counters.messages_late),
            (Event::Ended(end), Some(after)) => {
                if matches!(end, End::Unknown(_)) {
                    count(&counters.messages_unknown);
                }
                match after.stage {
                    Stage::Delivered { .. } => count(&counters.messages_delivered),
                    Stage::Dead { .. } => count(&counters.messages_dead),
                    _ => {}
                }
            }
            (Event::Lapsed, Some(after)) => {
                count(&counters.messages_unknown);
                if after.is_dead() {
                    count(&counters.messages_dead);
                }
            }
        }
    }
}

/// Why messages were not written, of a verdict that is no answer to them.
fn unexpected(verdict: Verdict) -> Error {
    match verdict {
        Verdict::Fault(error) => error,
        Verdict::Reply { reply: Reply::Refused(Refused::NotAuthoritative { owner }), .. } => {
            Error::not_authoritative(&owner)
        }
        _ => Error::new(ErrorKind::Unavailable, "nothing was written; try again"),
    }
}
