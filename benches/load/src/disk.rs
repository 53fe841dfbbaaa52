//! Directories on a real disk: where runs live, synced copies, sizes. Must not know what is in them.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use self::ram::is_ram;
use crate::contender::Done;

#[path = "../../support/ram.rs"]
mod ram;

/// A directory that goes when the run ends.
pub struct RunDir(PathBuf);

impl RunDir {
    /// Below `ONECHO_BENCH_DIR`, else beside the program, which is the build's own directory. On a RAM disk a
    /// sync costs nothing, and every figure would be about something else.
    pub fn new() -> Done<Self> {
        let parent = match std::env::var_os("ONECHO_BENCH_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => {
                std::env::current_exe()?.parent().ok_or("a program without a directory")?.join("load-runs")
            }
        };
        fs::create_dir_all(&parent)?;
        if is_ram(&parent)? {
            let text = format!(
                "{} is on a RAM disk, where syncs are free; ONECHO_BENCH_DIR may name one on a real disk",
                parent.display()
            );
            return Err(text.into());
        }
        clear(&parent)?;
        let dir = parent.join(format!("{NAME}{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        crate::measure::watch(&dir);
        Ok(Self(dir))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// How the directories of runs begin; the number of the process follows.
const NAME: &str = "onecho-load-";

/// Removes what runs that were killed have left.
fn clear(parent: &Path) -> Done<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        let is_left = |process: u32| {
            Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{process}")).exists()
        };
        if process.is_some_and(is_left) {
            removed(&entry.path())?;
        }
    }
    Ok(())
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // What is left after a failed removal goes with the next run.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A synced copy, so that every round begins with the same files and no write of the copy falls into it.
pub fn copied(from: &Path, to: &Path) -> Done<()> {
    removed(to)?;
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copied(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    Ok(File::open(to)?.sync_all()?)
}

pub fn removed(dir: &Path) -> Done<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// What the files of a directory come to.
#[derive(Clone, Copy, Default)]
pub struct Size {
    /// Their lengths.
    pub length: u64,
    /// What the file system has given them.
    pub allocated: u64,
}

pub fn size(dir: &Path) -> Done<Size> {
    const BLOCK: u64 = 512;
    let mut all = Size::default();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            let inner = size(&entry.path())?;
            all = Size { length: all.length + inner.length, allocated: all.allocated + inner.allocated };
        } else if entry.path().extension().is_none_or(|ending| ending != "reserve") {
            all.length += meta.len();
            all.allocated += meta.blocks() * BLOCK;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_and_the_run_dir_goes() -> Done<()> {
        let run = RunDir::new()?;
        let (from, to) = (run.path().join("from"), run.path().join("to"));
        fs::create_dir_all(from.join("inner"))?;
        fs::write(from.join("inner/file"), [7; 5000])?;
        copied(&from, &to)?;
        assert_eq!(fs::read(to.join("inner/file"))?, [7; 5000]);
        assert!(size(&to)?.length == 5000 && size(&to)?.allocated >= 5000);
        // No process has this number.
        let left = run.path().with_file_name(format!("{NAME}{}", u32::MAX));
        fs::create_dir_all(left.join("store"))?;
        clear(left.parent().ok_or("no parent")?)?;
        assert!(!left.exists() && run.path().exists());
        let path = run.path().to_owned();
        drop(run);
        assert!(!path.exists());
        Ok(())
    }
}
