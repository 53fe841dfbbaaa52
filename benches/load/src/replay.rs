//! Lookups of finished commands: onecho from memory, each peer by its own read, and maps that do the same
//! work. Owns the rounds and their tables; `lookup` owns how a lookup is timed.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use crate::choice::{Choice, Keys};
use crate::command::{Command, Ids};
use crate::contender::{Contender, Done, Profile, Who};
use crate::lookup::{Looked, Plan, Way};
use crate::measure::{Sample, Watch, timer_ns};
use crate::peers::maps::{Map, Maps};
use crate::run::{Opened, Run};
use crate::table::{Table, counted, heading, note, number, progress, times};

const IDS: Ids = Ids::Growing;
/// Lookups of one thread in one round; half in rows, half alone.
const LOOKUPS: usize = 1 << 14;
/// Lookups that bring a store's pages into its cache beforehand; onecho is asked for every record.
const WARM: u64 = 200_000;

/// Who looks, and who writes beside it.
#[derive(Clone, Copy)]
struct Setup {
    threads: usize,
    is_written: bool,
}

const SETUPS: [Setup; 4] = [
    Setup { threads: 1, is_written: false },
    Setup { threads: 2, is_written: false },
    Setup { threads: 1, is_written: true },
    Setup { threads: 2, is_written: true },
];

impl Setup {
    fn name(self) -> String {
        let threads = if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
        if self.is_written { format!("{threads} beside a durable writer") } else { threads }
    }
}

/// Nanoseconds in a row of one thread alone, by place and way.
type Alone = HashMap<(&'static str, &'static str), f64>;

/// What is looked up in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Store(Who),
    Map(Map),
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Store(Who::OnechoTwo) => "onecho",
            Self::Store(Who::RedbOne) => "redb",
            Self::Store(who) => who.name(),
            Self::Map(map) => map.name(),
        }
    }
}

/// The same records everywhere.
struct Places {
    records: u64,
    stores: Vec<(Who, Opened)>,
    maps: Maps,
    /// What the writer beside a map syncs.
    log: PathBuf,
}

pub fn cells(run: &Run) -> Done<()> {
    note(&format!(
        "Reading the clock twice takes {} ns here; that is subtracted from each lookup that is timed alone.",
        number(timer_ns(), 0)
    ));
    for records in run.sizes(&[2_000, 100_000, 1_000_000]) {
        let places = Places::open(run, records)?;
        for keys in [Keys::Uniform, Keys::Zipf] {
            let choice = Choice::new(keys, records);
            let mut alone = Alone::new();
            for setup in SETUPS {
                measure(run, &places, keys, &choice, setup, &mut alone)?;
            }
        }
        places.end()?;
    }
    Ok(())
}

impl Places {
    fn open(run: &Run, records: u64) -> Done<Self> {
        let maps = Maps::new(records);
        for map in Maps::DISTINCT {
            (0..records).for_each(|number| maps.insert(*map, &Command::numbered(number, IDS)));
        }
        let mut stores = Vec::new();
        for &who in run.who(Who::STORES) {
            let opened = run.opened(who, IDS, records, Profile::Replays(records))?;
            warm(who, opened.store()?, records)?;
            stores.push((who, opened));
        }
        Ok(Self { records, stores, maps, log: run.dir.path().join("beside.log") })
    }

    fn all(&self) -> Vec<Place> {
        let stores = self.stores.iter().map(|(who, _)| Place::Store(*who));
        stores.chain(Map::ALL.iter().map(|map| Place::Map(*map))).collect()
    }

    fn store(&self, who: Who) -> Done<&dyn Contender> {
        let found = self.stores.iter().find(|(known, _)| *known == who);
        found.ok_or_else(|| format!("{} is not open", who.name()))?.1.store()
    }

    fn time(&self, place: Place, plan: &Plan) -> Done<Looked> {
        match place {
            Place::Store(who) => self.store(who)?.time(plan),
            Place::Map(map) => self.maps.time(map, plan),
        }
    }

