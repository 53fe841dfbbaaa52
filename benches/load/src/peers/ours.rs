//! onecho, by its public API and with its defaults. Memory for replays is set where a cell asks for it.

use std::path::Path;

use onecho::{
    Body, BoxError, Bytes, CommitMode, Effects, Key, Kind, Operation, Options, Outcome, ReplayBuffer, Reply,
    Request, Store, Tenant,
};

use crate::command::{CODE, Command, KIND, OPERATION, TENANT};
use crate::contender::{Contender, Done, Looks, Profile};
use crate::lookup::{Looked, Plan, Reader, time};

const CREATE: Operation = Operation::new(OPERATION);
const ORDERS: Kind<Bytes> = Kind::raw(KIND);
/// What one record of these sizes takes of `Options::replay_bytes`, with room for sets that fill unevenly.
const REPLAY_RECORD: u64 = 1700;

/// The default of `Options::replay_bytes`.
const REPLAY_DEFAULT: usize = 16 << 20;

pub struct Ours {
    store: Store,
    tenant: Tenant,
    /// Empty: asked about a request so that all of it is in the processor's cache and nothing of `store` is.
    decoy: Option<Store>,
}

impl Ours {
    pub fn open(dir: &Path, is_one_phase: bool, profile: Profile) -> Done<Self> {
        let options = match profile {
            Profile::Default => Options::new(),
            Profile::Checked => Options::new().strict_open(true),
            // Little waits to be merged: a small device is not to find what a large machine left waiting.
            Profile::Loading => Options::new()
                .batch_max(16_384)
                .batch_bytes_max(64 << 20)
                .cache_bytes(1 << 30)
                .late_bytes(512 << 10),
            Profile::Small => Options::small_device(),
            Profile::Replays(records) => {
                let bytes = usize::try_from(records * REPLAY_RECORD)?;
                Options::new().replay_bytes(bytes.max(REPLAY_DEFAULT)).strict_open(true)
            }
        };
        let mode = if is_one_phase { CommitMode::OnePhase } else { CommitMode::TwoPhase };
        let store = Store::open_or_create(dir.join("store.onecho"), options.commit_mode(mode))?;
        let decoy = match profile {
            Profile::Replays(_) => {
                Some(Store::open_or_create(dir.join("decoy.onecho"), Options::small_device())?)
            }
            Profile::Default | Profile::Checked | Profile::Loading | Profile::Small => None,
        };
        Ok(Self { store, tenant: Tenant::new(TENANT), decoy })
    }

    fn request(&self, command: &Command) -> Done<Request> {
        let key = Key::parse(&command.key)?;
        Ok(Request::new(&self.tenant, &CREATE, &key).bytes("body", command.request()))
    }
}

fn effects(command: &Command, fx: &mut Effects<'_, '_>) -> Result<Outcome, BoxError> {
    let made = fx.create(&ORDERS, &command.id, &command.resource)?;
    Ok(Outcome::succeeded(CODE).body(command.outcome.clone()).resource(&made))
}

fn ran(reply: &Reply) -> Done<()> {
    match reply {
        Reply::Done(_) => Ok(()),
        other => Err(format!("a fresh command was answered {other:?}").into()),
    }
}

impl Contender for Ours {
    fn run(&self, commands: &[Command]) -> Done<()> {
        if let [command] = commands {
            return ran(&self.store.execute(&self.request(command)?, |fx| effects(command, fx))?);
        }
        let asked = commands.iter().map(|command| Ok((self.request(command)?, command)));
        let asked = asked.collect::<Done<Vec<_>>>()?;
        for reply in self.store.execute_many(&asked, |command, fx| effects(command, fx)) {
            ran(&reply?)?;
        }
        Ok(())
    }

    fn looks(&self) -> Done<Box<dyn Looks + '_>> {
        Ok(Box::new(Replays::new(self)))
    }

    /// One call for both: this is what onecho is for.
    fn serve(&self, _: &mut dyn Looks, command: &Command, body: &mut Vec<u8>) -> Done<bool> {
        match self.store.execute(&self.request(command)?, |fx| effects(command, fx))? {
            Reply::Done(_) => Ok(false),
            Reply::Replay(finished) => {
                kept(&finished.body, body)?;
                Ok(true)
            }
            other => Err(format!("a command was answered {other:?}").into()),
        }
    }

    fn time(&self, plan: &Plan) -> Done<Looked> {
        time(&mut Replays::new(self), plan)
    }

    fn count(&self) -> Done<(u64, u64)> {
        // The scrub of a large file holds it for a moment; counts are the store's own.
        let stats = self.store.stats();
        Ok((stats.records, stats.rows))
    }

    fn commits(&self) -> Option<u64> {
        Some(self.store.stats().commits)
    }

    fn close(self: Box<Self>) -> Done<()> {
        Ok(self.store.close()?)
    }
}

fn kept(found: &Body, body: &mut Vec<u8>) -> Done<()> {
    let Body::Present(found) = found else { return Err("the body is gone".into()) };
    body.clear();
    body.extend_from_slice(found);
    Ok(())
}

struct Replays<'o> {
    ours: &'o Ours,
    buffer: ReplayBuffer,
}

impl<'o> Replays<'o> {
    fn new(ours: &'o Ours) -> Self {
        Self { ours, buffer: ReplayBuffer::new() }
    }
}

impl Reader for Replays<'_> {
    type Asked = Request;

    /// The first store that is asked hashes the request; that is in the time of building it.
    fn ask(&self, command: &Command) -> Done<Request> {
        let request = self.ours.request(command)?;
        std::hint::black_box(self.ours.store.peek_receipt(&request));
        Ok(request)
    }

    fn judged(&mut self, asked: &Request) -> bool {
        self.ours.store.peek_receipt(asked).is_some()
    }

    fn answered(&mut self, asked: &Request) -> Option<&[u8]> {
        Some(self.ours.store.peek_into(asked, &mut self.buffer)?.body())
    }

    fn heat(&self, asked: &Request) {
        let _ = std::hint::black_box(asked.clone());
        if let Some(decoy) = &self.ours.decoy {
            std::hint::black_box(decoy.peek_receipt(asked));
        }
    }

    /// From the file where it is not in memory, which also brings it there.
    fn answered_at_last(&mut self, asked: &Request, body: &mut Vec<u8>) -> Done<bool> {
        match self.ours.store.execute(asked, |_| Err("not known".into())) {
            Ok(Reply::Replay(finished)) => kept(&finished.body, body).map(|()| true),
            _ => Ok(false),
        }
    }
}
