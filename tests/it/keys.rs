//! Which commands are one: tenant, operation and key, each compared byte for byte.

use onecho::testing::SimDisk;
use onecho::{ErrorKind, Key, Operation, Options, Outcome, Request, Scope, ScopeMode, Tenant};

use crate::common::*;

/// C036: commands without a key share nothing: each runs, is counted, and can never be replayed.
#[test]
fn without_a_key_every_command_runs() {
    let store = store();
    for n in 1..=3 {
        let asked = Request::unprotected(&SHOP, &PAY).bytes("body", "same");
        for _ in 0..2 {
            done(store.execute(&asked, counted));
            assert_eq!(store.peek(&asked), None);
        }
        assert_eq!(applied(&store), 2 * n);
    }
    done(store.execute(&Request::unprotected(&SHOP, &PAY), counted)); // it has nothing to compare either
    let stats = store.stats();
    assert_eq!((stats.executed, stats.unprotected, stats.records), (7, 7, 0));
    clean(&store);
}

/// C037, C038: the same key of another tenant or another operation is another command.
#[test]
fn a_key_is_its_tenants_and_its_operations() {
    let store = store();
    let of = |tenant: &Tenant, operation: &Operation| {
        Request::new(tenant, operation, &key("k")).bytes("body", "x")
    };
    let all = [of(&SHOP, &PAY), of(&SHOP, &REFUND), of(&OTHER_SHOP, &PAY), of(&OTHER_SHOP, &REFUND)];
    for (n, asked) in all.iter().enumerate() {
        done(store.execute(asked, move |_| Ok(Outcome::succeeded(200).json(&n)?)));
    }
    for (n, asked) in all.iter().enumerate() {
        assert_eq!(replay(store.execute(asked, never)).decode::<usize>().unwrap(), Some(n));
    }
}

/// C038: names cannot run together: what is one text joined is three scopes apart.
#[test]
fn names_do_not_run_together() {
    let store = store();
    let scopes = [("a", "b", "cd"), ("a", "bc", "d"), ("ab", "c", "d"), ("a", "b/c", "d"), ("a/b", "c", "d")];
    for (tenant, operation, text) in scopes {
        let (tenant, operation) = (Tenant::parse(tenant).unwrap(), Operation::parse(operation).unwrap());
        done(store.execute(&Request::new(&tenant, &operation, &key(text)).bytes("body", "x"), counted));
    }
    assert_eq!(store.stats().records, 5);
}

/// C038: with `PerTenant` the key is the tenant's: another operation under it is a mismatch that names the
/// operation, at once also while the first runs.
#[test]
fn a_key_may_be_the_tenants_alone() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new().scope_mode(ScopeMode::PerTenant)).unwrap();
    let of = |operation: &Operation| Request::new(&SHOP, operation, &key("k")).bytes("body", "x");
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.execute(&of(&PAY), |fx| {
                gate.pass();
                counted(fx)
            })
        });
        gate.arrived(1);
        assert_eq!(
            mismatch(store.execute(&of(&REFUND), never)),
            (vec!["@operation".to_owned()], false, true)
        );
        gate.open();
        done(first.join().unwrap());
    });
    assert_eq!(mismatch(store.execute(&of(&REFUND), never)), (vec!["@operation".to_owned()], false, false));
    replay(store.execute(&of(&PAY), never));
    done(store.execute(&Request::new(&OTHER_SHOP, &REFUND, &key("k")).bytes("body", "x"), counted));
    let looked = store.status(&Scope { tenant: SHOP, operation: REFUND, key: key("k") }).unwrap();
    assert!(matches!(looked, onecho::Status::Finished(_)), "{looked:?}");
    store.close().unwrap();
    let store = disk.open(Options::new().scope_mode(ScopeMode::PerTenant)).unwrap();
    assert_eq!(mismatch(store.execute(&of(&REFUND), never)).0, ["@operation"]);
    replay(store.execute(&of(&PAY), never));
}

