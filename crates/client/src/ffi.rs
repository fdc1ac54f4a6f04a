//! The C interface that `include/trunkline.h` describes: the library's only
//! unsafe code.
//!
//! A table maps each descriptor to its socket, so that a number that is none of
//! ours is an error and nothing worse. A call holds its own reference to the
//! socket: `tl_close` in another thread takes the table's, and the descriptor
//! closes when the last call on it has returned, lest its number be given to
//! another file in between.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::socket::{Address, Attachment, DatagramSocket, SocketOption, Status};
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
use trunkline_overlay::session::wire::{MAX_MESSAGE, Refusal, Unreachable};
use trunkline_overlay::wire::{Metric, NodeId, Service};

/// `struct tl_addr`.
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
const STATUS: c_int = 7;
const LATE: c_int = 8;
const WAIT: c_int = 9;

/// `struct tl_status`.
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

/// Statuses that `tl_status` has yet to hand out, of one socket: as many as a node
/// tells at once. Older ones go first.
const MAX_STATUSES: usize = 256;
/// Those, by descriptor.
static STATUSES: Mutex<BTreeMap<c_int, VecDeque<Status>>> = Mutex::new(BTreeMap::new());

/// A descriptor begins or ends.
fn forget_statuses(fd: c_int) {
    STATUSES.lock().unwrap_or_else(PoisonError::into_inner).remove(&fd);
}

static SOCKETS: RwLock<BTreeMap<c_int, Arc<DatagramSocket>>> = RwLock::new(BTreeMap::new());
/// Owners of numbers that are no longer theirs; never dropped.
static DISOWNED: Mutex<Vec<Arc<Epoll>>> = Mutex::new(Vec::new());

fn socket(fd: c_int) -> Result<Arc<DatagramSocket>, Errno> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
    sockets.get(&fd).cloned().ok_or(Errno::EBADF)
}

/// The result of a call as C wants it. A panic must not unwind into C.
fn boundary<T: From<i8>>(call: impl FnOnce() -> Result<T, Errno>) -> T {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::EIO));
    result.unwrap_or_else(|errno| {
        errno.set();
        T::from(-1)
    })
}

/// The errno of an error of the socket at `fd`, whose status, if it is one, is kept for
/// `tl_status`.
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

fn errno(error: Error) -> Errno {
    match error {
        Error::NotRunning { .. } => Errno::ECONNREFUSED,
        Error::Status(Status::Unreachable { why: Unreachable::NoPort, .. }) => Errno::ECONNREFUSED,
        Error::Status(Status::Unreachable { .. }) => Errno::EHOSTUNREACH,
        Error::Status(Status::Reachable { .. }) => Errno::EREMCHG,
        Error::NoAddress { .. } => Errno::ENOENT,
        Error::NoAnswer { .. } => Errno::ETIMEDOUT,
        Error::Version => Errno::EPROTONOSUPPORT,
        Error::NotReliable => Errno::EOPNOTSUPP,
        Error::PortInUse { .. } => Errno::EADDRINUSE,
        Error::NoFreePort => Errno::EADDRNOTAVAIL,
        Error::TooLarge { .. } | Error::Truncated { .. } | Error::Refused(Refusal::TooLarge) => {
            Errno::EMSGSIZE
        }
        Error::WouldBlock => Errno::EAGAIN,
        Error::Disconnected => Errno::ENOTCONN,
        Error::Reconnected => Errno::ECONNRESET,
        Error::Refused(Refusal::Full) => Errno::ENOBUFS,
        Error::Refused(Refusal::Forbidden) => Errno::EPERM,
        Error::Refused(Refusal::Unauthenticated) | Error::KeyFile { .. } => Errno::ENOKEY,
        Error::Refused(Refusal::WrongKey | Refusal::Unsealed) => Errno::EKEYREJECTED,
        Error::Refused(Refusal::UnknownClient) => Errno::EACCES,
        Error::Refused(Refusal::Busy) => Errno::EBUSY,
        Error::Refused(Refusal::OverShare) => Errno::EDQUOT,
        Error::Refused(_) | Error::Protocol(_) => Errno::EPROTO,
        Error::InvalidOption { .. } | Error::Attachment { .. } => Errno::EINVAL,
        Error::Io { source, .. } => source.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
    }
}

