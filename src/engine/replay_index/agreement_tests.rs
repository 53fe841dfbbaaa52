//! What is judged in place against what is decided: never another answer.

#![allow(
    clippy::pedantic,
    clippy::redundant_closure_for_method_calls,
    reason = "tests are read for their promise"
)]

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::core::authority::Units;
use crate::core::claim::Uptime;
use crate::core::decide::{Answer, Asked, Command, NoRows, Purpose, View, decide};
use crate::core::fingerprint::{Compare, Fingerprint, Parts};
use crate::core::name::{Key, Operation, Scope, ScopeMode, Tenant};
use crate::core::outcome::{Body, Outcome, ResourceRef};
use crate::core::policy::{AfterExpiry, Policy, Windows};
use crate::core::record::{ClassId, Entry, Position, Told, Transition};
use crate::core::reply::Reply;
use crate::core::text::Text;

const AT: u64 = 1_000;
const COMPARES: [Compare; 3] = [Compare::Exact, Compare::Canonical, Compare::Parts(&["body"])];
/// Texts of which some are the same content, and some the same octets.
const TEXTS: [&str; 4] = [r#"{"a":1,"b":2}"#, r#"{"b":2, "a":1}"#, r#"{"a":1}"#, "no JSON"];

/// What is asked, in small choices so that requests meet.
#[derive(Clone, Copy, Debug)]
struct Ask {
    tenant: bool,
    operation: bool,
    key: usize,
    text: usize,
    is_json: bool,
    has_actor: bool,
    compare: usize,
}

impl Ask {
    fn scope(self) -> Scope {
        Scope {
            tenant: Tenant::new(if self.tenant { "shop" } else { "s" }),
            operation: Operation::new(if self.operation { "op" } else { "hop" }),
            key: Key::parse(&"k".repeat(self.key)).unwrap(),
        }
    }

    fn asked(self, mode: ScopeMode) -> Asked {
        let (scope, mut parts) = (self.scope(), Parts::new());
        match self.is_json {
            true => parts.json("body", TEXTS[self.text].as_bytes()),
            false => parts.bytes("body", TEXTS[self.text].as_bytes()),
        }
        if self.has_actor {
            parts.bytes("actor", b"me");
        }
        if mode == ScopeMode::PerTenant {
            parts.operation(scope.operation.as_str());
        }
        let fingerprint = Fingerprint::of(&parts, COMPARES[self.compare]).unwrap();
        let digest = ScopeDigest::of(&scope, mode);
        let imprint = Imprint::of(digest, &scope, &fingerprint);
        Asked { scope, digest, parts, fingerprint, imprint, is_protected: true }
    }
}

fn asks() -> impl Strategy<Value = Ask> {
    let key = prop_oneof![4 => Just(7_usize), 1 => Just(8), 1 => Just(120), 1 => Just(255)];
    (
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.9),
        key,
        0..4_usize,
        any::<bool>(),
        any::<bool>(),
        0..3_usize,
    )
        .prop_map(|(tenant, operation, key, text, is_json, has_actor, compare)| Ask {
            tenant,
            operation,
            key,
            text,
            is_json,
            has_actor,
            compare,
        })
}

prop_compose! {
    fn outcomes()(
        failed: bool,
        code: u16,
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            prop::collection::vec(any::<u8>(), 300..900),
        ],
        keeps: bool,
        meta in prop::collection::btree_map("[a-z-]{0,12}", prop::collection::vec(any::<u8>(), 0..20), 0..4),
        resource in prop::option::of(("[a-z]{1,8}", "[a-z0-9]{1,40}", any::<bool>())),
    ) -> Outcome {
        let outcome = if failed { Outcome::failed(code) } else { Outcome::succeeded(code) };
        let outcome = meta.iter().fold(outcome.body(body), |it, (name, value)| it.meta(name, value));
        let resource = resource.map(|(kind, id, shared)| ResourceRef::new(&kind, &id, shared));
        let outcome = resource.iter().fold(outcome, |it, made| it.resource(made));
        if keeps { outcome } else { outcome.body_not_kept() }
    }
}

fn windows() -> impl Strategy<Value = Windows> {
    let ordered = prop::array::uniform3(prop_oneof![Just(0), Just(10), Just(20), Just(u64::MAX)]);
    ordered.prop_map(|mut ends| {
        ends.sort_unstable();
        Windows { body: ends[0], key: ends[1], tombstone: ends[2] }
    })
}

