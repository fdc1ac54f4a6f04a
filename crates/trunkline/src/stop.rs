//! Signals that stop the program (SIGTERM or SIGINT) or make it read the configuration again
//! (SIGHUP).

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Signals that mean neither a fault nor a wish to stop, though their default is to end the process.
const MEANINGLESS: [Signal; 8] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSTKFLT,
];

/// Makes the daemon survive signals that somebody sends it by habit, as to other daemons, or that
/// are meant for all processes.
pub fn ignore_others() -> io::Result<()> {
    let mut mask = SigSet::empty();
    MEANINGLESS.into_iter().for_each(|signal| mask.add(signal));
    Ok(mask.thread_block()?)
}

/// SIGTERM and SIGINT as a descriptor.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks both signals in this thread and those that it starts.
    pub fn block() -> io::Result<Signals> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        mask.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Signals(SignalFd::with_flags(&mask, flags)?))
    }

    /// Waits for a signal for at most `patience`; true if one arrived.
    pub fn wait(&self, patience: Duration) -> bool {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, timeout), Ok(1..))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// SIGHUP as a descriptor.
#[derive(Debug)]
pub struct Hangup(SignalFd);

impl Hangup {
    /// Blocks the signal in this thread and those that it starts.
    pub fn block() -> io::Result<Hangup> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGHUP);
        mask.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Hangup(SignalFd::with_flags(&mask, flags)?))
    }

    /// Whether the signal has arrived since the last call.
    pub fn came(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}

impl AsFd for Hangup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
