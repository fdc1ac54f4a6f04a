//! Streams for C programs. A descriptor exists before the stream or listener is opened on it and
//! stays the same afterwards.
#![allow(unsafe_code)]

use super::{
    Addr, Handle, MESSAGES, NONBLOCK, RCVTIMEO_MS, attachment_at, boundary, errno, handle,
    not_null, register, timeout_ms,
};
use crate::connection::wait_readable;
use crate::error::Error;
use crate::socket::{Address, Attachment};
use crate::stream::{
    ConnectOptions, NodeEndpoint, Opening, Port, Readiness, StreamListener, StreamSocket, new_epoll,
};
use nix::errno::Errno;
use nix::sys::epoll::Epoll;
use std::ffi::{c_char, c_int, c_void};
use std::mem::replace;
use std::os::fd::{AsFd, AsRawFd};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use trunkline_overlay::wire::NodeId;

/// Maximum number of bytes that one call reads or writes. Memory beyond them is not touched.
const MAX_IO: usize = 1 << 20;

/// The socket behind a descriptor of `tl_stream_socket` or `tl_accept`: a stream or a listener,
/// open or not.
pub(super) struct Stream {
    state: Mutex<State>,
    ready: Arc<Epoll>,
}

struct State {
    at: Attachment,
    port: u16,
    messages: bool,
    nonblocking: bool,
    timeout: Option<Duration>,
    phase: Phase,
}

enum Phase {
    New,
    Connecting(Box<Opening>),
    Binding(Box<Port>),
    Open(Arc<StreamSocket>),
    Listening(Arc<StreamListener>),
    /// Keeps the watch that wakes threads waiting for it to open.
    Closed(Option<Readiness>),
}

impl State {
    /// Applies the options to the stream or the listener, if it is open.
    fn apply(&self) -> Result<(), Error> {
        match &self.phase {
            Phase::Open(stream) => {
                stream.set_nonblocking(self.nonblocking);
                stream.set_read_timeout(self.timeout)
            }
            Phase::Listening(listener) => {
                listener.set_nonblocking(self.nonblocking);
                listener.set_accept_timeout(self.timeout)
            }
            _ => Ok(()),
        }
    }

    /// Continues opening, as far as possible without blocking. Returns the next phase once it is
    /// open.
    fn step(&mut self) -> Result<Option<Phase>, Error> {
        match &mut self.phase {
            Phase::Connecting(opening) => {
                let end = opening.advance()?;
                Ok(end.map(|end| Phase::Open(Arc::new(StreamSocket::new(end)))))
            }
            Phase::Binding(port) => {
                if !port.dial()? {
                    return Ok(None);
                }
                match replace(&mut self.phase, Phase::New) {
                    Phase::Binding(port) => {
                        Ok(Some(Phase::Listening(Arc::new(StreamListener::from(*port)))))
                    }
                    _ => Ok(None),
                }
            }
            Phase::Closed(_) => Err(Error::io("use a socket that is closed", Errno::EBADF)),
            _ => Err(Error::io("open a socket twice", Errno::EINVAL)),
        }
    }
}

impl Stream {
    fn new(at: Attachment) -> Result<Stream, Error> {
        Ok(Stream::with(at, new_epoll()?, Phase::New))
    }

    fn with(at: Attachment, ready: Arc<Epoll>, phase: Phase) -> Stream {
        let state =
            State { at, port: 0, messages: false, nonblocking: false, timeout: None, phase };
        Stream { state: Mutex::new(state), ready }
    }

