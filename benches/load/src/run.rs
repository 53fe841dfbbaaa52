//! What a run was asked for, and the stores it begins with. Owns the settings and the prepared directories.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{Command, Ids};
use crate::contender::{Contender, Done, Profile, Who};
use crate::disk::{RunDir, copied, removed, size};
use crate::goals::Figures;
use crate::table::{counted, note, progress};

/// Where onecho's defaults begin to save what makes the open after a kill short
/// (`Options::check_at_open_max`).
const CHECK_AT_OPEN_MAX: u64 = 64 << 20;
/// Commands a call when a store is prepared.
const LOAD: u64 = 10_000;

pub struct Run {
    pub dir: RunDir,
    pub rounds: usize,
    /// How long a round of writes is.
    pub round: Duration,
    /// Seconds instead of minutes, for who wants to know whether it runs.
    pub is_quick: bool,
    /// Only these stores; all when empty.
    pub stores: Vec<String>,
    /// Only these numbers of callers; all when empty.
    pub callers: Vec<usize>,
    /// Only these sizes; all when empty.
    pub records: Vec<u64>,
    /// What came out, for the goals.
    pub figures: Figures,
}

impl Run {
    pub fn who<'w>(&self, of: &'w [Who]) -> Vec<&'w Who> {
        of.iter()
            .filter(|who| self.stores.is_empty() || self.stores.iter().any(|s| s == who.store()))
            .collect()
    }

    pub fn callers(&self, all: &[usize]) -> Vec<usize> {
        let wanted = |callers: &usize| self.callers.is_empty() || self.callers.contains(callers);
        all.iter().copied().filter(wanted).collect()
    }

    pub fn sizes(&self, all: &[u64]) -> Vec<u64> {
        let most = if self.is_quick { 10_000 } else { u64::MAX };
        let wanted =
            |records: &u64| *records <= most && (self.records.is_empty() || self.records.contains(records));
        all.iter().copied().filter(wanted).collect()
    }

    /// A store with so many records, made once in a run and closed.
    pub fn prepared(&self, who: Who, ids: Ids, records: u64) -> Done<PathBuf> {
        let name = format!("{}-{}-{records}", who.store(), ids.name().replace(' ', "-"));
        let dir = self.dir.path().join("prepared").join(&name);
        if dir.exists() {
            return Ok(dir);
        }
        progress(&format!("preparing {name}"));
        let making = self.dir.path().join("making");
        removed(&making)?;
        let store = who.open(&making, Profile::Loading)?;
        let mut made = 0;
        while made < records {
            let end = (made + LOAD).min(records);
            let commands: Vec<Command> = (made..end).map(|number| Command::numbered(number, ids)).collect();
            store.run(&commands)?;
            made = end;
        }
        counts(&*store, records)?;
        store.close()?;
        std::fs::create_dir_all(dir.parent().ok_or("a directory without a parent")?)?;
        std::fs::rename(&making, &dir)?;
        Ok(dir)
    }

    /// An open store on a synced copy of the prepared one.
    pub fn opened(&self, who: Who, ids: Ids, records: u64, profile: Profile) -> Done<Opened> {
        let dir = self.copy(who, ids, records)?;
        let store = who.open(&dir, profile)?;
        Ok(Opened { store: Some(store), dir })
    }

    pub fn copy(&self, who: Who, ids: Ids, records: u64) -> Done<PathBuf> {
        let prepared = self.prepared(who, ids, records)?;
        let dir = self.dir.path().join(format!("round-{}", who.name().replace(' ', "-")));
        copied(&prepared, &dir)?;
        Ok(dir)
    }

    /// On which side of `check_at_open_max` onecho is with so many records.
    pub fn tell_side(&self, ids: Ids, records: u64) -> Done<()> {
        if self.who(&[Who::OnechoTwo]).is_empty() {
            return Ok(());
        }
        let length = size(&self.prepared(Who::OnechoTwo, ids, records)?)?.length;
        let side = if length > CHECK_AT_OPEN_MAX {
            "above `check_at_open_max`: its commits save what makes the open after a kill short"
        } else {
            "below `check_at_open_max`: no quick repair"
        };
        note(&format!("onecho's file has {} KiB, {side}.", counted(length / 1024)));
        Ok(())
    }
}

/// A store of one round; its directory goes with it.
pub struct Opened {
    store: Option<Box<dyn Contender>>,
    dir: PathBuf,
}

impl Opened {
    pub fn store(&self) -> Done<&dyn Contender> {
        self.store.as_deref().ok_or_else(|| "the store is closed".into())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn end(mut self) -> Done<()> {
        if let Some(store) = self.store.take() {
            store.close()?;
        }
        removed(&self.dir)
    }
}

/// As many records and resources as commands were run.
pub fn counts(store: &dyn Contender, commands: u64) -> Done<()> {
    let counted = store.count()?;
    if counted != (commands, commands) {
        return Err(
            format!("{commands} commands made {} records and {} resources", counted.0, counted.1).into()
        );
    }
    Ok(())
}

/// Some of these commands are looked up again, and their answers compared.
pub fn answers(store: &dyn Contender, numbers: &[u64], ids: Ids) -> Done<()> {
    let mut looks = store.looks()?;
    let mut body = Vec::new();
    for number in numbers.iter().step_by(numbers.len() / 64 + 1) {
        let command = Command::numbered(*number, ids);
        if !looks.look(&command, &mut body)? || !command.is_answered_by(&body) {
            return Err(format!("command {number} was acknowledged and is not answered").into());
        }
    }
    Ok(())
}
