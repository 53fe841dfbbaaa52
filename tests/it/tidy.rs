//! What a grep can hold the code to.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const LINE_CHARS_MAX: usize = 110;
const FUNCTION_LINES_MAX: usize = 70;

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Lines of code: without comments, and up to the unit tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line))
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_in(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("tests.rs") || self.path.contains("/tests/")
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["src", "tests/it", "benches", "examples"] {
        collect(&root().join(folder), &mut found);
    }
    assert!(found.len() > 30, "the sources were not found");
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            found.push(Source { path, text });
        }
    }
}

/// Panics with every place at once, so that one run shows all there is to mend.
fn none(what: &str, places: &[String]) {
    assert!(places.is_empty(), "{what}:\n{}", places.join("\n"));
}

/// Places in the files of `folder` whose code holds one of `words`.
fn named(folder: &str, words: &[&str], except: &[&str]) -> Vec<String> {
    let mut places = Vec::new();
    for source in sources() {
        if !source.is_in(folder) || source.is_test() || except.iter().any(|allowed| source.is_in(allowed)) {
            continue;
        }
        for (number, line) in source.code() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                places.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    places
}

#[test]
fn each_ring_knows_only_the_ones_before_it() {
    let above_core = [
        "crate::db",
        "crate::engine",
        "crate::store",
        "crate::options",
        "crate::effects",
        "crate::kind",
        "crate::workers",
    ];
    none("core names an outer ring", &named("src/core", &above_core, &[]));
    let above_db = ["crate::engine", "crate::store", "crate::options", "crate::effects", "crate::kind"];
    none("db names an outer ring", &named("src/db", &above_db, &[]));
    let above_engine =
        ["crate::store", "crate::options", "crate::effects", "crate::kind", "crate::workers", "crate::cli"];
    none("engine names an outer ring", &named("src/engine", &above_engine, &[]));
    none(
        "the program uses what is not public",
        &named("src/cli", &["crate::core", "crate::db", "crate::engine"], &[]),
    );
}

#[test]
fn core_has_no_clock_no_io_no_lock_no_thread_and_no_order_by_chance() {
    let words = [
        "SystemTime",
        "Instant",
        "std::fs",
        "std::io",
        "std::net",
        "std::thread",
        "std::env",
        "parking_lot",
        "Mutex",
        "RwLock",
        "Atomic",
        "HashMap",
        "HashSet",
        "getrandom",
        "println!",
    ];
    none("core reaches the world", &named("src/core", &words, &[]));
}

#[test]
fn each_foreign_thing_has_one_home() {
    none("redb outside of db", &named("src", &["redb::", "use redb"], &["src/db", "src/fuzzing"]));
    none("bincode outside of the codec", &named("src", &["bincode::"], &["src/db/codec.rs"]));
    let clocks = ["SystemTime::now", "Instant::now"];
    none("a clock outside of its file", &named("src", &clocks, &["src/engine/clock.rs", "src/cli"]));
    let durability = ["set_durability", "set_two_phase_commit", "set_quick_repair", "Durability::"];
    none(
        "durability outside of its files",
        &named("src", &durability, &["src/db/commit.rs", "src/db/open.rs"]),
    );
    none("unsafe code", &named("src", &["unsafe {", "unsafe fn", "unsafe impl"], &[]));
}

#[test]
fn files_functions_and_lines_are_short() {
    let mut places = Vec::new();
    for source in sources().iter().filter(|source| source.is_in("src") && !source.is_test()) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            places.push(format!("{}: {lines} lines", source.path));
        }
        let mut function: Option<(usize, usize, String)> = None;
        for (number, line) in source.text.lines().enumerate() {
            if line.chars().count() > LINE_CHARS_MAX {
                places.push(format!(
                    "{}:{}: a line of {} characters",
                    source.path,
                    number + 1,
                    line.chars().count()
                ));
            }
            let indent = line.len() - line.trim_start().len();
            let is_function =
                ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "pub const fn ", "const fn "]
                    .iter()
                    .any(|start| line.trim_start().starts_with(start));
            if is_function && line.trim_end().ends_with([';', '}']) {
                continue;
            }
            if is_function && function.is_none() {
                function = Some((number, indent, line.trim().to_owned()));
            } else if let Some((start, at, name)) = &function
                && indent == *at
                && line.trim_end() == format!("{}}}", " ".repeat(*at))
            {
                let length = number - start + 1;
                if length > FUNCTION_LINES_MAX {
                    places.push(format!("{}:{}: {length} lines: {name}", source.path, start + 1));
                }
                function = None;
            }
        }
    }
    none("too long", &places);
}

#[test]
fn every_file_says_what_it_owns() {
    let places: Vec<String> = sources()
        .iter()
        .filter(|source| source.is_in("src") && !source.is_test() && !source.text.starts_with("//! "))
        .map(|source| source.path.clone())
        .collect();
    none("no module documentation", &places);
}

/// Each row of the table names a predicate that exists, or says that it has none, and tests that exist.
#[test]
fn every_invariant_has_its_predicate_and_its_test() {
    let table = fs::read_to_string(root().join("docs/INVARIANTS.md")).unwrap();
    let predicates = fs::read_to_string(root().join("src/core/invariants.rs")).unwrap();
    let tests: String =
        sources().iter().filter(|source| source.is_test()).map(|source| source.text.as_str()).collect();
    for number in 1..=13 {
        let row = table
            .lines()
            .find(|line| line.starts_with(&format!("| {number} |")))
            .unwrap_or_else(|| panic!("docs/INVARIANTS.md has no row {number}"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (predicate, proofs) = (cells[3], cells[5]);
        if proofs.starts_with("later:") {
            continue;
        }
        for name in quoted(predicate) {
            assert!(predicates.contains(&format!("fn {name}(")), "invariant {number}: no predicate `{name}`");
        }
        let proofs = quoted(proofs);
        assert!(!proofs.is_empty(), "invariant {number} names no test");
        for name in proofs {
            let name = name.rsplit("::").next().unwrap();
            assert!(tests.contains(&format!("fn {name}(")), "invariant {number}: no test `{name}`");
        }
    }
}

/// What stands in back quotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn documents_lead_nowhere_that_is_not_there() {
    let mut places = Vec::new();
    let mut documents: Vec<PathBuf> = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    for folder in ["docs", "benches", "fuzz", "examples"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        documents.extend(entries.map(|entry| entry.unwrap().path()));
    }
    for document in documents.iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
        let text = fs::read_to_string(document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !document.parent().unwrap().join(target).exists() {
                places.push(format!("{}: {link}", document.display()));
            }
        }
    }
    none("a link leads nowhere", &places);
}
