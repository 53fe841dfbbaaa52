//! What threads meet at: locks, and a bell. Owns how a thread sleeps and is woken; must not know what for.
//!
//! The files that use it name nothing else for it, so that a model can put its own threads in their place:
//! `tests/shuttle` compiles the same files over a module of this name.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
pub(crate) use std::thread::yield_now;

pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(target_os = "linux")]
pub(crate) use self::linux::Bell;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::portable::Bell;

/// One word in memory and the kernel: all who wait are woken by one call, and no lock is passed from one of
/// them to the next.
#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use rustix::thread::futex::{Flags, Timespec, wait, wake};

    const ALL: u32 = i32::MAX.cast_unsigned();

    /// Wakes all who wait for it. It says nothing: what a caller waits for is told before it rings.
    #[derive(Debug, Default)]
    pub(crate) struct Bell(AtomicU32);

    impl Bell {
        /// How often it has rung. To be asked before the look that leads to [`Bell::wait`].
        pub fn rung(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }

        /// Sleeps while it has rung so often, for `span` at most; may return early.
        pub fn wait(&self, rung: u32, span: Option<Duration>) {
            // A span that the kernel cannot count to never ends.
            let span = span.and_then(|span| Timespec::try_from(span).ok());
            // Each reason to return is one to look again.
            let _ = wait(&self.0, Flags::PRIVATE, rung, span.as_ref());
        }

        pub fn ring(&self) {
            self.0.fetch_add(1, Ordering::Release);
            // It fails for a wrong address alone.
            let _ = wake(&self.0, Flags::PRIVATE, ALL);
        }
    }
}

/// The same with a lock, where no such call is at hand.
#[cfg(any(not(target_os = "linux"), test))]
mod portable {
    use std::time::Duration;

    use parking_lot::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(crate) struct Bell {
        rung: Mutex<u32>,
        changed: Condvar,
    }

    impl Bell {
        pub fn rung(&self) -> u32 {
            *self.rung.lock()
        }

        pub fn wait(&self, rung: u32, span: Option<Duration>) {
            let mut now = self.rung.lock();
            if *now == rung {
                match span {
                    Some(span) => drop(self.changed.wait_for(&mut now, span)),
                    None => self.changed.wait(&mut now),
                }
            }
        }

        pub fn ring(&self) {
            {
                let mut now = self.rung.lock();
                *now = now.wrapping_add(1);
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    macro_rules! keeps_its_promise {
        ($name:ident, $bell:ty) => {
            /// All who wait are woken, whenever it rings; who looks at it late does not sleep.
            #[test]
            fn $name() {
                for _ in 0..200 {
                    let (bell, told) = (<$bell>::default(), AtomicBool::new(false));
                    std::thread::scope(|scope| {
                        for _ in 0..4 {
                            scope.spawn(|| {
                                loop {
                                    let rung = bell.rung();
                                    if told.load(SeqCst) {
                                        return;
                                    }
                                    bell.wait(rung, None);
                                }
                            });
                        }
                        told.store(true, SeqCst);
                        bell.ring();
                    });
                    assert_eq!(bell.rung(), 1);
                    bell.wait(0, None);
                    bell.wait(1, Some(Duration::from_millis(1)));
                }
            }
        };
    }

    #[cfg(target_os = "linux")]
    keeps_its_promise!(a_bell_of_the_kernel_wakes_all, super::linux::Bell);
    keeps_its_promise!(a_bell_with_a_lock_wakes_all, super::portable::Bell);
}
