//! Glances beside full looks: never back, never ahead, never far behind.

use std::thread;

use proptest::prelude::*;

use super::*;

const NOON: u64 = 1_796_040_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// How far a glance may be behind: until the next close look, and what a wall clock may be late.
const LATE_MAX_MS: u64 = 125;

/// A clock in the test's hands.
#[derive(Clone)]
struct Hands(Arc<Mutex<(u64, u64)>>);

impl Hands {
    fn at(wall: u64) -> Self {
        Self(Arc::new(Mutex::new((wall, 0))))
    }

    fn advance(&self, by: u64) {
        let mut hands = self.0.lock();
        *hands = (hands.0.saturating_add(by), hands.1 + by);
    }

    fn shift_wall(&self, by: i64) {
        let mut hands = self.0.lock();
        hands.0 = hands.0.saturating_add_signed(by);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.lock().0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.lock().1 * 1_000 + 700)
    }

    /// In steps of 7 milliseconds, as a tick shows it.
    fn recent_monotonic(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.0.lock().1 / 7 * 7))
    }
}

fn engine_clock(hands: &Hands) -> EngineClock {
    EngineClock::new(Arc::new(hands.clone()), 7 * DAY, Duration::from_secs(600), Timestamp(NOON), None)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(u64),
    /// Time passes on the monotonic clock only.
    Stands(u64),
    Shift(i64),
    Glance,
    Now,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let year = 365 * 86_400_000;
    let step = prop_oneof![
        4 => (0..5_u64).prop_map(Step::Advance),
        2 => (0..400_u64).prop_map(Step::Advance),
        1 => (0..700_000_u64).prop_map(Step::Advance),
        1 => (0..400_u64).prop_map(Step::Stands),
        2 => (-30..30_i64).prop_map(Step::Shift),
        1 => (-2_000..2_000_i64).prop_map(Step::Shift),
        1 => prop_oneof![Just(year), Just(-year)].prop_map(Step::Shift),
        8 => Just(Step::Glance),
        2 => Just(Step::Now),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_glance_never_goes_back_nor_ahead_nor_far_behind(steps in steps()) {
        let hands = Hands::at(NOON);
        let clock = engine_clock(&hands);
        let mut newest = clock.now();
        // What the wall clock was set forward since the last close look: noticed at the next one.
        let mut unnoticed = 0;
        let suspicions = steps.iter().any(|step| matches!(step, Step::Shift(by) if by.abs() > 1_000_000));
        for step in steps {
            match step {
                Step::Advance(by) => hands.advance(by),
                Step::Stands(by) => {
                    hands.advance(by);
                    hands.shift_wall(-i64::try_from(by).unwrap());
                }
                Step::Shift(by) => {
                    hands.shift_wall(by);
                    unnoticed += u64::try_from(by).unwrap_or(0);
                }
                Step::Glance => {
                    let glance = clock.glance();
                    let now = clock.now();
                    prop_assert!(newest <= glance && glance <= now);
                    let late = now.0 - glance.0;
                    prop_assert!(suspicions || late <= LATE_MAX_MS + unnoticed, "{late} ms late");
                    (newest, unnoticed) = (now, 0);
                }
                Step::Now => {
                    let now = clock.now();
                    prop_assert!(newest <= now);
                    (newest, unnoticed) = (now, 0);
                }
            }
        }
    }

    /// Glances alone keep time as well, and end a suspicion.
    #[test]
    fn glances_alone_keep_time(steps in prop::collection::vec(0..700_000_u64, 1..40), jumps: bool) {
        let hands = Hands::at(NOON);
        let clock = engine_clock(&hands);
        if jumps {
            hands.shift_wall(365 * 86_400_000);
            prop_assert_eq!(clock.glance(), Timestamp(NOON));
        }
        let (mut passed, mut last) = (0, Timestamp(NOON));
        for by in steps {
            hands.advance(by);
            passed += by;
            let glance = clock.glance();
            prop_assert!(glance >= last);
            last = glance;
            let steady = NOON + passed;
            let expected = if jumps && passed >= 600_000 { steady + 365 * 86_400_000 } else { steady };
            prop_assert!(glance.0 <= expected && expected - glance.0 <= LATE_MAX_MS);
        }
    }
}

/// On several threads, while the wall clock is set about: what one was told, no later one falls behind.
#[test]
fn no_thread_is_told_less_than_another_before() {
    let hands = Hands::at(NOON);
    let clock = engine_clock(&hands);
    let told = AtomicU64::new(0);
    thread::scope(|threads| {
        for full in [false, false, true] {
            let (clock, told) = (&clock, &told);
            threads.spawn(move || {
                for _ in 0..20_000 {
                    let floor = told.load(Ordering::Acquire);
                    let now = if full { clock.now() } else { clock.glance() };
                    assert!(now.0 >= floor, "{} after {floor}", now.0);
                    told.fetch_max(now.0, Ordering::AcqRel);
                }
            });
        }
        for step in 0..20_000_i64 {
            hands.advance(step.unsigned_abs() % 3);
            hands.shift_wall([0, 15, -40, 3, -3, 25][usize::try_from(step % 6).unwrap()]);
        }
    });
}

/// The system's recent clock is never ahead of its clock, whenever between two ticks it was started: each is
/// looked at until a tick has passed.
#[test]
fn the_recent_clock_is_never_ahead() {
    for _ in 0..20 {
        let clock = SystemClock::new();
        let mut ticks = 0;
        let mut last = clock.recent_monotonic().unwrap();
        while ticks < 2 {
            let recent = clock.recent_monotonic().unwrap();
            let now = clock.monotonic();
            assert!(recent <= now, "{recent:?} at {now:?}");
            ticks += u32::from(recent != last);
            last = recent;
        }
    }
}
