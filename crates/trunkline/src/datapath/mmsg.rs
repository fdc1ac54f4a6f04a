//! recvmmsg and sendmmsg with the control messages that the packet thread needs: segmentation
//! offload in both directions, receive timestamps, the kernel's drop count, and the DSCP of each
//! datagram.
//!
//! Unsafe code; ARCHITECTURE.md lists all of it. Every array is allocated once. The pointers
//! between them are set up again before each call, so nothing here is self-referential between
//! calls.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Maximum number of datagrams (or coalesced runs of them) in one call.
pub const BATCH: usize = 64;

/// Buffer size for one receive: the largest run that the kernel coalesces.
const RX_SIZE: usize = 65_535;

/// Room for control messages, aligned for `cmsghdr`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 128]);

const ZERO: Control = Control([0; 128]);

/// Metadata of one receive.
#[derive(Clone, Copy, Debug)]
pub struct RxMeta {
    /// Address of the sender.
    pub from: SocketAddr,
    /// Number of bytes received.
    pub len: usize,
    /// Length in bytes of each datagram but the last: less than `len` if the kernel coalesced
    /// several.
    pub stride: usize,
    /// Time at which the kernel received it, since 1970.
    pub stamp: Option<Duration>,
    /// Whether the datagram was longer than the buffer.
    pub truncated: bool,
    /// Own address that it was sent to, if the socket reports it (IP_PKTINFO).
    pub own: Option<IpAddr>,
}

/// Memory for one receive call.
pub struct RxBatch {
    bytes: Box<[u8]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    iovecs: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    metas: Vec<RxMeta>,
    /// Last value of SO_RXQ_OVFL: number of datagrams that this socket's buffer had no room for.
    overflow: u32,
}

// SAFETY: the pointers in `iovecs` and `headers` are set up before each call and mean nothing
// between calls; the memory they point to is owned.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Allocates memory for [`BATCH`] receives.
    pub fn new() -> RxBatch {
        // SAFETY: all-zero bytes are valid for these plain C structs.
        let (name, iovec, header) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        RxBatch {
            bytes: vec![0; BATCH * RX_SIZE].into(),
            names: vec![name; BATCH].into(),
            controls: vec![ZERO; BATCH].into(),
            iovecs: vec![iovec; BATCH].into(),
            headers: vec![header; BATCH].into(),
            metas: Vec::with_capacity(BATCH),
            overflow: 0,
        }
    }

    /// Receives available datagrams, at most [`BATCH`] at once, without blocking. Returns the
    /// number of receives, 0 if there was nothing.
    pub fn recv(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let headers = self.lay();
        // SAFETY: each header points to memory of this struct of the stated sizes, which outlives
        // the call and which no other code touches.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers,
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if n < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        self.read(n as usize);
        Ok(n as usize)
    }

    /// Points each header to its memory, and returns the headers. Each array is borrowed once,
    /// since borrowing it again would invalidate the pointers into it.
    fn lay(&mut self) -> *mut libc::mmsghdr {
        self.metas.clear();
        let bytes = self.bytes.as_mut_ptr();
        let (names, controls) = (self.names.as_mut_ptr(), self.controls.as_mut_ptr());
        let (iovecs, headers) = (self.iovecs.as_mut_ptr(), self.headers.as_mut_ptr());
        for i in 0..BATCH {
            // SAFETY: `bytes` has BATCH · RX_SIZE elements, each of the others BATCH, and no other
            // code touches them while this writes.
            unsafe {
                *iovecs.add(i) =
                    libc::iovec { iov_base: bytes.add(i * RX_SIZE).cast(), iov_len: RX_SIZE };
                let h = &raw mut (*headers.add(i)).msg_hdr;
                (*h).msg_name = names.add(i).cast();
                (*h).msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
                (*h).msg_iov = iovecs.add(i);
                (*h).msg_iovlen = 1;
                (*h).msg_control = controls.add(i).cast();
                (*h).msg_controllen = mem::size_of::<Control>() as _;
                (*h).msg_flags = 0;
            }
        }
        headers
    }

    /// Records the metadata of the first `n` receives.
    fn read(&mut self, n: usize) {
        for i in 0..n {
            let meta = self.meta(i);
            self.metas.push(meta);
        }
    }

    fn meta(&mut self, i: usize) -> RxMeta {
        let len = self.headers[i].msg_len as usize;
        let header = &self.headers[i].msg_hdr;
        let mut meta = RxMeta {
            from: address(&self.names[i]),
            len,
            stride: len,
            stamp: None,
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            own: None,
        };
        // SAFETY: the kernel filled msg_control and msg_controllen, and nothing has
        // touched that memory since; the CMSG macros stay within it, and each
        // payload is read unaligned at the type that its level and type name.
        unsafe {
            let mut c = libc::CMSG_FIRSTHDR(header);
            while let Some(cmsg) = c.as_ref() {
                let data = libc::CMSG_DATA(c);
                match (cmsg.cmsg_level, cmsg.cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let stride = data.cast::<libc::c_int>().read_unaligned();
                        meta.stride = usize::try_from(stride).unwrap_or(len).clamp(1, len.max(1));
                    }
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let t = data.cast::<libc::timespec>().read_unaligned();
                        meta.stamp = Some(Duration::new(
                            t.tv_sec.try_into().unwrap_or(0),
                            t.tv_nsec.try_into().unwrap_or(0),
                        ));
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        // Not `ipi_addr`, which may be a broadcast address.
                        let ip = Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes());
                        meta.own = Some(ip.into());
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        meta.own = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        self.overflow = data.cast::<u32>().read_unaligned();
                    }
                    _ => {}
                }
                c = libc::CMSG_NXTHDR(header, c);
            }
        }
        meta
    }

    /// Iterates over the receives of the last call: the metadata and bytes of each.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (RxMeta, &mut [u8])> {
        let bytes = self.bytes.chunks_mut(RX_SIZE);
        self.metas.iter().zip(bytes).map(|(meta, bytes)| (*meta, &mut bytes[..meta.len]))
    }

    /// Number of datagrams that the socket's buffer had no room for, as of the last one received
    /// (SO_RXQ_OVFL); wraps.
    pub fn overflow(&self) -> u32 {
        self.overflow
    }
}

