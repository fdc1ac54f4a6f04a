//! What is said while packets pass.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A line on standard error, unless it would have to wait: nobody may read, and packets are
/// due meanwhile.
pub fn say(line: &str) {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut ready, PollTimeout::ZERO), Ok(1..)) {
        // In one piece, for which a pipe that takes anything has room. That nobody is there
        // is no reason to fail.
        let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}
