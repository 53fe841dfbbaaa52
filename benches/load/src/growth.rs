//! A store that grows: fresh commands of 64 callers from 10,000 records to 1,000,000. Owns the steps and what
//! is told of each.

use std::collections::BTreeMap;

use crate::command::{Ids, PAYLOAD_BYTES};
use crate::contender::{Contender, Done, Profile, Who};
use crate::disk::{Size, size};
use crate::drive::{Call, Driven, Until, drive};
use crate::measure::Sample;
use crate::run::{Run, counts};
use crate::table::{Table, counted, heading, note, number, progress, times};
use crate::writes::Fresh;

const IDS: Ids = Ids::Growing;
const CALLERS: usize = 64;
const STEPS: [u64; 8] = [20_000, 50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000];
/// At least one sweep of the index falls into a few of these, where sweeps are.
const WINDOW_MS: u128 = 50;

pub fn cells(run: &Run) -> Done<()> {
    for who in run.who(&[Who::OnechoTwo, Who::OnechoOne]) {
        grow(run, *who)?;
    }
    plain(run)
}

/// One store, from its beginning to its end without a pause.
fn grow(run: &Run, who: Who) -> Done<()> {
    let name = format!("Growth of {}, {CALLERS} callers", who.name());
    let opened = run.opened(who, IDS, 10_000, Profile::Checked)?;
    let store = opened.store()?;
    let mut records = 10_000;
    let mut table = Table::new(&[
        "records",
        "x the first step",
        "commands/s",
        "p50 us",
        "p99 us",
        "p99 of the slowest tenth of 50 ms",
        "x the rest's",
        "CPU us/command",
        "KiB to device/command",
        "allocated/payload",
        "length/payload",
    ]);
    let (mut first, mut worst) = (f64::NAN, f64::NEG_INFINITY);
    for step in STEPS.into_iter().filter(|step| !run.is_quick || *step <= 20_000) {
        progress(&format!("{name}, to {} records", counted(step)));
        let caller = |_| Ok(Fresh::new(store, 1, IDS));
        let driven = drive(CALLERS, Until::Calls(step - records), caller)?;
        let commands = step - records;
        counts(store, step)?;
        let rate = commands as f64 / driven.took.as_secs_f64();
        if first.is_nan() {
            first = rate;
        }
        let (slow, rest) = tenths(&driven.calls);
        worst = worst.max(slow.at(0.99) / rest.at(0.99));
        table.row(row(&driven, (records, step), rate, first, size(opened.dir())?));
        records = step;
    }
    run.figures.tell(format!("growth slow {} {records}", who.phases()), worst);
    heading(&name);
    note(
        "Without a pause, in steps. The slowest tenth of windows of 50 ms stands for sweeps and the disk's \
         own moods: the store does not tell them apart.",
    );
    table.print();
    opened.end()
}

fn row(driven: &Driven<u64>, (from, to): (u64, u64), rate: f64, first: f64, size: Size) -> Vec<String> {
    let commands = (to - from) as f64;
    let latency = driven.latency();
    let (slow, rest) = tenths(&driven.calls);
    let payload = (to * PAYLOAD_BYTES as u64) as f64;
    vec![
        format!("{} to {}", counted(from), counted(to)),
        times(rate / first),
        number(rate, 0),
        number(latency.median(), 0),
        number(latency.at(0.99), 0),
        number(slow.at(0.99), 0),
        times(slow.at(0.99) / rest.at(0.99)),
        number(driven.cpu.as_secs_f64() * 1e6 / commands, 1),
        number(driven.written.device_kib(commands), 2),
        number(size.allocated as f64 / payload, 2),
        number(size.length as f64 / payload, 2),
    ]
}

/// The calls that ended in the tenth of windows with the fewest of them, and the others.
fn tenths<K>(calls: &[Call<K>]) -> (Sample, Sample) {
    let mut windows: BTreeMap<u128, Vec<f64>> = BTreeMap::new();
    for call in calls {
        windows.entry(call.at.as_millis() / WINDOW_MS).or_default().push(call.us);
    }
    // The last one is cut off by the end.
    windows.pop_last();
    let mut windows: Vec<Vec<f64>> = windows.into_values().collect();
    windows.sort_by_key(Vec::len);
    let rest = windows.split_off(windows.len().div_ceil(10).min(windows.len()));
    (Sample::of(windows.concat()), Sample::of(rest.concat()))
}

