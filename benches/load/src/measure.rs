//! Clocks, counters and statistics. Owns what a figure means; must not know what is measured.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Bytes written so far.
#[derive(Clone, Copy, Default)]
pub struct Written {
    /// By this process to the system; not what it writes through mapped memory.
    pub handed: u64,
    /// By anybody to the disk that the run is on, the file system's own included, where the system counts it.
    /// (Its count by process takes whole folios of the page cache for written, ten times too much.)
    pub device: Option<u64>,
}

impl Written {
    pub fn since(self, before: Self) -> Self {
        let device = self.device.zip(before.device).map(|(after, before)| after - before);
        Self { handed: self.handed - before.handed, device }
    }

    /// KiB to the disk a command; NaN where it is not told.
    pub fn device_kib(self, commands: f64) -> f64 {
        self.device.map_or(f64::NAN, |bytes| bytes as f64 / 1024.0 / commands)
    }

    pub fn handed_kib(self, commands: f64) -> f64 {
        self.handed as f64 / 1024.0 / commands
    }
}

/// The counters of the disk that the run is on.
static DISK: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Says on which disk the run is.
pub fn watch(dir: &Path) {
    let counters = std::fs::metadata(dir).ok().map(|meta| {
        let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"))
    });
    let _ = DISK.set(counters.filter(|path| path.exists()));
}

pub fn written() -> Written {
    const SECTORS_WRITTEN: usize = 6;
    const SECTOR: u64 = 512;
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let counters = DISK.get().and_then(Option::as_ref).and_then(|path| std::fs::read_to_string(path).ok());
    let sectors = counters.and_then(|text| text.split_whitespace().nth(SECTORS_WRITTEN)?.parse::<u64>().ok());
    Written { handed: field(&text, "wchar:").unwrap_or(0), device: sectors.map(|sectors| sectors * SECTOR) }
}

/// The first number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Processor time of this process so far.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What other processes did while rounds were driven: sums over a cell.
static OTHERS_US: AtomicU64 = AtomicU64::new(0);
static DRIVEN_US: AtomicU64 = AtomicU64::new(0);

/// A round, for who else used the processors meanwhile.
pub struct Watch {
    begun: Instant,
    busy_us: u64,
    own: Duration,
}

impl Watch {
    pub fn begin() -> Self {
        Self { begun: Instant::now(), busy_us: busy_us(), own: cpu() }
    }

    pub fn end(self) {
        let own = cpu().saturating_sub(self.own).as_micros() as u64;
        let others = (busy_us() - self.busy_us).saturating_sub(own);
        OTHERS_US.fetch_add(others, Ordering::Relaxed);
        DRIVEN_US.fetch_add(self.begun.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
}

/// Percent of one processor that others used in the rounds since the last call, threads of the system
/// included; NaN without rounds.
pub fn others_percent() -> f64 {
    let (others, driven) = (OTHERS_US.swap(0, Ordering::Relaxed), DRIVEN_US.swap(0, Ordering::Relaxed));
    if driven == 0 { f64::NAN } else { 100.0 * others as f64 / driven as f64 }
}

/// Time that all processors were busy with anything, in steps of 10 ms.
fn busy_us() -> u64 {
    const TICK_US: u64 = 10_000;
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut ticks = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = ticks.by_ref().map_while(|number| number.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, interrupts, soft, ..] = ticks[..] else { return 0 };
    (user + nice + system + interrupts + soft) * TICK_US
}

/// Processor, its number, and the system.
pub fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = system.split('-').next().unwrap_or_default().trim();
    format!("{cores} x {model}, Linux {release}")
}

/// Memory of this process in KiB.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    /// Resident and nobody else's: what it has allocated.
    pub anonymous: u64,
    /// Resident, mapped files included.
    pub resident: u64,
    /// The most it ever was.
    pub highest: u64,
}

pub fn memory() -> Memory {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| field(&text, name).unwrap_or(0);
    Memory { anonymous: number("RssAnon:"), resident: number("VmRSS:"), highest: number("VmHWM:") }
}

/// What reading the clock twice with nothing between costs: the median of many. Subtracted from every lookup
/// that is timed alone, and once from every row of lookups.
pub fn timer_ns() -> f64 {
    static TIMER: OnceLock<f64> = OnceLock::new();
    *TIMER.get_or_init(|| {
        let spans = (0..20_001).map(|_| Instant::now().elapsed().as_nanos() as f64).collect();
        Sample::of(spans).median()
    })
}

/// Numbers in order.
pub struct Sample(Vec<f64>);

impl Sample {
    pub fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }

    /// The number that so large a part of them does not exceed; NaN of nothing.
    pub fn at(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        self.at(0.5)
    }

    pub fn min(&self) -> f64 {
        self.at(0.0)
    }

    pub fn max(&self) -> f64 {
        self.at(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_knows_its_order() {
        let sample = Sample::of(vec![3.0, 1.0, 2.0]);
        assert!((sample.median() - 2.0).abs() < f64::EPSILON);
        assert!((sample.min() - 1.0).abs() < f64::EPSILON && (sample.max() - 3.0).abs() < f64::EPSILON);
        assert!(Sample::of(Vec::new()).median().is_nan());
    }

    #[test]
    fn the_system_tells_what_is_asked_of_it() {
        assert!(memory().resident > 0 && written().handed > 0);
        assert_eq!(field("a: 1 kB\nbc:\t22 kB\n", "bc:"), Some(22));
    }
}
