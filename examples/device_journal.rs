//! A device that journals what it measures and sends it when there is a line: nothing is lost by a power cut, and
//! the other side can tell every repeat. Checks what it claims.
//!
//! ```console
//! $ cargo run --example device_journal
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onecho::{
    BoxError, Bytes, Contract, Delivered, Delivery, Destination, Key, Message, MessageId, MessageState,
    Options, Store, Tenant, Workers,
};

const DEVICE: Tenant = Tenant::new("device");
const UPLOAD: Destination<Bytes> = Destination::raw("telemetry", Contract::Idempotent);

/// The other side: takes a batch once per key, and loses every third answer.
#[derive(Default)]
struct Remote(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    calls: u64,
    batches: BTreeMap<String, Bytes>,
}

enum SendError {
    NoRoute,
    Cut,
}

impl Remote {
    fn post(&self, key: &str, batch: &Bytes) -> Result<&'static str, SendError> {
        let Ok(mut taken) = self.0.lock() else { return Err(SendError::Cut) };
        taken.calls += 1;
        match taken.calls % 3 {
            1 => Err(SendError::NoRoute), // nothing was sent
            call => {
                taken.batches.entry(key.to_owned()).or_insert_with(|| batch.clone());
                if call == 2 { Err(SendError::Cut) } else { Ok("stored") }
            }
        }
    }
}

fn send(remote: &Remote, batch: &Bytes, delivery: &Delivery) -> Delivered {
    let key = delivery.operation_id().as_str(); // the same in every attempt, over restarts
    match remote.post(key, batch) {
        Ok(receipt) => Delivered::Done(Some(receipt.into())),
        Err(SendError::NoRoute) => Delivered::NotApplied { retry_after: None, why: "no route".into() },
        Err(SendError::Cut) => Delivered::Unknown("sent, no answer".into()), // as is any `Err`
    }
}

fn journal(store: &Store, boot: &str, number: u32) -> Result<MessageId, BoxError> {
    let number = number.to_string();
    let key = Key::derived(&[("boot", boot), ("batch", &number)])?; // known after a crash: added once
    let batch = Bytes::from(format!("{number},{number}"));
    let message = Message::new(&UPLOAD, &batch)?.keyed(&key).ordered_by("telemetry");
    let message = message.backoff(Duration::from_millis(1)..=Duration::from_millis(20));
    Ok(store.enqueue(&DEVICE, &[message.attempts_max(u32::MAX)])?[0])
}

fn main() -> Result<(), BoxError> {
    let path = std::env::temp_dir().join(format!("onecho-device-{}.onecho", std::process::id()));
    let options = || Options::small_device().reserve_bytes(0);
    let remote = Arc::new(Remote::default());

    // No line yet: five batches are journalled, and the device is switched off.
    let store = Store::open_or_create(&path, options())?;
    let first: Vec<MessageId> =
        (1..=5).map(|number| journal(&store, "17", number)).collect::<Result<_, _>>()?;
    store.close()?;

    // It does not remember how far it was, and journals all of them again: they are known.
    let store = Store::open(&path, options())?;
    let ids: Vec<MessageId> =
        (1..=8).map(|number| journal(&store, "17", number)).collect::<Result<_, _>>()?;
    assert_eq!(ids[..5], first);

    let line = Arc::clone(&remote);
    let running = Workers::new(&store)
        .deliver(&UPLOAD, move |batch, delivery| Ok(send(&line, batch, delivery)))
        .start()?;
    while store.stats().messages_waiting > 0 {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    running.stop(Duration::from_secs(10))?;

    // Each batch is there once, however often it was sent, and the journal knows its receipt.
    let taken = remote.0.lock().map_err(|_| "a call panicked")?;
    assert_eq!((taken.batches.len(), taken.calls > 8), (8, true));
    for id in ids {
        let Some(MessageState::Delivered { answer, .. }) = store.message(id)? else {
            return Err("it has not arrived".into());
        };
        assert_eq!(answer.as_deref(), Some(&b"stored"[..]));
    }
    store.close()?;
    std::fs::remove_file(path)?;
    Ok(())
}