    fn end(self) -> Done<()> {
        self.stores.into_iter().try_for_each(|(_, opened)| opened.end())
    }
}

fn warm(who: Who, store: &dyn Contender, records: u64) -> Done<()> {
    progress(&format!("warming {} with {} records", who.name(), counted(records)));
    // For two threads: SQLite has a connection for each.
    let mut looks = [store.looks()?, store.looks()?];
    let mut body = Vec::new();
    let choice = Choice::new(Keys::Uniform, records);
    let all: Vec<u64> = if who.store() == "onecho" || records <= WARM {
        (0..records).collect()
    } else {
        (0..WARM).map(|step| u64::from(choice.at(step))).collect()
    };
    // What onecho keeps in memory is the same for all threads.
    let all_at_once = who.store() == "onecho";
    for number in all {
        let command = Command::numbered(number, IDS);
        let threads = if all_at_once { &mut looks[..1] } else { &mut looks[..] };
        for looks in threads {
            if !looks.look(&command, &mut body)? {
                return Err(format!("command {number} is not in {}", who.name()).into());
            }
        }
    }
    Ok(())
}

/// All rounds of one place and way.
#[derive(Default)]
struct Line {
    row_ns: Vec<f64>,
    alone_ns: Vec<f64>,
    ask_ns: Vec<f64>,
    missed: u64,
}

impl Line {
    fn row(&self) -> f64 {
        Sample::of(self.row_ns.clone()).median()
    }

    fn alone(&self) -> Sample {
        Sample::of(self.alone_ns.clone())
    }
}

fn measure(
    run: &Run,
    places: &Places,
    keys: Keys,
    choice: &Choice,
    setup: Setup,
    alone: &mut Alone,
) -> Done<()> {
    let name = format!("Replays, {} records, {}, {}", counted(places.records), keys.name(), setup.name());
    progress(&name);
    let all = places.all();
    let mut lines: Vec<[Line; 2]> = all.iter().map(|_| Default::default()).collect();
    for number in 0..run.rounds {
        for (place, lines) in all.iter().zip(&mut lines) {
            for (way, line) in [Way::Judged, Way::Answered].into_iter().zip(lines) {
                round(places, *place, way, choice, setup, number as u64, line)?;
            }
        }
    }
    heading(&name);
    let of = format!("{} {}", places.records, keys.name());
    for (at, way) in [Way::Judged, Way::Answered].into_iter().enumerate() {
        let of_way: Vec<(Place, &Line)> =
            all.iter().copied().zip(lines.iter().map(|lines| &lines[at])).collect();
        if setup.threads == 1 && !setup.is_written {
            alone.extend(of_way.iter().map(|(place, line)| ((place.name(), way.name()), line.row())));
        }
        tell(run, way, &of, setup, &of_way, alone);
    }
    table(setup, &all, &lines, alone);
    Ok(())
}

