//! Binds virtual ports on a separate thread. A node on another host takes a round trip to answer,
//! and one that is away takes seconds; the packets of other flows must not wait for that.

use super::Overlay;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use trunkline_client::{DatagramSocket, Error};

/// Pause after a failed attempt: each further packet of a sender triggers the next one.
const PAUSE: Duration = Duration::from_millis(50);

/// Number that identifies a request.
pub type Ticket = u64;

/// Result of a request for a port.
pub type Opened = (Ticket, Result<DatagramSocket, Error>);

pub struct Opener {
    requests: SyncSender<Ticket>,
    opened: Receiver<Opened>,
    ready: Arc<EventFd>,
}

impl Opener {
    /// Starts the thread, which ends when the opener is dropped. At most `max` requests are queued.
    pub fn start(overlay: Overlay, max: usize) -> io::Result<Opener> {
        let (requests, asked) = sync_channel::<Ticket>(max);
        let (reply, opened) = sync_channel(max);
        let ready = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let wake = Arc::clone(&ready);
        std::thread::Builder::new().name("virtual ports".into()).spawn(move || {
            for ticket in asked {
                let result = overlay.bind(0);
                let failed = result.is_err();
                if reply.send((ticket, result)).is_err() || wake.write(1).is_err() {
                    return;
                }
                if failed {
                    std::thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(Opener { requests, opened, ready })
    }

    /// Requests a virtual port. Returns false if too many requests are queued.
    pub fn ask(&self, ticket: Ticket) -> bool {
        self.requests.try_send(ticket).is_ok()
    }

    /// Returns the next result, if there is one.
    pub fn next(&self) -> Option<Opened> {
        self.opened.try_recv().ok()
    }

    /// Makes the descriptor unreadable. Call `next` for the results afterwards.
    pub fn clear(&self) {
        // It is fine if there is nothing to read.
        let _ = self.ready.read();
    }
}

impl AsFd for Opener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
