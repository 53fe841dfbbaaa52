//! A checkout that charges through a processor which loses answers: the call is declared before it is made,
//! an answer that never came is `Unknown`, a worker asks the processor and runs the command on. Nobody is
//! charged twice, and no order is left behind.
//!
//! Run it with `cargo run --example checkout`; it works in a temporary directory and checks what it claims.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example: it fails loudly, waits as a client would, and prints"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onecho::{
    Begin, BoxError, Claim, Contract, Evidence, Key, Kind, Operation, OperationId, Options, Outcome, Policy,
    Reply, Request, Start, Status, Step, Stepped, Store, Takeover, Tenant, Verdict, Workers,
};
use serde::{Deserialize, Serialize};

const SHOP: Tenant = Tenant::new("shop");
const CHECKOUT: Operation = Operation::new("checkout");
/// The processor books a repeat twice, and can be asked. What it has not booked a quarter of a second after
/// it was asked to, it never will.
const CHARGE: Step<Charge> =
    Step::new("charge", Contract::Queryable).settles_within(Duration::from_millis(250));
const ORDERS: Kind<Cart> = Kind::json("order");
/// All it does outside is declared, so another may go on where its owner stopped.
const CHECKOUT_RUNS: Policy =
    Policy::new().lease(Duration::from_millis(200)).takeover(Takeover::Allowed).wait(Duration::ZERO);

#[derive(Clone, Serialize, Deserialize)]
struct Cart {
    order: String,
    cents: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Charge {
    cents: u64,
    declined: bool,
}

/// What a processor does with a request.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Answers,
    Declines,
    /// It books, and the line drops.
    LosesTheAnswer,
    /// The line drops before anything reaches it.
    LosesTheRequest,
    /// There is no line.
    CannotBeReached,
}

/// The other side.
#[derive(Default)]
struct Processor {
    booked: Mutex<HashMap<String, (u32, Charge)>>,
}

enum ChargeError {
    TimedOut,
    NotSent(String),
}

impl Processor {
    fn charge(&self, id: &OperationId, cents: u64, mood: Mood) -> Result<Charge, ChargeError> {
        let charge = Charge { cents, declined: mood == Mood::Declines };
        match mood {
            Mood::CannotBeReached => return Err(ChargeError::NotSent("no route to host".to_owned())),
            Mood::LosesTheRequest => return Err(ChargeError::TimedOut),
            Mood::Answers | Mood::Declines | Mood::LosesTheAnswer => {}
        }
        let mut booked = self.booked.lock().unwrap();
        booked.entry(id.to_string()).or_insert((0, charge.clone())).0 += 1;
        if mood == Mood::LosesTheAnswer { Err(ChargeError::TimedOut) } else { Ok(charge) }
    }

    fn look_up(&self, id: &OperationId) -> Option<Charge> {
        self.booked.lock().unwrap().get(id.as_str()).map(|(_, charge)| charge.clone())
    }
}

/// One function for the first run and for every takeover: what is known already is not done again.
fn checkout(mut claim: Claim, processor: &Processor, mood: Mood) -> Result<u16, BoxError> {
    let _lease = claim.keep_alive();
    let cart: Cart = claim.input()?;
    let charge = match claim.step(&CHARGE)? {
        // An earlier owner or the worker learned it.
        Stepped::Answered(charge) => charge,
        Stepped::Call(id) => match processor.charge(&id, cart.cents, mood) {
            Ok(charge) => {
                claim.answer(&CHARGE, &charge)?;
                charge
            }
            Err(ChargeError::TimedOut) => {
                claim.unsure("sent, no answer")?;
                return Err("the processor did not answer: look it up".into());
            }
            Err(ChargeError::NotSent(why)) => {
                claim.not_applied(&CHARGE, Evidence::new("connect", &*why))?;
                claim.abort(&why)?;
                return Err(why.into());
            }
        },
    };
    let finished = claim.finish(|fx| {
        if charge.declined {
            return Ok(Outcome::failed(402).json(&charge)?);
        }
        let order = fx.create(&ORDERS, &cart.order, &cart)?;
        Ok(Outcome::succeeded(201).json(&charge)?.resource(&order))
    })?;
    Ok(finished.code)
}

fn request(cart: &Cart) -> Result<Request, BoxError> {
    let key = Key::derived(&[("order", &cart.order)])?;
    Ok(Request::new(&SHOP, &CHECKOUT, &key).value("cart", cart)?)
}

/// What a client's request gets: a code, or a word for why there is none yet.
fn handle(store: &Store, processor: &Processor, cart: &Cart, mood: Mood) -> Result<u16, BoxError> {
    // The claim and its step are one commit.
    match store.begin(&request(cart)?, Start::new().step(&CHARGE).input(cart)?)? {
        Begin::Run(claim) => checkout(claim, processor, mood),
        Begin::Reply(Reply::Replay(finished)) => Ok(finished.code),
        Begin::Reply(other) => Err(format!("{:?}", other.advice()).into()),
    }
}

fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("checkout.onecho");
    let store = Store::open_or_create(&path, Options::new().operation(&CHECKOUT, CHECKOUT_RUNS))?;
    let processor = Arc::new(Processor::default());

    let (asked, running) = (Arc::clone(&processor), Arc::clone(&processor));
    let recovery = Workers::new(&store)
        .probe(&CHECKOUT, &CHARGE, move |_, id| {
            let evidence = || Evidence::new("processor", "looked up by operation id");
            Ok(match asked.look_up(id) {
                Some(charge) => Verdict::Applied(charge, evidence()),
                // Counts once nothing that was sent can still arrive.
                None => Verdict::NotApplied(evidence()),
            })
        })
        .resume(&CHECKOUT, move |claim| checkout(claim, &running, Mood::Answers).map(drop))
        .start()?;

    let moods = [
        (Mood::Answers, 201),
        (Mood::Declines, 402),
        (Mood::LosesTheAnswer, 201),
        (Mood::LosesTheRequest, 201),
        (Mood::CannotBeReached, 201),
    ];
    for (number, (mood, code)) in moods.into_iter().enumerate() {
        let cart = Cart { order: format!("order-{number}"), cents: 1_200 };
        let first = handle(&store, &processor, &cart, mood);
        assert_eq!(first.is_ok(), matches!(mood, Mood::Answers | Mood::Declines));
        // A client that got no answer tries again, under the same key, until it has one.
        let until = Instant::now() + Duration::from_secs(60);
        let last = loop {
            match handle(&store, &processor, &cart, Mood::Answers) {
                Ok(code) => break code,
                Err(why) if Instant::now() > until => return Err(why),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert_eq!(last, code);
        println!("{}: first {:?}, in the end {last}", cart.order, first.map_err(|why| why.to_string()));
    }
    recovery.stop(Duration::from_secs(10))?;

    // Each was booked once, whatever was lost.
    let booked = processor.booked.lock().unwrap();
    assert_eq!(booked.len(), 5);
    assert!(booked.values().all(|(times, _)| *times == 1));
    assert_eq!(store.scan(&SHOP, &ORDERS, "").count(), 4);
    // The journal tells how it was found out.
    let lost = Cart { order: "order-2".to_owned(), cents: 1_200 };
    for entry in store.history(request(&lost)?.scope())? {
        println!("  {} by {}: {}", entry.change, entry.actor, entry.why);
    }
    assert!(matches!(store.status(request(&lost)?.scope())?, Status::Finished(_)));
    store.close()?;
    Ok(())
}
