//! The store's verbs for authority: which store decides about a tenant. Translation only.

use crate::core::error::Error;
use crate::core::name::Tenant;
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

impl Store {
    /// Gives the authority over a tenant to the store of another name (its [`Options::owner`]). When this
    /// returns, and after any crash since, every call for the tenant that could run or change something is
    /// `Refused(NotAuthoritative)` here, or fails with
    /// [`NotAuthoritative`](crate::ErrorKind::NotAuthoritative). The other store decides from its
    /// [`Store::import`] on; between the two nobody does.
    ///
    /// A command that is decided at the same time is either before it, and handed over, or refused. Claims that
    /// are held lose their fence: whoever finishes later gets
    /// [`FenceLost`](crate::ErrorKind::FenceLost), the journal has the difference, and the command is
    /// `Unknown` at the other store. Attempts to deliver messages that are under way count there as not known.
    ///
    /// Only a store that decides can hand over, and it cannot be taken back: only handed back. Called again
    /// with the same name it changes nothing.
    ///
    /// Memory goes on to replay what has finished ([`Store::peek`] and its kind), and the file can be looked at
    /// ([`Store::status`], [`Store::get`]): what is read there is as of the hand-over. Rows that all tenants
    /// share stay with the store.
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
    /// `NotAuthoritative` when the tenant is another store's already; `Invalid` for this store's own name, or a
    /// name or an actor that cannot be one; otherwise as [`Store::execute`]. After `CommitUncertain` it may
    /// have happened: reopen, and say it again.
    ///
    /// [`Options::owner`]: crate::Options::owner
    pub fn hand_over(&self, tenant: &Tenant, to: &str, actor: &str) -> Result<HandOver, Error> {
        let epoch = self.engine().hand_over(tenant, to, actor)?;
        Ok(HandOver { tenant: tenant.clone(), to: to.to_owned(), epoch })
    }
}
