//! Many callers, one commit: the queue in front of the writer and the lead that passes from caller to caller.
//!
//! A caller puts its submission into the queue. Whoever finds no leader leads: it takes what is queued,
//! writes it as one batch, hands the lead to one who still waits, and only then wakes those it served.
//! There is no writer thread. A leader that had company last time lingers for it, briefly; one that was alone
//! never does.
//!
//! The queue is bounded. For whom there is no room stands outside, in the same order; whoever makes room lets
//! it in without waking it.
//!
//! Sleeping and waking is most of what a command costs here, so those who will share a batch share a bell,
//! and one call wakes them all. The first of them has a bell of its own, for it may be called to lead.
//!
//! Owns the queue, its bounds and the lead; must not know what is written.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Deadline;
use super::line::Line;
use super::sync::{AtomicUsize, Bell, Mutex, Relaxed, yield_now};

/// The longest a leader waits for callers that were there last time. Long enough for a woken caller to come
/// back, short beside a sync.
const LINGER_MAX: Duration = Duration::from_micros(200);
/// A leader stops waiting when nobody has come for so long: those it waits for are not coming.
const QUIET_MAX: Duration = Duration::from_micros(80);
/// Batches whose callers can sleep at the same time without waking each other.
const BELLS: usize = 8;

/// Submissions of type `S`, answered with `A`.
pub(crate) struct Queue<S, A> {
    inner: Mutex<Inner<S, A>>,
    /// Submissions queued, for a leader that lingers; `usize::MAX` when waiting brings no larger batch.
    gathered: AtomicUsize,
    bells: [Bell; BELLS],
    max: Size,
    batch_max: Size,
}

/// How much a submission or a batch holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub commands: usize,
    pub bytes: usize,
}

impl Size {
    pub fn and(self, other: Self) -> Self {
        Self { commands: self.commands + other.commands, bytes: self.bytes.saturating_add(other.bytes) }
    }

    pub fn fits(self, max: Self) -> bool {
        self.commands <= max.commands && self.bytes <= max.bytes
    }

    fn without(self, part: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(part.commands),
            bytes: self.bytes.saturating_sub(part.bytes),
        }
    }

    fn fills(self, max: Self) -> bool {
        self.commands >= max.commands || self.bytes >= max.bytes
    }
}

struct Inner<S, A> {
    queued: Line<Queued<S, A>>,
    /// Of all that is queued.
    size: Size,
    /// Those for whom there was no room, in the same order. While anybody is outside something is queued, and
    /// so somebody leads.
    outside: Line<Queued<S, A>>,
    is_led: bool,
    /// Submissions that a leader may expect: those of the last batch, and those that waited behind it.
    company: usize,
    /// The batch that whoever comes now will most likely be in.
    forming: Forming,
}

struct Forming {
    size: Size,
    bell: usize,
    is_closed: bool,
}

struct Queued<S, A> {
    submission: S,
    size: Size,
    ticket: Arc<Ticket<A>>,
}

/// Where a caller is told its turn. Its own bell, unless it shares one.
struct Ticket<A> {
    turn: Mutex<Option<Turn<A>>>,
    own: Bell,
    shared: Option<usize>,
}

/// What a caller is woken for.
enum Turn<A> {
    Lead,
    Answer(A),
}

/// What a batch of submissions came to: one answer each, in order.
pub(crate) trait Writer<S, A> {
    /// Writes a batch. Must return as many answers as there are submissions.
    fn write(&self, batch: Vec<S>) -> Vec<A>;
    /// The answer of a submission whose leader did not come back from `write`.
    fn abandoned(&self) -> A;
}

impl<S, A> Queue<S, A> {
    /// A queue for `max`, of which one batch takes `batch_max`. A submission that is larger than either
    /// is taken when nothing else is there.
    pub fn new(max: Size, batch_max: Size) -> Self {
        let forming = Forming { size: Size::default(), bell: 0, is_closed: true };
        let (queued, outside) = (Line::new(), Line::new());
        let inner = Inner { queued, size: Size::default(), outside, is_led: false, company: 0, forming };
        let gathered = AtomicUsize::new(0);
        Self { inner: Mutex::new(inner), gathered, bells: Default::default(), max, batch_max }
    }

    /// Commands that wait to be written.
    pub fn depth(&self) -> usize {
        self.inner.lock().size.commands
    }

