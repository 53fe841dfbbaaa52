//! A charge that may lose its answer, and its recovery: one function for the first run and for takeovers.

use std::sync::Arc;
use std::time::Duration;

use onecho::{
    Begin, BoxError, Claim, Contract, Evidence, Finished, Kind, Operation, OperationId, Outcome, Reply,
    Request, Start, Step, Stepped, Store, Verdict, Workers,
};
use serde::{Deserialize, Serialize};

const CHECKOUT: Operation = Operation::new("checkout");
const ORDERS: Kind<Cart> = Kind::json("order");
const CHARGE: Step<Charge> =
    Step::new("charge", Contract::Queryable).settles_within(Duration::from_secs(600));

#[derive(Serialize, Deserialize)]
pub struct Cart {
    order: String,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
pub struct Charge {
    declined: bool,
}

pub enum ChargeError {
    TimedOut,
    NotSent(String),
}

pub trait Processor: Send + Sync + 'static {
    fn charge(&self, id: &OperationId, cents: u64) -> Result<Charge, ChargeError>;
    fn look_up(&self, id: &OperationId) -> Result<Option<Charge>, BoxError>;
}

fn checkout(mut claim: Claim, psp: &impl Processor) -> Result<Finished, BoxError> {
    let _lease = claim.keep_alive();
    let cart: Cart = claim.input()?;
    let charge = match claim.step(&CHARGE)? {
        Stepped::Answered(charge) => charge,
        Stepped::Call(id) => match psp.charge(&id, cart.cents) {
            Ok(charge) => {
                claim.answer(&CHARGE, &charge)?;
                charge
            }
            Err(ChargeError::TimedOut) => {
                claim.unsure("sent, no answer")?;
                return Err("look it up".into());
            }
            Err(ChargeError::NotSent(why)) => {
                claim.not_applied(&CHARGE, Evidence::new("connect", &*why))?;
                claim.abort(&why)?;
                return Err(why.into());
            }
        },
    };
    Ok(claim.finish(move |fx| {
        if charge.declined {
            return Ok(Outcome::failed(402).json(&charge)?);
        }
        Ok(Outcome::succeeded(201).json(&charge)?.resource(&fx.create(&ORDERS, &cart.order, &cart)?))
    })?)
}

pub fn handle(
    store: &Store,
    psp: &impl Processor,
    request: &Request,
    cart: &Cart,
) -> Result<Reply, BoxError> {
    match store.begin(request, Start::new().step(&CHARGE).input(cart)?)? {
        Begin::Run(claim) => Ok(Reply::Done(checkout(claim, psp)?)),
        Begin::Reply(reply) => Ok(reply),
    }
}

pub fn recovery<P: Processor>(workers: Workers, psp: Arc<P>, ask: Arc<P>) -> Workers {
    let evidence = || Evidence::new("processor", "looked up");
    workers
        .probe(&CHECKOUT, &CHARGE, move |_, id| {
            Ok(match ask.look_up(id)? {
                Some(charge) => Verdict::Applied(charge, evidence()),
                None => Verdict::NotApplied(evidence()),
            })
        })
        .resume(&CHECKOUT, move |claim| checkout(claim, &*psp).map(drop))
}
