use crate::carrier::Carrier;
use crate::error::Error;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// What somebody waits on: an epoll of a carrier, of the room to send on it while that
/// is wanted, and of an event that is up as long as its owner says so.
///
/// Every part is level-triggered, so whoever waits may look late, or find that somebody
/// else has dealt with it.
pub(crate) struct Watch {
    epoll: Arc<Epoll>,
    event: EventFd,
    up: bool,
    /// Whether `epoll` tells of room.
    room: bool,
}

impl Watch {
    pub(crate) fn new() -> Result<Watch, Error> {
        Watch::on(new_epoll()?)
    }

    /// On a descriptor that is there already, and holds nothing that matters.
    pub(crate) fn on(epoll: Arc<Epoll>) -> Result<Watch, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags).map_err(no_descriptor)?;
        epoll.add(&event, readable()).map_err(no_descriptor)?;
        Ok(Watch { epoll, event, up: false, room: false })
    }

    pub(crate) fn epoll(&self) -> &Arc<Epoll> {
        &self.epoll
    }

    /// Adds a descriptor that is not a carrier's.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let added = self.epoll.add(fd, readable());
        added.map_err(|errno| Error::io("poll a connection to the trunkline node", errno))
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = self.epoll.delete(fd);
    }

    /// Forgets a carrier, which closing it would not do: an in-process node shares the
    /// descriptors.
    pub(crate) fn leave(&mut self, carrier: &mut dyn Carrier) {
        let _ = self.epoll.delete(carrier.descriptor());
        if std::mem::take(&mut self.room) {
            let _ = self.epoll.delete(carrier.room().0);
        }
    }

    /// Makes the event readable, or unreadable.
    pub(crate) fn signal(&mut self, up: bool) {
        if self.up != up {
            self.up = up;
            // Neither fails on an eventfd that holds 0 or 1.
            let _ = if up { self.event.write(1).map(drop) } else { self.event.read().map(drop) };
        }
    }

    /// Whether to tell when `carrier`, whose last send would have blocked, has room.
    pub(crate) fn want_room(&mut self, carrier: &mut dyn Carrier, wanted: bool) {
        if !wanted && !self.room {
            return;
        }
        let own = carrier.descriptor().as_raw_fd();
        // Asked for each time: an in-process carrier makes its descriptor unreadable so.
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

impl AsFd for Watch {
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
