//! Copies the files of the store that the model compiles, once as they are and once for each mistake of
//! `src/mistakes.in`, with that mistake in it. A mistake whose place is not found exactly once fails the
//! build: the file has changed, and the mistake has to be made anew.

use std::path::Path;
use std::{env, fs};

const FILES: [&str; 4] = ["queue", "line", "places", "turns"];
const MISTAKES: &str = "src/mistakes.in";

fn main() {
    let engine = Path::new("../../src/engine");
    let out = env::var("OUT_DIR").unwrap();
    for file in FILES {
        println!("cargo::rerun-if-changed={}", engine.join(file).with_extension("rs").display());
    }
    println!("cargo::rerun-if-changed={MISTAKES}");
    let sources = FILES.map(|file| {
        let text = fs::read_to_string(engine.join(file).with_extension("rs")).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        // An included file cannot begin with the documentation of its module.
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("//!")).collect();
        lines.join("\n") + "\n"
    });
    let write = |name: &str, sources: &[String]| {
        let folder = Path::new(&out).join(name);
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in FILES.iter().zip(sources) {
            fs::write(folder.join(file).with_extension("rs"), text).unwrap();
        }
    };
    write("sound", &sources);
    for mistake in fs::read_to_string(MISTAKES).unwrap().split("\n=== ").skip(1) {
        let (head, body) = mistake.split_once('\n').unwrap();
        let (name, file) = head.split_once(" in ").unwrap();
        let (right, wrong) = body.split_once("\n---\n").unwrap();
        let (right, wrong) = (right.trim_end_matches('\n'), wrong.trim_end_matches('\n'));
        let at = FILES.iter().position(|known| *known == file).unwrap();
        assert_eq!(sources[at].matches(right).count(), 1, "{name}: its place in {file}.rs is not there once");
        let mut mistaken = sources.clone();
        mistaken[at] = mistaken[at].replace(right, wrong);
        write(name, &mistaken);
    }
}
