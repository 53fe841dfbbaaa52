//! Glances beside full looks: never back, never ahead, never far behind.

use std::thread;

use proptest::prelude::*;

use super::*;

const NOON: u64 = 1_796_040_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// How far a glance may be behind: until the next close look, and what a wall clock may be late.
const LATE_MAX_MS: u64 = 100 + RECENT_LAG_MS;

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
        Duration::from_millis(self.0.lock().1)
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
        for step in steps {
            match step {
                Step::Advance(by) => hands.advance(by),
                Step::Stands(by) => {
                    hands.advance(by);
                    hands.shift_wall(-i64::try_from(by).unwrap());
                }
                Step::Shift(by) => hands.shift_wall(by),
                Step::Glance => {
                    let glance = clock.glance();
                    let now = clock.now();
                    prop_assert!(newest <= glance && glance <= now);
                    prop_assert!(now.0 - glance.0 <= LATE_MAX_MS, "{} ms late", now.0 - glance.0);
                    newest = now;
                }
                Step::Now => {
                    let now = clock.now();
                    prop_assert!(newest <= now);
                    newest = now;
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
            prop_assert!(expected - glance.0 <= LATE_MAX_MS);
        }
    }
}

/// A suspicion that glances saw the end of is over: another jump begins another one.
#[test]
fn a_clock_that_came_back_between_two_jumps_settles_anew() {
    let hands = Hands::at(NOON);
    let clock = engine_clock(&hands);
    let year = 365 * 86_400_000;
    hands.shift_wall(year);
    assert_eq!(clock.glance(), Timestamp(NOON));
    hands.shift_wall(-year);
    assert_eq!(clock.glance(), Timestamp(NOON));
    hands.advance(700_000);
    hands.shift_wall(year);
    assert_eq!(clock.now(), Timestamp(NOON + 700_000));
    assert!(clock.is_suspect());
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

/// The system's recent time is not ahead of its time, and not far behind.
#[test]
fn recent_time_is_a_little_late() {
    let clock = SystemClock::new();
    for _ in 0..1_000 {
        let (wall, monotonic) = clock.recent();
        let (now, monotonic_now) = (clock.now(), clock.monotonic());
        assert!(wall <= now, "{wall} is ahead of {now}");
        // It began up to a tick earlier than its own start.
        assert!(monotonic <= monotonic_now + Duration::from_millis(RECENT_LAG_MS));
    }
}
