//! The C interface described in `include/trunkline.h`: the library's only unsafe code. Streams are
//! in `stream`.
//!
//! A table maps each descriptor to its socket, so an unknown number is an error and does no harm. A
//! call holds its own reference to the socket: `tl_close` in another thread takes the table's
//! reference, and the descriptor closes when the last call on it has returned, so that its number
//! can't be given to another file in between.
#![allow(unsafe_code)]

mod errno;
mod stream;

use crate::error::Error;
use crate::socket::{Address, Attachment, DatagramSocket, SocketOption, Status};
use errno::{errno, meaning};
use nix::errno::Errno;
use nix::libc;
use nix::sys::epoll::Epoll;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use stream::Stream;
use trunkline_overlay::session::wire::{MAX_MESSAGE, RefusalReason, Unreachable};
use trunkline_overlay::wire::{Metric, NodeId, Service};

/// Mirrors C's `struct tl_addr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Addr {
    node: u32,
    port: u16,
}

const DONTWAIT: c_int = 0x40;
const SERVICE: c_int = 1;
const DEADLINE_MS: c_int = 2;
const NONBLOCK: c_int = 3;
const RCVTIMEO_MS: c_int = 4;
const MAX_PAYLOAD: c_int = 5;
const METRIC: c_int = 6;
const LATE: c_int = 7;
const WAIT: c_int = 8;
const MESSAGES: c_int = 9;

/// Mirrors C's `struct tl_status`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StatusOf {
    to: Addr,
    why: c_int,
    since_ms: c_int,
}

impl From<Status> for StatusOf {
    fn from(status: Status) -> StatusOf {
        let (why, since) = match status {
            Status::Reachable { .. } => (0, Duration::ZERO),
            Status::Unreachable { why, .. } => match why {
                Unreachable::NoRoute => (1, Duration::ZERO),
                Unreachable::Since(ago) => (2, ago),
                Unreachable::NoPort => (3, Duration::ZERO),
            },
        };
        let Address { node, port } = status.to();
        let since_ms = c_int::try_from(since.as_millis()).unwrap_or(c_int::MAX);
        StatusOf { to: Addr { node: node.0, port }, why, since_ms }
    }
}

/// Maximum number of statuses of one socket that `tl_status` has yet to hand out: as many as a node
/// reports at once. The oldest are dropped first.
const MAX_STATUSES: usize = 256;
/// Statuses not yet handed out, by descriptor.
static STATUSES: Mutex<BTreeMap<c_int, VecDeque<Status>>> = Mutex::new(BTreeMap::new());

/// Drops the pending statuses of a descriptor that is opened or closed.
fn forget_statuses(fd: c_int) {
    STATUSES.lock().unwrap_or_else(PoisonError::into_inner).remove(&fd);
}

/// The socket behind a descriptor.
#[derive(Clone)]
enum Handle {
    Datagram(Arc<DatagramSocket>),
    Stream(Arc<Stream>),
}

impl Handle {
    /// Ends the socket; calls that wait on it fail with EBADF.
    fn close(&self) {
        match self {
            Handle::Datagram(socket) => socket.lock().close(),
            Handle::Stream(stream) => stream.close(),
        }
    }

    fn ready(&self) -> Arc<Epoll> {
        match self {
            Handle::Datagram(socket) => socket.lock().ready().clone(),
            Handle::Stream(stream) => stream.ready().clone(),
        }
    }
}

static SOCKETS: RwLock<BTreeMap<c_int, Handle>> = RwLock::new(BTreeMap::new());
/// Former owners of descriptor numbers that have been reused; never dropped.
static DISOWNED: Mutex<Vec<Arc<Epoll>>> = Mutex::new(Vec::new());

fn handle(fd: c_int) -> Result<Handle, Errno> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
    sockets.get(&fd).cloned().ok_or(Errno::EBADF)
}

fn socket(fd: c_int) -> Result<Arc<DatagramSocket>, Errno> {
    match handle(fd)? {
        Handle::Datagram(socket) => Ok(socket),
        Handle::Stream(_) => Err(Errno::EOPNOTSUPP),
    }
}

/// Registers a new socket under its descriptor and returns the descriptor.
fn register(fd: c_int, handle: Handle) -> c_int {
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(stale) = sockets.insert(fd, handle) {
        // The application passed our descriptor to close(2), and the new socket now has its number;
        // dropping the old owner would close that one.
        stale.close();
        DISOWNED.lock().unwrap_or_else(PoisonError::into_inner).push(stale.ready());
    }
    // A call in progress when the previous socket ended may have left some.
    forget_statuses(fd);
    fd
}

