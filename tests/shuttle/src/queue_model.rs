// Callers, a queue and a writer that notes what it is given. Included once for each variant.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use super::super::clock::Deadline;
use super::{Queue, Size, Writer};

const PATIENT: Duration = Duration::from_secs(10);
const IMPATIENT: Duration = Duration::from_millis(5);
const ANY: Size = Size { commands: 100, bytes: 100 };

fn commands(commands: usize) -> Size {
    Size { commands, bytes: commands }
}

/// A queue and its writer, who answers each submission with its own number.
struct Desk {
    queue: Queue<usize, usize>,
    max: Size,
    batches: Mutex<Vec<Vec<usize>>>,
    is_writing: AtomicBool,
    /// The writer waits in its first batch until this is opened.
    is_open: AtomicBool,
    /// It dies of this submission.
    poison: Option<usize>,
}

const ABANDONED: usize = usize::MAX;

impl Writer<usize, usize> for Desk {
    fn write(&self, batch: Vec<usize>) -> Vec<usize> {
        assert!(!self.is_writing.swap(true, SeqCst), "two lead");
        self.batches.lock().unwrap().push(batch.clone());
        self.is_in_bounds();
        while !self.is_open.load(SeqCst) {
            thread::yield_now();
        }
        assert!(self.is_writing.swap(false, SeqCst), "two lead");
        if self.poison.is_some_and(|poison| batch.contains(&poison)) {
            // Told by unwinding alone: to the scheduler a panic is the end of the model.
            resume_unwind(Box::new("planned"));
        }
        batch
    }

    fn abandoned(&self) -> usize {
        ABANDONED
    }
}

impl Desk {
    fn new(max: Size, batch_max: usize) -> Self {
        Self {
            queue: Queue::new(max, commands(batch_max)),
            max,
            batches: Mutex::default(),
            is_writing: AtomicBool::new(false),
            is_open: AtomicBool::new(true),
            poison: None,
        }
    }

    fn submit(&self, number: usize, size: usize, lost: u32, wait: Duration) -> Result<usize, usize> {
        let answer = self.queue.submit(number, commands(size), lost, Deadline::after(wait), self);
        self.is_in_bounds();
        answer
    }

    /// No more is queued than may be, and nobody stands outside for whom there is room.
    fn is_in_bounds(&self) {
        let inner = self.queue.inner.lock();
        let sizes = inner.queued.iter().fold(Size::default(), |sum, queued| sum.and(queued.size));
        assert_eq!(inner.size, sizes);
        assert!(inner.size.fits(self.max) || inner.queued.len() == 1, "more is queued than may be");
        if let Some(first) = inner.outside.front() {
            assert!(!inner.queued.is_empty() && inner.is_led, "somebody is outside and nobody leads");
            assert!(!inner.has_room(first.size, self.max), "somebody is outside though there is room");
        }
    }

    fn wait_for(&self, queued: usize, outside: usize) {
        let there = || {
            let inner = self.queue.inner.lock();
            (inner.queued.len(), inner.outside.len())
        };
        while there() != (queued, outside) {
            thread::yield_now();
        }
    }

    /// When all callers have gone nothing is left, and the lead is free.
    fn is_idle(&self) {
        assert_eq!(self.queue.depth(), 0);
        assert_eq!(self.submit(99, 1, 0, PATIENT), Ok(99));
        assert!(!self.queue.inner.lock().is_led);
    }
}

fn spawn<T: Send + 'static>(
    desk: &Arc<Desk>,
    work: impl FnOnce(&Desk) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let desk = Arc::clone(desk);
    thread::spawn(move || work(&desk))
}

fn join<T>(callers: Vec<thread::JoinHandle<T>>) -> Vec<T> {
    callers.into_iter().map(|caller| caller.join().unwrap()).collect()
}

/// A writer that is busy with submission 0, and the caller of it.
fn busy(max: Size, batch_max: usize) -> (Arc<Desk>, thread::JoinHandle<()>) {
    let desk = Desk { is_open: AtomicBool::new(false), ..Desk::new(max, batch_max) };
    let desk = Arc::new(desk);
    let first = spawn(&desk, |desk| assert_eq!(desk.submit(0, 1, 0, PATIENT), Ok(0)));
    while !desk.is_writing.load(SeqCst) {
        thread::yield_now();
    }
    (desk, first)
}

/// Each submission is written once and its caller gets its own answer, one batch at a time, none too large.
pub fn each_is_answered_once() {
    let desk = Arc::new(Desk::new(ANY, 2));
    let callers = (0..4).map(|caller| {
        spawn(&desk, move |desk| {
            for number in [caller * 10, caller * 10 + 1] {
                assert_eq!(desk.submit(number, 1, 0, PATIENT), Ok(number));
            }
        })
    });
    join(callers.collect());
    let batches = desk.batches.lock().unwrap().clone();
    assert!(batches.iter().all(|batch| (1..=2).contains(&batch.len())));
    let mut written = batches.concat();
    written.sort_unstable();
    assert_eq!(written, [0, 1, 10, 11, 20, 21, 30, 31]);
    desk.is_idle();
}

