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
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use onecho::{Bytes, CommitMode, Options, Outcome, ReplayBuffer, Reply, Request, Store};

use support::{
    Command, Contender, Done, OUTCOME, Plain, copied, fingerprint, full_key, is_measured, median, mixed,
    real_disk, timed,
};

/// How many records; `ONECHO_BENCH_RECORDS` chooses one.
const SIZES: [u64; 3] = [2_000, 100_000, 1_000_000];
/// The size whose stores are also opened and closed.
const OPENED: u64 = 100_000;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(120);
const OPENS: usize = 15;
/// Lookups chosen beforehand.
const CHOSEN: usize = 1 << 16;
/// Lookups between two looks at the clock.
const IN_A_ROW: usize = 32;

fn main() -> Done<()> {
    let dir = real_disk()?;
    if is_measured() {
        let chosen =
            std::env::var("ONECHO_BENCH_RECORDS").ok().map(|text| text.parse::<u64>()).transpose()?;
        for records in SIZES.into_iter().filter(|records| chosen.is_none_or(|chosen| chosen == *records)) {
            let stores = Stores::load(&dir.path().join(records.to_string()), records)?;
            lookups(&stores)?;
            if records == OPENED {
                stores.openings()?;
            }
        }
    }
    let mut criterion = Criterion::default().configure_from_args();
    parts(&mut criterion, &Stores::load(&dir.path().join("parts"), 2_000)?)?;
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
        // Room for twice the records: sets of sixteen slots fill unevenly.
        let room = Options::new().replay_bytes(usize::try_from(2 * records)? * 1024);
        let memory = Store::open_or_create(dir.join("memory"), room)?;
        let file = Store::open_or_create(dir.join("file"), Options::new().replay_bytes(0))?;
        let plain = Plain::open(&dir.join("plain"), CommitMode::OnePhase)?;
        let mut stores =
            Self { records, dir: dir.to_owned(), memory, file, plain, requests: vec![], keys: vec![] };
        for first in (0..records).step_by(4096) {
            let commands: Vec<Command> = (first..records.min(first + 4096)).map(Command::numbered).collect();
            for batch in commands.chunks(512) {
                stores.memory.run(batch)?;
                stores.file.run(batch)?;
            }
            stores.plain.run(&commands)?;
            for command in &commands {
                stores.requests.push(command.request()?);
                stores.keys.push(full_key(command));
            }
        }
        for request in &stores.requests {
            // Its first use hashes it.
            black_box(stores.memory.peek_receipt(request));
        }
        Ok(stores)
    }

    /// One lookup by one of the ways; false when it was not answered from where it should be.
    #[inline]
    fn look(&self, way: Way, at: usize, room: &mut Room) -> bool {
        match way {
            Way::Nothing => {
                black_box(&self.requests[at]);
                true
            }
            Way::Judged => matches!(
                black_box(self.memory.peek_receipt(&self.requests[at])),
                Some(receipt) if receipt.code == 201
            ),
            Way::Answered => matches!(
                black_box(self.memory.peek_into(&self.requests[at], &mut room.buffer)),
                Some(outcome) if outcome.body().len() == OUTCOME.len()
            ),
            Way::PlainJudged => self.plain.judge(&self.keys[at], room.fingerprint).unwrap_or(false),
            Way::PlainAnswered => {
                self.plain.replay(&self.keys[at], room.fingerprint, &mut room.body).unwrap_or(false)
            }
            Way::Peek => matches!(black_box(self.memory.peek(&self.requests[at])), Some(Reply::Replay(_))),
            Way::Memory => is_replay(&self.memory, &self.requests[at]),
            Way::File => is_replay(&self.file, &self.requests[at]),
        }
    }
}

fn is_replay(store: &Store, request: &Request) -> bool {
    // Were it run, the next lookup would not be the record's.
    let never = || Outcome::failed(500).body(Bytes::from_static(b"a finished command ran again"));
    matches!(black_box(store.execute(request, |_| Ok(never()))), Ok(Reply::Replay(_)))
}

/// What one thread uses again and again.
struct Room {
    buffer: ReplayBuffer,
    body: Vec<u8>,
    fingerprint: [u8; 32],
}

impl Room {
    fn new() -> Self {
        Self { buffer: ReplayBuffer::new(), body: Vec::new(), fingerprint: fingerprint() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Nothing,
    Judged,
    PlainJudged,
    Answered,
    PlainAnswered,
    Peek,
    Memory,
    File,
}

impl Way {
    const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Judged,
        Self::PlainJudged,
        Self::Answered,
        Self::PlainAnswered,
        Self::Peek,
        Self::Memory,
        Self::File,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "the bench itself",
            Self::Judged => "judged, in memory",
            Self::PlainJudged => "judged, plain redb",
            Self::Answered => "answered, from memory",
            Self::PlainAnswered => "answered, plain redb",
            Self::Peek => "peek, from memory",
            Self::Memory => "execute, from memory",
            Self::File => "execute, from the file",
        }
    }

    /// What it is compared with.
    fn peer(self) -> Self {
        if matches!(self, Self::Judged | Self::PlainJudged) { Self::PlainJudged } else { Self::PlainAnswered }
    }
}

/// What was measured of one way in one round.
#[derive(Clone, Copy, Default)]
struct Measured {
    /// Nanoseconds of one lookup, many in a row.
    in_a_row: f64,
    /// Nanoseconds of one lookup by itself, less what looking at the clock takes.
    p50: f64,
    p99: f64,
    missed: usize,
}

