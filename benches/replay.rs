//! Retries of finished commands, from memory and from the file, beside a lookup in plain redb; and how long
//! opening takes. See `README.md`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench reads the clock, prints, and divides counts"
)]

mod support;

use std::hint::black_box;
use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use onecho::{Bytes, CommitMode, Options, Outcome, Reply, Request, Store};

use support::{
    Command, Contender, Done, Plain, copied, fingerprint, full_key, is_measured, median, mixed, real_disk,
    timed,
};

const SIZES: [u64; 2] = [2_000, 100_000];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(150);
const OPENS: usize = 15;
/// Room for all records of the larger store, and more: sets of eight slots fill unevenly.
const REPLAY_BYTES: usize = 256 << 20;
/// Lookups chosen beforehand.
const CHOSEN: usize = 1 << 16;

fn main() -> Done<()> {
    let dir = real_disk()?;
    if is_measured() {
        for records in SIZES {
            let stores = Stores::load(&dir.path().join(records.to_string()), records)?;
            lookups(&stores)?;
            stores.openings()?;
        }
    }
    let mut criterion = Criterion::default().configure_from_args();
    parts(&mut criterion, &Stores::load(&dir.path().join("parts"), 2_000)?);
    criterion.final_summary();
    Ok(())
}

/// The same records in three places.
struct Stores {
    records: u64,
    dir: std::path::PathBuf,
    /// Everything is in memory.
    memory: Store,
    /// Nothing is in memory.
    file: Store,
    plain: Plain,
    requests: Vec<Request>,
    keys: Vec<Vec<u8>>,
}

impl Stores {
    fn load(dir: &Path, records: u64) -> Done<Self> {
        std::fs::create_dir_all(dir)?;
        let memory = Store::open_or_create(dir.join("memory"), Options::new().replay_bytes(REPLAY_BYTES))?;
        let file = Store::open_or_create(dir.join("file"), Options::new().replay_bytes(0))?;
        let plain = Plain::open(&dir.join("plain"), CommitMode::OnePhase)?;
        let commands: Vec<Command> = (0..records).map(Command::numbered).collect();
        for batch in commands.chunks(512) {
            memory.run(batch)?;
            file.run(batch)?;
            plain.run(batch)?;
        }
        let requests = commands.iter().map(Command::request).collect::<Done<_>>()?;
        let keys = commands.iter().map(full_key).collect();
        Ok(Self { records, dir: dir.to_owned(), memory, file, plain, requests, keys })
    }

    /// One lookup by one of the ways; false when it was not answered from where it should be.
    fn look(&self, way: Way, at: usize, body: &mut Vec<u8>) -> bool {
        let reply = match way {
            Way::Peek => self.memory.peek(&self.requests[at]),
            Way::Memory => self.memory.execute(&self.requests[at], |_| Ok(never_run())).ok(),
            Way::File => self.file.execute(&self.requests[at], |_| Ok(never_run())).ok(),
            Way::Plain => return self.plain.replay(&self.keys[at], fingerprint(), body).unwrap_or(false),
        };
        matches!(black_box(reply), Some(Reply::Replay(_)))
    }
}

/// Were it run, the next lookup would not be the record's.
fn never_run() -> Outcome {
    Outcome::failed(500).body(Bytes::from_static(b"a finished command ran again"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Peek,
    Memory,
    File,
    Plain,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Peek, "peek, from memory"),
    (Way::Memory, "execute, from memory"),
    (Way::File, "execute, from the file"),
    (Way::Plain, "plain redb, a read transaction"),
];

fn lookups(stores: &Stores) -> Done<()> {
    for (skewed, threads) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let chosen: Vec<usize> =
            (0..CHOSEN as u64).map(|step| choose(step, stores.records, skewed)).collect();
        let mut spans: [Vec<f64>; 4] = Default::default();
        let mut misses = [0_usize; 4];
        for _ in 0..ROUNDS {
            for (at, (way, _)) in WAYS.iter().enumerate() {
                let (span, missed) = round(stores, *way, &chosen, threads)?;
                spans[at].push(span);
                misses[at] += missed;
            }
        }
        let spans = spans.map(median);
        let keys = if skewed { "skewed" } else { "uniform" };
        println!("\n{} records, {keys} keys, {threads} thread(s)", stores.records);
        for (at, (_, name)) in WAYS.iter().enumerate() {
            println!(
                "  {name:<32}{:>8.0} ns a lookup and thread, plain redb {:.1} times as long, {} not answered",
                spans[at],
                spans[3] / spans[at],
                misses[at]
            );
        }
    }
    Ok(())
}

