//! Messages to the user while packets are forwarded.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Length of the longest line, in bytes with its end: a pipe with any room accepts this much
/// atomically (PIPE_BUF, pipe(7)).
const LONGEST: usize = 4_096;

/// Writes a line to standard error, unless that would block: standard error may have no reader, and
/// packets may be due.
pub fn say(line: &str) {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if matches!(poll(&mut ready, PollTimeout::ZERO), Ok(1..)) {
        // Writing may fail without a reader, which is harmless.
        let _ = io::stderr().write_all(cut(line).as_bytes());
    }
}

/// Appends the line end, and cuts a line that is too long.
fn cut(line: &str) -> String {
    const LEFT_OUT: &str = " …";
    if line.len() < LONGEST {
        return format!("{line}\n");
    }
    let room = LONGEST - LEFT_OUT.len() - 1;
    let most = (0..=room).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
    format!("{}{LEFT_OUT}\n", &line[..most])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_into_a_pipe_at_once() {
        assert_eq!(cut("well"), "well\n");
        let longest = "x".repeat(LONGEST - 1);
        assert_eq!(cut(&longest), longest.clone() + "\n");
        // Characters of one to three bytes, so that each possible cut falls within one.
        for letter in ["x", "é", "…"] {
            for shift in ["", "x", "xx"] {
                let said = cut(&(shift.to_owned() + &letter.repeat(LONGEST)));
                assert!((LONGEST - 3..=LONGEST).contains(&said.len()), "{}", said.len());
                assert!(said.starts_with(shift) && said.ends_with(" …\n"), "{said}");
            }
        }
    }
}
