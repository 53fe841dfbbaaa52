//! The fuzz targets on stable: random bytes, and every input that was ever kept.
//!
//! `ONECHO_SEED` replays a failure; `ONECHO_CASES` changes how many inputs each target gets.

use std::path::Path;

use onecho::fuzzing;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// A target's name and what it does with some bytes.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 4] =
    [("decode", fuzzing::decode), ("json", fuzzing::json), ("ops", fuzzing::ops), ("crash", fuzzing::crash)];

/// Gives `cases` inputs of at most `len` bytes to a target; a failure names the seed and the smallest input
/// found.
fn random(target: fn(&[u8]), cases: u32, inputs: impl Strategy<Value = Vec<u8>>) {
    let seed = super::damaged::seed();
    let cases = std::env::var("ONECHO_CASES").map_or(cases, |text| text.parse().unwrap());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let outcome = TestRunner::new_with_rng(config, rng).run(&inputs, |input| {
        std::panic::catch_unwind(|| target(&input)).map_err(|_| TestCaseError::fail("a finding"))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => panic!("ONECHO_SEED={seed}: {why} with {input:02X?}"),
        Err(TestError::Abort(why)) => panic!("ONECHO_SEED={seed}: {why}"),
    }
}

fn bytes(len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..len)
}

/// Text that is JSON more often than not: two documents, one behind the other.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop::sample::select(vec![
        "1",
        "-0",
        "1.0",
        "1e9",
        "true",
        "null",
        "\"a\"",
        "\"\\u0061\"",
        "\"\\ud83d\\ude00\"",
        "[]",
        "{}",
        " 2 ",
        "01",
    ]);
    let value = leaf.prop_map(str::to_owned).prop_recursive(4, 24, 4, |inner| {
        let member = (prop::sample::select(vec!["a", "b", "\\u0062", "\u{e9}", "\u{ffff}"]), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec(member, 0..4).prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    });
    (value.clone(), value).prop_map(|(one, other)| format!("{one}\n{other}").into_bytes())
}

#[test]
fn random_bytes_are_refused_or_mean_one_value() {
    random(fuzzing::decode, 4096, bytes(200));
}

#[test]
fn random_json_is_compared_by_its_canonical_text() {
    random(fuzzing::json, 2048, prop_oneof![bytes(64), texts()]);
}

#[test]
fn random_calls_answer_as_a_map_does() {
    random(fuzzing::ops, 96, bytes(160));
}

#[test]
fn random_power_cuts_lose_nothing_that_was_acknowledged() {
    random(fuzzing::crash, 24, bytes(32));
}

#[test]
fn every_committed_input_is_without_a_finding() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for part in ["corpus", "regressions"] {
            let Ok(entries) = std::fs::read_dir(fuzz.join(part).join(name)) else { continue };
            for entry in entries {
                let path = entry.unwrap().path();
                let bytes = std::fs::read(&path).unwrap();
                let found = std::panic::catch_unwind(|| target(&bytes));
                assert!(found.is_ok(), "{} is a finding", path.display());
                inputs += 1;
            }
        }
        assert!(inputs >= 5, "{name} has {inputs} inputs");
    }
}