    /// Queues a submission of this size and returns its answer; gives the submission back when there is no
    /// room for it until `deadline`. Once queued it is answered, however long that takes. The more often it
    /// has `lost`, the sooner it is written.
    pub fn submit(
        &self,
        submission: S,
        size: Size,
        lost: u32,
        deadline: Deadline,
        writer: &impl Writer<S, A>,
    ) -> Result<A, S> {
        let mut inner = self.inner.lock();
        let has_room = inner.has_room(size, self.max) && inner.outside.would_lead(lost);
        let ticket = Arc::new(Ticket {
            turn: Mutex::new(None),
            own: Bell::default(),
            shared: if has_room { inner.join_batch(size, self.batch_max) } else { None },
        });
        let queued = Queued { submission, size, ticket: Arc::clone(&ticket) };
        let mut turn = if has_room {
            inner.put(lost, queued);
            let leads = !std::mem::replace(&mut inner.is_led, true);
            self.tell_gathered(&inner);
            drop(inner);
            leads.then_some(Turn::Lead)
        } else if deadline.left().is_zero() {
            return Err(queued.submission);
        } else {
            inner.outside.push(lost, queued);
            self.tell_gathered(&inner);
            drop(inner);
            let turn = self.wait_until(&ticket, deadline);
            if turn.is_none()
                && let Some(submission) = self.give_up(&ticket)
            {
                return Err(submission);
            }
            turn
        };
        loop {
            match turn.unwrap_or_else(|| self.wait(&ticket)) {
                // A leader whose own submission did not fit its batch waits like the others.
                Turn::Lead => self.lead(&ticket, writer),
                Turn::Answer(answer) => return Ok(answer),
            }
            turn = None;
        }
    }

    /// Takes back a submission that is still outside.
    fn give_up(&self, ticket: &Arc<Ticket<A>>) -> Option<S> {
        let mut inner = self.inner.lock();
        let left = inner.outside.remove(|other| Arc::ptr_eq(&other.ticket, ticket))?;
        // Whoever stood behind may be small enough for the room there is.
        inner.admit(self.max);
        self.tell_gathered(&inner);
        Some(left.submission)
    }

    /// Writes one batch and hands the lead on.
    fn lead(&self, own: &Arc<Ticket<A>>, writer: &impl Writer<S, A>) {
        self.linger();
        let (submissions, tickets) = self.take_batch();
        let mut handed = HandOver { queue: self, writer, own, tickets, is_answered: false };
        let answers = writer.write(submissions);
        handed.finish(answers);
    }

    /// Waits for the company of last time. It gives the core away each time, for those it waits for need it.
    fn linger(&self) {
        let expected = self.inner.lock().company;
        if expected <= 1 {
            return;
        }
        let end = Deadline::after(LINGER_MAX);
        let mut quiet = Deadline::after(QUIET_MAX);
        let mut seen = 0;
        loop {
            let now = self.gathered.load(Relaxed);
            if now >= expected || end.left().is_zero() {
                return;
            }
            if now > seen {
                seen = now;
                quiet = Deadline::after(QUIET_MAX);
            } else if quiet.left().is_zero() {
                return;
            }
            yield_now();
        }
    }

    fn tell_gathered(&self, inner: &Inner<S, A>) {
        let is_all = !inner.outside.is_empty() || inner.size.fills(self.batch_max);
        self.gathered.store(if is_all { usize::MAX } else { inner.queued.len() }, Relaxed);
    }

    /// The first submissions that fit a batch; always one.
    fn take_batch(&self) -> (Vec<S>, Vec<Arc<Ticket<A>>>) {
        let mut inner = self.inner.lock();
        let mut submissions = Vec::with_capacity(inner.queued.len());
        let mut tickets = Vec::with_capacity(inner.queued.len());
        let mut size = Size::default();
        while let Some(next) = inner.queued.front() {
            let with_next = size.and(next.size);
            if !tickets.is_empty() && !with_next.fits(self.batch_max) {
                break;
            }
            size = with_next;
            if let Some((_, Queued { submission, ticket, .. })) = inner.queued.pop() {
                submissions.push(submission);
                tickets.push(ticket);
            }
        }
        inner.size = inner.size.without(size);
        inner.forming.is_closed = true;
        inner.admit(self.max);
        self.tell_gathered(&inner);
        (submissions, tickets)
    }

    /// Gives the lead to one who waits, if anybody does, after a batch of so many.
    fn hand_over(&self, answered: usize) {
        let heir = {
            let mut inner = self.inner.lock();
            inner.company = answered + inner.queued.len();
            inner.is_led = !inner.queued.is_empty();
            inner.heir().map(Arc::clone)
        };
        if let Some(heir) = heir {
            heir.tell(Turn::Lead);
            self.bell_of(&heir).ring();
        }
    }

