//! When to stop: SIGTERM, SIGINT, or the end of standard input; and when to
//! read the links' file again: SIGHUP.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use super::Error;
use super::config::{Config, ConfigError};
use crate::stop::{Hangup, Signals};

/// The descriptors that become readable when it may be time to stop.
#[derive(Debug)]
pub struct Stop {
    signals: Signals,
    stdin: Option<io::Stdin>,
}

impl Stop {
    /// Takes SIGTERM and SIGINT away from this thread; call it before starting
    /// others.
    pub fn new(stdin: bool) -> Result<Stop, Error> {
        let signals = Signals::block()
            .map_err(|source| Error::Os { what: "block SIGTERM and SIGINT", source })?;
        Ok(Stop { signals, stdin: stdin.then(io::stdin) })
    }

    /// Readable when a signal came.
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Readable when standard input has something, or has ended; `None` if
    /// that does not matter.
    pub fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().map(AsFd::as_fd)
    }

    /// Whether standard input, readable now, has ended. What is typed means
    /// nothing.
    pub fn stdin_ended(&self) -> bool {
        let mut ignored = [0; 4096];
        !matches!(self.stdin.as_ref().map(|s| s.lock().read(&mut ignored)), Some(Ok(1..)))
    }
}

/// The file that links are read from, and again at SIGHUP.
#[derive(Debug)]
pub struct Reread {
    file: PathBuf,
    hangup: Hangup,
}

impl Reread {
    /// Takes SIGHUP away from this thread; call it before starting others.
    pub fn new(file: PathBuf) -> Result<Reread, Error> {
        let hangup =
            Hangup::block().map_err(|source| Error::Os { what: "block SIGHUP", source })?;
        Ok(Reread { file, hangup })
    }

    /// Readable when a signal came.
    pub fn hangup(&self) -> BorrowedFd<'_> {
        self.hangup.as_fd()
    }

    /// What the file says now, if a signal has come since the last look.
    pub fn config(&self) -> Option<Result<Config, ConfigError>> {
        self.hangup.came().then(|| Config::read(&self.file))
    }
}
