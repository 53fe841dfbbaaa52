//! The public handle. Translation only: names in, engine calls, answers out.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::case::{Resolution, Verdict};
use crate::claim::{Begin, Claim};
use crate::core::case::Case;
use crate::core::error::{BoxError, Error};
use crate::core::fact::Evidence;
use crate::core::name::{ID_BYTES_MAX, Scope, Tenant, checked};
use crate::core::outcome::{Outcome, ResourceRef};
use crate::core::receipt::Receipt;
use crate::core::reply::{Reply, Status};
use crate::db::disk::Disk;
use crate::db::file_disk::FileDisk;
use crate::db::verify::VerifyReport;
use crate::effects::{Effects, holder_of, unique_key};
use crate::engine::Engine;
use crate::engine::claims::Begun;
use crate::engine::many::Job;
use crate::engine::staging::Staging;
use crate::kind::Kind;
use crate::operators::{Cases, Records, Transition};
use crate::options::Options;
use crate::replay::{OutcomeRef, ReplayBuffer};
use crate::request::Request;
use crate::resource::{Resource, Scan, decoded};
use crate::stats::Stats;
use crate::step::{Start, Step};

/// The open store. Cheap to clone, shared by threads. Calls that write block until durable.
///
/// Closing: [`Store::close`] tells what went wrong; dropping the last clone closes too, in silence. A process
/// that is killed loses nothing that was acknowledged.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

/// What the clones of a store share. The scrub may hold the engine for a moment longer; the file is closed
/// when the last clone goes.
struct Handle(Arc<Engine>);

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to know how closing went calls `close`.
        let _ = self.0.shut();
    }
}

