//! Knows which stores' closures run on this thread. A closure that calls its own store could wait for itself,
//! and what it read there would be checked by nobody.

use std::cell::RefCell;

use super::Engine;
use crate::core::error::{Error, ErrorKind};

thread_local! {
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, a closure of one store runs on this thread.
pub(super) struct Inside;

impl Inside {
    pub fn of(engine: &Engine) -> Self {
        INSIDE.with_borrow_mut(|inside| inside.push(std::ptr::from_ref(engine).addr()));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // A thread that ends has no closures left to know of.
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

impl Engine {
    /// Refuses a call from inside a closure of this store.
    pub(crate) fn not_inside(&self) -> Result<(), Error> {
        let own = std::ptr::from_ref(self).addr();
        if INSIDE.try_with(|inside| inside.borrow().contains(&own)).unwrap_or(false) {
            return Err(Error::new(
                ErrorKind::Reentrant,
                "a closure called its own store: read and write through the `Effects` it was given",
            ));
        }
        Ok(())
    }
}
