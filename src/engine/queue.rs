//! Many callers, one commit: the queue in front of the writer and the lead that passes from caller to caller.
//!
//! A caller puts its submission into the queue. Whoever finds no leader leads: it takes what is queued,
//! writes it as one batch, hands the lead to the first who still waits, and only then wakes those it served.
//! There is no writer thread. A leader that had company last time lingers for it, briefly; one that was alone
//! never does.
//!
//! Owns the queue, its bounds and the lead; must not know what is written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::clock::Deadline;

/// The longest a leader waits for callers that were there last time. Long enough for a woken caller to come
/// back, short beside a sync.
const LINGER_MAX: Duration = Duration::from_micros(200);

/// Submissions of type `S`, answered with `A`.
pub(crate) struct Queue<S, A> {
    inner: Mutex<Inner<S, A>>,
    /// Signalled when the queue has room again.
    room: Condvar,
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
}

struct Inner<S, A> {
    waiting: VecDeque<Arc<Ticket<S, A>>>,
    /// Of all that wait.
    size: Size,
    is_led: bool,
    /// Submissions in the last batch.
    last_batch: usize,
}

/// One submission and the place its answer is put.
struct Ticket<S, A> {
    size: Size,
    state: Mutex<State<S, A>>,
    changed: Condvar,
}

enum State<S, A> {
    Waiting(S),
    /// Its caller has been handed the lead.
    Leads(S),
    Taken,
    Answered(A),
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
        let inner = Inner { waiting: VecDeque::new(), size: Size::default(), is_led: false, last_batch: 0 };
        Self { inner: Mutex::new(inner), room: Condvar::new(), max, batch_max }
    }

    /// Commands that wait to be written.
    pub fn depth(&self) -> usize {
        self.inner.lock().size.commands
    }

    /// Queues a submission of this size and returns its answer; gives the submission back when the queue
    /// stays full until `deadline`. `first` puts it before the others.
    pub fn submit(
        &self,
        submission: S,
        size: Size,
        first: bool,
        deadline: Deadline,
        writer: &impl Writer<S, A>,
    ) -> Result<A, S> {
        let ticket =
            Arc::new(Ticket { size, state: Mutex::new(State::Waiting(submission)), changed: Condvar::new() });
        let mut leads = {
            let mut inner = self.inner.lock();
            while inner.size.commands > 0 && !inner.size.and(size).fits(self.max) {
                if self.room.wait_for(&mut inner, deadline.left()).timed_out() && deadline.left().is_zero() {
                    return Err(ticket.take_submission());
                }
            }
            inner.size = inner.size.and(size);
            if first {
                inner.waiting.push_front(Arc::clone(&ticket));
            } else {
                inner.waiting.push_back(Arc::clone(&ticket));
            }
            !std::mem::replace(&mut inner.is_led, true)
        };
        loop {
            if leads {
                self.lead(writer);
            }
            // A leader whose own submission did not fit its batch waits like the others.
            match ticket.wait() {
                Turn::Lead => leads = true,
                Turn::Answer(answer) => return Ok(answer),
            }
        }
    }

    /// Writes one batch and hands the lead on.
    fn lead(&self, writer: &impl Writer<S, A>) {
        self.linger();
        let batch = self.take_batch();
        let mut handed = HandOver { queue: self, writer, tickets: batch, answered: false };
        let submissions = handed.tickets.iter().map(|ticket| ticket.take_submission()).collect();
        let answers = writer.write(submissions);
        handed.finish(answers);
    }

    fn linger(&self) {
        let expected = self.inner.lock().last_batch;
        if expected <= 1 {
            return;
        }
        let deadline = Deadline::after(LINGER_MAX);
        while self.inner.lock().waiting.len() < expected && !deadline.left().is_zero() {
            std::thread::yield_now();
        }
    }

    /// The oldest submissions that fit a batch; always one.
    fn take_batch(&self) -> Vec<Arc<Ticket<S, A>>> {
        let mut inner = self.inner.lock();
        let mut batch = Vec::with_capacity(inner.waiting.len());
        let mut size = Size::default();
        while let Some(next) = inner.waiting.front() {
            let with_next = size.and(next.size);
            if !batch.is_empty() && !with_next.fits(self.batch_max) {
                break;
            }
            size = with_next;
            batch.extend(inner.waiting.pop_front());
        }
        inner.size.commands -= size.commands;
        inner.size.bytes = inner.size.bytes.saturating_sub(size.bytes);
        inner.last_batch = batch.len();
        drop(inner);
        self.room.notify_all();
        batch
    }

    /// Gives the lead to the first who waits, if anybody does.
    fn hand_over(&self) {
        let next = {
            let mut inner = self.inner.lock();
            inner.is_led = !inner.waiting.is_empty();
            inner.waiting.front().map(Arc::clone)
        };
        if let Some(next) = next {
            next.hand_lead();
        }
    }
}

impl<S, A> Ticket<S, A> {
    /// Waits for the answer or the lead. Only the ticket's own caller does.
    fn wait(&self) -> Turn<A> {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Leads(submission) => {
                    *state = State::Waiting(submission);
                    return Turn::Lead;
                }
                State::Answered(answer) => return Turn::Answer(answer),
                other => *state = other,
            }
            self.changed.wait(&mut state);
        }
    }

    fn hand_lead(&self) {
        let mut state = self.state.lock();
        *state = match std::mem::replace(&mut *state, State::Taken) {
            State::Waiting(submission) => State::Leads(submission),
            other => other,
        };
        self.changed.notify_one();
    }

    /// Each ticket is in the queue once and leaves it once, so its submission is there to be taken.
    fn take_submission(&self) -> S {
        match std::mem::replace(&mut *self.state.lock(), State::Taken) {
            State::Waiting(submission) | State::Leads(submission) => submission,
            State::Taken | State::Answered(_) => unreachable!("a ticket is taken once"),
        }
    }

    fn answer(&self, answer: A) {
        *self.state.lock() = State::Answered(answer);
        self.changed.notify_one();
    }
}

/// Passes the lead on and wakes the batch, whatever happens to the leader.
struct HandOver<'q, S, A, W: Writer<S, A>> {
    queue: &'q Queue<S, A>,
    writer: &'q W,
    tickets: Vec<Arc<Ticket<S, A>>>,
    answered: bool,
}

impl<S, A, W: Writer<S, A>> HandOver<'_, S, A, W> {
    fn finish(&mut self, answers: Vec<A>) {
        debug_assert_eq!(answers.len(), self.tickets.len());
        self.answered = true;
        self.queue.hand_over();
        for (ticket, answer) in self.tickets.drain(..).zip(answers) {
            ticket.answer(answer);
        }
    }
}

impl<S, A, W: Writer<S, A>> Drop for HandOver<'_, S, A, W> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        // The leader is unwinding: `abandoned` stops the store, so whoever leads next finds it stopped.
        let answers: Vec<A> = self.tickets.iter().map(|_| self.writer.abandoned()).collect();
        self.finish(answers);
    }
}
