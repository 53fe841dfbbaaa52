//! What it costs to have it: memory of a process with a large store, and bytes of a minimal program. Owns the
//! cell.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use crate::child;
use crate::command::Ids;
use crate::contender::{Done, Who};
use crate::run::Run;
use crate::table::{Table, counted, heading, note, number, progress};

const IDS: Ids = Ids::Growing;

pub fn cells(run: &Run) -> Done<()> {
    for records in run.sizes(&[10_000, 1_000_000]).into_iter().rev().take(1) {
        memory(run, records)?;
    }
    programs(run)
}

fn memory(run: &Run, records: u64) -> Done<()> {
    let mut table = Table::new(&[
        "",
        "opened: own MiB",
        "after lookups: own MiB",
        "after commands: own MiB",
        "resident MiB",
        "highest MiB",
    ]);
    for &who in run.who(Who::STORES) {
        let profiles: &[bool] = if who.store() == "onecho" { &[true, false] } else { &[false] };
        for &is_small in profiles {
            progress(&format!("Memory of {}, {} records", who.name(), counted(records)));
            let dir = run.copy(who, IDS, records)?;
            let told = child::footprint(who, &dir, records, is_small)?;
            crate::disk::removed(&dir)?;
            let own = told.iter().map(|memory| mib(memory.anonymous));
            let last = told.last().copied().unwrap_or_default();
            if is_small {
                run.figures.tell(format!("own small {records}"), last.anonymous as f64 / 1024.0);
                run.figures.tell(format!("resident small {records}"), last.resident as f64 / 1024.0);
            }
            let profile = match (who.store(), is_small) {
                ("onecho", true) => ", `small_device`",
                ("onecho", false) => ", default",
                _ => "",
            };
            let mut cells = vec![format!("{}{profile}", who.name())];
            cells.extend(own);
            cells.extend([mib(last.resident), mib(last.highest)]);
            table.row(cells);
        }
    }
    heading(&format!("Memory of a process, {} records", counted(records)));
    note(
        "A process that opens the store, looks up 200,000 records all over it, and runs fresh commands of 8 \
         callers for two seconds. Own: allocated (RssAnon). Resident counts mapped files too, which are the \
         system's to take back: SQLite and LMDB map theirs. The peers may use 1 GiB of cache.",
    );
    table.print();
    Ok(())
}

fn mib(kib: u64) -> String {
    number(kib as f64 / 1024.0, 1)
}

/// Minimal programs, built as a user would ship them.
fn programs(run: &Run) -> Done<()> {
    const PROFILES: [(&str, &str); 3] = [
        ("release", "release, line tables"),
        ("stripped", "release, stripped"),
        ("smallest", "`opt-level = \"z\"`, LTO, stripped"),
    ];
    const PROGRAMS: [(&str, &str); 3] =
        [("empty", "an empty `main`"), ("plain", "plain redb"), ("user", "onecho")];
    let mut table =
        Table::new(&["KiB of program", PROGRAMS[0].1, PROGRAMS[1].1, PROGRAMS[2].1, "onecho less empty"]);
    let wanted = |profile: &str| !run.is_quick || profile == "stripped";
    for (profile, name) in PROFILES.into_iter().filter(|(profile, _)| wanted(profile)) {
        progress(&format!("building the minimal programs, {profile}"));
        let dir = build(profile)?;
        let mut cells = vec![name.to_owned()];
        let mut sizes = Vec::new();
        for (program, _) in PROGRAMS {
            let bytes = std::fs::metadata(dir.join(program))?.len();
            sizes.push(bytes / 1024);
            cells.push(counted(bytes / 1024));
        }
        cells.push(counted(sizes[2] - sizes[0]));
        table.row(cells);
    }
    heading("Programs");
    table.print();
    Ok(())
}

/// Builds the package `minimal` into this build's directory; where its programs are then.
fn build(profile: &str) -> Done<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent).ok_or("a program outside of a build")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Process::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", "onecho-minimal", "--profile", profile])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .stdin(Stdio::null())
        .status()?;
    if !built.success() {
        return Err("the minimal programs were not built".into());
    }
    Ok(target.join(profile))
}
