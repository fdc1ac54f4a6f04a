//! When to stop: SIGTERM, SIGINT, or the end of standard input; and when to
//! read the links' file again: SIGHUP.

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

/// The descriptors that become readable when it may be time to stop.
#[derive(Debug)]
pub struct Stop {
    signals: Signals,
    stdin: Option<io::Stdin>,
}

impl Stop {
    /// Takes SIGTERM and SIGINT away from this thread. Call it before starting others.
    pub fn new(stdin: bool) -> Result<Stop, Error> {
        let signals = Signals::block()
            .map_err(|source| Error::Os { what: "block SIGTERM and SIGINT", source })?;
        Ok(Stop { signals, stdin: stdin.then(io::stdin) })
    }

    /// Readable when SIGTERM or SIGINT has come.
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Readable when standard input has something, or has ended; `None` if
    /// that does not matter.
    pub fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().map(AsFd::as_fd)
    }

    /// Whether standard input, readable now, has ended. Anything that is typed is ignored.
    pub fn stdin_ended(&self) -> bool {
        let mut ignored = [0; 4096];
        !matches!(self.stdin.as_ref().map(|s| s.lock().read(&mut ignored)), Some(Ok(1..)))
    }
}

/// The file that describes the links. At SIGHUP a thread of its own reads it again, since a trace
/// may have 64 million packets, and meanwhile packets are due.
#[derive(Debug)]
pub struct Reread<S> {
    file: PathBuf,
    hangup: Hangup,
    background: Background,
    reader: Option<JoinHandle<Result<Change<S>, ConfigError>>>,
    /// Readable when the thread has read the file.
    done: Arc<EventFd>,
    /// Whether another signal has come since the thread began.
    again: bool,
}

impl<S: Setup> Reread<S> {
    /// Takes SIGHUP away from this thread. Call it before starting others. A thread of `background`
    /// will read the file.
    pub fn new(file: PathBuf, background: Background) -> Result<Reread<S>, Error> {
        let hangup =
            Hangup::block().map_err(|source| Error::Os { what: "block SIGHUP", source })?;
        let done = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(Error::os("create an event"))?;
        Ok(Reread { file, hangup, background, reader: None, done: Arc::new(done), again: false })
    }

    /// Readable when SIGHUP has come.
    pub fn hangup(&self) -> BorrowedFd<'_> {
        self.hangup.as_fd()
    }

    /// Readable when [`Reread::change`] has a result.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Starts reading if a signal has come since the last call.
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
            // The counter of an event can't overflow by one.
            let _ = done.write(1);
            change
        }));
    }

    /// The result of reading, if there is one since the last call.
    pub fn change(&mut self) -> Option<Result<Change<S>, ConfigError>> {
        self.done.read().ok()?;
        Some(self.reader.take()?.join().expect("the reader does not panic"))
    }

    /// Frees a former setup. For a long trace that takes milliseconds.
    pub fn dispose(&self, old: S) {
        self.background.spawn(move || drop(old));
    }

    /// Reads the file once more if a signal came while it was being read.
    pub fn go_on(&mut self, running: &S) {
        if self.again {
            self.begin(running);
        }
    }
}
