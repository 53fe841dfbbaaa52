//! Which states a power cut may leave, one after another or one at random.
//!
//! Owns the choice: which pending changes are kept, which writes are torn and how, and how a budget of states
//! is spread over the crash points. It must not know how a state is opened or judged.
//!
//! Two changes that are both kept are applied in the order of their calls. Reordering needs no more than
//! that: where they do not overlap the order cannot be seen, and where they do, the older one winning is
//! the newer one lost or torn there.

use std::collections::HashSet;

use super::SimDisk;
use super::model::{Beyond, Change, FileId, Image, Logged, Model};
use super::rng::{Rng, mix};

/// Up to here every subset of the pending changes is a state of its own.
const SUBSETS_PENDING_MAX: usize = 10;
/// Beyond it, so many samples.
const SUBSET_SAMPLES: usize = 64;
/// Torn states tried at a point: half of what the budget leaves it, within these bounds.
const TEAR_SAMPLES_MIN: u64 = 24;
const TEAR_SAMPLES_MAX: u64 = 256;
/// What redb writes as its header lies in here. A write that touches it is torn byte by byte and never holds
/// random bytes: that a byte is old or new is what redb demands of a disk, and what its commit rests on.
const HEADER_BYTES: u64 = 512;
/// The sizes of a piece that is written whole or not at all.
const SECTORS: [usize; 3] = [4096, 512, 1];

/// Everything done to a disk since the recording began.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(super) seed: u64,
    pub(super) base: Model,
    pub(super) lines: Vec<Logged>,
}

impl Log {
    /// How many moments there are at which the power can go: before each line, and after the last.
    pub(crate) fn points(&self) -> usize {
        self.lines.len() + 1
    }
    /// At most `states_max` states, spread evenly over all crash points; what a point does not use passes on
    /// to the later ones. Two states with the same names, bytes and count of marks are given once.
    pub(crate) fn crash_states(&self, states_max: u64) -> CrashStates<'_> {
        let mut states = CrashStates {
            log: self,
            model: self.base.clone(),
            point: 0,
            marks: 0,
            states_max,
            given: 0,
            plans: Vec::new(),
            seen: HashSet::new(),
        };
        states.plan();
        states
    }
}

/// A state that a power cut may leave.
#[derive(Debug)]
pub(crate) struct CrashState {
    /// Before which line of the log the power went.
    pub(crate) point: usize,
    /// How many marks were set before it.
    pub(crate) marks: u64,
    /// Of all that can be reached by name.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare whole runs by it"))]
    pub(crate) hash: u64,
    /// What stands on the disk then: a disk of its own, at rest.
    pub(crate) disk: SimDisk,
}

/// See [`Log::crash_states`].
#[derive(Debug)]
pub(crate) struct CrashStates<'a> {
    log: &'a Log,
    model: Model,
    point: usize,
    marks: u64,
    states_max: u64,
    given: u64,
    /// For the present point; the next one is at the end.
    plans: Vec<Plan>,
    seen: HashSet<u64>,
}

impl CrashStates<'_> {
    /// How many states may still be given at the present point.
    fn quota(&self) -> u64 {
        let share = u128::from(self.states_max) * (self.point as u128 + 1) / self.log.points() as u128;
        u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(self.given)
    }

    /// Chooses what to try at the present point.
    fn plan(&mut self) {
        let before = self.point.checked_sub(1).and_then(|line| self.log.lines.get(line));
        let all = match before {
            // Nothing that a power cut could see has changed since the point before.
            Some(Logged::SyncBegin { .. }) => return self.plans.clear(),
            // States without the newest change were those of the point before.
            Some(Logged::Changed(_)) => false,
            _ => true,
        };
        let mut rng = Rng::derived(self.log.seed, self.point as u64);
        self.plans = plans(&self.model, all, self.quota(), &mut rng);
    }

    /// On to the next crash point; false after the last.
    fn advance(&mut self) -> bool {
        let Some(line) = self.log.lines.get(self.point) else {
            return false;
        };
        self.model.apply(line);
        self.marks += u64::from(matches!(line, Logged::Mark));
        self.point += 1;
        self.plan();
        true
    }
}

impl Iterator for CrashStates<'_> {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        loop {
            while self.quota() > 0
                && let Some(plan) = self.plans.pop()
            {
                let image = plan.image(&self.model);
                let hash = image.hash();
                if self.seen.insert(mix(hash, self.marks)) {
                    self.given += 1;
                    let disk = SimDisk::at_rest(mix(self.log.seed, self.given), image);
                    return Some(CrashState { point: self.point, marks: self.marks, hash, disk });
                }
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

/// How one state comes out of what is pending.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    keep: Keep,
    beyond: Beyond,
    /// The seed of the tears; without one every kept write is whole.
    tear: Option<u64>,
}

#[derive(Clone, Debug)]
enum Keep {
    /// The first so many.
    Prefix(usize),
    /// Those whose bit is set.
    Mask(u64),
    AllBut(usize),
    /// Each with this chance in four; the newest always.
    Sample {
        seed: u64,
        of_four: usize,
    },
}