fn record(asked: &Asked, outcome: &Outcome, windows: Windows, generation: u32) -> Record {
    let entry = Entry {
        transition: Transition::Executed,
        at: Timestamp(AT),
        generation,
        told: Told::new(&asked.scope, &asked.fingerprint, outcome.clone(), &"onecho".into()).into(),
        notes: Vec::new(),
    };
    Record { position: Position { class: ClassId(3), seq: 77 }, windows, entry }
}

/// What `decide` says; none where the command would run.
fn decided(record: &Record, asked: &Asked, now: Timestamp, policy: &Policy) -> Option<Reply> {
    let position = Position { class: ClassId(0), seq: 0 };
    let view = View {
        record: Some(record),
        open: None,
        rows: &NoRows,
        position,
        clock_settled: None,
        uptime: Uptime::default(),
        has_room: true,
        units: Units::AllOurs,
    };
    match decide(&view, asked, &Command::Ask(Purpose::Execute), now, policy).answer {
        Answer::Reply(reply) => Some(reply),
        Answer::Run => None,
        Answer::Fault(fault) => panic!("{fault}"),
        _ => panic!("`Ask` is not answered so"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_judged_in_place_is_what_is_decided(
        (first, retry) in (asks(), asks()).prop_flat_map(|(first, other)| {
            (Just(first), prop_oneof![2 => Just(first), 1 => Just(other), 2 => Just(Ask { key: first.key, ..other })])
        }),
        outcome in outcomes(),
        windows in windows(),
        generation in prop_oneof![Just(1_u32), any::<u32>()],
        later in prop_oneof![0..25_u64, Just(u64::MAX - AT)],
        per_tenant: bool,
        runs_as_new: bool,
    ) {
        let mode = if per_tenant { ScopeMode::PerTenant } else { ScopeMode::PerOperation };
        let after = if runs_as_new { AfterExpiry::RunAsNew } else { AfterExpiry::Reject };
        let (policy, now) = (Policy::new().after_expiry(after), Timestamp(AT + later));
        let (first, asked) = (first.asked(mode), retry.asked(mode));
        let record = record(&first, &outcome, windows, generation);
        let index = ReplayIndex::new(1 << 16);
        index.publish(&first.imprint, &record);
        let fits = index.len() == 1;
        let expected = (asked.digest == first.digest && fits)
            .then(|| decided(&record, &asked, now, &policy))
            .flatten();

        let finished = index.finished(&asked.imprint, now);
        let mut buffer = AnswerBuffer::new();
        let answer = index.answer(&asked.imprint, now, &mut buffer);
        let receipt = index.receipt(&asked.imprint, now);
        if let Some(finished) = &finished {
            prop_assert_eq!(expected.as_ref(), Some(&Reply::Replay(finished.clone())));
        }
        // The very same request is never left to `decide`.
        if retry_is_first(&first, &asked) {
            prop_assert_eq!(finished.is_some(), matches!(expected, Some(Reply::Replay(_))));
        }
        prop_assert_eq!(receipt.is_some(), finished.is_some());
        if let (Some(receipt), Some(finished)) = (receipt, &finished) {
            let said = (receipt.code, receipt.failed, receipt.at, receipt.generation);
            prop_assert_eq!(said, (finished.code, finished.failed, finished.at, finished.generation));
            prop_assert_eq!(receipt.body_until, finished.body_until);
            prop_assert_eq!(receipt.key_until, finished.key_until);
        }
        match finished.map(|finished| (finished.body, finished.metadata)) {
            Some((Body::Present(body), meta)) => {
                prop_assert_eq!(answer, receipt);
                prop_assert_eq!(buffer.body(), &body);
                let copied: Vec<(Text, Bytes)> = metadata(buffer.rest())
                    .map(|(name, value)| (name.into(), Bytes::copy_from_slice(value)))
                    .collect();
                prop_assert_eq!(&copied[..], &meta[..]);
            }
            _ => prop_assert_eq!(answer, None),
        }
        // What the whole record says is what the record said.
        if let Some(known) = index.record(asked.digest) {
            prop_assert!(known.entry.scope == record.entry.scope);
            prop_assert_eq!(decided(&known, &asked, now, &policy), expected);
        } else {
            prop_assert!(!fits || asked.digest != first.digest);
        }
    }
}

fn retry_is_first(first: &Asked, retry: &Asked) -> bool {
    first.scope == retry.scope && first.fingerprint == retry.fingerprint
}

/// Windows that do not follow one another come from no policy; a record that has them is not remembered.
#[test]
fn a_record_whose_age_two_times_do_not_tell_is_left_to_the_file() {
    let ask =
        Ask { tenant: true, operation: true, key: 7, text: 0, is_json: true, has_actor: false, compare: 1 };
    let asked = ask.asked(ScopeMode::PerOperation);
    let index = ReplayIndex::new(1 << 16);
    for (body, key, tombstone, remembered) in [(1, 2, 3, 1), (2, 1, 3, 0), (1, 3, 2, 0), (2, 2, 2, 1)] {
        let windows = Windows { body, key, tombstone };
        index.publish(&asked.imprint, &record(&asked, &Outcome::succeeded(200), windows, 1));
        assert_eq!(index.len(), remembered);
    }
}

/// What was cancelled before it ran answers another request, too, which memory could not tell.
#[test]
fn what_was_cancelled_is_left_to_the_file() {
    let ask =
        Ask { tenant: true, operation: true, key: 7, text: 0, is_json: true, has_actor: false, compare: 1 };
    let asked = ask.asked(ScopeMode::PerOperation);
    let other = Ask { text: 1, ..ask }.asked(ScopeMode::PerOperation);
    let index = ReplayIndex::new(1 << 16);
    let mut record = record(&asked, &Outcome::failed(499), WINDOWS, 1);
    index.publish(&asked.imprint, &record);
    assert_eq!(index.len(), 1);
    record.entry.transition = Transition::Cancelled;
    assert!(matches!(
        decided(&record, &other, Timestamp(AT + 1), &Policy::new()),
        Some(Reply::Replay(finished)) if finished.code == 499
    ));
    index.publish(&asked.imprint, &record);
    assert!(index.len() == 0 && index.record(asked.digest).is_none());
}

/// Numbers of different lengths.
const WINDOWS: Windows = Windows { body: 300, key: 70_000, tombstone: u64::MAX };

/// What a slot gives back of a record is the record, byte for byte, up to the one that fills it to the last;
/// one byte more is not remembered, and takes away what was.
#[test]
fn each_shape_comes_back_whole_until_the_slot_is_full() {
    let shapes = [(1, 0, 0, false), (36, 0, 1, true), (36, 3, 40, false), (255, 1, 9, true)];
    for (key, text, metadata, has_resource) in shapes {
        let ask =
            Ask { tenant: true, operation: true, key, text, is_json: true, has_actor: true, compare: 2 };
        let asked = ask.asked(ScopeMode::PerOperation);
        let made = |body: usize| {
            let outcome = Outcome::failed(409).body((0..body).map(|at| at as u8).collect::<Vec<u8>>());
            let outcome = (0..metadata)
                .fold(outcome, |it, at| it.meta(&format!("m{at}"), vec![at; usize::from(at % 4)]));
            let resource =
                has_resource.then(|| ResourceRef::new("order", "an-id-of-36-bytes-abcdefghijklmnopqr", true));
            resource.iter().fold(outcome, |it, made| it.resource(made))
        };
        let packed = |outcome: &Outcome| {
            let record = record(&asked, outcome, WINDOWS, 7);
            Card::new().pack(&asked.imprint, &record).map(|words| words.len())
        };
        let full = (0..).take_while(|&body| packed(&made(body)).is_some()).last().unwrap();
        assert_eq!(packed(&made(full)), Some(RECORD_WORDS));
        assert_eq!(packed(&made(full - 8)), Some(RECORD_WORDS - 1));

        let index = ReplayIndex::new(1 << 16);
        for outcome in (0..=full).map(&made).chain([made(9).body_not_kept(), made(5_000).body_not_kept()]) {
            comes_back(&index, &asked, &outcome);
        }
        index.publish(&asked.imprint, &record(&asked, &made(full + 1), WINDOWS, 7));
        assert!(index.record(asked.digest).is_none() && index.len() == 0);
    }
}

fn comes_back(index: &ReplayIndex, asked: &Asked, outcome: &Outcome) {
    let mut record = record(asked, outcome, WINDOWS, 7);
    index.publish(&asked.imprint, &record);
    let now = Timestamp(AT + 1);
    let expected = record.finished(now);
    assert_eq!(index.finished(&asked.imprint, now), Some(expected.clone()));
    let mut buffer = AnswerBuffer::new();
    let answered = index.answer(&asked.imprint, now, &mut buffer);
    assert_eq!(answered.is_some(), matches!(expected.body, Body::Present(_)));
    if let Body::Present(body) = expected.body {
        assert_eq!((answered, buffer.body()), (Receipt::of(&record), &*body));
    }
    Arc::make_mut(&mut record.entry.told).actor = "".into();
    assert!(index.record(asked.digest) == Some(record));
}