fn round(
    places: &Places,
    place: Place,
    way: Way,
    choice: &Choice,
    setup: Setup,
    number: u64,
    line: &mut Line,
) -> Done<()> {
    let chosen = |thread: usize| -> Vec<u32> {
        let first = (number * 8 + thread as u64) * LOOKUPS as u64;
        (first..first + LOOKUPS as u64).map(|step| choice.at(step)).collect()
    };
    let numbers: Vec<Vec<u32>> = (0..setup.threads).map(chosen).collect();
    let start = Barrier::new(setup.threads);
    let is_over = AtomicBool::new(false);
    let watch = Watch::begin();
    let looked = std::thread::scope(|scope| -> Done<Vec<Looked>> {
        let (start, is_over) = (&start, &is_over);
        let writer = setup.is_written.then(|| scope.spawn(|| write(places, place, is_over)));
        let readers: Vec<_> = numbers
            .iter()
            .map(|numbers| scope.spawn(move || places.time(place, &Plan { way, ids: IDS, numbers, start })))
            .collect();
        let readers: Vec<_> = readers.into_iter().map(ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        if let Some(writer) = writer {
            writer.join().map_err(|_| "the writer panicked")??;
        }
        readers.into_iter().map(|looked| looked.map_err(|_| "a reader panicked")?).collect()
    })?;
    watch.end();
    for one in looked {
        line.row_ns.extend(one.row_ns);
        line.ask_ns.extend(one.ask_ns);
        line.alone_ns.extend(one.alone_ns);
        line.missed += one.missed;
    }
    Ok(())
}

/// Fresh commands until the readers are done. A map has no disk: beside it 1 KiB is appended to a file and
/// synced, and then the command is inserted.
fn write(places: &Places, place: Place, is_over: &AtomicBool) -> Done<()> {
    let mut log = match place {
        Place::Map(_) => Some(File::create(&places.log)?),
        Place::Store(_) => None,
    };
    while !is_over.load(Ordering::Relaxed) {
        let (_, commands) = Command::fresh(1, IDS);
        match place {
            Place::Store(who) => places.store(who)?.run(&commands)?,
            Place::Map(map) => {
                if let Some(log) = &mut log {
                    log.write_all(&[0; 1024])?;
                    log.sync_data()?;
                }
                for command in &commands {
                    places.maps.insert(map, command);
                }
            }
        }
    }
    Ok(())
}

fn table(setup: Setup, all: &[Place], lines: &[[Line; 2]], alone: &Alone) {
    let mut table = Table::new(&[
        "",
        "judged: x onecho's time",
        "x its p50",
        "ns in a row",
        "p50 ns",
        "p99 ns",
        "2 threads / 1",
        "answered: x onecho's time",
        "x its p50",
        "ns in a row",
        "p50 ns",
        "p99 ns",
        "2 threads / 1",
        "not answered",
        "request ns",
    ]);
    let ours = all.iter().position(|place| *place == Place::Store(Who::OnechoTwo)).map(|at| &lines[at]);
    for (place, lines) in all.iter().zip(lines) {
        let mut cells = vec![place.name().to_owned()];
        for (at, way) in [Way::Judged, Way::Answered].into_iter().enumerate() {
            let (ns, sample) = (lines[at].row(), lines[at].alone());
            let base = ours.map_or((f64::NAN, f64::NAN), |ours| (ours[at].row(), ours[at].alone().median()));
            let one = alone.get(&(place.name(), way.name())).copied().unwrap_or(f64::NAN);
            let scaling = if setup.threads == 2 { 2.0 * one / ns } else { f64::NAN };
            cells.extend([
                times(ns / base.0),
                times(sample.median() / base.1),
                number(ns, 0),
                number(sample.median(), 0),
                number(sample.at(0.99), 0),
                number(scaling, 2),
            ]);
        }
        cells.push((lines[0].missed + lines[1].missed).to_string());
        cells.push(number(Sample::of(lines[0].ask_ns.clone()).median(), 0));
        table.row(cells);
    }
    table.print();
}

/// The same for the goals.
fn tell(run: &Run, way: Way, of: &str, setup: Setup, lines: &[(Place, &Line)], alone: &Alone) {
    let Some((place, ours)) = lines.iter().find(|(place, _)| *place == Place::Store(Who::OnechoTwo)) else {
        return;
    };
    let (way, threads) = (way.name(), setup.threads);
    if setup.is_written {
        run.figures.tell(format!("p99 {way} {of} {threads} writer"), ours.alone().at(0.99) / 1000.0);
        return;
    }
    for (peer, line) in lines {
        run.figures.tell(format!("{way} {of} {threads} {}", peer.name()), line.row() / ours.row());
    }
    if let Some(one) = alone.get(&(place.name(), way)).filter(|_| threads == 2) {
        run.figures.tell(format!("scaling {way} {of}"), 2.0 * one / ours.row());
    }
}