impl Plan {
    /// Any legal state, for a crash that is not one of a series.
    pub(super) fn any(rng: &mut Rng, pending: usize) -> Self {
        let keep = match rng.below(8) {
            0 => Keep::Prefix(rng.below(pending + 1)),
            1 => Keep::Prefix(pending),
            chance => Keep::Sample { seed: rng.next(), of_four: 1 + chance % 3 },
        };
        let beyond = if rng.once_in(2) { Beyond::Lost } else { Beyond::Extends };
        let tear = rng.once_in(2).then(|| rng.next());
        Self { keep, beyond, tear }
    }

    pub(super) fn image(&self, model: &Model) -> Image {
        let mut image = model.durable().clone();
        let mut tears = self.tear.map(Rng::new);
        let mut chance = match self.keep {
            Keep::Sample { seed, .. } => Rng::new(seed),
            _ => Rng::new(0),
        };
        let newest = model.pending_len().saturating_sub(1);
        for (at, change) in model.pending().enumerate() {
            let kept = match self.keep {
                Keep::Prefix(count) => at < count,
                Keep::Mask(mask) => mask >> at & 1 == 1,
                Keep::AllBut(lost) => at != lost,
                Keep::Sample { of_four, .. } => chance.below(4) < of_four || at == newest,
            };
            if !kept {
                continue;
            }
            if let (Change::Write { file, offset, data }, Some(rng)) = (change, &mut tears)
                && rng.once_in(2)
            {
                write_torn(&mut image, *file, *offset, data, self.beyond, rng);
            } else {
                image.apply(change, self.beyond);
            }
        }
        image
    }
}

/// What to try at one point, the next one last. With a quota that is too small for all, each way of losing
/// things gets its turn before one of them gets a second.
fn plans(model: &Model, all: bool, quota: u64, rng: &mut Rng) -> Vec<Plan> {
    let pending = model.pending_len();
    let whole = |keep| Plan { keep, beyond: Beyond::Extends, tear: None };
    let mut prefixes = vec![whole(Keep::Prefix(pending))];
    if all {
        prefixes.extend((0..pending).map(|count| whole(Keep::Prefix(count))));
    }
    let mut resizes = Vec::new();
    for (at, change) in model.pending().enumerate() {
        if matches!(change, Change::SetLen { .. } | Change::Allocate { .. }) {
            for beyond in [Beyond::Extends, Beyond::Lost] {
                resizes.push(Plan { keep: Keep::AllBut(at), beyond, tear: None });
            }
        }
    }
    let mut subsets = Vec::new();
    for keep in subsets_of(pending, all, rng) {
        if !resizes.is_empty() {
            subsets.push(Plan { keep: keep.clone(), beyond: Beyond::Lost, tear: None });
        }
        subsets.push(whole(keep));
    }
    let torn = model.pending().any(|change| matches!(change, Change::Write { .. }));
    let samples = if torn { (quota / 2).clamp(TEAR_SAMPLES_MIN, TEAR_SAMPLES_MAX) } else { 0 };
    let tears = (0..samples).map(|_| Plan {
        keep: Keep::Sample { seed: rng.next(), of_four: 3 },
        beyond: if rng.once_in(2) { Beyond::Lost } else { Beyond::Extends },
        tear: Some(rng.next()),
    });
    let tears = tears.collect();
    in_turn([prefixes, tears, subsets, resizes], quota, rng)
}

fn subsets_of(pending: usize, all: bool, rng: &mut Rng) -> Vec<Keep> {
    if pending > SUBSETS_PENDING_MAX {
        let sample = |_| Keep::Sample { seed: rng.next(), of_four: 2 };
        return (0..SUBSET_SAMPLES).map(sample).collect();
    }
    let every = 1_u64 << pending;
    let first = if all { 0 } else { every / 2 };
    (first..every).map(Keep::Mask).collect()
}

fn in_turn(mut kinds: [Vec<Plan>; 4], quota: u64, rng: &mut Rng) -> Vec<Plan> {
    let count = kinds.iter().map(Vec::len).sum();
    if count as u64 > quota {
        for kind in &mut kinds {
            rng.shuffle(kind);
        }
    }
    let mut plans = Vec::with_capacity(count);
    while plans.len() < count {
        plans.extend(kinds.iter_mut().filter_map(Vec::pop));
    }
    plans.reverse();
    plans
}

/// Applies a write of which some sectors, or some bytes, did not arrive.
fn write_torn(image: &mut Image, file: FileId, offset: u64, data: &[u8], beyond: Beyond, rng: &mut Rng) {
    let header = offset < HEADER_BYTES;
    let sector = if header { 1 } else { SECTORS[rng.below(SECTORS.len())] };
    if sector == 1 && !rng.once_in(3) {
        // A run of bytes that ends or begins inside: the usual way of a transfer that was cut off.
        let cut = rng.below(data.len() + 1);
        return if rng.once_in(2) {
            image.write(file, offset, &data[..cut], beyond);
        } else {
            image.write(file, offset + cut as u64, &data[cut..], beyond);
        };
    }
    let random = !header && rng.once_in(4);
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let within = (at % sector as u64) as usize;
        let end = data.len().min(done + sector - within);
        if rng.once_in(2) {
            image.write(file, at, &data[done..end], beyond);
        } else if random {
            let mut noise = vec![0; end - done];
            rng.fill(&mut noise);
            image.write(file, at, &noise, beyond);
        }
        done = end;
    }
}
