//! The queue in front of the writer by itself: what waiting and waking cost a command, over a writer that
//! does what the disk makes every commit do, one synced write. See `README.md`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::cast_precision_loss,
    reason = "a bench reads the clock, prints, and divides counts"
)]
#![allow(dead_code, unused_imports, reason = "the files it includes have more in them")]

/// What the queue needs of the engine's clocks.
mod clock {
    use std::time::{Duration, Instant};

    #[derive(Clone, Copy)]
    pub(crate) struct Deadline(Option<Instant>);

    impl Deadline {
        pub fn after(budget: Duration) -> Self {
            Self(Instant::now().checked_add(budget))
        }

        pub fn left(self) -> Duration {
            self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
        }
    }
}
#[path = "../src/engine/line.rs"]
mod line;
#[path = "../src/engine/queue.rs"]
mod queue;
mod support;
#[path = "../src/engine/sync.rs"]
mod sync;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clock::Deadline;
use queue::{Queue, Size, Writer};
use support::{Done, cpu_us, is_measured, median, real_disk};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(600);
/// A caller's own work before it submits: a request and a closure.
const CLOSURE: Duration = Duration::from_micros(3);
/// What the leader does for each command beside the write.
const DECIDE: [Duration; 2] = [Duration::ZERO, Duration::from_micros(12)];
const WRITE_BYTES: usize = 64 << 10;
const QUEUE_MAX: Size = Size { commands: 4_096, bytes: 64 << 20 };
const BATCH_MAX: Size = Size { commands: 512, bytes: 8 << 20 };
const COMMAND: Size = Size { commands: 1, bytes: 712 };

/// A file of which the same bytes are written again and again, so that it never grows.
struct Disk {
    file: File,
    bytes: Vec<u8>,
    decide: Duration,
    commits: AtomicU64,
}

impl Writer<Vec<u64>, u64> for Disk {
    fn write(&self, batch: Vec<Vec<u64>>) -> Vec<u64> {
        self.commits.fetch_add(1, Relaxed);
        let commands = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        busy(self.decide * commands);
        let mut file = &self.file;
        let synced = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(&self.bytes))
            .and_then(|()| file.sync_data());
        assert!(synced.is_ok(), "the disk fails: {synced:?}");
        batch.into_iter().map(|numbers| numbers.into_iter().sum()).collect()
    }

    fn abandoned(&self) -> u64 {
        u64::MAX
    }
}

fn busy(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        std::hint::spin_loop();
    }
}

fn main() -> Done<()> {
    if !is_measured() {
        return Ok(());
    }
    let dir = real_disk()?;
    for decide in DECIDE {
        let (file, bytes) = (File::create(dir.path().join("queue"))?, vec![0x5A; WRITE_BYTES]);
        let disk = Disk { file, bytes, decide, commits: AtomicU64::new(0) };
        disk.write(vec![vec![0]]);
        println!("\n{} us of the leader for each command", decide.as_micros());
        println!("  {:<10}{:>10}{:>16}{:>18}", "callers", "per s", "CPU us/command", "commands/commit");
        for callers in [1, 2, 8, 64] {
            let rounds: Vec<Round> = (0..ROUNDS).map(|_| round(&disk, callers)).collect();
            let of = |number: fn(&Round) -> f64| median(rounds.iter().map(number).collect());
            let (per_second, cpu) = (of(|round| round.per_second), of(|round| round.cpu_us_per_command));
            println!("  {callers:<10}{per_second:>10.0}{cpu:>16.1}{:>18.1}", of(|round| round.per_commit));
        }
    }
    Ok(())
}

struct Round {
    per_second: f64,
    cpu_us_per_command: f64,
    per_commit: f64,
}

fn round(disk: &Disk, callers: usize) -> Round {
    let queue = Queue::new(QUEUE_MAX, BATCH_MAX);
    let (barrier, commands) = (Barrier::new(callers + 1), AtomicU64::new(0));
    let (cpu, commits) = (cpu_us(), disk.commits.load(Relaxed));
    let start = std::thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| commands.fetch_add(caller(&queue, disk, &barrier), Relaxed));
        }
        barrier.wait();
        Instant::now()
    });
    let (took, commands) = (start.elapsed(), commands.into_inner() as f64);
    Round {
        per_second: commands / took.as_secs_f64(),
        cpu_us_per_command: (cpu_us() - cpu) as f64 / commands,
        per_commit: commands / (disk.commits.load(Relaxed) - commits) as f64,
    }
}

/// One caller: submits until the round is over; how often.
fn caller(queue: &Queue<Vec<u64>, u64>, disk: &Disk, barrier: &Barrier) -> u64 {
    barrier.wait();
    let start = Instant::now();
    let mut commands = 0;
    while start.elapsed() < ROUND {
        busy(CLOSURE);
        let patience = Deadline::after(Duration::from_secs(5));
        let answer = queue.submit(vec![commands], COMMAND, 0, patience, disk);
        assert_eq!(answer, Ok(commands), "each gets its own answer");
        commands += 1;
    }
    commands
}
