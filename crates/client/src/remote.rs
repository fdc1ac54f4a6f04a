//! Carrier to a node on another host; the protocol is `trunkline_overlay::session::remote`.

use crate::carrier::{Carrier, HEAD, Next, Stuck, Transport};
use crate::error::Error;
use crate::keys;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind, Read as _};
use std::mem::replace;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::session::remote::{
    Backlog, DATAGRAM_HEAD, Datagram, FrameReader, FromClient, FromNode, Keys, Liveness,
    MAX_DATAGRAM, Opening, Token, packet_to_client, packet_to_node, prefix,
};
use trunkline_overlay::session::wire::{MAX_MESSAGE, ToClient};
use trunkline_overlay::wire::Service;

/// Maximum number of unsent message bytes that the kernel may buffer on TCP: a tenth of a second of
/// ten calls. More would only add delay.
const UNSENT: u32 = 16 << 10;
/// Interval of the kernel's keep-alives on a connection while its packets take UDP, so that a NAT
/// on the path keeps its mapping.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time that bytes on TCP may go unacknowledged while UDP gets through.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Expedited forwarding (RFC 3246), as the type of service byte.
const EXPEDITED: u32 = 46 << 2;
/// Maximum number of events that one call processes before it reports that there is nothing.
const TURNS: usize = 32;

/// Identifiers of the sources of epoll events.
mod about {
    pub const TCP: u64 = 0;
    pub const UDP: u64 = 1;
    pub const TIMER: u64 = 2;
}

/// A message that was read but not taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// The message is in `frames`.
    Tcp,
    /// The message is in `datagram` and has this length.
    Udp(usize),
}

/// Cryptographic state of a connection.
enum Seal {
    /// The handshake is in progress; these messages wait for it to end.
    Opening(Box<Opening>, Vec<Vec<u8>>),
    /// All messages and datagrams are sealed.
    Sealed(Box<Keys>),
    /// The handshake failed; nothing more is sent or received on this connection.
    Failed,
}

/// One connection to a node on another host.
pub(crate) struct Remote {
    tcp: Socket,
    udp: Socket,
    v6: bool,
    connecting: bool,
    frames: FrameReader,
    backlog: Backlog,
    seal: Seal,
    /// Token from a node that has yet to receive sealed data from this end and would not recognise
    /// its datagrams.
    token: Option<Token>,
    /// Buffer for a sealed datagram to be sent.
    sealed: Vec<u8>,
    datagram: Box<[u8]>,
    held: Held,
    live: Liveness,
    begun: Instant,
    /// Service that packets are currently marked for.
    marked: Option<Service>,
    /// Contains both sockets and `timer`.
    ready: Epoll,
    timer: TimerFd,
    /// Time that the timer is set to, which is never later than needed.
    armed: Time,
}