/// Which record the `step`-th lookup asks for. Skewed: the rank is `records ^ u` for a uniform `u` in 0..1,
/// so that each power of ten of ranks is asked for equally often (Zipf's law with exponent 1).
fn choose(step: u64, records: u64, skewed: bool) -> usize {
    let random = mixed(step);
    if !skewed {
        return usize::try_from(random % records).unwrap_or_default();
    }
    let fraction = (random >> 11) as f64 / (1_u64 << 53) as f64;
    let rank = (records as f64).powf(fraction) as u64;
    // Hot records lie anywhere, not beside one another.
    usize::try_from(mixed(rank) % records).unwrap_or_default()
}

/// Nanoseconds a lookup took a thread on average, and how many were not answered.
fn round(stores: &Stores, way: Way, chosen: &[usize], threads: usize) -> Done<(f64, usize)> {
    let done = std::thread::scope(|scope| {
        let looking: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || looker(stores, way, chosen, thread))).collect();
        looking.into_iter().map(ScopedJoinHandle::join).collect::<Result<Vec<_>, _>>()
    });
    let done = done.map_err(|_| "a thread panicked")?;
    let span = done.iter().map(|(span, _)| span).sum::<f64>() / threads as f64;
    Ok((span, done.iter().map(|(_, missed)| missed).sum()))
}

fn looker(stores: &Stores, way: Way, chosen: &[usize], thread: usize) -> (f64, usize) {
    let mut body = Vec::new();
    let (mut looked, mut missed) = (0_usize, 0);
    let start = Instant::now();
    while start.elapsed() < ROUND {
        for _ in 0..64 {
            let at = chosen[(looked + thread * CHOSEN / 2) % CHOSEN];
            missed += usize::from(!stores.look(way, at, &mut body));
            looked += 1;
        }
    }
    (start.elapsed().as_secs_f64() * 1e9 / looked as f64, missed)
}

impl Stores {
    /// Opening, as it was left by a close and by a kill. What a kill leaves is a copy of the file while it is
    /// open and nobody writes.
    fn openings(self) -> Done<()> {
        let killed = self.dir.join("killed");
        copied(&self.dir.join("file"), &killed)?;
        self.file.close()?;
        let closed = self.dir.join("file");
        println!(
            "\n{} records, opening ({} KiB of file)",
            self.records,
            std::fs::metadata(&closed)?.len() / 1024
        );
        let bare = Options::new().replay_bytes(0);
        for (what, from, options) in [
            ("after a close", &closed, Options::new()),
            ("after a close, without replay memory", &closed, bare),
            ("after a kill", &killed, Options::new()),
        ] {
            let mut spans = Vec::new();
            for _ in 0..OPENS {
                let path = self.dir.join("open");
                copied(from, &path)?;
                let (store, span) = timed(|| Store::open(&path, options.clone()));
                spans.push(span.as_secs_f64() * 1e3);
                store?.close()?;
            }
            println!("  {what}: {:.1} ms (median)", median(spans));
        }
        Ok(())
    }
}

/// Each way by itself, with criterion's statistics.
fn parts(criterion: &mut Criterion, stores: &Stores) {
    let mut group = criterion.benchmark_group("replay of 2,000 records");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for (way, name) in WAYS {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            let mut body = Vec::new();
            let mut step = 0;
            bencher.iter(|| {
                step += 1;
                assert!(stores.look(way, choose(step, stores.records, false), &mut body) || way == Way::Peek);
            });
        });
    }
    group.finish();
}
