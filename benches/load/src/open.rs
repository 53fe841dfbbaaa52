//! How long opening takes: of a store that was closed, and of one whose process was killed amid its commits.
//! Owns the cell.

use std::time::Instant;

use crate::child;
use crate::command::Ids;
use crate::contender::{Contender, Done, Profile, Who};
use crate::measure::Sample;
use crate::run::{Run, answers};
use crate::table::{Table, counted, heading, note, number, progress};

const IDS: Ids = Ids::Growing;
/// Up to here every peer is opened; above it only onecho and redb, whose copies alone take minutes.
const ALL_UP_TO: u64 = 100_000;

pub fn cells(run: &Run) -> Done<()> {
    for records in run.sizes(&[10_000, 100_000, 1_000_000]) {
        let mut rows = Vec::new();
        for &who in run.who(Who::ALL) {
            if records <= ALL_UP_TO || ["onecho", "redb"].contains(&who.store()) {
                progress(&format!("Opening {}, {} records", who.name(), counted(records)));
                rows.push((who, spans(run, who, records)?));
            }
        }
        heading(&format!("Opening, {} records", counted(records)));
        run.tell_side(IDS, records)?;
        note(
            "Until `open` returns. The system's page cache is warm; the kill is a SIGKILL, which a page \
             cache survives.",
        );
        let mut table = Table::new(&["", "closed, ms", "min-max", "killed, ms", "min-max"]);
        for (who, (closed, killed)) in rows {
            if who.store() == "onecho" {
                run.figures.tell(format!("killed {} {records}", who.phases()), killed.median());
            }
            let range = |sample: &Sample| format!("{}-{}", number(sample.min(), 1), number(sample.max(), 1));
            table.row(vec![
                who.name().to_owned(),
                number(closed.median(), 1),
                range(&closed),
                number(killed.median(), 1),
                range(&killed),
            ]);
        }
        table.print();
    }
    Ok(())
}

/// Milliseconds of openings after a close and after a kill. One copy serves them all: each opening finds what
/// the one before it, or the killed process, has left.
fn spans(run: &Run, who: Who, records: u64) -> Done<(Sample, Sample)> {
    let dir = run.copy(who, IDS, records)?;
    let open = || -> Done<(Box<dyn Contender>, f64)> {
        let begun = Instant::now();
        let store = who.open(&dir, Profile::Default)?;
        Ok((store, begun.elapsed().as_secs_f64() * 1e3))
    };
    let (mut closed, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..=run.rounds {
        let (store, span) = open()?;
        store.close()?;
        closed.push(span);
    }
    // The first opening may put right what the copy changed; it is not counted.
    closed.remove(0);
    for round in 0..run.rounds as u64 {
        let acknowledged = child::killed(who, &dir, (2 << 40) + (round << 32))?;
        let (store, span) = open()?;
        killed.push(span);
        answers(&*store, &acknowledged, IDS)?;
        store.close()?;
    }
    crate::disk::removed(&dir)?;
    Ok((Sample::of(closed), Sample::of(killed)))
}