impl Remote {
    /// Starts to connect to the node at `address` and to authenticate with `keys`. `identity` is
    /// the socket's secret; `attempt` counts its connections.
    pub(crate) fn connect(
        address: SocketAddr,
        identity: u64,
        attempt: u32,
        keys: &keys::Keys,
    ) -> Result<Remote, Error> {
        let away = |source| Error::NotRunning { at: format!("tcp://{address}"), source };
        let local = |source| Error::Io { what: "create a socket".into(), source };
        let to = SockAddr::from(address);
        let domain = Domain::for_address(address);
        let tcp = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP));
        let udp = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP));
        let (tcp, udp) = (tcp.map_err(local)?, udp.map_err(local)?);
        prepare(&tcp).map_err(local)?;
        match tcp.connect(&to) {
            Err(e) if e.raw_os_error() != Some(nix::libc::EINPROGRESS) => return Err(away(e)),
            _ => {}
        }
        // Connected, so that the socket receives only the node's datagrams.
        udp.connect(&to).map_err(away)?;
        let poll = |errno: nix::errno::Errno| local(errno.into());
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(poll)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(poll)?;
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        ready.add(&tcp, EpollEvent::new(both, about::TCP)).map_err(poll)?;
        ready.add(&udp, EpollEvent::new(EpollFlags::EPOLLIN, about::UDP)).map_err(poll)?;
        ready.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, about::TIMER)).map_err(poll)?;
        let (opening, first) = begin_handshake(keys)?;
        let mut backlog = Backlog::default();
        backlog.keep(&[&prefix(first.len()), &first], 0);
        let mut remote = Remote {
            tcp,
            udp,
            v6: address.is_ipv6(),
            connecting: true,
            frames: FrameReader::default(),
            backlog,
            seal: Seal::Opening(Box::new(opening), Vec::new()),
            token: None,
            sealed: Vec::new(),
            datagram: vec![0; MAX_DATAGRAM + 1].into(),
            held: Held::Nothing,
            live: Liveness::new(Time::ZERO),
            begun: Instant::now(),
            marked: None,
            ready,
            timer,
            armed: Time::NEVER,
        };
        remote.tell(&FromClient::Hello { identity, attempt });
        Ok(remote)
    }

    fn now(&self) -> Time {
        Time::ZERO + self.begun.elapsed()
    }

    /// Reads until there is a message or nothing more to read.
    fn fetch(&mut self) -> Result<(), Stuck> {
        for _ in 0..TURNS {
            let mut events = [EpollEvent::empty(); 3];
            let n = self.ready.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
            if n == 0 {
                break;
            }
            let now = self.now();
            let flags_of = |what| events[..n].iter().find(|e| e.data() == what).map(|e| e.events());
            if let Some(flags) = flags_of(about::TCP) {
                self.on_tcp(now, flags)?;
            }
            if flags_of(about::UDP).is_some() && self.held == Held::Nothing {
                self.on_udp(now);
            }
            if flags_of(about::TIMER).is_some() || self.live.next_timeout() <= now {
                self.tick(now)?;
            }
            if self.held != Held::Nothing {
                break;
            }
        }
        Ok(())
    }

    fn on_tcp(&mut self, now: Time, flags: EpollFlags) -> Result<(), Stuck> {
        if self.connecting {
            if let Some(error) = self.tcp.take_error().map_err(Stuck::Io)? {
                return Err(Stuck::Io(error));
            }
            if !flags.contains(EpollFlags::EPOLLOUT) {
                return Ok(());
            }
            self.connecting = false;
        }
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.flush()?;
            if self.backlog.is_empty() {
                self.watch(EpollFlags::EPOLLIN);
            }
        }
        if !flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            return Ok(());
        }
        // A message takes two reads: its length, and the rest.
        for _ in 0..2 {
            let n = match (&self.tcp).read(self.frames.room()) {
                Ok(0) => return Err(Stuck::Closed),
                Ok(n) => n,
                Err(e) if is_busy(&e) => return Ok(()),
                Err(_) => return Err(Stuck::Closed),
            };
            match self.frames.filled(n).map(|message| message.is_some()) {
                Ok(false) => continue,
                Ok(true) => self.on_message(now)?,
                Err(_) => return Err(Stuck::Closed),
            }
            self.live.heard_tcp(now);
            break;
        }
        Ok(())
    }

    /// Processes the message that arrived over TCP.
    fn on_message(&mut self, now: Time) -> Result<(), Stuck> {
        match &mut self.seal {
            Seal::Opening(..) => return self.on_answer(),
            Seal::Sealed(keys) => {
                if !self.frames.open(keys) {
                    return Err(Stuck::Closed);
                }
                if let Some(token) = self.token.take() {
                    self.live.try_udp(now, token);
                }
            }
            Seal::Failed => return Err(Stuck::Closed),
        }
        match FromNode::parse(self.frames.whole().unwrap_or_default()) {
            Ok(FromNode::Pong) => {}
            // Anything invalid here is also invalid as a message, and it gets its error there.
            Ok(FromNode::Session(_) | FromNode::Response(_)) | Err(_) => self.held = Held::Tcp,
        }
        Ok(())
    }

    /// Ends the handshake. Until then only an answer to it or a refusal is accepted.
    fn on_answer(&mut self) -> Result<(), Stuck> {
        match FromNode::parse(self.frames.whole().unwrap_or_default()) {
            Ok(FromNode::Response(response)) => {
                let Seal::Opening(opening, waiting) = replace(&mut self.seal, Seal::Failed) else {
                    return Err(Stuck::Closed);
                };
                let (token, mut keys) = opening.finish(response).ok_or(Stuck::Closed)?;
                let queued = waiting.iter().all(|m| self.backlog.seal(&mut keys, [m, &[]]));
                self.seal = Seal::Sealed(Box::new(keys));
                self.token = Some(token);
                if !queued {
                    return Err(Stuck::Closed);
                }
                self.push()
            }
            Ok(FromNode::Session(message))
                if matches!(ToClient::parse(message), Ok(ToClient::Error { .. })) =>
            {
                self.held = Held::Tcp;
                Ok(())
            }
            _ => Err(Stuck::Closed),
        }
    }

    fn on_udp(&mut self, now: Time) {
        // An error concerns an earlier datagram (ICMP), and TCP has better information.
        let Ok(n) = (&self.udp).read(&mut self.datagram) else { return };
        if n > MAX_DATAGRAM {
            return;
        }
        let Ok(Datagram { token, counter, .. }) = Datagram::parse(&self.datagram[..n]) else {
            return;
        };
        let Seal::Sealed(keys) = &self.seal else { return };
        // A duplicate is rejected before any cryptography is done.
        if !self.live.is_news(token, counter) {
            return;
        }
        let Some(len) = keys.open_datagram(&mut self.datagram[..n]) else { return };
        let packet = match FromNode::parse(&self.datagram[DATAGRAM_HEAD..len]) {
            Ok(FromNode::Session(message)) => packet_to_client(message, 0).is_some(),
            Ok(FromNode::Pong) => false,
            _ => return,
        };
        if self.live.heard_udp(now, token, counter) && packet {
            self.held = Held::Udp(len);
        }
    }

    /// Does all work that is due, and sets the timer.
    fn tick(&mut self, now: Time) -> Result<(), Stuck> {
        let due = self.live.handle_timeout(now);
        if due.dead {
            return Err(Stuck::Closed);
        }
        // A ping queued behind other data would add no information.
        let opening = matches!(self.seal, Seal::Opening(..));
        if due.ping_tcp && self.backlog.is_empty() && !opening {
            self.tell(&FromClient::Ping);
        }
        if due.ping_udp
            && let Some(head) = self.live.ping_head()
        {
            let mut ping = [0; 8];
            let mut w = Writer::new(&mut ping);
            if FromClient::Ping.emit(&mut w).is_ok() {
                // A ping that can't be sent counts as one that is not answered.
                let _ = self.send_udp(&head, [w.written(), &[]]);
            }
        }
        if let Some(udp) = due.switch {
            self.tell(&FromClient::Packets { udp });
        }
        self.armed = Time::NEVER;
        self.arm(now);
        Ok(())
    }

    /// Ensures that the timer doesn't fire too late. Letting it fire too early saves a system call
    /// per packet.
    fn arm(&mut self, now: Time) {
        let next = self.live.next_timeout();
        if next < self.armed {
            self.armed = next;
            self.wake_after(next.since(now));
        }
    }

    fn wake_after(&self, pause: Duration) {
        // Zero would disarm the timer.
        let expiration = Expiration::OneShot(pause.max(Duration::from_nanos(1)).into());
        let set = self.timer.set(expiration, TimerSetTimeFlags::empty());
        debug_assert!(set.is_ok(), "timerfd_settime refused a valid time: {set:?}");
    }

    /// Sends one of the carrier's control messages, now or when TCP has room.
    fn tell(&mut self, message: &FromClient<'_>) {
        let mut bytes = [0; 16];
        let mut w = Writer::new(&mut bytes);
        if message.emit(&mut w).is_err() || self.send_tcp(w.written(), &[]).is_ok() {
            return;
        }
        if let Seal::Sealed(keys) = &mut self.seal {
            // If the keys are used up, the next packet will detect it.
            let _ = self.backlog.seal(keys, [w.written(), &[]]);
        }
    }

    fn send_tcp(&mut self, head: &[u8], payload: &[u8]) -> Result<(), Stuck> {
        if let Seal::Opening(_, waiting) = &mut self.seal {
            if waiting.iter().map(Vec::len).sum::<usize>() >= MAX_MESSAGE {
                return Err(Stuck::WouldBlock);
            }
            waiting.push([head, payload].concat());
            return Ok(());
        }
        self.flush()?;
        if !self.backlog.is_empty() {
            return Err(Stuck::WouldBlock);
        }
        let Seal::Sealed(keys) = &mut self.seal else { return Err(Stuck::Closed) };
        if !self.backlog.seal(keys, [head, payload]) {
            return Err(Stuck::Closed);
        }
        self.push()
    }

    fn send_udp(&mut self, head: &[u8; DATAGRAM_HEAD], message: [&[u8]; 2]) -> io::Result<usize> {
        let Seal::Sealed(keys) = &self.seal else { return Err(ErrorKind::NotConnected.into()) };
        self.sealed.clear();
        self.sealed.extend_from_slice(head);
        message.iter().for_each(|part| self.sealed.extend_from_slice(part));
        // When the keys are used up, packets take TCP, which detects it as well.
        let tag = keys
            .seal_datagram(head, &mut self.sealed[DATAGRAM_HEAD..])
            .ok_or_else(|| io::Error::from_raw_os_error(nix::libc::EMSGSIZE))?;
        self.sealed.extend_from_slice(&tag);
        self.udp.send(&self.sealed)
    }

    /// Sends queued data, and arranges for the rest to go when TCP has room.
    fn push(&mut self) -> Result<(), Stuck> {
        self.flush()?;
        if !self.backlog.is_empty() {
            self.watch(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT);
        }
        Ok(())
    }

    /// Sends queued data, as far as TCP accepts it.
    fn flush(&mut self) -> Result<(), Stuck> {
        while !self.connecting && !self.backlog.is_empty() {
            match self.tcp.send_with_flags(self.backlog.rest(), nix::libc::MSG_NOSIGNAL) {
                Ok(n) => self.backlog.advance(n),
                Err(e) if is_busy(&e) => break,
                Err(_) => return Err(Stuck::Closed),
            }
        }
        Ok(())
    }

    fn watch(&self, flags: EpollFlags) {
        let done = self.ready.modify(&self.tcp, &mut EpollEvent::new(flags, about::TCP));
        debug_assert!(done.is_ok(), "epoll refused a socket that it knows: {done:?}");
    }

    /// Marks packets sent from now on for `service`.
    fn mark(&mut self, service: Service) {
        if self.marked.replace(service) != Some(service) {
            let tos = if service == Service::RealTime { EXPEDITED } else { 0 };
            // Networks may ignore the mark, and so may this kernel.
            let _ = if self.v6 { self.udp.set_tclass_v6(tos) } else { self.udp.set_tos_v4(tos) };
        }
    }
}