/// Plain redb beside onecho at three sizes, rounds taking turns: a store that commits each command would take
/// ten minutes to grow.
fn plain(run: &Run) -> Done<()> {
    let who = run.who(&[Who::OnechoOne, Who::OnechoTwo, Who::RedbOne]);
    let mut smallest: Vec<f64> = Vec::new();
    let mut table = Table::new(&[
        "records",
        "",
        "x redb one-phase",
        "commands/s",
        "min-max",
        "p99 us",
        "KiB to device/command",
        "allocated/payload",
        "length/payload",
    ]);
    for records in run.sizes(&[10_000, 100_000, 1_000_000]) {
        progress(&format!("Growth, all at {} records", counted(records)));
        let mut rounds: Vec<Vec<Driven<u64>>> = who.iter().map(|_| Vec::new()).collect();
        let mut sizes = vec![Size::default(); who.len()];
        for _ in 0..run.rounds {
            for (at, who) in who.iter().enumerate() {
                let opened = run.opened(**who, IDS, records, Profile::Checked)?;
                let store = opened.store()?;
                sizes[at] = size(&run.prepared(**who, IDS, records)?)?;
                rounds[at].push(one(run, store, records)?);
                opened.end()?;
            }
        }
        let rates: Vec<Sample> =
            rounds.iter().map(|rounds| Sample::of(rounds.iter().map(rate).collect())).collect();
        let base = who.iter().position(|who| **who == Who::RedbOne).map_or(f64::NAN, |at| rates[at].median());
        if smallest.is_empty() {
            smallest = rates.iter().map(Sample::median).collect();
        }
        for (at, who) in who.iter().enumerate() {
            let kib = rounds[at].iter().map(|driven| driven.written.device_kib(driven.calls.len() as f64));
            let spans = rounds[at].iter().flat_map(Driven::spans).collect();
            let payload = (records * PAYLOAD_BYTES as u64) as f64;
            let kib = Sample::of(kib.collect()).median();
            if who.store() == "onecho" {
                let tell = |what, figure| {
                    run.figures.tell(format!("growth {what} {} {records}", who.phases()), figure);
                };
                tell("device", kib);
                tell("allocated", sizes[at].allocated as f64 / payload);
                tell("rate", rates[at].median() / smallest[at]);
            }
            table.row(vec![
                counted(records),
                who.name().to_owned(),
                times(rates[at].median() / base),
                number(rates[at].median(), 0),
                format!("{}-{}", number(rates[at].min(), 0), number(rates[at].max(), 0)),
                number(Sample::of(spans).at(0.99), 0),
                number(kib, 2),
                number(sizes[at].allocated as f64 / payload, 2),
                number(sizes[at].length as f64 / payload, 2),
            ]);
        }
    }
    heading(&format!("The same sizes side by side, {CALLERS} callers"));
    note("Each round on a fresh copy of a prepared store; sizes are those of the prepared store, closed.");
    table.print();
    Ok(())
}

fn one(run: &Run, store: &dyn Contender, records: u64) -> Done<Driven<u64>> {
    let caller = |_| Ok(Fresh::new(store, 1, IDS));
    let warm = drive(CALLERS, Until::Time(run.round / 4), caller)?;
    let driven = drive(CALLERS, Until::Time(run.round), caller)?;
    counts(store, records + (warm.calls.len() + driven.calls.len()) as u64)?;
    Ok(driven)
}

fn rate(driven: &Driven<u64>) -> f64 {
    driven.calls.len() as f64 / driven.took.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_slowest_windows_are_those_with_the_fewest_calls() {
        let mut calls = Vec::new();
        for window in 0..21_u64 {
            let (count, us) = if window == 7 { (1, 900.0) } else { (50, 10.0) };
            let at = Duration::from_millis(window * 50 + 1);
            calls.extend((0..count).map(|_| Call { kept: (), us, at }));
        }
        let (slow, rest) = tenths(&calls);
        assert!((slow.max() - 900.0).abs() < 1e-9 && (rest.max() - 10.0).abs() < 1e-9);
    }
}
