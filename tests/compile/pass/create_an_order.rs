//! A service's handler, without its web framework.

use onecho::*;
use serde::{Deserialize, Serialize};

const CREATE_ORDER: Operation = Operation::new("create-order");
const ORDERS_LAST: Policy = Policy::new().must_outlast(
    std::time::Duration::from_secs(3_600),
    std::time::Duration::from_secs(86_400),
    std::time::Duration::ZERO,
);
const ORDERS: Kind<Cart> = Kind::json("order");
const BALANCES: Kind<Balance> = Kind::json("balance");
const STOCK: Kind<i64> = Kind::counter("stock").shared();

#[derive(Clone, Serialize, Deserialize)]
struct Cart {
    id: String,
    customer: String,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Balance {
    cents: u64,
}

#[derive(Debug)]
struct NoCustomer;

impl std::fmt::Display for NoCustomer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no such customer")
    }
}

impl std::error::Error for NoCustomer {}

fn create(store: &Store, tenant: &Tenant, key: &str, body: &[u8]) -> Result<(u16, Bytes), BoxError> {
    let cart: Cart = serde_json::from_slice(body)?;
    let request = Request::new(tenant, &CREATE_ORDER, &Key::parse(key)?).json("body", body);
    let reply = store.execute(&request, move |fx| {
        let balance = fx.get(&BALANCES, &cart.customer)?.ok_or(NoCustomer)?.value;
        if balance.cents < cart.cents {
            return Ok(Outcome::failed(402).json(&(cart.cents - balance.cents))?);
        }
        if !fx.add(&STOCK, "bolts", -1, 0)? {
            return Ok(Outcome::failed(409));
        }
        let id = fx.new_id();
        let order = fx.create(&ORDERS, &id, &cart)?;
        fx.unique("cart", &cart.id, &order)?;
        fx.put(&BALANCES, &cart.customer, &Balance { cents: balance.cents - cart.cents })?;
        Ok(Outcome::succeeded(201).json(&order.id)?.resource(&order))
    })?;
    Ok(match reply {
        Reply::Done(finished) | Reply::Replay(finished) => match finished.body {
            Body::Present(bytes) => (finished.code, bytes),
            Body::Trimmed { .. } | Body::NotKept { .. } => (410, Bytes::new()),
        },
        Reply::Duplicate { held, .. } => match store.get(tenant, &ORDERS, &held.id)? {
            Some(order) => (200, order.value.id.into()),
            None => (404, Bytes::new()),
        },
        other => match other.advice() {
            Advice::RetrySameKey { after } => (409, after.as_secs().max(1).to_string().into()),
            Advice::NewKeyNeeded => (422, Bytes::new()),
            _ => (503, Bytes::new()),
        },
    })
}

fn named(fx: &mut Effects) -> Result<Outcome, BoxError> {
    Ok(Outcome::succeeded(200).json(&fx.now().0)?)
}

fn main() -> Result<(), BoxError> {
    let store = testing::SimDisk::seeded(1).open(Options::new().operation(&CREATE_ORDER, ORDERS_LAST))?;
    let tenant = Tenant::new("shop");
    let body = br#"{"id":"c-1","customer":"ada","cents":5}"#;
    let error = create(&store, &tenant, "k-1", body).unwrap_err().downcast::<Error>().unwrap();
    assert!(error.downcast::<NoCustomer>().is_ok());
    let give = Request::new(&tenant, &Operation::new("give"), &Key::random()).bytes("body", []);
    assert!(
        store
            .execute(&give, |fx| {
                fx.put(&BALANCES, "ada", &Balance { cents: 8 })?;
                fx.add(&STOCK, "bolts", 5, 0)?;
                named(fx)
            })?
            .into_finished()
            .is_ok()
    );
    let first = create(&store, &tenant, "k-1", body)?;
    assert_eq!((first.0, &first), (201, &create(&store, &tenant, "k-1", body)?));
    assert_eq!(create(&store, &tenant, "k-2", body)?.0, 402);
    Ok(())
}