    pub(super) fn ready(&self) -> &Arc<Epoll> {
        &self.ready
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the virtual port of a stream that has not been opened yet, or of a listener.
    pub(super) fn bind(&self, port: u16) -> Result<(), Errno> {
        let mut state = self.lock();
        match state.phase {
            Phase::New if state.port == 0 => state.port = port,
            Phase::Closed(_) => return Err(Errno::EBADF),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    pub(super) fn local(&self) -> Address {
        let state = self.lock();
        match &state.phase {
            Phase::Open(stream) => stream.local(),
            Phase::Listening(listener) => listener.local(),
            _ => Address { node: NodeId::NONE, port: 0 },
        }
    }

    pub(super) fn set(&self, option: c_int, value: c_int) -> Result<(), Errno> {
        let mut state = self.lock();
        match option {
            NONBLOCK => state.nonblocking = value != 0,
            RCVTIMEO_MS => {
                let ms = u64::try_from(value).map_err(|_| Errno::EINVAL)?;
                state.timeout = (ms != 0).then_some(Duration::from_millis(ms));
            }
            // This can't change once the stream is being opened.
            MESSAGES if matches!(state.phase, Phase::New) => state.messages = value != 0,
            MESSAGES => return Err(Errno::EINVAL),
            _ => return Err(Errno::ENOPROTOOPT),
        }
        state.apply().map_err(errno)
    }

    pub(super) fn get(&self, option: c_int) -> Result<c_int, Errno> {
        let state = self.lock();
        Ok(match option {
            NONBLOCK => state.nonblocking.into(),
            RCVTIMEO_MS => timeout_ms(state.timeout),
            MESSAGES => match &state.phase {
                Phase::Open(stream) => stream.messages().into(),
                _ => state.messages.into(),
            },
            _ => return Err(Errno::ENOPROTOOPT),
        })
    }

    /// Ends the socket; calls that wait on it fail with EBADF.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let mut wakes = match replace(&mut state.phase, Phase::Closed(None)) {
            Phase::Connecting(opening) => opening.into_watch(),
            Phase::Binding(port) => Some(port.into_watch()),
            Phase::Open(stream) => {
                stream.close();
                None
            }
            Phase::Listening(listener) => {
                listener.close();
                None
            }
            Phase::New => None,
            Phase::Closed(wakes) => wakes,
        };
        if let Some(watch) = &mut wakes {
            watch.signal(true);
        }
        state.phase = Phase::Closed(wakes);
    }

    /// Opens a new socket, beginning with the phase that `begin` returns. The lock is held during
    /// each step, but not while waiting.
    fn open(
        &self,
        begin: impl FnOnce(&State, Readiness) -> Result<Phase, Error>,
    ) -> Result<(), Errno> {
        let mut state = self.lock();
        match state.phase {
            Phase::New => {}
            Phase::Closed(_) => return Err(Errno::EBADF),
            _ => return Err(Errno::EINVAL),
        }
        let begun = Readiness::on(self.ready.clone()).and_then(|watch| begin(&state, watch));
        state.phase = begun.map_err(errno)?;
        loop {
            match state.step() {
                Ok(None) => {}
                Ok(Some(phase)) => {
                    state.phase = phase;
                    return state.apply().map_err(errno);
                }
                Err(error) => {
                    if matches!(state.phase, Phase::Connecting(_) | Phase::Binding(_)) {
                        state.phase = Phase::New;
                    }
                    return Err(errno(error));
                }
            }
            drop(state);
            wait_readable(self.ready.0.as_fd(), None).map_err(errno)?;
            state = self.lock();
        }
    }

    fn stream(&self) -> Result<Arc<StreamSocket>, Errno> {
        match &self.lock().phase {
            Phase::Open(stream) => Ok(stream.clone()),
            Phase::Closed(_) => Err(Errno::EBADF),
            _ => Err(Errno::EINVAL),
        }
    }

    fn listener(&self) -> Result<(Arc<StreamListener>, Attachment), Errno> {
        let state = self.lock();
        match &state.phase {
            Phase::Listening(listener) => Ok((listener.clone(), state.at.clone())),
            Phase::Closed(_) => Err(Errno::EBADF),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn stream(fd: c_int) -> Result<Arc<Stream>, Errno> {
    match handle(fd)? {
        Handle::Stream(stream) => Ok(stream),
        Handle::Datagram(_) => Err(Errno::EOPNOTSUPP),
    }
}

fn registered(stream: Stream) -> c_int {
    register(stream.ready.0.as_raw_fd(), Handle::Stream(Arc::new(stream)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_stream_socket(attachment: *const c_char) -> c_int {
    boundary(|| {
        // SAFETY: null or a string, by contract.
        let at = unsafe { attachment_at(attachment) }?;
        Ok(registered(Stream::new(at).map_err(errno)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_connect(fd: c_int, to: *const Addr) -> c_int {
    boundary(|| {
        let stream = stream(fd)?;
        not_null(to, 1)?;
        // SAFETY: not null, and a tl_addr by contract, possibly in a packed structure.
        let to = unsafe { to.read_unaligned() };
        let to = Address { node: NodeId(to.node), port: to.port };
        stream.open(|state, watch| {
            let options = ConnectOptions::new().port(state.port).messages(state.messages);
            let place = NodeEndpoint::new(state.at.clone())?;
            let opening = Opening::new(&place, place.candidates()?, options.purpose(to), watch)?;
            Ok(Phase::Connecting(Box::new(opening)))
        })?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_listen(fd: c_int, backlog: c_int) -> c_int {
    boundary(|| {
        let stream = stream(fd)?;
        // As in listen(2): values below one mean one, values too large mean the maximum.
        let backlog = u16::try_from(backlog.max(1)).unwrap_or(u16::MAX);
        stream.open(|state, watch| {
            let place = NodeEndpoint::new(state.at.clone())?;
            let candidates = place.candidates()?;
            let port = Port::new(watch, place, candidates, state.port, backlog)?;
            Ok(Phase::Binding(Box::new(port)))
        })?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_accept(fd: c_int, from: *mut Addr) -> c_int {
    boundary(|| {
        let (listener, at) = stream(fd)?.listener()?;
        let (socket, peer) = listener.accept().map_err(errno)?;
        if !from.is_null() {
            let addr = Addr { node: peer.node.0, port: peer.port };
            // SAFETY: not null, and room for a tl_addr by contract.
            unsafe { from.write_unaligned(addr) };
        }
        let ready = socket.ready().clone();
        Ok(registered(Stream::with(at, ready, Phase::Open(Arc::new(socket)))))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_read(fd: c_int, buf: *mut c_void, len: usize) -> isize {
    boundary(|| {
        let stream = stream(fd)?.stream()?;
        not_null(buf, len)?;
        let buf = match len {
            0 => &mut [][..],
            // SAFETY: not null, and `len` bytes by contract to which no other code has access until
            // this returns. They are only written here.
            _ => unsafe { slice::from_raw_parts_mut(buf.cast::<u8>(), len.min(MAX_IO)) },
        };
        Ok(stream.read(buf).map_err(errno)?.cast_signed())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_write(fd: c_int, buf: *const c_void, len: usize) -> isize {
    boundary(|| {
        let stream = stream(fd)?.stream()?;
        not_null(buf, len)?;
        let buf = match len {
            0 => &[][..],
            // SAFETY: not null, and `len` bytes by contract.
            _ => unsafe { slice::from_raw_parts(buf.cast::<u8>(), len.min(MAX_IO)) },
        };
        Ok(stream.write(buf).map_err(errno)?.cast_signed())
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_shutdown(fd: c_int) -> c_int {
    boundary(|| {
        stream(fd)?.stream()?.shutdown().map_err(errno)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_reset(fd: c_int) -> c_int {
    boundary(|| {
        stream(fd)?.stream()?.reset().map_err(errno)?;
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::tl_close;

    /// Calls the functions as a C program would, with unaligned memory.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no timerfd")]
    fn what_is_not_open_says_so() {
        // SAFETY: the text is zero-terminated.
        let fd = unsafe { tl_stream_socket(c"/nowhere/node.sock".as_ptr()) };
        assert!(fd >= 0, "{}", Errno::last());
        let mut bytes = [0u8; size_of::<Addr>() + 1];
        // SAFETY: room for each result at any alignment.
        unsafe {
            let to = bytes[1..].as_mut_ptr();
            assert_eq!((tl_connect(fd, to.cast()), Errno::last()), (-1, Errno::ECONNREFUSED));
            assert_eq!((tl_connect(fd, to.cast()), Errno::last()), (-1, Errno::ECONNREFUSED));
            assert_eq!((tl_accept(fd, to.cast()), Errno::last()), (-1, Errno::EINVAL));
            assert_eq!((tl_read(fd, to.cast(), 8), Errno::last()), (-1, Errno::EINVAL));
            assert_eq!((tl_write(fd, to.cast(), 8), Errno::last()), (-1, Errno::EINVAL));
        }
        assert_eq!((tl_listen(fd, 0), Errno::last()), (-1, Errno::ECONNREFUSED));
        assert_eq!((tl_shutdown(fd), Errno::last()), (-1, Errno::EINVAL));
        assert_eq!((tl_close(fd), tl_close(fd)), (0, -1));
    }
}