/// Parses the attachment passed by a C program. EFAULT if it is null, EINVAL if it is empty.
///
/// # Safety
///
/// `attachment` is null or a zero-terminated string.
unsafe fn attachment_at(attachment: *const c_char) -> Result<Attachment, Errno> {
    not_null(attachment, 1)?;
    // SAFETY: a zero-terminated C string that is not kept.
    let text = unsafe { CStr::from_ptr(attachment) };
    match text.to_str() {
        Ok("") => Err(Errno::EINVAL),
        Ok(text) => Ok(Attachment::from(text)),
        Err(_) => Ok(Attachment::from(Path::new(OsStr::from_bytes(text.to_bytes())))),
    }
}

/// Converts the result of a call to C's convention. A panic must not unwind into C.
fn boundary<T: From<i8>>(call: impl FnOnce() -> Result<T, Errno>) -> T {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::EIO));
    result.unwrap_or_else(|errno| {
        errno.set();
        T::from(-1)
    })
}

/// Errno of an error of the socket at `fd`. A status is also kept for `tl_status`.
fn news(fd: c_int, error: Error) -> Errno {
    if let Error::Status(status) = error {
        let mut all = STATUSES.lock().unwrap_or_else(PoisonError::into_inner);
        let told = all.entry(fd).or_default();
        if told.len() == MAX_STATUSES {
            told.pop_front();
        }
        told.push_back(status);
    }
    errno(error)
}

