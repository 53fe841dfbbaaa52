//! refused: E0599

use onecho::Claim;

fn two(claim: Claim) -> (Claim, Claim) {
    (claim.clone(), claim)
}

fn main() {}
