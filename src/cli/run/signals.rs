//! Signals on their way to a child. Owns who gets one: before there is a child this program, then the child
//! and all that it has started; must not know what the child does.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Those that are passed on. All others do to this program what they always do.
const PASSED_ON: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Takes signals and passes them on.
pub(super) struct Courier {
    desk: Arc<Desk>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Desk {
    post: Mutex<Post>,
    bell: Condvar,
}

#[derive(Default)]
struct Post {
    /// The first signal that came before there was a child.
    early: Option<i32>,
    /// Not reaped, so that its number is nobody else's.
    child: Option<Pid>,
}

impl Courier {
    /// From now on no signal of those that are passed on ends this program.
    #[expect(clippy::disallowed_methods, reason = "a program has a thread for its signals")]
    pub fn start() -> io::Result<Self> {
        let ignored = ignored();
        // Who started this program with a signal ignored, as `nohup` does, wants that of the child, too.
        let mut signals = Signals::new(PASSED_ON.iter().filter(|signal| !is_in(ignored, **signal)))?;
        let (handle, desk) = (signals.handle(), Arc::new(Desk::default()));
        let at_desk = Arc::clone(&desk);
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in &mut signals {
                at_desk.take(signal);
            }
        })?;
        Ok(Self { desk, handle, thread: Some(thread) })
    }

    /// A signal that came before there was a child, which is for this program.
    pub fn early(&self) -> Option<i32> {
        self.desk.post.lock().early
    }

    /// Waits so long, or until an early signal.
    pub fn pause(&self, span: Duration) {
        let mut post = self.desk.post.lock();
        if post.early.is_none() {
            self.desk.bell.wait_for(&mut post, span);
        }
    }

    /// From now on signals go to a child that was made with [`apart`], those that came early among them.
    pub fn serve(&self, child: &Child) {
        let mut post = self.desk.post.lock();
        post.child = Some(Pid::from_child(child));
        if let Some(early) = post.early.take() {
            post.pass(early);
        }
    }

    /// Waits for the end of the child that is served.
    pub fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        loop {
            match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(fault) if fault == rustix::io::Errno::INTR => {}
                ended => break ended.map(drop)?,
            }
        }
        // Once it is reaped, its number may be another's.
        self.desk.post.lock().child = None;
        child.wait()
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn take(&self, signal: i32) {
        let mut post = self.post.lock();
        if post.child.is_some() {
            post.pass(signal);
        } else {
            post.early.get_or_insert(signal);
            self.bell.notify_all();
        }
    }
}

impl Post {
    fn pass(&self, signal: i32) {
        if let (Some(child), Some(signal)) = (self.child, Signal::from_named_raw(signal)) {
            // One that has ended meanwhile needs none.
            let _ = kill_process_group(child, signal);
        }
    }
}

/// A process group of its own: a terminal then sends its signals to this program alone, and each reaches the
/// child once.
pub(super) fn apart(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

/// The exit code of a child, and the signal that killed it.
pub(super) fn code(status: ExitStatus) -> (u8, Option<i32>) {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(signal) => (super::of_signal(signal), Some(signal)),
        None => (status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX), None),
    }
}

/// The signals that this program was started to ignore, as a mask. Only Linux tells.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}
