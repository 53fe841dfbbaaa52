//! `execute_many` by one caller, against as many commands in one transaction of each peer. Owns which cells
//! there are.

use crate::command::Ids;
use crate::contender::Done;
use crate::run::Run;
use crate::writes::{Cell, measure};

pub fn cells(run: &Run) -> Done<()> {
    for records in run.sizes(&[10_000, 100_000]) {
        for batch in [64, 512] {
            measure(run, &Cell { callers: 1, batch, ids: Ids::Growing, records })?;
        }
    }
    Ok(())
}