/// Starts the handshake with the node named in `keys`; returns its state and first message.
fn begin_handshake(keys: &keys::Keys) -> Result<(Opening, Vec<u8>), Error> {
    let mut entropy = [0; 32];
    getrandom::fill(&mut entropy).map_err(|e| Error::io("draw a random number", e))?;
    let begun = Opening::begin(&keys.identity, &keys.node, entropy);
    begun.ok_or(Error::Attachment { what: "`node` is not a public key".into() })
}

fn prepare(tcp: &Socket) -> io::Result<()> {
    tcp.set_tcp_nodelay(true)?;
    tcp.set_tcp_notsent_lowat(UNSENT)?;
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    tcp.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE))
}

fn is_busy(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Carrier for Remote {
    fn send(&mut self, head: &[u8], payload: &[u8], in_order: bool) -> Result<(), Stuck> {
        let now = self.now();
        if !in_order
            && let Some(service) = packet_to_node(head, payload.len())
            && let Some(first) = self.live.packet_head(now)
        {
            self.mark(service);
            self.arm(now);
            match self.send_udp(&first, [head, payload]) {
                Err(e) if is_busy(&e) => return Err(Stuck::WouldBlock),
                // Too large for UDP's path, so it takes TCP.
                Err(e) if e.raw_os_error() == Some(nix::libc::EMSGSIZE) => {}
                // A network that is down is detected the same way as one that loses packets.
                _ => return Ok(()),
            }
        }
        self.send_tcp(head, payload)
    }

    fn receive(
        &mut self,
        head: &mut [u8; HEAD],
        payload: &mut [u8],
        next: Next,
    ) -> Result<usize, Stuck> {
        let was_held = self.held != Held::Nothing;
        if !was_held {
            self.fetch()?;
        }
        let message = match self.held {
            Held::Nothing => return Err(Stuck::WouldBlock),
            Held::Tcp => self.frames.whole().unwrap_or_default(),
            Held::Udp(n) => &self.datagram[DATAGRAM_HEAD..n],
        };
        let (first, rest) = message.split_at(message.len().min(HEAD));
        head[..first.len()].copy_from_slice(first);
        let n = rest.len().min(payload.len());
        payload[..n].copy_from_slice(&rest[..n]);
        let len = message.len();
        match next {
            Next::Take => {
                self.held = Held::Nothing;
                if was_held {
                    self.armed = Time::NEVER;
                    self.arm(self.now());
                }
            }
            // The sockets no longer signal that there is something to receive.
            Next::Peek if !was_held => {
                self.armed = Time::ZERO;
                self.wake_after(Duration::ZERO);
            }
            Next::Peek => {}
        }
        Ok(len)
    }

    fn flushed(&mut self) -> Result<bool, Stuck> {
        self.push()?;
        Ok(self.backlog.is_empty())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.0.as_fd()
    }

    fn room(&mut self) -> (BorrowedFd<'_>, EpollFlags) {
        (self.tcp.as_fd(), EpollFlags::EPOLLOUT)
    }

    fn transport(&self) -> Transport {
        if self.live.udp_works() { Transport::Udp } else { Transport::Tcp }
    }
}