/// What of `tl_strerror` means something else, or more, here than in general.
fn meaning(errno: Errno) -> Option<&'static CStr> {
    Some(match errno {
        Errno::EACCES => {
            c"the node doesn't know this application's key (it needs a [[client]] with it), or this \
              program may not open the node's socket"
        }
        Errno::EADDRINUSE => {
            c"the virtual port belongs to another application: bind another, or 0 for any"
        }
        Errno::EADDRNOTAVAIL => c"the node has no free virtual port: close some sockets",
        Errno::EAGAIN => c"nothing to receive yet, or the node does not keep up with sending",
        Errno::EBADF => c"the descriptor is not an open socket of tl_socket",
        Errno::EDQUOT => c"the trunk to the destination is over its share: try again later",
        Errno::EBUSY => c"the node is asked for more handshakes than it allows: try again later",
        Errno::ECONNREFUSED => {
            c"no node runs at the attachment, or no application has the port that was sent to"
        }
        Errno::ECONNRESET => c"the connection to the node was lost and is back: go on",
        Errno::EFAULT => c"a null pointer where there must be none",
        Errno::EHOSTUNREACH => c"a packet was dropped: there is no route to its node at present",
        Errno::EOPNOTSUPP => c"the node is too old to carry reliable packets: update it",
        Errno::EREMCHG => c"a destination can be reached again (tl_status says which): go on",
        Errno::ENOMSG => c"no status of a destination waits",
        Errno::EINVAL => {
            c"an argument is out of range, the attachment is not understood, or the socket is not \
              bound, or bound already"
        }
        Errno::EIO => c"a bug in the trunkline library: please report what it has printed",
        Errno::EKEYREJECTED => {
            c"the node has another key than ?node= in the attachment, or none: is it the right node?"
        }
        Errno::ENOKEY => {
            c"the node wants applications to authenticate (?node=PUBKEY&key=FILE in the attachment), \
              or the key file is missing, holds no key, or can be read by others"
        }
        Errno::EPERM => c"the node's rules ([access]) don't let this application do that",
        Errno::EMSGSIZE => c"the packet or the buffer is of the wrong size: see TL_MAX_PAYLOAD",
        Errno::ENOBUFS => {
            c"the node takes no more applications: it is being drained, or as many are attached as \
              it allows"
        }
        Errno::ENOENT => c"the name in tcp://HOST:PORT has no address: is it right?",
        Errno::ENOPROTOOPT => c"there is no such option, or it can only be read",
        Errno::ENOTCONN => c"the node is away: the packet was dropped, the socket reconnects",
        Errno::EPROTO => c"node and library do not understand each other: are both of one release?",
        Errno::EPROTOTYPE => {
            c"that is no socket for applications, perhaps the node's control socket: give the \
              path that `socket` in [node] says"
        }
        Errno::EPROTONOSUPPORT => {
            c"the node speaks another version of the session protocol: use one release for both"
        }
        Errno::ETIMEDOUT => c"the node did not answer: is it overloaded or stopped?",
        _ => return None,
    })
}

