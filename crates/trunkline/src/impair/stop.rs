//! Events that stop the program (SIGTERM, SIGINT or the end of standard input) or make it read the
//! links' file again (SIGHUP).

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Error;
use super::background::Background;
use super::config::ConfigError;
use super::setup::{Change, Setup};
use crate::stop::{Hangup, Signals};

/// Descriptors that become readable when it may be time to stop.
#[derive(Debug)]
pub struct Stop {
    signals: Signals,
    stdin: Option<io::Stdin>,
}

impl Stop {
    /// Blocks SIGTERM and SIGINT in this thread, to read them from a descriptor. Call it before
    /// starting other threads.
    pub fn new(stdin: bool) -> Result<Stop, Error> {
        let signals = Signals::block()
            .map_err(|source| Error::Os { what: "block SIGTERM and SIGINT", source })?;
        Ok(Stop { signals, stdin: stdin.then(io::stdin) })
    }

    /// Readable when SIGTERM or SIGINT has arrived.
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Readable when standard input has data or has ended; `None` if standard input is not watched.
    pub fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().map(AsFd::as_fd)
    }

    /// Whether standard input, which is readable, has ended. Any data is ignored.
    pub fn stdin_ended(&self) -> bool {
        let mut ignored = [0; 4096];
        !matches!(self.stdin.as_ref().map(|s| s.lock().read(&mut ignored)), Some(Ok(1..)))
    }
}

/// The file that describes the links. At SIGHUP it is read again on a separate thread, since a
/// trace may have 64 million packets and other packets are due in the meantime.
#[derive(Debug)]
pub struct Reread<S> {
    file: PathBuf,
    hangup: Hangup,
    background: Background,
    reader: Option<JoinHandle<Result<Change<S>, ConfigError>>>,
    /// Readable when the thread has read the file.
    done: Arc<EventFd>,
    /// Whether another signal has arrived since the thread started.
    again: bool,
}

impl<S: Setup> Reread<S> {
    /// Blocks SIGHUP in this thread, to read it from a descriptor. Call it before starting other
    /// threads. A thread of `background` reads the file.
    pub fn new(file: PathBuf, background: Background) -> Result<Reread<S>, Error> {
        let hangup =
            Hangup::block().map_err(|source| Error::Os { what: "block SIGHUP", source })?;
        let done = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(Error::os("create an event"))?;
        Ok(Reread { file, hangup, background, reader: None, done: Arc::new(done), again: false })
    }

    /// Readable when SIGHUP has arrived.
    pub fn hangup(&self) -> BorrowedFd<'_> {
        self.hangup.as_fd()
    }

    /// Readable when [`Reread::change`] has a result.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Starts reading the file if a signal has arrived since the last call.
    pub fn on_hangup(&mut self, running: &S) {
        if self.hangup.came() {
            self.begin(running);
        }
    }

    fn begin(&mut self, running: &S) {
        self.again = self.reader.is_some();
        if self.again {
            return;
        }
        let (file, running, done) = (self.file.clone(), running.clone(), self.done.clone());
        self.reader = Some(self.background.spawn(move || {
            let change = S::read(&file).and_then(|new| running.change(new));
            // An event's counter cannot overflow by one.
            let _ = done.write(1);
            change
        }));
    }

    /// Result of reading the file, if there is one since the last call.
    pub fn change(&mut self) -> Option<Result<Change<S>, ConfigError>> {
        self.done.read().ok()?;
        Some(self.reader.take()?.join().expect("the reader does not panic"))
    }

    /// Frees a former setup on another thread. This takes milliseconds for a long trace.
    pub fn dispose(&self, old: S) {
        self.background.spawn(move || drop(old));
    }

    /// Reads the file once more if a signal arrived while it was being read.
    pub fn go_on(&mut self, running: &S) {
        if self.again {
            self.begin(running);
        }
    }
}