fn known_flags(flags: c_int) -> Result<(), Errno> {
    if flags & !DONTWAIT == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// A null pointer is fine if the length is zero.
fn not_null<T>(pointer: *const T, len: usize) -> Result<(), Errno> {
    if pointer.is_null() && len > 0 { Err(Errno::EFAULT) } else { Ok(()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_socket(attachment: *const c_char) -> c_int {
    boundary(|| {
        // SAFETY: null or a string, by contract.
        let at = unsafe { attachment_at(attachment) }?;
        let socket = DatagramSocket::unbound(at).map_err(errno)?;
        Ok(register(socket.as_raw_fd(), Handle::Datagram(Arc::new(socket))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_bind(fd: c_int, port: u16) -> c_int {
    boundary(|| {
        match handle(fd)? {
            Handle::Datagram(socket) => socket.lock().bind(port).map_err(errno)?,
            Handle::Stream(stream) => stream.bind(port)?,
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_sendto(
    fd: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    to: *const Addr,
) -> isize {
    boundary(|| {
        let socket = socket(fd)?;
        known_flags(flags)?;
        not_null(buf, len)?;
        not_null(to, 1)?;
        let payload = match len {
            0 => &[],
            // SAFETY: not null, and `len` bytes by contract.
            1..=MAX_MESSAGE => unsafe { slice::from_raw_parts(buf.cast::<u8>(), len) },
            _ => return Err(Errno::EMSGSIZE),
        };
        // SAFETY: not null, and a tl_addr by contract, possibly in a packed structure.
        let to = unsafe { to.read_unaligned() };
        let to = Address { node: NodeId(to.node), port: to.port };
        let sent = socket.send_waiting(payload, to, flags & DONTWAIT == 0);
        sent.map_err(|e| match e {
            // This packet was not sent either, and may be sent later.
            Error::Refused(RefusalReason::OverRate) => Errno::EAGAIN,
            e => news(fd, e),
        })?;
        Ok(payload.len().cast_signed())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut Addr,
) -> isize {
    boundary(|| {
        let socket = socket(fd)?;
        known_flags(flags)?;
        not_null(buf, len)?;
        let buf = match len {
            0 => &mut [][..],
            // SAFETY: not null, and `len` bytes by contract to which no other code has access until
            // this returns. They are only written here. Memory beyond the largest packet need not
            // exist.
            _ => unsafe { slice::from_raw_parts_mut(buf.cast::<u8>(), len.min(MAX_MESSAGE)) },
        };
        let got =
            if flags & DONTWAIT != 0 { socket.lock().receive(buf) } else { socket.recv_from(buf) };
        let got = got.map_err(|e| news(fd, e))?;
        if !from.is_null() {
            let addr = Addr { node: got.from.node.0, port: got.from.port };
            // SAFETY: not null, and room for a tl_addr by contract.
            unsafe { from.write_unaligned(addr) };
        }
        // A packet is no longer than the slice.
        Ok(got.len.cast_signed())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_setsockopt(
    fd: c_int,
    option: c_int,
    val: *const c_void,
    len: usize,
) -> c_int {
    boundary(|| {
        let handle = handle(fd)?;
        not_null(val, 1)?;
        if len != size_of::<c_int>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and an int by contract, confirmed by `len`.
        let value = unsafe { val.cast::<c_int>().read_unaligned() };
        let socket = match handle {
            Handle::Datagram(socket) => socket,
            Handle::Stream(stream) => {
                stream.set(option, value)?;
                return Ok(0);
            }
        };
        let ms = || u64::try_from(value).map(Duration::from_millis).map_err(|_| Errno::EINVAL);
        let option = match option {
            SERVICE => {
                let service = u8::try_from(value).ok().and_then(Service::from_wire);
                SocketOption::Service(service.ok_or(Errno::EINVAL)?)
            }
            METRIC if value == 0 => SocketOption::Metric(None),
            METRIC => {
                let n = value.checked_sub(1).and_then(|n| usize::try_from(n).ok());
                let metric = n.and_then(|n| Metric::ALL.get(n)).ok_or(Errno::EINVAL)?;
                SocketOption::Metric(Some(*metric))
            }
            DEADLINE_MS => SocketOption::Deadline(ms()?),
            LATE => SocketOption::Late(value != 0),
            WAIT => SocketOption::Blocking(value != 0),
            NONBLOCK => SocketOption::Nonblocking(value != 0),
            RCVTIMEO_MS => SocketOption::ReadTimeout((value != 0).then_some(ms()?)),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        socket.set_option(option).map_err(errno)?;
        Ok(0)
    })
}

fn option_of(socket: &DatagramSocket, option: c_int) -> Result<c_int, Errno> {
    let connection = socket.lock();
    Ok(match option {
        SERVICE => connection.service as c_int,
        METRIC => connection.metric.map_or(0, |metric| 1 + metric as c_int),
        DEADLINE_MS => connection.deadline_ms.into(),
        LATE => connection.late.into(),
        WAIT => connection.wait.into(),
        NONBLOCK => connection.nonblocking.into(),
        RCVTIMEO_MS => timeout_ms(connection.read_timeout),
        MAX_PAYLOAD => c_int::try_from(connection.max_payload).unwrap_or(c_int::MAX),
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

fn timeout_ms(timeout: Option<Duration>) -> c_int {
    let ms = timeout.map_or(0, |timeout| timeout.as_millis());
    c_int::try_from(ms).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_getsockopt(
    fd: c_int,
    option: c_int,
    val: *mut c_void,
    len: *mut usize,
) -> c_int {
    boundary(|| {
        let handle = handle(fd)?;
        not_null(val, 1)?;
        not_null(len, 1)?;
        // SAFETY: not null, and a size_t by contract.
        if unsafe { len.read_unaligned() } < size_of::<c_int>() {
            return Err(Errno::EINVAL);
        }
        let value = match handle {
            Handle::Datagram(socket) => option_of(&socket, option)?,
            Handle::Stream(stream) => stream.get(option)?,
        };
        // SAFETY: neither is null; `*len` promised room for an int.
        unsafe {
            val.cast::<c_int>().write_unaligned(value);
            len.write_unaligned(size_of::<c_int>());
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_getsockname(fd: c_int, addr: *mut Addr) -> c_int {
    boundary(|| {
        let local = match handle(fd)? {
            Handle::Datagram(socket) => socket.local_addr(),
            Handle::Stream(stream) => stream.local(),
        };
        not_null(addr, 1)?;
        // SAFETY: not null, and room for a tl_addr by contract.
        unsafe { addr.write_unaligned(Addr { node: local.node.0, port: local.port }) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_status(fd: c_int, status: *mut StatusOf) -> c_int {
    boundary(|| {
        socket(fd)?;
        not_null(status, 1)?;
        let mut all = STATUSES.lock().unwrap_or_else(PoisonError::into_inner);
        let next = all.get_mut(&fd).and_then(VecDeque::pop_front).ok_or(Errno::ENOMSG)?;
        drop(all);
        // SAFETY: not null, and room for a tl_status by contract.
        unsafe { status.write_unaligned(next.into()) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_close(fd: c_int) -> c_int {
    boundary(|| {
        let removed = SOCKETS.write().unwrap_or_else(PoisonError::into_inner).remove(&fd);
        forget_statuses(fd);
        // Calls in progress keep the descriptor open, and they end now.
        removed.ok_or(Errno::EBADF)?.close();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_strerror(error: c_int) -> *const c_char {
    match meaning(Errno::from_raw(error)) {
        Some(text) => text.as_ptr(),
        // SAFETY: any number is valid. For numbers that have a name, glibc and musl return constant
        // text.
        None => unsafe { libc::strerror(error) },
    }
}

#[unsafe(no_mangle)]
extern "C" fn tl_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use trunkline_overlay::session::wire::RefusalReason;
    use trunkline_overlay::session::wire::stream::Reset;
    use trunkline_overlay::wire::WireError;

    #[test]
    fn a_panic_stops_at_the_boundary() {
        let returned: c_int = boundary(|| panic!("on purpose, for a test"));
        assert_eq!((returned, Errno::last()), (-1, Errno::EIO));
    }

    /// Covers the errors that a well-behaved node does not cause; the tests in C cover the others.
    #[test]
    fn every_error_has_an_errno_that_is_explained() {
        let to = Address { node: NodeId(1), port: 2 };
        let lost = Status::Unreachable { to, why: Unreachable::Since(Duration::from_secs(1)) };
        let system = |errno: Errno| Error::io("test", errno);
        for (error, expected) in [
            (Error::NoAnswer { at: String::new() }, Errno::ETIMEDOUT),
            (Error::Version, Errno::EPROTONOSUPPORT),
            (Error::NoFreePort, Errno::EADDRNOTAVAIL),
            (Error::Status(lost), Errno::EHOSTUNREACH),
            (Error::Status(Status::Reachable { to }), Errno::EREMCHG),
            (Error::Reset(Reset::Full), Errno::EBUSY),
            (Error::Reset(Reset::Stalled), Errno::ETIMEDOUT),
            (Error::Reset(Reset::Unknown), Errno::ECONNRESET),
            (Error::Reset(Reset::NoRoom), Errno::ENOBUFS),
            (Error::Reset(Reset::Misuse), Errno::EPROTO),
            (Error::MessageTooLong { len: 2, max: 1 }, Errno::EMSGSIZE),
            (system(Errno::ECONNABORTED), Errno::ECONNABORTED),
            (system(Errno::EPIPE), Errno::EPIPE),
            (Error::Refused(RefusalReason::Full), Errno::ENOBUFS),
            (Error::Refused(RefusalReason::Forbidden), Errno::EPERM),
            (Error::Refused(RefusalReason::TooLarge), Errno::EMSGSIZE),
            (Error::Refused(RefusalReason::OutOfOrder), Errno::EPROTO),
            (Error::Protocol(WireError::UnknownType(0)), Errno::EPROTO),
            (system(Errno::EBADF), Errno::EBADF),
            (Error::Io { what: String::new(), source: io::Error::other("") }, Errno::EIO),
        ] {
            let errno = errno(error);
            assert_eq!(errno, expected);
            assert!(meaning(errno).is_some(), "{errno}");
        }
        assert_eq!(errno(system(Errno::EMFILE)), Errno::EMFILE);
        assert!(meaning(Errno::EMFILE).is_none());
    }

    /// Calls the functions as a C program would, with unaligned memory.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no timerfd")]
    fn what_c_hands_over_is_read_and_written_where_it_says() {
        // SAFETY: the text is zero-terminated.
        let fd = unsafe { tl_socket(c"/nowhere/node.sock".as_ptr()) };
        assert!(fd >= 0, "{}", Errno::last());
        let mut bytes = [0u8; 16];
        let mut set = |option, value: c_int| {
            bytes[1..5].copy_from_slice(&value.to_ne_bytes());
            // SAFETY: four bytes, an int.
            unsafe { tl_setsockopt(fd, option, bytes[1..].as_ptr().cast(), size_of::<c_int>()) }
        };
        for metric in [c_int::MIN, -1, 5, c_int::MAX] {
            assert_eq!((set(METRIC, metric), Errno::last()), (-1, Errno::EINVAL), "{metric}");
        }
        assert_eq!((set(METRIC, 4), set(DEADLINE_MS, 99)), (0, 0));
        let mut len = size_of::<c_int>();
        for (option, value) in [(METRIC, 4), (DEADLINE_MS, 99)] {
            let value: c_int = value;
            // SAFETY: room for an int, and a size that confirms it.
            let done =
                unsafe { tl_getsockopt(fd, option, bytes[3..].as_mut_ptr().cast(), &raw mut len) };
            assert_eq!((done, &bytes[3..7]), (0, &value.to_ne_bytes()[..]));
        }
        let mut name = [0u8; size_of::<Addr>() + 1];
        // SAFETY: room for a tl_addr at any alignment, and five bytes to send.
        unsafe {
            assert_eq!(tl_getsockname(fd, name[1..].as_mut_ptr().cast()), 0);
            let to = name[1..].as_ptr().cast();
            assert_eq!(tl_sendto(fd, bytes.as_ptr().cast(), 5, 0, to), -1);
            assert_eq!(
                tl_recvfrom(
                    fd,
                    bytes.as_mut_ptr().cast(),
                    16,
                    DONTWAIT,
                    name[1..].as_mut_ptr().cast()
                ),
                -1
            );
        }
        assert_eq!((tl_close(fd), tl_close(fd)), (0, -1));
    }
}
