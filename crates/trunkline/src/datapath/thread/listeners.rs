//! Doors at which applications wait that can be neither let in nor turned away:
//! the system has no descriptors left, not even one to hang up with.

use super::{PacketThread, token};
use crate::clock;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::AsFd;
use std::time::Duration;
use trunkline_base::Time;

/// Others may free some. Without a pause, epoll would wake the thread for who
/// waits as often as it can.
const PAUSE: Duration = Duration::from_millis(100);

impl PacketThread {
    /// Lets those who wait wait on for [`PAUSE`].
    pub(super) fn pause_accept(&mut self) {
        self.reopen = clock::now() + PAUSE;
        self.watch_listeners(EpollFlags::empty());
    }

    /// Looks after them again, once that is over.
    pub(super) fn resume_accept(&mut self, now: Time) {
        if now >= self.reopen {
            self.reopen = Time::NEVER;
            self.watch_listeners(EpollFlags::EPOLLIN);
        }
    }

    fn watch_listeners(&self, flags: EpollFlags) {
        let watch = |fd, token| {
            let _ = self.epoll.modify(fd, &mut EpollEvent::new(flags, token));
        };
        if let Some(listener) = &self.listener {
            watch(listener.as_fd(), token::LISTENER);
        }
        for (remote, i) in self.remotes.iter().zip(0..) {
            watch(remote.queue.as_fd(), token::REMOTE | i);
        }
    }
}