/// C039: the scope mode is the file's: opening it with another is an error, and does not reinterpret or touch
/// it.
#[test]
fn a_file_keeps_its_scope_mode() {
    for (made, other) in
        [(ScopeMode::PerOperation, ScopeMode::PerTenant), (ScopeMode::PerTenant, ScopeMode::PerOperation)]
    {
        let disk = SimDisk::seeded(1);
        let store = disk.open(Options::new().scope_mode(made)).unwrap();
        done(store.execute(&request("k"), counted));
        store.close().unwrap();
        let error = fails(disk.open(Options::new().scope_mode(other)), ErrorKind::ScopeMode);
        assert!(error.to_string().contains(&format!("{made:?}")), "{error}");
        assert_eq!(error.advice(), onecho::Advice::AskOperator);
        replay(disk.open(Options::new().scope_mode(made)).unwrap().execute(&request("k"), never));
    }
}

/// C040: a key has at most 255 characters, whatever they take in bytes.
#[test]
fn a_key_is_measured_in_characters() {
    for letter in ["a", "é", "€", "𝕏"] {
        let longest = letter.repeat(255);
        assert_eq!(Key::parse(&longest).unwrap().as_str(), longest);
        fails(Key::parse(&letter.repeat(256)), ErrorKind::LimitExceeded);
    }
    let store = store();
    for n in [254, 255] {
        let long = "𝕏".repeat(n);
        done(store.execute(&asking(&long, "x"), counted));
        replay(store.execute(&asking(&long, "x"), never));
    }
}

/// C041, C043: an overlong, empty or unprintable key is a typed error before any store is asked.
#[test]
fn a_bad_key_is_an_error() {
    for length in [10_000, 1_000_000] {
        let error = fails(Key::parse(&"k".repeat(length)), ErrorKind::LimitExceeded);
        assert!(error.to_string().len() < 200, "{error}");
    }
    for bad in ["", "a\nb", "\0", "a\u{7F}", "\u{85}", "\u{2028}", "tab\t"] {
        fails(Key::parse(bad), ErrorKind::Invalid);
        fails(Tenant::parse(bad), ErrorKind::Invalid);
        fails(Operation::parse(bad), ErrorKind::Invalid);
        fails(onecho::Kind::parse(bad), ErrorKind::Invalid);
    }
    fails(Tenant::parse(&"t".repeat(129)), ErrorKind::LimitExceeded);
    assert!(Tenant::parse(&"t".repeat(128)).is_ok());
}

/// C042: the library compares keys as they are: case, blanks, quotes and Unicode forms make another key.
#[test]
fn a_key_is_compared_as_it_is() {
    let store = store();
    let keys = ["abc", "ABC", " abc", "abc ", "\"abc\"", "é", "e\u{301}", "undefined", "null", " "];
    for text in keys {
        done(store.execute(&asking(text, "x"), counted));
    }
    for text in keys {
        replay(store.execute(&asking(text, "x"), never));
    }
    assert_eq!(applied(&store), 10);
}

/// C044: a key that a broken client sends for everything does not mix commands up: another body is a
/// mismatch.
#[test]
fn a_careless_key_is_caught_by_the_fingerprint() {
    let store = store();
    done(store.execute(&asking("undefined", "first"), counted));
    mismatch(store.execute(&asking("undefined", "second"), never));
    assert_eq!((applied(&store), store.stats().mismatches), (1, 1));
}

/// C070, C103: a derived key is the same for the same fields and no other's, and a random one is nobody
/// else's.
#[test]
fn keys_can_be_made() {
    let derived = |fields: &[(&str, &str)]| Key::derived(fields).unwrap();
    assert_eq!(derived(&[("cart", "17")]), derived(&[("cart", "17")]));
    let lists: [&[(&str, &str)]; 7] = [
        &[("a", "bc")],
        &[("ab", "c")],
        &[("a", "b"), ("c", "d")],
        &[("c", "d"), ("a", "b")],
        &[("a", "bcd")],
        &[("a", "")],
        &[("a", ""), ("b", "")],
    ];
    let keys: std::collections::BTreeSet<Key> = lists.iter().map(|list| derived(list)).collect();
    assert_eq!(keys.len(), lists.len());
    fails(Key::derived(&[]), ErrorKind::Invalid);
    fails(Key::derived(&[("", "x")]), ErrorKind::Invalid);
    // Part of what clients keep: it may not change.
    assert_eq!(keys.iter().filter(|key| key.as_str().starts_with("derived-")).count(), lists.len());
    let random: std::collections::BTreeSet<Key> = (0..1_000).map(|_| Key::random()).collect();
    assert_eq!(random.len(), 1_000);
    assert!(random.iter().all(|random| key(random.as_str()) == *random));
}
