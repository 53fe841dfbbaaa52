//! refused: E0308

use onecho::{BoxError, Claim, Contract, Step};

const CHARGE: Step<u64> = Step::new("charge", Contract::Idempotent);

fn say(claim: &mut Claim) -> Result<(), BoxError> {
    claim.answer(&CHARGE, &"captured")?;
    Ok(())
}

fn main() {}
