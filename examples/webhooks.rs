//! A webhook consumer: each event accepted once with its job, in one commit; jobs done by workers; an older
//! event overwrites nothing newer. Checks what it claims.
//!
//! ```console
//! $ cargo run --example webhooks
//! ```

use std::time::Duration;

use onecho::{
    BoxError, Contract, Destination, Inbox, Kind, Message, MessageState, Options, Reply, Store, Tenant,
    Timestamp, Workers,
};
use serde::{Deserialize, Serialize};

const TENANT: Tenant = Tenant::new("mirror");
const HOOKS: Inbox = Inbox::new("forge", "mirror");
const JOBS: Destination<Hook> = Destination::json("mirror-jobs", Contract::Idempotent);
const REPOS: Kind<Repo> = Kind::json("repo");

#[derive(Serialize, Deserialize)]
struct Hook {
    repo: String,
    stars: u64,
    at_ms: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Repo {
    stars: u64,
}

/// What the HTTP handler does, once it has checked the signature over `body`: the status to answer with.
fn receive(store: &Store, id: Option<&str>, body: &str) -> Result<u16, BoxError> {
    // The sender's id of the event. Without one nothing tells a repeat: 400, and nothing is stored.
    let Ok(event) = HOOKS.event(id.unwrap_or_default()) else { return Ok(400) };
    let Ok(hook) = serde_json::from_str::<Hook>(body) else { return Ok(400) };
    let event = event.content(body).time(Timestamp(hook.at_ms)).stream(&hook.repo);
    let job = Message::new(&JOBS, &hook)?.ordered_by(&hook.repo);
    Ok(match store.accept(&TENANT, &event, job)? {
        // Id and job are durable: 2xx, whether the job has run or not.
        Reply::Done(_) | Reply::Replay(_) | Reply::Expired { .. } => 202,
        Reply::Mismatch { .. } => 409, // the same id with another content
        _ => 503,                      // the sender tries again
    })
}

fn workers(store: &Store) -> Workers {
    Workers::new(store).handle(&JOBS, |hook, delivery, fx| {
        let time = delivery.event_time().ok_or("no event time")?;
        fx.put_if_newer(&REPOS, &hook.repo, time, &Repo { stars: hook.stars })?;
        Ok(()) // the row and "done" are one commit
    })
}

fn main() -> Result<(), BoxError> {
    let path = std::env::temp_dir().join(format!("onecho-webhooks-{}.onecho", std::process::id()));
    let store = Store::open_or_create(&path, Options::new().reserve_bytes(0))?;
    let running = workers(&store).threads(2).start()?;

    let newer = r#"{"repo":"onecho","stars":12,"at_ms":2000}"#;
    let older = r#"{"repo":"onecho","stars":11,"at_ms":1000}"#;
    assert_eq!(receive(&store, Some("evt_2"), newer)?, 202);
    assert_eq!(receive(&store, Some("evt_2"), newer)?, 202); // sent again: acknowledged, no second job
    assert_eq!(receive(&store, Some("evt_1"), older)?, 202); // it was on its way for longer
    assert_eq!(receive(&store, Some("evt_1"), newer)?, 409); // another event under its id
    assert_eq!(receive(&store, None, newer)?, 400);

    while store.stats().messages_waiting > 0 {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let repo = store.get(&TENANT, &REPOS, "onecho")?.ok_or("no repo")?;
    assert_eq!(repo.value, Repo { stars: 12 }); // the older event has overwritten nothing
    let done = store.messages().filter(|item| matches!(item, Ok((_, MessageState::Delivered { .. }))));
    assert_eq!(done.count(), 2);
    let stats = store.stats();
    assert_eq!((stats.inbox_new, stats.inbox_duplicate, stats.inbox_conflict), (2, 1, 1));

    running.stop(Duration::from_secs(10))?;
    store.close()?;
    std::fs::remove_file(path)?;
    Ok(())
}