fn known_flags(flags: c_int) -> Result<(), Errno> {
    if flags & !DONTWAIT == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Null is as good as any pointer to nothing.
fn not_null<T>(pointer: *const T, len: usize) -> Result<(), Errno> {
    if pointer.is_null() && len > 0 { Err(Errno::EFAULT) } else { Ok(()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_socket(attachment: *const c_char) -> c_int {
    boundary(|| {
        not_null(attachment, 1)?;
        // SAFETY: a string that C ends with a zero; it is not kept.
        let text = unsafe { CStr::from_ptr(attachment) };
        let at = match text.to_str() {
            Ok("") => return Err(Errno::EINVAL),
            Ok(text) => Attachment::from(text),
            Err(_) => Attachment::from(Path::new(OsStr::from_bytes(text.to_bytes()))),
        };
        let socket = DatagramSocket::unbound(at).map_err(errno)?;
        // Older programs don't know them.
        socket.lock().statuses = false;
        let fd = socket.as_raw_fd();
        let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(stale) = sockets.insert(fd, Arc::new(socket)) {
            // Somebody gave our descriptor to close(2), and now its number is
            // that of the new socket, which dropping its old owner would close.
            let mut stale = stale.lock();
            stale.close();
            DISOWNED.lock().unwrap_or_else(PoisonError::into_inner).push(stale.ready().clone());
        }
        // A call that was under way when the last one ended may have left some.
        forget_statuses(fd);
        Ok(fd)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_bind(fd: c_int, port: u16) -> c_int {
    boundary(|| {
        let socket = socket(fd)?;
        socket.lock().bind(port).map_err(errno)?;
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
        // SAFETY: not null, and a tl_addr by contract, if perhaps in a packed
        // structure.
        let to = unsafe { to.read_unaligned() };
        let to = Address { node: NodeId(to.node), port: to.port };
        let sent = socket.send_waiting(payload, to, flags & DONTWAIT == 0);
        sent.map_err(|e| news(fd, e))?;
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
            // SAFETY: not null, and `len` bytes by contract that are nobody
            // else's until this returns. They are only written here. What is
            // beyond the largest packet need not exist.
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
        // A packet has no more bytes than the slice.
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
        let socket = socket(fd)?;
        not_null(val, 1)?;
        if len != size_of::<c_int>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: not null, and an int by contract, which `len` confirms.
        let value = unsafe { val.cast::<c_int>().read_unaligned() };
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
            WAIT => SocketOption::Wait(value != 0),
            STATUS => {
                let mut connection = socket.lock();
                // What was said at the bind counts for its life.
                if !(0..=1).contains(&value) || connection.local.port != 0 {
                    return Err(Errno::EINVAL);
                }
                connection.statuses = value != 0;
                return Ok(0);
            }
            NONBLOCK => SocketOption::Nonblocking(value != 0),
            RCVTIMEO_MS => SocketOption::ReadTimeout((value != 0).then_some(ms()?)),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        socket.set_option(option).map_err(errno)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tl_getsockopt(
    fd: c_int,
    option: c_int,
    val: *mut c_void,
    len: *mut usize,
) -> c_int {
    boundary(|| {
        let socket = socket(fd)?;
        not_null(val, 1)?;
        not_null(len, 1)?;
        // SAFETY: not null, and a size_t by contract.
        if unsafe { len.read_unaligned() } < size_of::<c_int>() {
            return Err(Errno::EINVAL);
        }
        let connection = socket.lock();
        let value = match option {
            SERVICE => connection.service as c_int,
            METRIC => connection.metric.map_or(0, |metric| 1 + metric as c_int),
            DEADLINE_MS => connection.deadline_ms.into(),
            LATE => connection.late.into(),
            WAIT => connection.wait.into(),
            NONBLOCK => connection.nonblocking.into(),
            STATUS => connection.statuses.into(),
            RCVTIMEO_MS => {
                let ms = connection.read_timeout.map_or(0, |timeout| timeout.as_millis());
                c_int::try_from(ms).unwrap_or(c_int::MAX)
            }
            MAX_PAYLOAD => c_int::try_from(connection.max_payload).unwrap_or(c_int::MAX),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        drop(connection);
        // SAFETY: neither is null; `*len` said that there is room for an int.
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
        let local = socket(fd)?.local_addr();
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
        // Calls in progress keep the descriptor open, and end now.
        removed.ok_or(Errno::EBADF)?.lock().close();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tl_strerror(error: c_int) -> *const c_char {
    match meaning(Errno::from_raw(error)) {
        Some(text) => text.as_ptr(),
        // SAFETY: any number will do. For those that have a name, glibc and musl
        // return constant text.
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
    use trunkline_overlay::wire::WireError;

    #[test]
    fn a_panic_stops_at_the_boundary() {
        let returned: c_int = boundary(|| panic!("on purpose, for a test"));
        assert_eq!((returned, Errno::last()), (-1, Errno::EIO));
    }

    /// Those that a node in its right mind does not cause; the tests in C see
    /// the others.
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
            (Error::Refused(Refusal::Full), Errno::ENOBUFS),
            (Error::Refused(Refusal::Forbidden), Errno::EPERM),
            (Error::Refused(Refusal::TooLarge), Errno::EMSGSIZE),
            (Error::Refused(Refusal::OutOfOrder), Errno::EPROTO),
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

    /// As a C program would, from and to memory that is not aligned.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no timerfd")]
    fn what_c_hands_over_is_read_and_written_where_it_says() {
        // SAFETY: text that ends with a zero.
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
            // SAFETY: room for an int, and a size that says so.
            let done =
                unsafe { tl_getsockopt(fd, option, bytes[3..].as_mut_ptr().cast(), &raw mut len) };
            assert_eq!((done, &bytes[3..7]), (0, &value.to_ne_bytes()[..]));
        }
        let mut name = [0u8; size_of::<Addr>() + 1];
        // SAFETY: room for a tl_addr, wherever it begins; and five bytes to send.
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
