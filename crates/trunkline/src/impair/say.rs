//! Messages while packets are passed on.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Writes a line to standard error, unless that would have to wait: it may be that nobody reads,
/// and packets are due meanwhile.
pub fn say(line: &str) {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut ready, PollTimeout::ZERO), Ok(1..)) {
        // A pipe that takes anything has room for it in one piece. That nobody reads it is no
        // reason to fail.
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}
