//! What the broker asks of the operating system for itself: descriptors, and not to outlive its
//! parent. It knows no socket and no MQTT. Both are best effort: a refusal is logged, not fatal.

use std::io::{self, Read};

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use tokio::sync::oneshot;

/// Raises the soft limit of open descriptors to the hard one: each client takes one.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        log::warn!("cannot raise the limit of open descriptors: {error}");
    }
}

/// Asks for SIGTERM when the thread that started this process is gone, even killed.
pub fn end_with_parent() {
    if let Err(error) = prctl::set_pdeathsig(Signal::SIGTERM) {
        log::warn!("cannot follow the parent process: {error}");
    }
}

/// Resolves when stdin reaches its end. A thread of its own reads, as stdin may be a terminal, a
/// file or a pipe; what comes is thrown away.
pub fn stdin_end() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut unused = [0; 512];
        while matches!(stdin.read(&mut unused), Ok(1..)) {}
        let _ = ended.send(());
    });
    end
}
