//! A minimal user of onecho: one command, its retry, one look.

use onecho::{BoxError, Bytes, Key, Kind, Operation, Options, Outcome, Request, Store, Tenant};

const CREATE: Operation = Operation::new("create-order");
const ORDERS: Kind<Bytes> = Kind::raw("order");

fn main() -> Result<(), BoxError> {
    let path = std::env::args_os().nth(1).ok_or("which file?")?;
    let store = Store::open_or_create(path, Options::small_device())?;
    let shop = Tenant::new("shop");
    let request = Request::new(&shop, &CREATE, &Key::parse("k-1")?).bytes("body", b"two of them");
    for _ in 0..2 {
        let reply = store.execute(&request, |fx| {
            let order = fx.create(&ORDERS, "o-1", &Bytes::from_static(b"two of them"))?;
            Ok(Outcome::succeeded(201).body("made").resource(&order))
        })?;
        reply.into_finished().map_err(|other| format!("{:?}", other.advice()))?;
    }
    store.get(&shop, &ORDERS, "o-1")?.ok_or("no order")?;
    Ok(store.close()?)
}
