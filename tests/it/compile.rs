//! What must not compile does not, and what a user writes does.
//!
//! Each program of `tests/compile/` is given to the compiler beside the library that this test was built
//! with. A wrong one says in its first line with which error it is refused, so that it cannot be refused for
//! another reason.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

// What a user writes is part of this test's own program.
#[path = "../compile/pass/charge_and_recover.rs"]
#[allow(dead_code, reason = "it has to compile, not to run")]
mod charge_and_recover;
#[path = "../compile/pass/create_an_order.rs"]
#[allow(dead_code, unused_must_use, reason = "it has to compile, not to run")]
mod create_an_order;
#[path = "../compile/pass/handles_are_shared.rs"]
#[allow(dead_code, reason = "it has to compile, not to run")]
mod handles_are_shared;

/// Where the build put this test and all it links.
fn built() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_path_buf()
}

/// The newest build of a library.
fn library(name: &str) -> PathBuf {
    let prefix = format!("lib{name}-");
    let entries = fs::read_dir(built()).unwrap().map(|entry| entry.unwrap().path());
    let builds = entries.filter(|path| {
        let file = path.file_name().unwrap().to_string_lossy();
        file.starts_with(&prefix) && file.ends_with(".rlib")
    });
    builds.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap()
}

fn compile(program: &Path, into: &Path) -> Output {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args([
        "--edition=2024",
        "--crate-type=bin",
        "--emit=metadata",
        "--error-format=short",
        "--out-dir",
    ]);
    rustc.arg(into).arg("-L").arg(format!("dependency={}", built().display()));
    rustc.arg("--extern").arg(format!("onecho={}", library("onecho").display()));
    rustc.arg(program).output().unwrap()
}

fn wrong_programs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile/fail");
    let mut programs: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    programs.sort();
    programs
}

#[test]
fn mistakes_do_not_compile() {
    let into = tempfile::tempdir().unwrap();
    let programs = wrong_programs();
    assert!(programs.len() >= 14);
    for program in programs {
        let text = fs::read_to_string(&program).unwrap();
        let reason = text.lines().next().and_then(|line| line.strip_prefix("//! refused: ")).unwrap();
        let output = compile(&program, into.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{} compiles", program.display());
        assert!(said.contains(reason), "{} is refused for another reason:\n{said}", program.display());
    }
}
