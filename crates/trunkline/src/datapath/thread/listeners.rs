//! Pauses listeners when their waiting applications can be neither accepted nor rejected, because
//! the system has no descriptors left, not even one to hang up with.

use super::{PacketThread, token};
use crate::clock;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::AsFd;
use std::time::Duration;
use trunkline_base::Time;

/// Other processes may free some descriptors. Without a pause, epoll would wake the thread
/// continuously for the waiting connections.
const PAUSE: Duration = Duration::from_millis(100);

impl PacketThread {
    /// Stops watching the listeners for [`PAUSE`].
    pub(super) fn pause_accept(&mut self) {
        self.reopen = clock::now() + PAUSE;
        self.watch_listeners(EpollFlags::empty());
    }

    /// Watches the listeners again once the pause has ended.
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
