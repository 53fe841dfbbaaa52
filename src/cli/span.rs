//! Spans of time on the command line. Owns their spelling: a number and its unit, never a number alone.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Timestamp;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A span such as `30s`. Seconds and milliseconds are never guessed apart.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("a span is a number and its unit, such as 30s, 5m or 24h".to_owned());
    }
    if unit.is_empty() {
        return Err(format!("{text} has no unit: say {text}s, {text}m or {text}h"));
    }
    let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("{unit:?} is no unit: ms, s, m, h and d are"));
    };
    let span = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis));
    span.map(Duration::from_millis).ok_or_else(|| "that is too long".to_owned())
}

/// A span in the largest unit that it has two of, rounded down: for people.
pub(super) fn shown(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let (name, unit) = UNITS.iter().rev().find(|(_, unit)| millis >= 2 * unit).unwrap_or(&UNITS[0]);
    format!("{}{name}", millis / unit)
}

/// How long ago that was, by the clock of the person who looks.
#[expect(clippy::disallowed_methods, reason = "an age for people, in their time")]
pub(super) fn ago(at: Timestamp) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(at.0))
}

/// Until when a person said to wait, in that person's time; none is for ever.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Option<Instant>);

#[expect(clippy::disallowed_methods, reason = "how long a person waits, by the clock of the machine")]
impl Deadline {
    pub fn after(span: Duration) -> Self {
        Self(Instant::now().checked_add(span))
    }

    /// What is left; zero when it is over.
    pub fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_unit_and_is_exact() {
        assert_eq!(parse("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        assert!(parse("24").is_err_and(|why| why.contains("24s")));
        for bad in ["", "s", "-1s", "1.5h", "1 h", "3 weeks", "1S", "18446744073709551615d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_span_is_shown_in_the_unit_that_tells_most() {
        let of = |millis| shown(Duration::from_millis(millis));
        assert_eq!(
            [of(0), of(1_999), of(2_000), of(119_000), of(7_200_000)],
            ["0ms", "1999ms", "2s", "119s", "2h"]
        );
    }
}