impl Store {
    /// Opens a store that must exist: a lost mount is no new store.
    ///
    /// ```
    /// use onecho::{ErrorKind, Options, Store};
    /// let error = Store::open("/no/such/place/orders.onecho", Options::new()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Missing);
    /// ```
    ///
    /// # Errors
    ///
    /// `Missing`; `Locked` while another handle or process has it; `Corrupt` for a damaged, empty or foreign
    /// file, which is left as it is; `UnsupportedFormat`; `ScopeMode`; `Invalid` and `LimitExceeded` for
    /// settings out of bounds; `Unavailable` when the disk cannot be read or written. Each names the path and
    /// the next step.
    ///
    /// # Panics
    ///
    /// A damaged file above [`Options::check_at_open_max`] is read before it is checked, and the storage
    /// engine may panic on a damaged page. Up to that size, and with [`Options::strict_open`], it does not.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        Self::on(FileDisk::new(path.as_ref()), options, false)
    }

    /// Opens a store, or makes one where there is none. For the first start, and for programs whose directory
    /// cannot go missing. A file of any other content is never replaced.
    ///
    /// # Errors
    ///
    /// As [`Store::open`]; `Missing` only when the directory does not exist.
    pub fn open_or_create(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        Self::on(FileDisk::new(path.as_ref()), options, true)
    }

    pub(crate) fn on(disk: impl Disk, options: Options, may_create: bool) -> Result<Self, Error> {
        let engine = Arc::new(Engine::open(Arc::new(disk), options.into_settings()?, may_create)?);
        engine.scrub()?;
        Ok(Self(Arc::new(Handle(engine))))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.0
    }

    /// Opens the file again after a stop (`CommitUncertain`, or a disk that failed): same handle, for all
    /// clones. On an open store nothing happens.
    ///
    /// # Errors
    ///
    /// As [`Store::open`]; the store then stays stopped, and this may be called again. `OlderCopy` when the
    /// file under its name lacks what was acknowledged, or is another store. `Unavailable` where the system
    /// cannot drop what it has cached of a file (other than Linux): start the process anew there. `Closed`
    /// after [`Store::close`].
    pub fn reopen(&self) -> Result<(), Error> {
        self.engine().reopen()
    }

    /// Closes the file cleanly, for all clones. Reads and commits under way end first; a call whose closure
    /// still runs, and any later one, is `Closed`, with nothing written.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the last write fails; what was acknowledged is in the file. `Reentrant` inside a
    /// closure.
    pub fn close(&self) -> Result<(), Error> {
        self.engine().close()
    }

    /// Runs `body` for a scope that has no outcome yet, and commits outcome and effects together; any other
    /// call of the scope is answered with what is known. Returns when the answer is durable.
    ///
    /// `body` may be called again on fresh rows before anything is written: it must not reach outside. Inside
    /// it any other call of this store that touches rows is `Reentrant`. `Ok` is recorded and replayed,
    /// success and refusal alike; `Err` writes nothing and frees the key; a panic does the same and goes on
    /// to the caller.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// const PAY: Operation = Operation::new("pay");
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// let key = Key::parse("k-1")?;
    /// let request = Request::new(&Tenant::new("shop"), &PAY, &key).json("body", r#"{"cents":5}"#);
    /// match store.execute(&request, |_| Ok(Outcome::succeeded(201).body("paid")))? {
    ///     Reply::Done(finished) | Reply::Replay(finished) => assert_eq!(finished.code, 201),
    ///     other => println!("{:?}", other.advice()),
    /// }
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` for a request without a part; `Aborted` or the closure's own error; `LimitExceeded`;
    /// `CommitUncertain` when it is not known whether the commit is in the file; `Unavailable` while the
    /// store is stopped; `Corrupt`; `Reentrant`; `Closed`.
    ///
    /// # Panics
    ///
    /// With `body`'s own panic.
    pub fn execute(
        &self,
        request: &Request,
        body: impl Fn(&mut Effects<'_, '_>) -> Result<Outcome, BoxError>,
    ) -> Result<Reply, Error> {
        let job = self.job(request)?;
        self.engine().execute(&job.asked, job.wait, &|staging| typed(staging, &body))
    }

    /// Many independent commands, few commits, answers in order. A scope given twice is answered by its
    /// first. Each command stands alone: one refusal fails one answer.
    ///
    /// # Errors
    ///
    /// Each answer as [`Store::execute`].
    ///
    /// # Panics
    ///
    /// With `body`'s own panic; commands of the same commit are then not written, earlier ones are.
    pub fn execute_many<T>(
        &self,
        commands: &[(Request, T)],
        body: impl Fn(&T, &mut Effects<'_, '_>) -> Result<Outcome, BoxError>,
    ) -> Vec<Result<Reply, Error>> {
        let jobs: Vec<Result<Job, Error>> = commands.iter().map(|(request, _)| self.job(request)).collect();
        self.engine()
            .execute_many(&jobs, &|number, staging| typed(staging, &|fx| body(&commands[number].1, fx)))
    }

    fn job(&self, request: &Request) -> Result<Job, Error> {
        let asked = request.asked(self.engine().settings())?;
        Ok(Job { asked: asked.into_owned(), wait: request.budget() })
    }

    /// Begins work that reaches outside: the claim is durable when this returns [`Begin::Run`]. A scope that
    /// is not free is answered as by [`Store::execute`]; one whose owner is gone is taken over where
    /// [`Policy::takeover`](crate::Policy::takeover) and its steps allow it, else it is `Unknown`.
    ///
    /// # Errors
    ///
    /// As [`Store::execute`], which see; `Invalid` for a request without a key.
    pub fn begin(&self, request: &Request, start: Start) -> Result<Begin, Error> {
        let job = self.job(request)?;
        let policy = *self.engine().settings().policy(&request.scope().operation);
        let start = start.starting(policy.lease);
        Ok(match self.engine().begin(&job.asked, job.wait, &start)? {
            Begun::Run(open) => Begin::Run(Claim::new(self, &job.asked, &policy, open)),
            Begun::Reply(reply) => Begin::Reply(reply),
        })
    }

    /// Keeps a command from running: a free scope becomes `Failed` with code 499, so that a late first
    /// attempt gets that as its replay, whatever it asks. A command that runs goes on and learns of it
    /// ([`Claim::cancel_asked`](crate::Claim::cancel_asked)); one that is finished or unknown stays as it is.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// # const PAY: Operation = Operation::new("pay");
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// # let key = Key::parse("k-1")?;
    /// # let request = Request::new(&Tenant::new("shop"), &PAY, &key).json("body", r#"{"cents":5}"#);
    /// assert!(matches!(store.cancel(request.scope())?, Status::Finished(finished) if finished.failed));
    /// assert!(store.execute(&request, |_| unreachable!())?.is_replay());
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::execute`]; `NotAuthoritative` where another store decides.
    pub fn cancel(&self, scope: &Scope) -> Result<Status, Error> {
        self.engine().cancel(scope)
    }

    /// Commands in `Unknown`, oldest first; not those of tenants that were handed over.
    pub fn cases(&self) -> Scan<Case> {
        Scan::of(Cases::new(self))
    }

    /// Says what was found out of one step of a command in `Unknown`, on the state that `case` tells. When no
    /// step is open any more, the command may be taken over, where its policy allows that.
    ///
    /// # Errors
    ///
    /// `Conflict` when the command has changed since `case` was read; `Unavailable` for "not applied" while a
    /// request may still arrive; `Invalid` for a step that was not declared or has a result, or an actor
    /// without a name; otherwise as [`Store::execute`].
    pub fn judge<T: serde::Serialize>(
        &self,
        case: &Case,
        step: &Step<T>,
        verdict: Verdict<T>,
        actor: &str,
    ) -> Result<Status, Error> {
        let (state, evidence) = verdict.into_finding()?;
        self.engine().judge(case, step.name(), state, &evidence, actor)
    }

    /// Ends a command in `Unknown`, on the state that `case` tells: with an outcome and effects, or as if it
    /// had never been begun.
    ///
    /// # Errors
    ///
    /// As [`Store::judge`]; `Invalid` for "not applied" of a command that has committed a point or whose step
    /// was applied; `Conflict` also when rows kept changing or a name is taken.
    #[expect(clippy::needless_pass_by_value, reason = "evidence is given, as to `judge`")]
    pub fn resolve(
        &self,
        case: &Case,
        how: Resolution,
        evidence: Evidence,
        actor: &str,
    ) -> Result<Status, Error> {
        let Resolution::Finished(body) = how else {
            return self.engine().resolve(case, None, &evidence, actor);
        };
        self.engine().resolve(case, Some(&|staging| typed(staging, &body)), &evidence, actor)
    }

    /// All scopes that have a status: open commands first, then outcomes in the order of the journal.
    pub fn records(&self) -> Scan<(Scope, Status)> {
        Scan::of(Records::new(self))
    }

    /// All that the journal says of a scope, oldest first. Reads the whole journal: for operators.
    ///
    /// # Errors
    ///
    /// As [`Store::status`].
    pub fn history(&self, scope: &Scope) -> Result<Vec<Transition>, Error> {
        let records = self.engine().history(scope)?;
        Ok(records.iter().map(|record| Transition::of(record.position.seq, &record.entry)).collect())
    }

    /// What the memory answers, without a look at the file and without waiting for anybody. `None` means
    /// "not here", never "new". Of a stopped or closed store it is always `None`.
    ///
    /// A replay allocates what it hands over; [`Store::peek_into`] allocates nothing.
    #[must_use]
    pub fn peek(&self, request: &Request) -> Option<Reply> {
        let asked = request.asked(self.engine().settings()).ok()?;
        let policy = self.engine().settings().policy(&request.scope().operation);
        self.engine().remembered(&asked, policy)
    }

    /// The replay that a retry gets, copied from memory into the caller's buffer: no lock, no allocation, no
    /// system call, no waiting.
    ///
    /// It answers only what [`Reply::Replay`] with a [`Body::Present`](crate::Body::Present) would say, and
    /// says the same. `None` is everything else, and proves nothing: ask [`Store::peek`] for what the memory
    /// knows otherwise (another request under the key, an expired key, a body that is gone), or
    /// [`Store::execute`], which also reads the file. A window is taken to be over some milliseconds
    /// late (an eighth of a second at most), never early. Of a stopped or closed store it is always `None`.
    ///
    /// The request is hashed by its first use with a store, which allocates; later ones do not.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// # const PAY: Operation = Operation::new("pay");
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// # let key = Key::parse("k-1")?;
    /// # let request = Request::new(&Tenant::new("shop"), &PAY, &key).json("body", r#"{"cents":5}"#);
    /// let mut buffer = ReplayBuffer::new(); // one for each thread, used again and again
    /// assert!(store.peek_into(&request, &mut buffer).is_none());
    /// let _ = store.execute(&request, |_| Ok(Outcome::succeeded(201).body("paid")))?;
    /// let replay = store.peek_into(&request, &mut buffer).ok_or("displaced")?;
    /// assert_eq!((replay.code(), replay.body()), (201, &b"paid"[..]));
    /// # Ok::<(), BoxError>(())
    /// ```
    #[must_use]
    pub fn peek_into<'b>(&self, request: &Request, buffer: &'b mut ReplayBuffer) -> Option<OutcomeRef<'b>> {
        let engine = self.engine();
        let answered = |imprint: &_| engine.answered(imprint, buffer.room());
        let receipt = request.with_imprint(engine.settings(), answered)?;
        Some(OutcomeRef::new(receipt, buffer))
    }

    /// Whether the memory knows that this very request has run, and how it ended; the body stays where it is.
    /// For callers who only acknowledge: a consumer of messages that come again, a client's check.
    ///
    /// As [`Store::peek_into`], and also where the body is gone or was not kept: scope, fingerprint and the
    /// key's window are judged in place. `None` proves nothing.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// # const PAY: Operation = Operation::new("pay");
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// # let key = Key::parse("k-1")?;
    /// # let request = Request::new(&Tenant::new("shop"), &PAY, &key).json("body", r#"{"cents":5}"#);
    /// let _ = store.execute(&request, |_| Ok(Outcome::succeeded(201).body("paid")))?;
    /// assert_eq!(store.peek_receipt(&request).map(|receipt| receipt.code), Some(201));
    /// # Ok::<(), BoxError>(())
    /// ```
    #[must_use]
    pub fn peek_receipt(&self, request: &Request) -> Option<Receipt> {
        let engine = self.engine();
        request.with_imprint(engine.settings(), |imprint| engine.receipt(imprint))
    }

    /// What is known of a scope. Looks, never runs.
    ///
    /// # Errors
    ///
    /// `Corrupt` or `Unavailable` when it cannot be read; `Reentrant` inside a closure; `Closed`.
    pub fn status(&self, scope: &Scope) -> Result<Status, Error> {
        self.engine().not_inside()?;
        self.engine().status(scope)
    }

    /// One resource, as it is committed now.
    ///
    /// # Errors
    ///
    /// `Invalid` for an id that cannot be one, or a row of another codec or shape; otherwise as
    /// [`Store::status`].
    pub fn get<T>(&self, tenant: &Tenant, kind: &Kind<T>, id: &str) -> Result<Option<Resource<T>>, Error> {
        self.engine().not_inside()?;
        checked("id", id, ID_BYTES_MAX)?;
        let row = self.engine().row(&kind.key(tenant, id))?;
        row.filter(crate::core::row::Row::is_there).map(|row| decoded(kind, id, row)).transpose()
    }

    /// Resources of a kind whose ids begin with `prefix`, in ascending order.
    pub fn scan<T>(&self, tenant: &Tenant, kind: &Kind<T>, prefix: &str) -> Scan<Resource<T>> {
        Scan::new(self, kind, kind.key(tenant, prefix))
    }

    /// Who holds a uniqueness: within the tenant, else among what all tenants share.
    ///
    /// # Errors
    ///
    /// `Invalid` for an empty name or value; otherwise as [`Store::status`].
    pub fn holder(&self, tenant: &Tenant, name: &str, value: &str) -> Result<Option<ResourceRef>, Error> {
        self.engine().not_inside()?;
        let own = holder_of(self.engine().row(&unique_key(tenant, name, value, false)?)?);
        match own {
            Some(holder) => Ok(Some(holder)),
            None => Ok(holder_of(self.engine().row(&unique_key(tenant, name, value, true)?)?)),
        }
    }

    /// What the store has done and holds. Reads no row.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::from(self.engine().numbers())
    }

    /// Reads the whole file, as it is committed now, and tells what does not agree: chains, checksums,
    /// counts, index and journal, rows and their writers. Repairs nothing; other calls go on meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Store::status`], when the file cannot be read to its end.
    ///
    /// # Panics
    ///
    /// As [`Store::open`], on a damaged page of a file that was not checked when it was opened.
    pub fn verify(&self) -> Result<VerifyReport, Error> {
        self.verify_with(|_, _| {})
    }

    /// As [`Store::verify`]; tells from time to time how many rows of how many are done, where an outcome
    /// counts twice (its entry and its place in the index). `progress` may not call this store: that is
    /// `Reentrant`.
    ///
    /// # Errors
    ///
    /// As [`Store::verify`].
    pub fn verify_with(&self, progress: impl FnMut(u64, u64)) -> Result<VerifyReport, Error> {
        self.engine().not_inside()?;
        self.engine().verify(progress)
    }

    /// A clock that has jumped forward and is not believed is right after all: time goes on from it at once.
    pub fn confirm_clock(&self) {
        self.engine().confirm_clock();
    }
}

/// Calls a typed closure on bare staging.
pub(crate) fn typed<R>(
    staging: &mut Staging<'_>,
    body: &impl Fn(&mut Effects<'_, '_>) -> Result<R, BoxError>,
) -> Result<R, BoxError> {
    let mut effects = Effects::new(staging);
    let said = body(&mut effects)?;
    match effects.into_failed() {
        Some(failed) => Err(failed.into()),
        None => Ok(said),
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