/// Number of bytes sent on `socket` and not yet read at the other end, as the kernel counts them
/// (SIOCOUTQ).
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: this request writes one int, which outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match usize::try_from(bytes) {
        Ok(bytes) if done == 0 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How an item leaves, where it is not for the kernel to choose.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Egress {
    /// Source address, one of this machine's; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
    /// Index of the interface; 0 is any.
    pub interface: u32,
}

impl Egress {
    /// Whether it leaves everything to the kernel.
    pub fn is_free(&self) -> bool {
        *self == Egress::default()
    }
}

/// An item to send: one datagram, or several of `segment` bytes (the last may be shorter) that the
/// kernel splits.
#[derive(Clone, Copy, Debug)]
pub struct TxItem<'a> {
    /// Destination; `None` is that of a connected socket.
    pub to: Option<SocketAddr>,
    /// DSCP of this item; `None` is the socket's.
    pub dscp: Option<u8>,
    pub segment: Option<u16>,
    pub egress: Egress,
    pub bytes: &'a [u8],
}

impl<'a> TxItem<'a> {
    /// One datagram, marked as its socket is.
    pub fn new(to: SocketAddr, bytes: &'a [u8]) -> TxItem<'a> {
        TxItem { to: Some(to), ..TxItem::connected(bytes) }
    }

    fn is_v6(&self) -> bool {
        self.to.is_some_and(|to| to.is_ipv6())
    }

    /// One datagram by a connected socket, marked as that is.
    pub fn connected(bytes: &'a [u8]) -> TxItem<'a> {
        TxItem { to: None, dscp: None, segment: None, egress: Egress::default(), bytes }
    }
}

/// Memory for one send call.
pub struct TxBatch {
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    iovecs: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: as for [`RxBatch`].
unsafe impl Send for TxBatch {}

impl TxBatch {
    /// Allocates memory for [`BATCH`] items.
    pub fn new() -> TxBatch {
        // SAFETY: all-zero bytes are valid for these plain C structs.
        let (name, iovec, header) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        TxBatch {
            names: vec![name; BATCH].into(),
            controls: vec![ZERO; BATCH].into(),
            iovecs: vec![iovec; BATCH].into(),
            headers: vec![header; BATCH].into(),
        }
    }

    /// Sends the first [`BATCH`] of `items` without blocking. Returns the number sent; an error
    /// concerns the first item, and means that nothing was sent.
    pub fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        items: impl Iterator<Item = TxItem<'a>>,
    ) -> io::Result<usize> {
        let (headers, n) = self.lay(items);
        if n == 0 {
            return Ok(0);
        }
        // SAFETY: the first `n` headers point to memory of this struct, which no other code
        // touches, and to the items' bytes; both outlive the call, and the kernel only reads
        // through msg_iov here.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), headers, n as libc::c_uint, libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Points a header to each of the first [`BATCH`] items. Returns the headers and their number.
    /// Each array is borrowed once, as in [`RxBatch`].
    fn lay<'a>(&mut self, items: impl Iterator<Item = TxItem<'a>>) -> (*mut libc::mmsghdr, usize) {
        let (names, controls) = (self.names.as_mut_ptr(), self.controls.as_mut_ptr());
        let (iovecs, headers) = (self.iovecs.as_mut_ptr(), self.headers.as_mut_ptr());
        let mut n = 0;
        for (i, item) in items.take(BATCH).enumerate() {
            let mut control = ZERO;
            let mut used = 0;
            if let Some(dscp) = item.dscp {
                let (level, kind) = match item.is_v6() {
                    false => (libc::IPPROTO_IP, libc::IP_TOS),
                    true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
                };
                used = control.push(used, level, kind, libc::c_int::from(dscp) << 2);
            }
            if let Some(segment) = item.segment {
                used = control.push(used, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
            }
            if !item.egress.is_free() {
                used = control.push_egress(used, item.is_v6(), item.egress);
            }
            let name = item.to.as_ref().map(storage);
            // SAFETY: each array has BATCH elements, and no other code touches them while this
            // writes.
            unsafe {
                let h = &raw mut (*headers.add(i)).msg_hdr;
                ((*h).msg_name, (*h).msg_namelen) = match name {
                    Some((name, len)) => {
                        *names.add(i) = name;
                        (names.add(i).cast(), len)
                    }
                    None => (std::ptr::null_mut(), 0),
                };
                *controls.add(i) = control;
                *iovecs.add(i) = libc::iovec {
                    iov_base: item.bytes.as_ptr().cast_mut().cast(),
                    iov_len: item.bytes.len(),
                };
                (*h).msg_iov = iovecs.add(i);
                (*h).msg_iovlen = 1;
                (*h).msg_control = controls.add(i).cast();
                (*h).msg_controllen = used as _;
                (*h).msg_flags = 0;
            }
            n = i + 1;
        }
        (headers, n)
    }
}

impl Control {
    /// Writes a control message at offset `used` of this memory. Returns the new number of used
    /// bytes.
    fn push<T: Copy>(
        &mut self,
        used: usize,
        level: libc::c_int,
        kind: libc::c_int,
        value: T,
    ) -> usize {
        let len = mem::size_of::<T>() as libc::c_uint;
        // SAFETY: CMSG_LEN and CMSG_SPACE only compute.
        let (len, space) = unsafe { (libc::CMSG_LEN(len), libc::CMSG_SPACE(len) as usize) };
        assert!(used + space <= mem::size_of::<Control>(), "three small messages fit in 128 bytes");
        // SAFETY: a `Control` is aligned for cmsghdr; `used` is a sum of
        // CMSG_SPACEs, which keeps the alignment, and the assertion keeps the
        // message inside.
        unsafe {
            let c = self.0.as_mut_ptr().add(used).cast::<libc::cmsghdr>();
            (*c).cmsg_level = level;
            (*c).cmsg_type = kind;
            (*c).cmsg_len = len as _;
            libc::CMSG_DATA(c).cast::<T>().write_unaligned(value);
        }
        used + space
    }

    /// Writes the packet information for `egress` (ip(7), ipv6(7)), as [`Control::push`] does. A
    /// source of the other address family is left to the kernel.
    fn push_egress(&mut self, used: usize, v6: bool, egress: Egress) -> usize {
        if v6 {
            let source = match egress.source {
                Some(IpAddr::V6(source)) => source,
                _ => Ipv6Addr::UNSPECIFIED,
            };
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
                ipi6_ifindex: egress.interface,
            };
            return self.push(used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
        let source = match egress.source {
            Some(IpAddr::V4(source)) => source,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let info = libc::in_pktinfo {
            ipi_ifindex: egress.interface as libc::c_int,
            ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        self.push(used, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
    }
}

fn address(name: &libc::sockaddr_storage) -> SocketAddr {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET6 => {
            // SAFETY: the family determines which struct is in the storage, and the storage is
            // large enough and aligned for every one of them.
            let a = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
            let (flow, scope) = (a.sin6_flowinfo, a.sin6_scope_id);
            std::net::SocketAddrV6::new(ip, u16::from_be(a.sin6_port), flow, scope).into()
        }
        _ => {
            // SAFETY: as above; a UDP socket has no third family.
            let a = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
            SocketAddr::from((ip, u16::from_be(a.sin_port)))
        }
    }
}

/// Converts an address to the kernel's form. Returns it and its length.
fn storage(addr: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: zero bytes are valid for all three structs, and the storage is large
    // enough and aligned for either of the other two.
    unsafe {
        let mut name: libc::sockaddr_storage = mem::zeroed();
        let len = match addr {
            SocketAddr::V4(v4) => {
                let a = &mut *(&raw mut name).cast::<libc::sockaddr_in>();
                a.sin_family = libc::AF_INET as libc::sa_family_t;
                a.sin_port = v4.port().to_be();
                a.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                mem::size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let a = &mut *(&raw mut name).cast::<libc::sockaddr_in6>();
                a.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                a.sin6_port = v6.port().to_be();
                a.sin6_flowinfo = v6.flowinfo();
                a.sin6_scope_id = v6.scope_id();
                a.sin6_addr.s6_addr = v6.ip().octets();
                mem::size_of::<libc::sockaddr_in6>()
            }
        };
        (name, len as libc::socklen_t)
    }
}

/// Tells the kernel not to fragment packets from this socket (path MTU discovery without caching:
/// IP_PMTUDISC_PROBE sets DF and leaves the size to us).
pub fn dont_fragment(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let (level, option, value) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    };
    let len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option takes an int, and `value` is one.
    let rc = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len)
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn round_trip(bind: &str) {
        let (a, b) = (UdpSocket::bind(bind).unwrap(), UdpSocket::bind(bind).unwrap());
        dont_fragment(a.as_fd(), bind.starts_with('[')).unwrap();
        let to = b.local_addr().unwrap();
        let item = |bytes| TxItem { dscp: Some(46), ..TxItem::new(to, bytes) };
        let payloads: [&[u8]; 3] = [b"one", b"", b"three"];
        let mut tx = TxBatch::new();
        assert_eq!(tx.send(a.as_fd(), payloads.into_iter().map(item)).unwrap(), 3);
        let segments = TxItem { segment: Some(4), ..item(b"aaaabbbbcc") };
        assert_eq!(tx.send(a.as_fd(), [segments].into_iter()).unwrap(), 1);

        let mut rx = RxBatch::new();
        assert_eq!(rx.recv(b.as_fd()).unwrap(), 6);
        let got: Vec<_> = rx.iter_mut().map(|(m, bytes)| (m.from, bytes.to_vec())).collect();
        let want: [&[u8]; 6] = [b"one", b"", b"three", b"aaaa", b"bbbb", b"cc"];
        for ((from, bytes), want) in got.iter().zip(want) {
            assert_eq!((*from, &bytes[..]), (a.local_addr().unwrap(), want));
        }
        assert_eq!(rx.recv(b.as_fd()).unwrap(), 0, "nothing more");
    }

    /// Simulates the system calls, so that Miri can check the memory accesses. In place of the
    /// kernel, it reads the bytes that `from` points to and writes them to where `to` points.
    ///
    /// # Safety
    ///
    /// Both are as [`TxBatch::lay`] and [`RxBatch::lay`] left them.
    unsafe fn carry(from: *mut libc::mmsghdr, to: *mut libc::mmsghdr) {
        // SAFETY: as above; no more is written than was read.
        unsafe {
            let (tx, rx) = (&(*from).msg_hdr, &mut (*to).msg_hdr);
            let (from_iov, to_iov) = (*tx.msg_iov, *rx.msg_iov);
            assert!(from_iov.iov_len <= to_iov.iov_len);
            let (source, target) = (from_iov.iov_base.cast::<u8>(), to_iov.iov_base.cast());
            source.copy_to_nonoverlapping(target, from_iov.iov_len);
            (*to).msg_len = from_iov.iov_len as libc::c_uint;
            let name = tx.msg_name.cast::<u8>();
            name.copy_to_nonoverlapping(rx.msg_name.cast(), tx.msg_namelen as usize);
            rx.msg_namelen = tx.msg_namelen;
            // For datagrams that the kernel would coalesce, it adds UDP_GRO, and also the receive
            // time.
            let mut answer = ZERO;
            let mut c = libc::CMSG_FIRSTHDR(tx);
            let (mut used, mut marked) = (0, false);
            while let Some(cmsg) = c.as_ref() {
                let data = libc::CMSG_DATA(c);
                match (cmsg.cmsg_level, cmsg.cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_SEGMENT) => {
                        let segment = libc::c_int::from(data.cast::<u16>().read_unaligned());
                        used = answer.push(used, libc::SOL_UDP, libc::UDP_GRO, segment);
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        assert_eq!(info.ipi_ifindex, 3);
                        used = answer.push(used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        assert_eq!(info.ipi6_ifindex, 3);
                        used = answer.push(used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
                    }
                    _ => {
                        let tos = data.cast::<libc::c_int>().read_unaligned();
                        marked = tos == 46 << 2;
                    }
                }
                c = libc::CMSG_NXTHDR(tx, c);
            }
            assert!(marked, "every datagram says its DSCP");
            let when = libc::timespec { tv_sec: 7, tv_nsec: 9 };
            used = answer.push(used, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, when);
            used = answer.push(used, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 5u32);
            answer.0.as_ptr().copy_to_nonoverlapping(rx.msg_control.cast(), used);
            rx.msg_controllen = used as _;
            rx.msg_flags = 0;
        }
    }

    #[test]
    fn what_is_laid_out_for_the_kernel_is_what_it_finds() {
        let to: [SocketAddr; 2] =
            ["192.0.2.7:7000", "[2001:db8::1%3]:7001"].map(|a| a.parse().unwrap());
        let own: [IpAddr; 2] = ["192.0.2.8", "2001:db8::2"].map(|a| a.parse().unwrap());
        let items: [(&[u8], _); 3] = [(b"one", None), (b"", None), (b"aaaabbbbcc", Some(4))];
        let item = |i: usize| {
            let (bytes, segment) = items[i];
            let egress = Egress { source: Some(own[i % 2]), interface: 3 };
            TxItem { dscp: Some(46), segment, egress, ..TxItem::new(to[i % 2], bytes) }
        };
        let (mut tx, mut rx) = (TxBatch::new(), RxBatch::new());
        for _ in 0..2 {
            let (from, n) = tx.lay((0..3).map(item));
            assert_eq!(n, 3);
            let headers = rx.lay();
            for i in 0..n {
                // SAFETY: both have just been set up, for at least three items.
                unsafe { carry(from.add(i), headers.add(i)) };
            }
            rx.read(n);
            assert_eq!(rx.overflow(), 5);
            for (i, (meta, bytes)) in rx.iter_mut().enumerate() {
                assert_eq!((meta.from, &*bytes), (to[i % 2], items[i].0));
                assert_eq!(meta.own, Some(own[i % 2]));
                assert_eq!(meta.stamp, Some(Duration::new(7, 9)));
                assert_eq!(meta.stride, items[i].1.map_or(bytes.len(), usize::from));
                bytes.fill(0);
            }
        }
    }

    #[test]
    fn what_is_sent_is_received_v4() {
        round_trip("127.0.0.1:0");
    }

    #[test]
    fn what_is_sent_is_received_v6() {
        if UdpSocket::bind("[::1]:0").is_err() {
            eprintln!("skipped: this machine has no IPv6 loopback");
            return;
        }
        round_trip("[::1]:0");
    }
}
