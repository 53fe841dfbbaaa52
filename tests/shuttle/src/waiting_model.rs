// Callers of one scope and its place; callers that lost on one row and their turns. Included once for each
// variant.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use super::clock::{Deadline, EngineClock};
use super::places::{End, Entered, Places};
use super::turns::Turns;
use crate::core::decide::Asked;
use crate::core::fingerprint::Fingerprint;
use crate::core::name::ScopeDigest;
use crate::core::policy::{Policy, WhileRunning};
use crate::core::record::Record;
use crate::core::reply::Reply;

const PATIENT: Duration = Duration::from_secs(1_000);
const IMPATIENT: Duration = Duration::from_millis(5);
const EXECUTE_MAX: u64 = 30;

/// Places, and a store that knows only whether the scope has an outcome.
struct Hall {
    places: Places,
    clock: EngineClock,
    asked: Arc<Asked>,
    is_finished: AtomicBool,
    inside: AtomicUsize,
    runs: AtomicUsize,
}

impl Hall {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            places: Places::new("here"),
            clock: EngineClock::default(),
            asked: Arc::new(Asked { digest: ScopeDigest([7; 16]), fingerprint: Fingerprint(1), parts: 1 }),
            is_finished: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
            runs: AtomicUsize::new(0),
        })
    }

    fn enter(&self, wait: Duration) -> (bool, Entered<'_>) {
        let policy =
            Policy { execute_max: Duration::from_secs(EXECUTE_MAX), while_running: WhileRunning::Judge };
        let stamp = self.places.stamp(self.asked.digest);
        let known = self.is_finished.load(SeqCst);
        (known, self.places.enter(&self.asked, &policy, stamp, Deadline::after(wait), &self.clock))
    }

    /// One caller, as the engine does it: looks, enters, looks again if it must, runs. True when it ran to
    /// an outcome, or was told one.
    fn call(&self, wait: Duration, fails: bool) -> bool {
        let (known, entered) = self.enter(wait);
        match entered {
            Entered::Run { guard, stale } => {
                assert_eq!(self.inside.fetch_add(1, SeqCst), 0, "two are in one place");
                let is_finished = if stale { self.is_finished.load(SeqCst) } else { known };
                assert_eq!(is_finished, self.is_finished.load(SeqCst), "what was known is over, and it is not said");
                thread::yield_now();
                if !is_finished && !fails {
                    self.runs.fetch_add(1, SeqCst);
                    self.is_finished.store(true, SeqCst);
                }
                self.inside.fetch_sub(1, SeqCst);
                if !is_finished && !fails {
                    guard.leave(End::Finished(Arc::new(Record)));
                }
                is_finished || !fails
            }
            Entered::Finished(_) => true,
            Entered::Reply(Reply::InProgress { .. }) => {
                assert_eq!(wait, IMPATIENT, "the patient are told the end");
                false
            }
            Entered::Reply(_) | Entered::Uncertain(_) => unreachable!("all ask the same"),
        }
    }
}

fn spawn<W: Send + Sync + 'static, T: Send + 'static>(
    shared: &Arc<W>,
    work: impl FnOnce(&W) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

fn join<T>(callers: Vec<thread::JoinHandle<T>>) -> Vec<T> {
    callers.into_iter().map(|caller| caller.join().unwrap()).collect()
}

/// Of callers of one scope one runs, and all who wait are told what came of it.
pub fn all_who_wait_for_a_place_are_told() {
    let hall = Hall::new();
    let told = join((0..4).map(|_| spawn(&hall, |hall| hall.call(PATIENT, false))).collect());
    assert_eq!((told, hall.runs.load(SeqCst)), (vec![true; 4], 1));
}

/// A place that ends without an outcome goes to one of those who wait; who is impatient is told that it runs.
pub fn a_place_left_free_is_taken_again() {
    let hall = Hall::new();
    let callers = [(PATIENT, true), (PATIENT, false), (IMPATIENT, false), (PATIENT, false)];
    let told = join(callers.map(|(wait, fails)| spawn(&hall, move |hall| hall.call(wait, fails))).into());
    assert!(told[1] && told[3]);
    assert_eq!(hall.runs.load(SeqCst), 1);
}

/// Who is overdue loses its place to another, and its end is not the end of the other's.
pub fn who_is_overdue_does_not_free_the_place_of_another() {
    let hall = Hall::new();
    let (_, Entered::Run { guard: overdue, .. }) = hall.enter(PATIENT) else { panic!("the place is free") };
    hall.clock.advance(EXECUTE_MAX);
    let (_, Entered::Run { guard: second, .. }) = hall.enter(PATIENT) else { panic!("the place is over") };
    let third = spawn(&hall, |hall| match hall.enter(IMPATIENT).1 {
        Entered::Run { .. } => panic!("the place is taken"),
        other => matches!(other, Entered::Reply(Reply::InProgress { .. })),
    });
    overdue.leave(End::Free);
    assert!(third.join().unwrap());
    second.leave(End::Free);
    assert!(hall.call(PATIENT, false));
}

/// Who waits for somebody overdue is told what comes of whoever takes the place instead.
pub fn who_waits_for_the_overdue_is_told_of_the_next() {
    let hall = Hall::new();
    let (_, Entered::Run { guard: overdue, .. }) = hall.enter(PATIENT) else { panic!("the place is free") };
    let waiting = spawn(&hall, |hall| hall.call(PATIENT, false));
    thread::yield_now();
    hall.clock.advance(EXECUTE_MAX);
    assert!(hall.call(PATIENT, false));
    assert!(waiting.join().unwrap());
    overdue.leave(End::Free);
    assert_eq!(hall.runs.load(SeqCst), 1);
}

/// Rows, and how many run with a turn on each.
struct Rows {
    turns: Turns<usize>,
    running: [AtomicUsize; 2],
}

impl Rows {
    fn new() -> Arc<Self> {
        Arc::new(Self { turns: Turns::new(), running: Default::default() })
    }

    fn runs(&self, row: usize) {
        assert_eq!(self.running[row].fetch_add(1, SeqCst), 0, "two have the turn");
        thread::yield_now();
        self.running[row].fetch_sub(1, SeqCst);
    }
}

/// Callers that lost on one row run one after another; each comes to its turn.
pub fn each_comes_to_its_turn() {
    let rows = Rows::new();
    let work = |rows: &Rows| {
        let mut turn = None;
        for lost in 2..4 {
            turn = rows.turns.after_loss(turn, 0, lost, Deadline::after(PATIENT));
            rows.runs(0);
        }
    };
    join((0..3).map(|_| spawn(&rows, work)).collect());
}

/// Callers that lose on two rows, each in another order, do not wait for each other; who is impatient runs
/// without a turn and leaves no hole.
pub fn nobody_has_two_turns() {
    let rows = Rows::new();
    let mut callers: Vec<_> = [[0, 1], [1, 0], [0, 1]]
        .map(|order| {
            spawn(&rows, move |rows| {
                let mut turn = None;
                for (lost, row) in (2..).zip(order) {
                    turn = rows.turns.after_loss(turn, row, lost, Deadline::after(PATIENT));
                    rows.runs(row);
                }
            })
        })
        .into();
    callers.push(spawn(&rows, |rows| {
        drop(rows.turns.after_loss(None, 0, 2, Deadline::after(IMPATIENT)));
    }));
    join(callers);
}
