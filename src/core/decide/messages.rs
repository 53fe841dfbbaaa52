//! The arms of messages: how they are made, with a command or without, and how each moves on. What a message
//! itself becomes is `message::step`'s; here are the rows that follow it: its letter, the lists of what is
//! due and of what is under way, and its ordering key.
//!
//! A message has a row in the list of what is due while it waits or is to be asked about, one in the list of
//! what is under way while somebody is at it, and else none. An ordering key is a row that names its first
//! and its last message, of which each names the next; only the first one is ever due.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::authority::owner_elsewhere;
use super::{Answer, Applying, Decider, Decision, Rows, Units, answer};
use crate::core::act::Act;
use crate::core::audit::Layout;
use crate::core::effect::Staged;
use crate::core::message::step::{Event, Move, When};
use crate::core::message::{MessageId, NewMessage, Post, Queue, Stage, Status};
use crate::core::name::{Scope, Tenant};
use crate::core::record::{Position, Told, Transition};
use crate::core::row::{Content, Row, RowKey};
use crate::core::time::Timestamp;

/// What makes messages. Their operation ids are digests over it, so that they are the same wherever the same
/// thing is done again.
#[derive(Clone, Copy)]
pub(super) enum Origin<'o> {
    /// A command: its outcome, or the recovery point of this name.
    Command { scope: &'o Scope, generation: u32, point: &'o str },
    /// A job, by its operation id.
    Job(&'o [u8; 16]),
    /// Nothing but the call that makes them.
    Alone(&'o [u8; 16]),
}

impl Decider<'_> {
    /// All effects of a closure and the messages it makes, if every precondition holds.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the command's answer, made once and moved once"
    )]
    pub(super) fn applied<'s>(
        &self,
        staged: &'s Staged,
        generation: u32,
        point: &str,
    ) -> Result<Applying<'s>, Answer> {
        let mut applying = Applying::start(self.view, staged)?;
        if staged.makes_rows() {
            let origin = Origin::Command { scope: &self.asked.scope, generation, point };
            let mut posting = self.posting();
            posting.enqueue_all(&self.asked.scope.tenant, staged, origin);
            posting.finish(&mut applying);
        }
        Ok(applying)
    }

    /// Makes messages without a command.
    pub(super) fn enqueue(&self, nonce: &[u8; 16], told: &Arc<Told>, staged: &Staged) -> Decision {
        let mut posting = self.posting();
        let ids = posting.enqueue_all(&self.asked.scope.tenant, staged, Origin::Alone(nonce));
        if posting.changed.is_empty() {
            return answer(Answer::Enqueued(ids));
        }
        let mut applying = Applying::nothing();
        posting.finish(&mut applying);
        self.written(Transition::Enqueued, told, 1, applying, Answer::Enqueued(ids))
    }

    /// Moves messages on, each by itself: what may not happen to one of them harms no other.
    pub(super) fn post(&self, moves: &[Move], told: &Arc<Told>) -> Decision {
        let mut posting = self.posting();
        let moved: Vec<_> = moves.iter().map(|one| posting.step(one)).collect();
        let mut applying = Applying::nothing();
        posting.finish(&mut applying);
        if applying.rows.is_empty() {
            return answer(Answer::Posted(moved));
        }
        let transition = match moves.first().map(|first| &first.event) {
            Some(Event::Taken { .. }) => Transition::Attempted,
            Some(Event::Settled(_)) => Transition::Settled,
            Some(Event::Ended(_) | Event::Lapsed) | None => Transition::Ended,
        };
        self.written(transition, told, 1, applying, Answer::Posted(moved))
    }

    /// Ends a job together with what it did, or neither.
    pub(super) fn job(&self, end: &Move, told: &Arc<Told>, staged: &Staged) -> Decision {
        let mut applying = match Applying::start(self.view, staged) {
            Ok(applying) => applying,
            Err(stopped) => return answer(stopped),
        };
        let mut posting = self.posting();
        let Some(status) = posting.step(end) else { return answer(Answer::Stale) };
        posting.enqueue_all(&status.tenant(), staged, Origin::Job(&status.operation));
        posting.finish(&mut applying);
        self.written(Transition::Handled, told, 1, applying, Answer::Posted(vec![Some(status)]))
    }

    fn posting(&self) -> Posting<'_> {
        let position = self.view.position;
        Posting {
            before: self.view.rows,
            units: self.view.units,
            position,
            when: When { now: self.now, uptime: self.view.uptime, seq: position.seq },
            made: 0,
            overtaken: 0,
            changed: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

/// The rows that a draft's messages need, as far as they can be told from those that `rows` has. To be asked
/// again with the answer loaded, until it names none that was not asked for.
pub(crate) fn footprint(
    act: &Act,
    staged: &Staged,
    tenant: &Tenant,
    rows: &dyn Rows,
    units: Units,
) -> Vec<RowKey> {
    let mut keys: Vec<RowKey> = staged.events.iter().map(|(stream, _)| stream.clone()).collect();
    let queue = |keys: &mut Vec<RowKey>, key: RowKey| {
        if let Some(Post::Queue(queue)) = rows.row(&key).and_then(Row::post) {
            keys.push(RowKey::message(queue.tail));
        }
        keys.push(key);
    };
    let tenant = tenant.as_str();
    for message in &staged.messages {
        keys.extend(message.keyed.as_ref().map(|key| RowKey::known(tenant, &message.destination, key)));
        if let Some(order) = &message.order {
            queue(&mut keys, RowKey::queue(tenant, &message.destination, order));
        }
    }
    match act {
        Act::Clear { keys: cleared, .. } => keys.extend(cleared.iter().cloned()),
        Act::Bring { rows, .. } => keys.extend(rows.iter().map(|(key, ..)| key.clone())),
        _ => {}
    }
    let moves = match act {
        Act::Post { moves, .. } => moves.as_slice(),
        Act::Job(end) => std::slice::from_ref(end),
        _ => &[],
    };
    for one in moves {
        let key = RowKey::message(one.id);
        if let Some(status) = rows.row(&key).and_then(Row::status) {
            keys.extend(status.next.map(RowKey::message));
            keys.extend((units != Units::AllOurs).then(|| RowKey::unit(&status.tenant())));
            if let Some(key) = status.queue_key() {
                queue(&mut keys, key);
            }
        }
        keys.push(key);
    }
    keys
}

/// Rows of messages as one entry leaves them.
struct Posting<'v> {
    before: &'v dyn Rows,
    units: Units,
    position: Position,
    when: When,
    /// Messages that were made.
    made: u32,
    /// Events that were not the newest of their stream.
    overtaken: u32,
    /// In the order in which they were first changed.
    changed: Vec<Changed>,
    places: BTreeMap<RowKey, usize>,
}

