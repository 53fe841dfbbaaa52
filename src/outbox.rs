//! The store's verbs for messages and events. Translation only.

use crate::core::error::Error;
use crate::core::fact::{Evidence, check_actor};
use crate::core::message::step::{Event as Happened, Guard, Move};
use crate::core::message::{MessageId, MessageState, Settle};
use crate::core::name::Tenant;
use crate::core::outcome::Outcome;
use crate::core::reply::Reply;
use crate::inbox::Event;
use crate::listing::{self, BlockedKey};
use crate::message::Message;
use crate::message_record::MessageRecord;
use crate::operators::Transition;
use crate::resource::Scan;
use crate::store::Store;

/// What an accepted event is answered with: HTTP's word for it.
const ACCEPTED: u16 = 202;

impl Store {
    /// Makes messages without a command, in one commit: a client's own journal. One whose key is known (see
    /// [`Message::keyed`]) is not added again; its id is that of the first. Ids are in the order of the
    /// messages: 1,024 at most, of 8 MiB together.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// const UPLOAD: Destination<Bytes> = Destination::raw("telemetry", Contract::Idempotent);
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// let key = Key::derived(&[("boot", "17"), ("batch", "1")])?; // the same after a crash
    /// let batch = || Message::new(&UPLOAD, &Bytes::from_static(b"1,2,3")).map(|it| it.keyed(&key));
    /// let first = store.enqueue(&Tenant::new("device"), &[batch()?])?;
    /// assert_eq!(store.enqueue(&Tenant::new("device"), &[batch()?])?, first);
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` and `LimitExceeded` for a message that cannot be kept; `Unavailable` when nothing was
    /// written because the store is stopped or full; `NotAuthoritative` where another store decides;
    /// `CommitUncertain` when it is not known: with a key, say it again; `Reentrant` inside a closure;
    /// `Closed`.
    pub fn enqueue(&self, tenant: &Tenant, messages: &[Message]) -> Result<Vec<MessageId>, Error> {
        let messages = messages.iter().cloned().map(Message::into_new).collect();
        self.engine().enqueue(tenant, messages)
    }

    /// Accepts a foreign event: its id and its job are one commit. Answer its sender after this has returned:
    /// `Done` and `Replay` with success, whether the job has run or not, for it is as durable as the id;
    /// `Expired` the same; `Mismatch` with a conflict, for another event has this id; all else so that
    /// the sender tries again.
    ///
    /// It is an `execute` of a reserved operation ([`Inbox::operation`](crate::Inbox::operation)) whose
    /// fingerprint is the event's content, with the same guarantees. The job is in
    /// [`Finished::messages`](crate::Finished::messages).
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// const HOOKS: Inbox = Inbox::new("forge", "mirror");
    /// const JOBS: Destination<String> = Destination::json("mirror-jobs", Contract::Idempotent);
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// let tenant = Tenant::new("mirror");
    /// let event = HOOKS.event("evt_17")?.content("starred");
    /// let job = Message::new(&JOBS, &"starred".to_owned())?;
    /// assert!(matches!(store.accept(&tenant, &event, job.clone())?, Reply::Done(_)));
    /// assert!(store.accept(&tenant, &event, job)?.is_replay()); // its sender did not hear it
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` for an event of a stream without a time, or a job with a key of its own; otherwise as
    /// [`Store::execute`].
    pub fn accept(&self, tenant: &Tenant, event: &Event, job: Message) -> Result<Reply, Error> {
        let asked = event.asked(tenant, self.engine().settings())?;
        let (job, seen) = (event.job(job), event.seen(tenant));
        let reply = self.engine().execute(&asked, None, &|staging| {
            staging.enqueue(job.clone())?;
            if let Some((stream, time)) = &seen {
                staging.see(stream.clone(), *time);
            }
            Ok(Outcome::succeeded(ACCEPTED))
        })?;
        self.engine().tally_event(&reply);
        Ok(reply)
    }

    /// Where a message is on its way; `None` for an id that no message has.
    ///
    /// # Errors
    ///
    /// As [`Store::status`].
    pub fn message(&self, id: MessageId) -> Result<Option<MessageState>, Error> {
        self.engine().not_inside()?;
        Ok(self.engine().message(id)?.map(|status| status.told()))
    }

    /// All messages, in the order in which they were made. For operators: read page by page, each as it is
    /// when its page is read.
    pub fn messages(&self) -> Scan<(MessageId, MessageState)> {
        listing::messages(self)
    }

    /// The ordering keys whose first message waits for somebody who settles it: one that is dead where the
    /// destination says [`OnDead::Block`](crate::OnDead), or unknown where nobody can be asked.
    pub fn blocked_keys(&self) -> Scan<BlockedKey> {
        listing::blocked_keys(self)
    }

    /// A message with all that is kept of it; `None` for an id that no message has. For operators.
    ///
    /// # Errors
    ///
    /// As [`Store::status`].
    pub fn message_record(&self, id: MessageId) -> Result<Option<MessageRecord>, Error> {
        self.engine().not_inside()?;
        let Some(status) = self.engine().message(id)? else { return Ok(None) };
        Ok(Some(MessageRecord::of(id, &status, self.engine().letter(id)?)))
    }

    /// All that the journal says of a message, oldest first: attempts, ends, who decided what and why. Reads
    /// the whole journal: for operators.
    ///
    /// # Errors
    ///
    /// As [`Store::status`].
    pub fn message_history(&self, id: MessageId) -> Result<Vec<Transition>, Error> {
        let entries = self.engine().message_history(id)?;
        Ok(entries.iter().map(|(seq, entry)| Transition::of(*seq, entry)).collect())
    }

    /// Ends a message that nobody delivers any more: dead, or unknown. Who says so and why is kept in the
    /// journal.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// const PRINT: Destination<String> = Destination::json("printer", Contract::Neither);
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// let id = store.enqueue(&Tenant::new("shop"), &[Message::new(&PRINT, &"label 7".to_owned())?])?[0];
    /// Workers::new(&store).deliver(&PRINT, |_, _| Err("the line dropped".into())).tick()?;
    /// assert!(matches!(store.message(id)?, Some(MessageState::Unknown { .. })));
    /// let evidence = Evidence::new("the tray", "label 7 lies in it");
    /// store.settle(id, Settle::Delivered, evidence, "Ada")?;
    /// assert!(matches!(store.message(id)?, Some(MessageState::Delivered { .. })));
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` for a message that is neither dead nor unknown, an id that none has, or an empty actor;
    /// otherwise as [`Store::enqueue`].
    pub fn settle(&self, id: MessageId, how: Settle, evidence: Evidence, actor: &str) -> Result<(), Error> {
        check_actor(actor)?;
        let one = Move { id, guard: Guard::Stage, event: Happened::Settled(how) };
        self.engine().settle_message(one, evidence, actor)
    }
}
