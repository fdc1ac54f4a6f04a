use crate::carrier::Carrier;
use crate::error::Error;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// A descriptor to wait on: an epoll of a carrier, of room to send on it while that is wanted, and
/// of an event that its owner sets and clears.
///
/// All of them are level-triggered, so a thread may check late, or find that another one has
/// handled the event.
pub(crate) struct Readiness {
    epoll: Arc<Epoll>,
    event: EventFd,
    up: bool,
    /// Whether `epoll` also signals room to send.
    room: bool,
}

impl Readiness {
    pub(crate) fn new() -> Result<Readiness, Error> {
        Readiness::on(new_epoll()?)
    }

    /// Creates a watch on `epoll`, an existing descriptor that watches nothing else.
    pub(crate) fn on(epoll: Arc<Epoll>) -> Result<Readiness, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags).map_err(no_descriptor)?;
        epoll.add(&event, readable()).map_err(no_descriptor)?;
        Ok(Readiness { epoll, event, up: false, room: false })
    }

    pub(crate) fn epoll(&self) -> &Arc<Epoll> {
        &self.epoll
    }

    /// Makes the watch readable whenever `fd` is.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let added = self.epoll.add(fd, readable());
        added.map_err(|errno| Error::io("poll a connection to the trunkline node", errno))
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = self.epoll.delete(fd);
    }

    /// Removes a carrier. If the node is in the same process, closing the carrier would not remove
    /// it, since the two share the descriptors.
    pub(crate) fn leave(&mut self, carrier: &mut dyn Carrier) {
        let _ = self.epoll.delete(carrier.descriptor());
        if std::mem::take(&mut self.room) {
            let _ = self.epoll.delete(carrier.room().0);
        }
    }

    /// Sets the event, which makes the watch readable, or clears it.
    pub(crate) fn signal(&mut self, up: bool) {
        if self.up != up {
            self.up = up;
            // Neither fails on an eventfd that holds 0 or 1.
            let _ = if up { self.event.write(1).map(drop) } else { self.event.read().map(drop) };
        }
    }

    /// Sets whether the watch becomes readable when `carrier` has room again after a send that
    /// would have blocked.
    pub(crate) fn want_room(&mut self, carrier: &mut dyn Carrier, wanted: bool) {
        if !wanted && !self.room {
            return;
        }
        let own = carrier.descriptor().as_raw_fd();
        // Called every time, because it makes an in-process carrier's descriptor unreadable.
        let (room, flags) = carrier.room();
        let _ = match (room.as_raw_fd() == own, wanted) {
            (true, true) => {
                self.epoll.modify(room, &mut EpollEvent::new(EpollFlags::EPOLLIN | flags, 0))
            }
            (true, false) => self.epoll.modify(room, &mut readable()),
            (false, true) if self.room => Ok(()),
            (false, true) => self.epoll.add(room, EpollEvent::new(flags, 0)),
            (false, false) => self.epoll.delete(room),
        };
        self.room = wanted;
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

pub(crate) fn new_epoll() -> Result<Arc<Epoll>, Error> {
    Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(Arc::new).map_err(no_descriptor)
}

pub(crate) fn no_descriptor(errno: Errno) -> Error {
    Error::io("create a descriptor for a socket", errno)
}

fn readable() -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, 0)
}