struct Changed {
    key: RowKey,
    row: Option<Row>,
    /// It was not there before.
    is_new: bool,
}

impl Posting<'_> {
    fn enqueue_all(&mut self, tenant: &Tenant, staged: &Staged, origin: Origin<'_>) -> Vec<MessageId> {
        for (stream, time) in &staged.events {
            self.see(stream, *time);
        }
        staged.messages.iter().map(|message| self.enqueue(tenant, message, origin)).collect()
    }

    /// (none) -> waiting or queued. One that is known under its key is not added again.
    fn enqueue(&mut self, tenant: &Tenant, message: &NewMessage, origin: Origin<'_>) -> MessageId {
        let known = message.keyed.as_ref();
        let known = known.map(|key| RowKey::known(tenant.as_str(), &message.destination, key));
        if let Some(Post::Known(id)) = known.as_ref().and_then(|key| self.row(key)).and_then(Row::post) {
            return *id;
        }
        let id = MessageId { seq: self.position.seq, ordinal: self.made };
        let mut status = Status {
            tenant: tenant.0.clone(),
            destination: message.destination.clone(),
            order: message.order.clone(),
            operation: operation(origin, tenant, message, self.made),
            terms: message.terms,
            not_before: message.not_before,
            since: self.when.now,
            attempts: 0,
            left: message.terms.attempts_max,
            asked: 0,
            stage: Stage::Waiting { due: message.not_before.max(self.when.now) },
            why: None,
            next: None,
        };
        self.made += 1;
        self.join(id, &mut status);
        self.put(RowKey::letter(id), Some(Post::Letter(message.letter.clone())));
        if let Some(key) = known {
            self.put(key, Some(Post::Known(id)));
        }
        self.set(id, None, status.clone());
        id
    }

    /// Moves one message on; none if that may not happen.
    fn step(&mut self, one: &Move) -> Option<Status> {
        let row = self.row(&RowKey::message(one.id))?;
        let (version, before) = (row.version, row.status()?.clone());
        if owner_elsewhere(self.units, &before.tenant(), self.before).is_some() {
            return None;
        }
        let mut after = before.after(version, one.guard, &one.event, &self.when)?;
        match (before.is_in_order(), after.is_in_order()) {
            (true, false) => {
                self.leave(&before);
                after.next = None;
            }
            (false, true) => self.join(one.id, &mut after),
            (true, true) if before.blocks_since() != after.blocks_since() => {
                self.block(&after, after.blocks_since());
            }
            _ => {}
        }
        self.set(one.id, Some(&before), after.clone());
        Some(after)
    }

    /// Takes the last place in its ordering key, if it has one.
    fn join(&mut self, id: MessageId, status: &mut Status) {
        let Some(key) = status.queue_key() else { return };
        let queue = match self.queue(&key) {
            None => Queue { head: id, tail: id, count: 1, blocked: None },
            Some(queue) => {
                if let Some(mut last) = self.status(queue.tail) {
                    last.next = Some(id);
                    self.put(RowKey::message(queue.tail), Some(Post::Status(Box::new(last))));
                }
                status.stage = Stage::Queued;
                Queue { tail: id, count: queue.count.saturating_add(1), ..queue }
            }
        };
        self.put(key, Some(Post::Queue(queue)));
    }

    /// Leaves its place, the first: the next one's turn has come.
    fn leave(&mut self, status: &Status) {
        let Some(key) = status.queue_key() else { return };
        let Some(queue) = self.queue(&key) else { return };
        let Some(next) = status.next else { return self.put(key, None) };
        let count = queue.count.saturating_sub(1);
        self.put(key, Some(Post::Queue(Queue { head: next, count, blocked: None, ..queue })));
        if let Some(before) = self.status(next) {
            let due = before.not_before.max(self.when.now);
            let after = Status { stage: Stage::Waiting { due }, ..before.clone() };
            self.set(next, Some(&before), after);
        }
    }

    fn block(&mut self, status: &Status, blocked: Option<Timestamp>) {
        let Some(key) = status.queue_key() else { return };
        if let Some(queue) = self.queue(&key) {
            self.put(key, Some(Post::Queue(Queue { blocked, ..queue })));
        }
    }

    /// A message as it is from now on, with the rows that follow it.
    fn set(&mut self, id: MessageId, before: Option<&Status>, after: Status) {
        let (was, is) = (before.and_then(|status| status.due_key(id)), after.due_key(id));
        if was != is {
            if let Some(was) = was {
                self.put(was, None);
            }
            if let Some(is) = is {
                self.put(is, Some(Post::Mark));
            }
        }
        let was_flying = before.is_some_and(Status::is_flying);
        if was_flying != after.is_flying() {
            self.put(RowKey::flying(id), after.is_flying().then_some(Post::Mark));
        }
        if after.is_over() {
            self.put(RowKey::letter(id), None);
        }
        self.put(RowKey::message(id), Some(Post::Status(Box::new(after))));
    }

    /// An event of a stream has come. Events of the same time do not overtake one another.
    fn see(&mut self, stream: &RowKey, time: Timestamp) {
        let newest = self.row(stream).and_then(|row| row.event_time);
        if newest.is_some_and(|newest| newest > time) {
            self.overtaken += 1;
        } else if newest != Some(time) {
            self.put_row(stream.clone(), Some((Post::Mark, Some(time))));
        }
    }

    fn status(&self, id: MessageId) -> Option<Status> {
        self.row(&RowKey::message(id)).and_then(Row::status).cloned()
    }

    fn queue(&self, key: &RowKey) -> Option<Queue> {
        match self.row(key).and_then(Row::post) {
            Some(Post::Queue(queue)) => Some(queue.clone()),
            _ => None,
        }
    }

    fn row(&self, key: &RowKey) -> Option<&Row> {
        match self.places.get(key) {
            Some(&place) => self.changed[place].row.as_ref(),
            None => self.before.row(key),
        }
    }

    fn put(&mut self, key: RowKey, post: Option<Post>) {
        self.put_row(key, post.map(|post| (post, None)));
    }

    fn put_row(&mut self, key: RowKey, post: Option<(Post, Option<Timestamp>)>) {
        let is_known = self.before.row(&key).is_some();
        let made = self.row(&key).map_or(self.position, |row| row.made);
        let row = post.map(|(post, event_time)| Row {
            version: self.position.seq,
            made,
            event_time,
            content: Content::Post(post),
        });
        let place = *self.places.entry(key.clone()).or_insert(self.changed.len());
        match self.changed.get_mut(place) {
            Some(changed) => changed.row = row,
            None => self.changed.push(Changed { key, is_new: row.is_some() && !is_known, row }),
        }
    }

    /// Hands the rows over, with a note of each.
    fn finish(self, applying: &mut Applying<'_>) {
        applying.overtaken = self.overtaken;
        for Changed { key, row, is_new } in self.changed {
            // What came and went within the entry was never there.
            if row.is_some() || !is_new {
                applying.put_own(key, row);
            }
        }
    }
}

/// What the other side tells a repeat by, in every attempt.
fn operation(origin: Origin<'_>, tenant: &Tenant, message: &NewMessage, ordinal: u32) -> [u8; 16] {
    let mut out = Layout::default();
    out.raw(b"onecho message 1");
    match (&message.keyed, origin) {
        (Some(key), _) => {
            out.u8(0);
            out.text(tenant.as_str());
            out.text(&message.destination);
            out.text(key);
        }
        (None, Origin::Command { scope, generation, point }) => {
            out.u8(1);
            out.text(scope.tenant.as_str());
            out.text(scope.operation.as_str());
            out.text(scope.key.as_str());
            out.u32(generation);
            out.text(point);
            out.u32(ordinal);
        }
        (None, Origin::Job(parent)) => {
            out.u8(2);
            out.raw(parent);
            out.u32(ordinal);
        }
        (None, Origin::Alone(nonce)) => {
            out.u8(3);
            out.raw(nonce);
            out.u32(ordinal);
        }
    }
    let mut half = [0; 16];
    half.copy_from_slice(&out.finish()[..16]);
    half
}
