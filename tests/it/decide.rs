//! What somebody at a command line finds and decides: stuck commands, dead messages, jobs of events. Each
//! decision changes one thing, and the journal says who made it and why.

use std::time::Duration;

use onecho::{
    Begin, Contract, Delivered, Destination, Inbox, Message, MessageId, Operation, Options, Policy, Start,
    Step, Store, Tenant, Timestamp, Workers,
};
use serde_json::{Value, json};

use crate::cli::{Ran, Shop};
use crate::common::key;

const SHOP: Tenant = Tenant::new("shop");
const PAY: Operation = Operation::new("pay");
const CHARGE: Step<u64> = Step::new("charge", Contract::Neither).settles_within(Duration::ZERO);
const PRINT: Destination<String> = Destination::json("printer", Contract::Neither);
const HOOKS: Inbox = Inbox::new("forge", "mirror");
const JOBS: Destination<String> = Destination::json("mirror-jobs", Contract::Idempotent);

fn opened(shop: &Shop, lease: Duration) -> Store {
    let policy = Policy::new().lease(lease);
    Store::open_or_create(shop.path("s.onecho"), Options::new().owner("edge-7").default_policy(policy))
        .unwrap()
}

/// A store with three commands whose process went away half-way.
fn three_stale(lease: Duration) -> Shop {
    let shop = Shop::new();
    let store = opened(&shop, lease);
    for name in ["a", "b", "c"] {
        let request = onecho::Request::new(&SHOP, &PAY, &key(name)).bytes("body", name);
        assert!(matches!(store.begin(&request, Start::new().step(&CHARGE)).unwrap(), Begin::Run(_)));
    }
    store.close().unwrap();
    shop
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// `words`, with a reason that has blanks in it.
fn say(shop: &Shop, words: &str) -> Ran {
    Ran(shop.words(words).args(["--reason", "seen in the log"]).output().unwrap())
}

#[test]
fn stale_commands_are_listed_and_one_is_resolved_with_a_reason() {
    let shop = three_stale(Duration::from_millis(200));
    let all = "list --state processing,unknown --json";
    let before = lines(&shop.run(all).ends(0));
    assert_eq!(before.len(), 3);
    for record in &before {
        assert_eq!(
            (&record["tenant"], &record["operation"], &record["owner"]),
            (&json!("shop"), &json!("pay"), &json!("edge-7"))
        );
        assert!(record["age_ms"].is_u64() && record["state"].is_string(), "{record}");
    }
    say(&shop, "resolve --tenant shop --operation pay --key b --failed 402 --actor Ada").ends(0);
    let status = shop.run("status --tenant shop --operation pay --key b --json").ends(0).json();
    assert_eq!(
        (&status["state"], &status["code"], &status["failed"]),
        (&json!("finished"), &json!(402), &json!(true))
    );

    let after = lines(&shop.run(all).ends(0));
    let keys = |records: &[Value]| records.iter().map(|record| record["key"].clone()).collect::<Vec<_>>();
    assert_eq!(keys(&after), keys(&before).into_iter().filter(|key| key != "b").collect::<Vec<_>>());
    for record in after {
        let was = before.iter().find(|was| was["key"] == record["key"]).unwrap();
        assert_eq!(record["since_ms"], was["since_ms"]);
    }
    let history = lines(&shop.run("history --tenant shop --operation pay --key b --json").ends(0));
    let told: Vec<_> =
        history.iter().map(|entry| (entry["change"].clone(), entry["actor"].clone())).collect();
    let (ada, edge) = (json!("Ada"), json!("edge-7"));
    assert_eq!(told, [(json!("begun"), edge), (json!("lapsed"), ada.clone()), (json!("resolved"), ada)]);
    assert!(history[2]["why"].as_str().unwrap().contains("operator: seen in the log"), "{history:?}");
    shop.run("verify").ends(0);
}

#[test]
fn a_list_of_commands_is_narrowed_by_each_of_its_words() {
    let shop = three_stale(Duration::from_secs(3600));
    let request = onecho::Request::new(&SHOP, &Operation::new("ship"), &key("d")).bytes("body", "d");
    let store = opened(&shop, Duration::from_secs(1));
    store.execute(&request, |_| Ok(onecho::Outcome::failed(409))).unwrap().into_finished().unwrap();
    store.close().unwrap();
    let keys = |words: &str| -> Vec<String> {
        let found = lines(&shop.run(&format!("list --json {words}")).ends(0));
        let mut keys: Vec<_> =
            found.iter().map(|record| record["key"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys("--state processing"), ["a", "b", "c"]);
    assert_eq!(keys("--state unknown"), [""; 0]);
    assert_eq!(keys("--state finished"), ["d"]);
    assert_eq!(keys("--state processing --state finished"), ["a", "b", "c", "d"]);
    assert_eq!(keys("--state processing,finished --operation ship"), ["d"]);
    assert_eq!(keys("--state processing --tenant other"), [""; 0]);
    assert_eq!(keys("--state processing --key c"), ["c"]);
    assert_eq!(keys("--state processing --limit 2").len(), 2);
    assert_eq!(keys("--state processing --older-than 0s").len(), 3);
    assert_eq!(keys("--state processing --older-than 1d"), [""; 0]);
    shop.run("list --state processing --older-than 1").ends(2);
    shop.run("list --state processing --kind order").ends(2);
    shop.run("list --kind order").ends(2);
    let table = shop.run("list --state processing").ends(0).text();
    assert!(table.starts_with("STATE "), "{table}");
    assert!(
        table.lines().skip(1).all(|row| row.starts_with("processing ") && row.contains("edge-7")),
        "{table}"
    );
}

#[test]
fn a_live_lease_is_never_overridden() {
    let shop = three_stale(Duration::from_secs(3600));
    let words = "resolve --tenant shop --operation pay --key a --wait 50ms --actor Ada --not-applied";
    say(&shop, words).ends(1).says(&["lease of edge-7", "never overridden", "nothing was changed", "--wait"]);
    let history = lines(&shop.run("history --tenant shop --operation pay --key a --json").ends(0));
    assert_eq!(history.len(), 1);
    let help = shop.command("resolve").arg("--help").output().unwrap();
    assert!(Ran(help).ends(0).text().contains("waited for, never overridden"));
}

#[test]
fn only_what_is_unknown_is_resolved_and_only_by_somebody_for_a_reason() {
    let shop = three_stale(Duration::from_millis(50));
    let named = "resolve --tenant shop --operation pay";
    say(&shop, &format!("{named} --key nobody --failed 1 --actor Ada"))
        .ends(1)
        .says(&["it is absent, not unknown"]);
    say(&shop, &format!("{named} --key a --succeeded 201 --actor Ada --json --body paid")).ends(0);
    let status = shop.run("status --tenant shop --operation pay --key a --json").ends(0).json();
    assert_eq!((&status["code"], &status["body"]), (&json!(201), &json!({"text": "paid"})));
    say(&shop, &format!("{named} --key a --failed 1 --actor Ada")).ends(1).says(&["it is finished"]);
    say(&shop, &format!("{named} --key b --not-applied --actor Ada")).ends(0);
    shop.run("status --tenant shop --operation pay --key b").ends(1);
    for words in [
        "--key c --actor Ada --reason x",
        "--key c --actor Ada --reason x --failed 1 --not-applied",
        "--key c --actor Ada --reason x --not-applied --body x",
        "--key c --failed 1 --reason x",
        "--key c --failed 1 --actor Ada",
        "--key c --failed 70000 --actor Ada --reason x",
    ] {
        shop.run(&format!("{named} {words}")).ends(2);
    }
    let mut empty = shop.command("resolve");
    empty.args("--tenant shop --operation pay --key c --failed 1 --actor Ada --reason".split(' ')).arg(" ");
    Ran(empty.output().unwrap()).ends(2).says(&["--reason"]);
    let mut nobody = shop.command("resolve");
    nobody.args("--tenant shop --operation pay --key c --failed 1 --reason x --actor".split(' ')).arg("");
    Ran(nobody.output().unwrap()).ends(2).says(&["--actor"]);
}

#[test]
fn a_cancelled_key_never_runs_and_the_journal_says_who_did_it() {
    let shop = three_stale(Duration::from_secs(3600));
    shop.run("cancel --tenant shop --operation pay --key free --actor Ada").ends(0);
    let store = opened(&shop, Duration::from_secs(1));
    let request = onecho::Request::new(&SHOP, &PAY, &key("free")).bytes("body", "x");
    assert_eq!(store.execute(&request, crate::common::never).unwrap().into_finished().unwrap().code, 499);
    store.close().unwrap();
    let history = lines(&shop.run("history --tenant shop --operation pay --key free --json").ends(0));
    assert_eq!((&history[0]["change"], &history[0]["actor"]), (&json!("cancelled"), &json!("Ada")));
    let begun = shop.run("cancel --tenant shop --operation pay --key a --actor Ada --json").ends(1);
    assert_eq!(begun.json()["state"], "processing");
    shop.run("history --tenant shop --operation pay --key nobody").ends(1);
}

/// A store with a message in each of some states: dead, unknown, delivered, waiting.
fn letters(shop: &Shop) -> [MessageId; 4] {
    let store = opened(shop, Duration::from_secs(1));
    let letter = |text: &str| Message::new(&PRINT, &text.to_owned()).unwrap().header("trace", "4bf9");
    let ids = store.enqueue(&SHOP, &[letter("dead"), letter("unknown"), letter("fine")]).unwrap();
    let workers = Workers::new(&store).deliver(&PRINT, |text, _| match text.as_str() {
        "dead" => Ok(Delivered::Refused("no such printer".to_owned())),
        "fine" => Ok(Delivered::Done(Some("printed".into()))),
        _ => Err("the line dropped".into()),
    });
    workers.tick().unwrap();
    let late = letter("late").not_before(Timestamp(u64::MAX / 2)).ordered_by("tray");
    let waiting = store.enqueue(&SHOP, &[late]).unwrap()[0];
    store.close().unwrap();
    [ids[0], ids[1], ids[2], waiting]
}

#[test]
fn messages_are_listed_by_state_and_shown_with_what_was_done_to_them() {
    let shop = Shop::new();
    let [dead, unknown, fine, waiting] = letters(&shop);
    let list = |words: &str| -> Vec<String> {
        let found = lines(&shop.run(&format!("outbox list --json{words}")).ends(0));
        found.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    let all: Vec<String> = [dead, unknown, fine, waiting].iter().map(ToString::to_string).collect();
    assert_eq!(list(""), all);
    assert_eq!(list(" --state dead,unknown"), all[..2]);
    assert_eq!(list(" --state delivered"), all[2..3]);
    assert_eq!(list(" --state waiting --destination printer --tenant shop"), all[3..]);
    assert_eq!(list(" --tenant other"), all[..0]);
    assert_eq!(list(" --destination other"), all[..0]);
    assert_eq!(list(" --older-than 1d"), all[..0]);
    assert_eq!(list(" --limit 1"), all[..1]);
    let table = shop.run("outbox list --state dead").ends(0).text();
    assert!(table.lines().nth(1).unwrap().ends_with("shop printer  why: no such printer"), "{table}");

    let shown = shop.run(&format!("outbox show {dead} --json")).ends(0).json();
    assert_eq!((&shown["state"], &shown["contract"]), (&json!("dead"), &json!("neither")));
    assert_eq!(
        (&shown["payload"], &shown["headers"]),
        (&json!({"value": "dead"}), &json!([["trace", "4bf9"]]))
    );
    let changes: Vec<&Value> =
        shown["history"].as_array().unwrap().iter().map(|entry| &entry["change"]).collect();
    assert_eq!(changes, ["messages enqueued", "messages attempted", "attempts ended"]);
    let shown = shop.run(&format!("outbox show {fine} --json")).ends(0).json();
    assert_eq!((&shown["answer"], &shown["payload"]), (&json!({"text": "printed"}), &Value::Null));
    let text = shop.run(&format!("outbox show {dead}")).ends(0).text();
    assert!(text.contains("messages enqueued by edge-7"), "{text}");
    shop.run("outbox show 99-0").ends(1);
    shop.run("outbox show nonsense").ends(2).says(&["17-0"]);
}

#[test]
fn messages_are_decided_about_with_an_actor_and_a_reason() {
    let shop = Shop::new();
    let [dead, unknown, fine, waiting] = letters(&shop);
    say(&shop, &format!("outbox drop {dead} --actor Ada")).ends(2).says(&["--yes"]);
    for id in [fine, waiting] {
        say(&shop, &format!("outbox requeue {id} --actor Ada")).ends(1).says(&["dead or unknown"]);
    }
    shop.run(&format!("outbox requeue {dead} --actor Ada")).ends(2);
    assert_eq!(
        say(&shop, &format!("outbox requeue {dead} --actor Ada")).ends(0).text(),
        format!("{dead} is waiting\n")
    );
    assert_eq!(
        say(&shop, &format!("outbox drop {unknown} --actor Ada --yes")).ends(0).text(),
        format!("{unknown} is discarded\n")
    );
    let shown = shop.run(&format!("outbox show {unknown} --json")).ends(0).json();
    let last = shown["history"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["change"], &last["actor"]), (&json!("message settled"), &json!("Ada")));
    assert!(last["why"].as_str().unwrap().contains("seen in the log"), "{last}");

    let store = opened(&shop, Duration::from_secs(1));
    Workers::new(&store).deliver(&PRINT, |_, _| Err("the line dropped again".into())).tick().unwrap();
    store.close().unwrap();
    assert_eq!(
        say(&shop, &format!("outbox delivered {dead} --actor Ada")).ends(0).text(),
        format!("{dead} is delivered\n")
    );
    say(&shop, "outbox delivered 99-0 --actor Ada").ends(1);
}

/// A process that goes away while it sends leaves a message that nobody is at any more.
#[test]
fn an_attempt_whose_process_is_gone_is_no_obstacle() {
    let shop = Shop::new();
    let store = opened(&shop, Duration::from_secs(1));
    let id = store.enqueue(&SHOP, &[Message::new(&PRINT, &"label".to_owned()).unwrap()]).unwrap()[0];
    let copy = shop.path("copy");
    let (from, to) = (shop.path("s.onecho"), copy.clone());
    let workers = Workers::new(&store).deliver(&PRINT, move |_, _| {
        std::fs::copy(&from, &to)?;
        Ok(Delivered::Done(None))
    });
    workers.tick().unwrap();
    drop(workers);
    store.close().unwrap();
    std::fs::rename(copy, shop.path("s.onecho")).unwrap();
    assert_eq!(lines(&shop.run("outbox list --json").ends(0))[0]["state"], "sending");
    say(&shop, &format!("outbox delivered {id} --actor Ada")).ends(0);
    assert_eq!(lines(&shop.run("outbox list --json").ends(0))[0]["state"], "delivered");
}

#[test]
fn the_jobs_of_events_are_listed_with_their_events_and_decided_about() {
    let shop = Shop::new();
    let [letter, ..] = letters(&shop);
    let store = opened(&shop, Duration::from_secs(1));
    for (id, time) in [("evt_1", 1_000), ("evt_2", 2_000)] {
        let event = HOOKS.event(id).unwrap().content(id).time(Timestamp(time)).stream("onecho");
        let job = Message::new(&JOBS, &id.to_owned()).unwrap().attempts_max(1);
        store.accept(&SHOP, &event, job).unwrap().into_finished().unwrap();
    }
    let workers = Workers::new(&store).handle(&JOBS, |id, _, _| match id.as_str() {
        "evt_1" => Ok(()),
        _ => Err("the mirror is away".into()),
    });
    workers.tick().unwrap();
    drop(workers);
    store.close().unwrap();

    let listed = lines(&shop.run("inbox list --json").ends(0));
    let told: Vec<_> =
        listed.iter().map(|line| (&line["event_id"], &line["state"], &line["inbox"])).collect();
    let inbox = &json!("forge/mirror");
    assert_eq!(
        told,
        [(&json!("evt_1"), &json!("delivered"), inbox), (&json!("evt_2"), &json!("dead"), inbox)]
    );
    let dead = listed[1]["id"].as_str().unwrap();
    assert_eq!((&listed[1]["event_time_ms"], &listed[1]["stream"]), (&json!(2_000), &json!("onecho")));
    shop.run(&format!("inbox show {letter}")).ends(1);
    say(&shop, &format!("inbox requeue {letter} --actor Ada")).ends(1);
    say(&shop, &format!("inbox requeue {dead} --actor Ada")).ends(0);
    let shown = shop.run(&format!("inbox show {dead} --json")).ends(0).json();
    assert_eq!((&shown["state"], &shown["event_id"]), (&json!("waiting"), &json!("evt_2")));
    assert_eq!(shown["history"].as_array().unwrap().last().unwrap()["actor"], "Ada");
}