/// With patience everybody comes in, one by one, though there is room for one only.
pub fn a_full_queue_lets_everybody_in() {
    let desk = Arc::new(Desk::new(commands(1), 1));
    let callers =
        (0..4).map(|number| spawn(&desk, move |desk| assert_eq!(desk.submit(number, 1, 0, PATIENT), Ok(number))));
    join(callers.collect());
    desk.is_idle();
}

/// They are written as they came, be there room for them or not, and the small do not pass the large.
pub fn who_came_first_is_written_first() {
    let (desk, first) = busy(commands(2), 2);
    let mut callers = vec![first];
    for (number, size, there) in [(1, 1, (1, 0)), (2, 2, (1, 1)), (3, 1, (1, 2)), (4, 1, (1, 3))] {
        callers.push(spawn(&desk, move |desk| assert_eq!(desk.submit(number, size, 0, PATIENT), Ok(number))));
        desk.wait_for(there.0, there.1);
    }
    desk.is_open.store(true, SeqCst);
    join(callers);
    assert_eq!(desk.batches.lock().unwrap().concat(), [0, 1, 2, 3, 4]);
    desk.is_idle();
}

/// Who has lost is written before all others, the most often first, among equals as they came; also outside.
pub fn who_lost_is_written_first() {
    for max in [ANY, commands(1)] {
        let (desk, first) = busy(max, 1);
        let mut callers = vec![first];
        for (number, lost) in [(1, 0), (2, 0), (3, 1), (4, 2), (5, 1)] {
            callers.push(spawn(&desk, move |desk| assert_eq!(desk.submit(number, 1, lost, PATIENT), Ok(number))));
            if max == ANY { desk.wait_for(number, 0) } else { desk.wait_for(1, number - 1) }
        }
        desk.is_open.store(true, SeqCst);
        join(callers);
        let written = desk.batches.lock().unwrap().concat();
        // What had room already is not put out again for one who lost.
        assert_eq!(written, if max == ANY { [0, 4, 3, 5, 1, 2] } else { [0, 1, 4, 3, 5, 2] });
        desk.is_idle();
    }
}

/// Who gives up while it waits for room gets its submission back and it is never written; whoever stood
/// behind it comes in at once if there is room.
pub fn who_gives_up_leaves_no_hole() {
    let (desk, first) = busy(commands(3), 3);
    let queued = spawn(&desk, |desk| assert_eq!(desk.submit(1, 2, 0, PATIENT), Ok(1)));
    desk.wait_for(1, 0);
    let large = spawn(&desk, |desk| desk.submit(2, 3, 0, IMPATIENT));
    let small = spawn(&desk, |desk| assert_eq!(desk.submit(3, 1, 0, PATIENT), Ok(3)));
    desk.wait_for(2, 0);
    assert_eq!(large.join().unwrap(), Err(2));
    desk.is_open.store(true, SeqCst);
    join(vec![first, queued, small]);
    assert_eq!(desk.batches.lock().unwrap().concat(), [0, 1, 3]);
    desk.is_idle();
}

/// Patience may end at any moment: then a submission is given back and not written, or written and answered.
pub fn who_gives_up_is_answered_or_not_written() {
    let desk = Arc::new(Desk::new(commands(1), 1));
    let callers = (0..4).map(|number| {
        let wait = [IMPATIENT, PATIENT][number % 2];
        spawn(&desk, move |desk| desk.submit(number, 1, 0, wait))
    });
    let answers = join(callers.collect());
    let mut written = desk.batches.lock().unwrap().concat();
    written.sort_unstable();
    let answered: Vec<usize> = answers.iter().filter_map(|answer| answer.ok()).collect();
    assert_eq!(written, answered);
    for (number, answer) in answers.into_iter().enumerate() {
        assert!(answer == Ok(number) || answer == Err(number) && number % 2 == 0);
    }
    desk.is_idle();
}

/// A leader that unwinds leaves nobody waiting: its batch is told, and the lead goes on.
pub fn a_leader_that_dies_leaves_nobody_waiting() {
    let desk = Arc::new(Desk { poison: Some(1), ..Desk::new(ANY, 2) });
    let callers = (0..4).map(|number| {
        spawn(&desk, move |desk| {
            let submit = AssertUnwindSafe(|| desk.submit(number, 1, 0, PATIENT));
            catch_unwind(submit).map_or(None, |answer| Some(answer.unwrap()))
        })
    });
    let answers = join(callers.collect());
    let batches = desk.batches.lock().unwrap().clone();
    let poisoned = batches.iter().find(|batch| batch.contains(&1)).unwrap();
    let mut dead = 0;
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            // It led, its own or another's batch.
            None => dead += 1,
            Some(ABANDONED) => assert!(poisoned.contains(&number)),
            Some(answer) => assert!(answer == number && !poisoned.contains(&number)),
        }
    }
    assert_eq!(dead, 1);
    desk.is_idle();
}