fn lookups(stores: &Stores) -> Done<()> {
    for skewed in [true, false] {
        let chosen: Vec<usize> =
            (0..CHOSEN as u64).map(|step| choose(step, stores.records, skewed)).collect();
        for (threads, writes) in [(1, false), (2, false), (1, true), (2, true)] {
            cell(stores, &chosen, threads, writes, skewed)?;
        }
    }
    Ok(())
}

fn cell(stores: &Stores, chosen: &[usize], threads: usize, writes: bool, skewed: bool) -> Done<()> {
    let mut rounds: Vec<Vec<Measured>> = vec![Vec::new(); Way::ALL.len()];
    for _ in 0..ROUNDS {
        for (way, measured) in Way::ALL.into_iter().zip(&mut rounds) {
            measured.push(round(stores, way, chosen, threads, writes)?);
        }
    }
    let of = |way: Way, field: fn(&Measured) -> f64| {
        let at = Way::ALL.iter().position(|known| *known == way).unwrap_or_default();
        median(rounds[at].iter().map(field).collect())
    };
    let keys = if skewed { "Zipf" } else { "uniform" };
    let beside = if writes { ", a durable writer beside" } else { "" };
    println!("\n{} records, {keys} keys, {threads} thread(s){beside}", stores.records);
    println!("  {:<24}{:>8}{:>10}{:>9}{:>9}{:>8}", "", "ratio", "ns in a row", "p50", "p99", "missed");
    for (way, measured) in Way::ALL.into_iter().zip(&rounds) {
        println!(
            "  {:<24}{:>8.1}{:>10.0}{:>9.0}{:>9.0}{:>8}",
            way.name(),
            of(way.peer(), |it| it.in_a_row) / of(way, |it| it.in_a_row),
            of(way, |it| it.in_a_row),
            of(way, |it| it.p50),
            of(way, |it| it.p99),
            measured.iter().map(|it| it.missed).sum::<usize>()
        );
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

/// One way by so many threads, each on its own half of what was chosen.
fn round(stores: &Stores, way: Way, chosen: &[usize], threads: usize, writes: bool) -> Done<Measured> {
    let over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        if writes {
            scope.spawn(|| write_until(stores, way, &over));
        }
        let looking: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || looker(stores, way, chosen, thread))).collect();
        let done: Result<Vec<Measured>, _> = looking.into_iter().map(ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        done
    });
    let done = done.map_err(|_| "a thread panicked")?;
    let mean = |field: fn(&Measured) -> f64| done.iter().map(field).sum::<f64>() / threads as f64;
    Ok(Measured {
        in_a_row: mean(|it| it.in_a_row),
        p50: mean(|it| it.p50),
        p99: mean(|it| it.p99),
        missed: done.iter().map(|it| it.missed).sum(),
    })
}

/// Fresh commands into the store that is looked at, one durable commit each.
fn write_until(stores: &Stores, way: Way, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let fresh = [Command::fresh_beyond(stores.records)];
        let written = match way {
            Way::PlainJudged | Way::PlainAnswered => stores.plain.run(&fresh),
            Way::File => stores.file.run(&fresh),
            _ => stores.memory.run(&fresh),
        };
        assert!(written.is_ok(), "the writer beside failed");
    }
}

fn looker(stores: &Stores, way: Way, chosen: &[usize], thread: usize) -> Measured {
    let mut room = Room::new();
    let mut steps = chosen.iter().cycle().skip(thread * CHOSEN / 2);
    let mut look = |missed: &mut usize| {
        let at = steps.next().copied().unwrap_or_default();
        *missed += usize::from(!stores.look(way, at, &mut room));
    };
    let mut missed = 0;
    let (mut looked, start) = (0, Instant::now());
    while start.elapsed() < ROUND / 2 {
        (0..IN_A_ROW).for_each(|_| look(&mut missed));
        looked += IN_A_ROW;
    }
    let in_a_row = start.elapsed().as_nanos() as f64 / looked as f64;

    let mut spans = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let mut before = start;
    while before - start < ROUND / 2 && spans.len() < spans.capacity() {
        look(&mut missed);
        let after = Instant::now();
        spans.push((after - before).as_nanos() as u32);
        before = after;
    }
    spans.sort_unstable();
    let clock = clock_ns();
    let part = |share: f64| (f64::from(spans[(spans.len() as f64 * share) as usize]) - clock).max(0.0);
    Measured { in_a_row, p50: part(0.50), p99: part(0.99), missed }
}

/// What one look at the clock takes, in nanoseconds: the least of many means.
fn clock_ns() -> f64 {
    let means = (0..20).map(|_| {
        let start = Instant::now();
        for _ in 0..99 {
            black_box(Instant::now());
        }
        start.elapsed().as_nanos() as f64 / 100.0
    });
    means.fold(f64::INFINITY, f64::min)
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

/// Each way by itself, and what a request costs before it is asked, with criterion's statistics.
fn parts(criterion: &mut Criterion, stores: &Stores) -> Done<()> {
    let mut group = criterion.benchmark_group("replay of 2,000 records");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for way in Way::ALL {
        group.bench_function(BenchmarkId::from_parameter(way.name()), |bencher| {
            let mut room = Room::new();
            let mut step = 0;
            bencher.iter(|| {
                step += 1;
                assert!(stores.look(way, choose(step, stores.records, false), &mut room), "{}", way.name());
            });
        });
    }
    let command = Command::numbered(0);
    let built = command.request()?;
    group.bench_function("a request built", |bencher| bencher.iter(|| command.request().is_ok()));
    group.bench_function("a request's first use", |bencher| {
        bencher.iter_batched(
            // A clone that is built upon forgets what was prepared.
            || built.clone(),
            |request| stores.memory.peek_receipt(&request).is_some(),
            criterion::BatchSize::SmallInput,
        );
    });
    group.finish();
    Ok(())
}
