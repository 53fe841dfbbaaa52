//! `execute` of fresh commands, one a call. Owns which cells there are.

use crate::command::Ids;
use crate::contender::Done;
use crate::run::Run;
use crate::writes::{Cell, measure};

const SIZES: [u64; 2] = [10_000, 100_000];

/// Resources under ids that grow, as from a counter or a time.
pub fn growing(run: &Run) -> Done<()> {
    cells(run, Ids::Growing, &[1, 2, 8, 64])
}

/// Resources under random ids: each is on a page of its own.
pub fn random(run: &Run) -> Done<()> {
    cells(run, Ids::Random, &[1, 64])
}

fn cells(run: &Run, ids: Ids, all: &[usize]) -> Done<()> {
    for records in run.sizes(&SIZES) {
        for callers in run.callers(all) {
            measure(run, &Cell { callers, batch: 1, ids, records })?;
        }
    }
    Ok(())
}
