//! Writes the store that the tests of the file format read: `cargo run --example make_fixture --
//! tests/fixtures/format-1.onecho`. Without a path it writes one that it removes again.
//!
//! For whoever changes the format before the first release; after it, a new version gets a new fixture and
//! this one stays.

#[path = "../tests/fixtures/content.rs"]
#[expect(dead_code, clippy::unwrap_used, clippy::unnecessary_wraps, reason = "shared with the tests")]
mod content;

fn main() {
    let given = std::env::args_os().nth(1).map(std::path::PathBuf::from);
    let scratch = std::env::temp_dir().join(format!("onecho-fixture-{}", std::process::id()));
    let path = given.as_ref().unwrap_or(&scratch);
    assert!(!path.exists(), "{} exists; remove it first", path.display());
    content::write(path);
    assert!(path.metadata().is_ok_and(|made| made.len() > 0));
    if given.is_none() {
        assert!(std::fs::remove_file(path).is_ok());
    }
}
