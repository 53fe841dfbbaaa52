//! A service that creates orders: a balance that is checked, a refusal that is remembered, a cart that can
//! be ordered once, and a retry that gets the first answer. What a web framework would add is left out.
//!
//! Run it with `cargo run --example create_order`; it works in a temporary directory and checks what it
//! claims.

use std::time::Duration;

use onecho::{
    BoxError, Error, Finished, Key, Kind, Operation, Options, Outcome, Policy, Reply, Request, ResourceRef,
    Store, Tenant,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

const SHOP: Tenant = Tenant::new("shop");
const CREATE_ORDER: Operation = Operation::new("create-order");
/// A client retries for a day, so its key must be known for longer.
const CREATE_ORDER_LAST: Policy = Policy::new().key_window(Duration::from_secs(30 * 24 * 3600)).must_outlast(
    Duration::from_secs(24 * 3600),
    Duration::ZERO,
    Duration::ZERO,
);
const ORDERS: Kind<Cart> = Kind::json("order");
const BALANCES: Kind<Balance> = Kind::json("balance");

#[derive(Serialize, Deserialize)]
struct Cart {
    id: String,
    customer: String,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Balance {
    cents: u64,
}

/// What the client is told.
#[derive(Debug, PartialEq)]
enum Answer {
    /// The outcome: its code, its body, and whether an earlier call made it.
    Finished { code: u16, body: serde_json::Value, replayed: bool },
    /// The cart was ordered before, under another key.
    Exists(ResourceRef),
    /// Another request has this key.
    KeyTaken,
}

/// One request of a client: its idempotency key and its body, as they came.
fn create_order(store: &Store, key: &str, body: &[u8]) -> Result<Answer, BoxError> {
    let cart: Cart = serde_json::from_slice(body)?;
    let request = Request::new(&SHOP, &CREATE_ORDER, &Key::parse(key)?).json("body", body);
    let reply = store.execute(&request, |fx| {
        // An `Err` is not recorded: the customer may be added, and the same key tried again.
        let balance = fx.get(&BALANCES, &cart.customer)?.ok_or("no such customer")?.value;
        if balance.cents < cart.cents {
            // A refusal is: a retry gets the same answer, whatever the balance is by then.
            return Ok(Outcome::failed(402).json(&json!({ "missing": cart.cents - balance.cents }))?);
        }
        let id = fx.new_id();
        let order = fx.create(&ORDERS, &id, &cart)?;
        fx.unique("cart", &cart.id, &order)?;
        fx.put(&BALANCES, &cart.customer, &Balance { cents: balance.cents - cart.cents })?;
        Ok(Outcome::succeeded(201).json(&json!({ "id": order.id }))?.resource(&order))
    })?;
    match reply {
        Reply::Done(finished) => answer(&finished, false),
        Reply::Replay(finished) => answer(&finished, true),
        Reply::Duplicate { held, .. } => Ok(Answer::Exists(held)),
        Reply::Mismatch { .. } => Ok(Answer::KeyTaken),
        other => Err(format!("the client should be told: {:?}", other.advice()).into()),
    }
}

fn answer(finished: &Finished, replayed: bool) -> Result<Answer, BoxError> {
    let body = finished.decode()?.ok_or("the body's window is over")?;
    Ok(Answer::Finished { code: finished.code, body, replayed })
}

/// The balance of a customer, set by another command.
fn deposit(store: &Store, key: &str, customer: &str, cents: u64) -> Result<(), Error> {
    const DEPOSIT: Operation = Operation::new("deposit");
    let request = Request::new(&SHOP, &DEPOSIT, &Key::parse(key)?)
        .fields("deposit", &[("customer", customer), ("cents", &cents.to_string())]);
    let reply = store.execute(&request, |fx| {
        let before = fx.get(&BALANCES, customer)?.map_or(0, |balance| balance.value.cents);
        fx.put(&BALANCES, customer, &Balance { cents: before + cents })?;
        Ok(Outcome::succeeded(200))
    })?;
    assert!(reply.into_finished().is_ok());
    Ok(())
}

fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("orders.onecho");
    let options = Options::new().operation(&CREATE_ORDER, CREATE_ORDER_LAST);
    let store = Store::open_or_create(&path, options.clone())?;
    let balance =
        |store: &Store| Ok::<_, Error>(store.get(&SHOP, &BALANCES, "ada")?.map(|row| row.value.cents));

    // Nobody has heard of the customer: nothing is recorded, so the same key works once she is known.
    let cart = br#"{"id":"cart-1","customer":"ada","cents":700}"#;
    assert!(create_order(&store, "k-1", cart).is_err());
    deposit(&store, "d-1", "ada", 1000)?;
    deposit(&store, "d-1", "ada", 1000)?; // A retry: she has it once.
    let first = create_order(&store, "k-1", cart)?;
    assert!(matches!(first, Answer::Finished { code: 201, replayed: false, .. }), "{first:?}");
    assert_eq!(balance(&store)?, Some(300));

    // The answer was lost; the client asks again, and formats its body anew. It gets the first answer and
    // pays once.
    let Answer::Finished { body: order, .. } = first else { return Err("no order".into()) };
    let again = create_order(&store, "k-1", br#"{ "customer": "ada", "cents": 700, "id": "cart-1" }"#)?;
    assert_eq!(again, Answer::Finished { code: 201, body: order.clone(), replayed: true });
    assert_eq!(balance(&store)?, Some(300));

    // The same key with another body is refused, and the same cart under another key leads to its order.
    let other = br#"{"id":"cart-2","customer":"ada","cents":700}"#;
    assert_eq!(create_order(&store, "k-1", other)?, Answer::KeyTaken);
    let held = create_order(&store, "k-2", br#"{"id":"cart-1","customer":"ada","cents":100}"#)?;
    assert!(matches!(held, Answer::Exists(held) if order["id"] == held.id.as_str()));

    // Too dear: a refusal, remembered also when there is money by the time of the retry. A new attempt has
    // a new key.
    let refusal = create_order(&store, "k-3", other)?;
    let missing = json!({ "missing": 400 });
    assert_eq!(refusal, Answer::Finished { code: 402, body: missing.clone(), replayed: false });
    deposit(&store, "d-2", "ada", 1000)?;
    store.close()?;

    // All of it outlives the process.
    let store = Store::open(&path, options)?;
    assert_eq!(
        create_order(&store, "k-3", other)?,
        Answer::Finished { code: 402, body: missing, replayed: true }
    );
    assert!(matches!(create_order(&store, "k-4", other)?, Answer::Finished { code: 201, .. }));
    assert_eq!(balance(&store)?, Some(600));
    assert_eq!(store.scan(&SHOP, &ORDERS, "").count(), 2);
    assert!(store.verify()?.is_clean());
    Ok(store.close()?)
}
