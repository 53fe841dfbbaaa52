//! refused: E0308

use onecho::{Effects, Kind, Outcome};

const NOTES: Kind<String> = Kind::json("note");

fn body(fx: &mut Effects<'_, '_>) -> Result<Outcome, onecho::BoxError> {
    fx.put(&NOTES, "id", &17_u64)?;
    fx.add(&NOTES, "id", 1, 0)?;
    Ok(Outcome::succeeded(200))
}

fn main() {}