    fn bell_of<'t>(&'t self, ticket: &'t Ticket<A>) -> &'t Bell {
        ticket.shared.map_or(&ticket.own, |at| &self.bells[at])
    }

    /// Waits for the answer or the lead. Only the ticket's own caller does.
    fn wait(&self, ticket: &Ticket<A>) -> Turn<A> {
        let bell = self.bell_of(ticket);
        loop {
            let rung = bell.rung();
            if let Some(turn) = ticket.turn.lock().take() {
                return turn;
            }
            bell.wait(rung, None);
        }
    }

    /// The same; nothing when `deadline` comes first.
    fn wait_until(&self, ticket: &Ticket<A>, deadline: Deadline) -> Option<Turn<A>> {
        let bell = self.bell_of(ticket);
        loop {
            let rung = bell.rung();
            if let Some(turn) = ticket.turn.lock().take() {
                return Some(turn);
            }
            let left = deadline.left();
            if left.is_zero() {
                return None;
            }
            bell.wait(rung, Some(left));
        }
    }
}

impl<S, A> Inner<S, A> {
    fn has_room(&self, size: Size, max: Size) -> bool {
        self.queued.is_empty() || self.size.and(size).fits(max)
    }

    fn put(&mut self, lost: u32, queued: Queued<S, A>) {
        self.size = self.size.and(queued.size);
        self.queued.push(lost, queued);
    }

    /// Lets in those outside, in order, as far as there is room.
    fn admit(&mut self, max: Size) {
        while let Some(next) = self.outside.front() {
            if !self.has_room(next.size, max) {
                return;
            }
            if let Some((lost, queued)) = self.outside.pop() {
                self.put(lost, queued);
            }
        }
    }

    /// The bell that a caller shares with those before it who will be in its batch; nothing for the first.
    /// Those who have lost go before, so that the guess may be wrong: then some are woken in vain.
    fn join_batch(&mut self, size: Size, batch_max: Size) -> Option<usize> {
        let with_this = self.forming.size.and(size);
        if !self.forming.is_closed && with_this.fits(batch_max) {
            self.forming.size = with_this;
            return Some(self.forming.bell);
        }
        self.forming = Forming { size, bell: (self.forming.bell + 1) % BELLS, is_closed: false };
        None
    }

    /// Who is to lead: the first that can be woken alone.
    fn heir(&self) -> Option<&Arc<Ticket<A>>> {
        let alone = self.queued.iter().find(|queued| queued.ticket.shared.is_none());
        alone.or_else(|| self.queued.front()).map(|queued| &queued.ticket)
    }
}

impl<A> Ticket<A> {
    /// To be followed by its bell.
    fn tell(&self, turn: Turn<A>) {
        *self.turn.lock() = Some(turn);
    }
}

/// Passes the lead on and wakes the batch, whatever happens to the leader.
struct HandOver<'q, S, A, W: Writer<S, A>> {
    queue: &'q Queue<S, A>,
    writer: &'q W,
    /// Of the leader itself, who need not be woken.
    own: &'q Arc<Ticket<A>>,
    tickets: Vec<Arc<Ticket<A>>>,
    is_answered: bool,
}

impl<S, A, W: Writer<S, A>> HandOver<'_, S, A, W> {
    fn finish(&mut self, answers: Vec<A>) {
        debug_assert_eq!(answers.len(), self.tickets.len());
        self.is_answered = true;
        self.queue.hand_over(self.tickets.len());
        // Nobody is left without an answer, even by a writer that is short of one.
        let answers = answers.into_iter().chain(std::iter::repeat_with(|| self.writer.abandoned()));
        let mut shared = [false; BELLS];
        for (ticket, answer) in self.tickets.drain(..).zip(answers) {
            ticket.tell(Turn::Answer(answer));
            match ticket.shared {
                Some(at) => shared[at] = true,
                None if Arc::ptr_eq(&ticket, self.own) => {}
                None => ticket.own.ring(),
            }
        }
        let bells = self.queue.bells.iter().zip(shared);
        bells.filter(|(_, is_shared)| *is_shared).for_each(|(bell, _)| bell.ring());
    }
}

impl<S, A, W: Writer<S, A>> Drop for HandOver<'_, S, A, W> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // The leader is unwinding: `abandoned` stops the store, so whoever leads next finds it stopped.
        let answers: Vec<A> = self.tickets.iter().map(|_| self.writer.abandoned()).collect();
        self.finish(answers);
    }
}
