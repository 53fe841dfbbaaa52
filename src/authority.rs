//! The store's verbs for authority: which store decides about a tenant. Translation only.

use std::io::{Read, Write};

use crate::core::error::Error;
use crate::core::name::Tenant;
use crate::db::stream::ItemCounts;
use crate::engine::import::Imported;
use crate::store::Store;

/// A tenant that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandOver {
    /// Whose commands, resources and messages it is about.
    pub tenant: Tenant,
    /// The store that is to decide about it.
    pub to: String,
    /// How often the tenant had been handed over before.
    pub epoch: u64,
}

/// What was exported, or imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Commands that are finished, expired ones included.
    pub outcomes: u64,
    /// Commands that are not.
    pub open: u64,
    /// Resources, uniquenesses, and what messages are found by.
    pub rows: u64,
    /// Messages, those that are over included.
    pub messages: u64,
}

/// A tenant that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Import {
    /// Whose commands, resources and messages were imported.
    pub tenant: Tenant,
    /// How often the tenant has been handed over by now.
    pub epoch: u64,
    /// What came along.
    pub moved: Moved,
}

impl From<ItemCounts> for Moved {
    fn from(counts: ItemCounts) -> Self {
        let ItemCounts { outcomes, open, rows, messages } = counts;
        Self { outcomes, open, rows, messages }
    }
}

impl Store {
    /// Gives the authority over a tenant to the store of another name (its [`Options::owner`]). When this
    /// returns, and after any crash since, every call for the tenant that could run or change something is
    /// `Refused(NotAuthoritative)` here, or fails with
    /// [`NotAuthoritative`](crate::ErrorKind::NotAuthoritative). The other store decides from its
    /// [`Store::import`] on; between the two nobody does.
    ///
    /// A command that is decided at the same time is either before it, and handed over, or refused. Claims
    /// that are held lose their fence: whoever finishes later gets
    /// [`FenceLost`](crate::ErrorKind::FenceLost), the journal has the difference, and the command is
    /// `Unknown` at the other store. Attempts to deliver messages that are under way count there as not
    /// known.
    ///
    /// Only a store that decides can hand over, and it cannot be taken back: only handed back. Called again
    /// with the same name it changes nothing.
    ///
    /// Memory goes on to replay what has finished ([`Store::peek`] and its kind), and the file can be
    /// looked at ([`Store::status`], [`Store::get`]): what is read there is as of the hand-over. Rows that
    /// all tenants share stay with the store.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// # let shop = Tenant::new("shop");
    /// # let request = Request::new(&shop, &Operation::new("pay"), &Key::parse("k-1")?).bytes("body", "5");
    /// let store = SimDisk::seeded(1).open(Options::new().owner("north"))?;
    /// store.hand_over(&shop, "south", "Ada")?;
    /// match store.execute(&request, |_| unreachable!())? {
    ///     Reply::Refused(Refused::NotAuthoritative { owner, .. }) => assert_eq!(owner, "south"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotAuthoritative` when the tenant is another store's already; `Invalid` for this store's own name,
    /// or a name or an actor that cannot be one; otherwise as [`Store::execute`]. After `CommitUncertain`
    /// it may have happened: reopen, and say it again.
    ///
    /// [`Options::owner`]: crate::Options::owner
    pub fn hand_over(&self, tenant: &Tenant, to: &str, actor: &str) -> Result<HandOver, Error> {
        let epoch = self.engine().hand_over(tenant, to, actor)?;
        Ok(HandOver { tenant: tenant.clone(), to: to.to_owned(), epoch })
    }

    /// Writes all that a tenant takes along to the store that it was handed over to: its outcomes with their
    /// times, generations, windows and bodies, its open commands, its resources and uniquenesses, its
    /// messages with their state. Not what all tenants share ([`Kind::shared`](crate::Kind::shared)), and
    /// nothing of other tenants.
    ///
    /// A few pages of it are in memory at a time. Each part has a checksum and the end a digest over all of
    /// it, so that [`Store::import`] tells a damaged or cut stream. It may be repeated as long as the
    /// tenant is not this store's again.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// # let shop = Tenant::new("shop");
    /// # let request = Request::new(&shop, &Operation::new("pay"), &Key::parse("k-1")?).bytes("body", "5");
    /// let north = SimDisk::seeded(1).open(Options::new().owner("north"))?;
    /// let south = SimDisk::seeded(2).open(Options::new().owner("south").owns_nothing())?;
    /// let first = north.execute(&request, |_| Ok(Outcome::succeeded(201).body("paid")))?;
    ///
    /// north.hand_over(&shop, "south", "Ada")?;
    /// let mut stream = Vec::new(); // a file, a connection
    /// north.export(&shop, &mut stream)?;
    /// south.import(&stream[..], "Ada")?;
    ///
    /// let retry = south.execute(&request, |_| unreachable!())?;
    /// assert!(retry.is_replay());
    /// assert_eq!(retry.into_finished().unwrap(), first.into_finished().unwrap());
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` for a tenant that is not handed over; `Unavailable` when `to` cannot be written; otherwise
    /// as
    /// [`Store::status`].
    pub fn export(&self, tenant: &Tenant, to: impl Write) -> Result<Moved, Error> {
        self.engine().export(tenant, to).map(Moved::from)
    }

    /// Reads what [`Store::export`] of another store has written for this one, and takes the authority over
    /// its tenant, last of all and in one commit. Until then nobody decides about the tenant here.
    ///
    /// A replay here is that of there: the same outcome, times and generation; operation ids are the same
    /// too. A command that was open is `Unknown`, with its input, steps, answers and points, and what it
    /// may have sent can still arrive: [`settles_within`](crate::Step::settles_within) is counted anew. It
    /// can be resolved, or taken over where no step is open and its policy allows that. Messages have other
    /// ids here ([`Finished::messages`](crate::Finished::messages) has them), and again their own when they
    /// come home. The replays of what was imported are read from the file, not from memory.
    ///
    /// Interrupted, it can be repeated, and ends the same; repeated after its end it changes nothing. What
    /// this store had of the tenant from an earlier time is replaced, but for outcomes, which are the same.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a stream that is damaged or cut; `Invalid` for one that was exported for another
    /// store, by this one, or of an older hand-over, or a tenant that this store decides about already;
    /// `ScopeMode`, `UnsupportedFormat`; `Conflict` when another call imports the tenant, or a command has
    /// another outcome here; `LimitExceeded` when the file has no class for its windows any more;
    /// `Unavailable` when `from` cannot be read or the disk is full; otherwise as [`Store::execute`]. After
    /// each of them the tenant is not this store's, unless it was before.
    pub fn import(&self, from: impl Read, actor: &str) -> Result<Import, Error> {
        let Imported { tenant, epoch, counts } = self.engine().import(from, actor)?;
        Ok(Import { tenant, epoch, moved: counts.into() })
    }
}
