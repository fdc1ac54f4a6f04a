//! The relay itself: one thread that receives, asks the model, and sends each
//! packet when it is due.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;

use hdrhistogram::Histogram;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use trunkline_base::Time;
use trunkline_base::link_model::Count;
use trunkline_net::{Class, DirectionId, Endpoint, Network, Packet, Protocol, VertexId};

use super::Error;
use super::clock::Clock;
use super::config::{Change, Config, SIDES};
use super::report::{DirectionReport, Lateness, LinkReport, Report};
use super::socket::{Datagram, RxBuffer, SLOT, Socket};
use super::stop::{Reread, Stop};
use crate::sys::run_ordinary;

/// Receives per socket and turn, so that one flood does not hold up the
/// packets that are due.
const BATCH: usize = 64;

/// Why a link's models can't be refused.
const VALID: &str = "a configuration has valid models";

/// Tokens of the descriptors that are not sockets.
const TIMER: u64 = u64::MAX;
const SIGNAL: u64 = u64::MAX - 1;
const STDIN: u64 = u64::MAX - 2;
const REREAD: u64 = u64::MAX - 3;
const CHANGE: u64 = u64::MAX - 4;

/// All links. Side `s` of link `k` is port `2k + s`; what arrives there leaves
/// by port `2k + 1 - s`. In the network, a port is a host, and the direction of an
/// edge that begins there, of the same number.
pub struct Relay {
    config: Config,
    ports: Vec<Port>,
    net: Network,
    clock: Clock,
    epoll: Epoll,
    stop: Stop,
    reread: Option<Reread>,
    timer: TimerFd,
    /// What the timer is set to.
    armed: Option<Time>,
    rx: RxBuffer,
    lateness: Histogram<u64>,
}

/// A socket, the node it faces, and the direction that begins there.
#[derive(Debug)]
struct Port {
    socket: Socket,
    peer: Option<SocketAddr>,
    /// Bytes of IP and UDP header around each datagram.
    header: usize,
    sent: Count,
    send_errors: Count,
    foreign: Count,
    oversize: Count,
    receive_errors: u64,
}

impl Relay {
    /// Binds every socket; `stop` says when [`Relay::run`] ends, `reread` when
    /// the links shall do something else.
    ///
    /// # Errors
    ///
    /// The first address that cannot be bound, or a system call that failed.
    pub fn bind(config: Config, stop: Stop, reread: Option<Reread>) -> Result<Relay, Error> {
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::os("create an epoll"))?;
        // Not an epoll timeout: those count milliseconds, and the kernel may
        // add 50 µs of slack to them.
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .map_err(Error::os("create a timer"))?;
        watch(&epoll, &timer, TIMER)?;
        watch(&epoll, stop.signals(), SIGNAL)?;
        if let Some(stdin) = stop.stdin() {
            // epoll refuses files and /dev/null: they have no end to wait for.
            epoll
                .add(stdin, EpollEvent::new(EpollFlags::EPOLLIN, STDIN))
                .map_err(Error::os("wait for the end of standard input, which must be a pipe"))?;
        }
        if let Some(reread) = &reread {
            watch(&epoll, reread.hangup(), REREAD)?;
            watch(&epoll, reread.done(), CHANGE)?;
        }
        let ports = bind_ports(&config, &epoll)?;
        Ok(Relay {
            ports,
            net: network(&config),
            config,
            clock: Clock::start(),
            epoll,
            stop,
            reread,
            timer,
            armed: None,
            rx: RxBuffer::new(),
            // 1 ns to 10 minutes, two digits: 60 kB.
            lateness: Histogram::new_with_bounds(1, 600_000_000_000, 2)
                .expect("constant bounds are valid"),
        })
    }

    /// The address of each side, for a port that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, &'static str, SocketAddr)> {
        self.ports.iter().enumerate().filter_map(|(k, port)| {
            let addr = port.socket.local_addr().ok()?;
            Some((self.config.links[k / 2].name.as_str(), SIDES[k % 2], addr))
        })
    }

    /// Relays until told to stop. What is under way then stays unsent.
    ///
    /// # Errors
    ///
    /// A system call that failed. Errors of single packets are counted instead.
    pub fn run(&mut self) -> Result<(), Error> {
        let mut events = vec![EpollEvent::empty(); self.ports.len() + 5];
        loop {
            self.send_due()?;
            self.arm()?;
            let ready = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(ready) => ready,
                Err(nix::Error::EINTR) => continue,
                Err(error) => return Err(Error::os("wait for packets")(error)),
            };
            self.clock.sample();
            for event in &events[..ready] {
                match event.data() {
                    TIMER => {
                        // Reading makes it unreadable; nothing is due if it fails.
                        let _ = self.timer.wait();
                        self.armed = None;
                    }
                    SIGNAL => return Ok(()),
                    STDIN if self.stop.stdin_ended() => return Ok(()),
                    STDIN => {}
                    REREAD => {
                        if let Some(reread) = &mut self.reread {
                            reread.on_hangup(&self.config);
                        }
                    }
                    CHANGE => self.change(),
                    port => self.receive(port as usize)?,
                }
            }
        }
    }

    /// Does what the file says by now. Whatever is wrong with it is said, and then
    /// everything stays as it is.
    fn change(&mut self) {
        let Some(change) = self.reread.as_mut().and_then(Reread::change) else { return };
        // Nobody may read standard error, which is no reason to fail.
        let _ = match change.map(|change| self.apply(change)) {
            Ok(n) => writeln!(io::stderr(), "impair: {n} directions changed"),
            Err(why) => writeln!(io::stderr(), "error: the links stay as they are: {why}"),
        };
        if let Some(reread) = &mut self.reread {
            reread.go_on(&self.config);
        }
    }

    /// Lets each direction that differs do what it now shall; how many. The others'
    /// loss processes go on where they are, and what is under way keeps its time of
    /// arrival.
    fn apply(&mut self, Change { config, directions }: Change) -> usize {
        let models: Vec<_> = config.models().collect();
        for &k in &directions {
            self.net.change(DirectionId(k), models[k as usize].clone()).expect(VALID);
        }
        let old = std::mem::replace(&mut self.config, config);
        // To give back a long trace takes milliseconds.
        thread::spawn(move || {
            run_ordinary();
            drop(old);
        });
        directions.len()
    }

    fn send_due(&mut self) -> Result<(), Error> {
        loop {
            let now = self.clock.now();
            let Some(delivery) = self.net.poll(now) else { return Ok(()) };
            let late = u64::try_from(now.since(delivery.at).as_nanos()).unwrap_or(u64::MAX);
            self.lateness.saturating_record(late);
            let (header, bytes) = self.net.open(&delivery);
            let out = &mut self.ports[header.to.vertex.0 as usize];
            let sent =
                out.peer.is_some_and(|peer| out.socket.send(&bytes, header.tos, peer).is_ok());
            self.net.release(delivery, bytes);
            let port = &mut self.ports[header.from.vertex.0 as usize];
            let count = if sent { &mut port.sent } else { &mut port.send_errors };
            count.add(header.bytes as usize);
        }
    }

    /// Sets the timer to the next packet.
    fn arm(&mut self) -> Result<(), Error> {
        let next = Some(self.net.next_timeout()).filter(|next| *next < Time::NEVER);
        if next == self.armed {
            return Ok(());
        }
        let set = match next {
            Some(due) => self.timer.set(
                Expiration::OneShot(self.clock.to_monotonic(due)),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            ),
            None => self.timer.unset(),
        };
        self.armed = next;
        set.map_err(Error::os("set the timer"))
    }

    fn receive(&mut self, k: usize) -> Result<(), Error> {
        for _ in 0..BATCH {
            let port = &mut self.ports[k];
            let datagram = match port.socket.recv(&mut self.rx) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => return Ok(()),
                Err(_) => {
                    port.receive_errors += 1;
                    return Ok(());
                }
            };
            // The delay counts from the arrival, not from when we came to look.
            let arrived = datagram.stamp.map_or_else(|| self.clock.now(), |s| self.clock.place(s));
            port.accept(k, arrived, &datagram, &mut self.net);
        }
        Ok(())
    }

    /// The ledger so far.
    pub fn report(&self) -> Report {
        let direction = |k: usize| self.ports[k].report(&self.net, DirectionId(k as u32));
        let cpu = getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
            let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
            seconds(usage.user_time()) + seconds(usage.system_time())
        });
        Report {
            seconds: self.clock.now().since(Time::ZERO).as_secs_f64(),
            cpu_seconds: cpu,
            lateness_us: Lateness::new(&self.lateness),
            links: (self.config.links.iter().enumerate())
                .map(|(k, link)| LinkReport {
                    name: link.name.clone(),
                    forward: direction(2 * k),
                    reverse: direction(2 * k + 1),
                })
                .collect(),
        }
    }
}

impl Port {
    /// Puts a datagram that arrived here under way, or counts why not.
    fn accept(&mut self, k: usize, arrived: Time, datagram: &Datagram<'_>, net: &mut Network) {
        let size = datagram.bytes.len() + self.header;
        let peer = *self.peer.get_or_insert(datagram.source);
        if !same(peer, datagram.source) {
            return self.foreign.add(size);
        }
        if datagram.truncated {
            return self.oversize.add(size);
        }
        let end = |k: usize| Endpoint { vertex: VertexId(k as u32), port: 0 };
        net.send(
            arrived,
            &Packet {
                from: end(k),
                to: end(k ^ 1),
                protocol: Protocol::UDP,
                tos: datagram.tos,
                class: Class::default(),
                bytes: size as u32,
                payload: datagram.bytes,
            },
        );
    }

    fn report(&self, net: &Network, direction: DirectionId) -> DirectionReport {
        let ledger = net.ledger(direction);
        let model = net.decided(direction).unwrap_or_default();
        DirectionReport {
            offered: ledger.offered.into(),
            delivered: self.sent.into(),
            lost: ledger.lost.into(),
            queue_dropped: ledger.queue_dropped.into(),
            early_dropped: model.early_dropped.into(),
            marked: ledger.marked.into(),
            pool_dropped: ledger.no_room.into(),
            send_errors: self.send_errors.into(),
            in_flight: ledger.under_way().into(),
            foreign: self.foreign.into(),
            oversize: self.oversize.into(),
            kernel_dropped: self.socket.kernel_drops(),
            receive_errors: self.receive_errors,
        }
    }
}

/// The modelled network, without a packet in it.
fn network(config: &Config) -> Network {
    let mut net = Network::new(config.seed);
    let buffer = usize::try_from(config.buffer).unwrap_or(usize::MAX);
    net.set_limit((buffer / SLOT).max(1));
    net.set_payload_memory(SLOT);
    for link in &config.links {
        let (a, b) = (net.host(), net.host());
        let [forward, reverse] = link.directions.each_ref().map(|d| d.model.clone());
        // The reverse direction has the next stream.
        let stream = link.directions[0].stream;
        net.connect_streams(a, b, forward, reverse, stream).expect(VALID);
    }
    net
}

/// One port per side of each link, watched under its index.
fn bind_ports(config: &Config, epoll: &Epoll) -> Result<Vec<Port>, Error> {
    let mut ports = Vec::new();
    for link in &config.links {
        for (s, end) in link.ends.iter().enumerate() {
            let socket = Socket::bind(end.listen).map_err(|source| Error::Bind {
                link: link.name.clone(),
                side: SIDES[s],
                addr: end.listen,
                source,
            })?;
            watch(epoll, &socket, ports.len() as u64)?;
            ports.push(Port {
                socket,
                peer: end.peer,
                // RFC 791, RFC 8200, RFC 768, without options.
                header: if end.listen.is_ipv4() { 20 + 8 } else { 40 + 8 },
                sent: Count::default(),
                send_errors: Count::default(),
                foreign: Count::default(),
                oversize: Count::default(),
                receive_errors: 0,
            });
        }
    }
    Ok(ports)
}

/// An IPv4 sender reaches a `[::]` socket as `::ffff:a.b.c.d`.
fn same(a: SocketAddr, b: SocketAddr) -> bool {
    a == b || (a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical())
}

fn watch(epoll: &Epoll, fd: impl AsFd, token: u64) -> Result<(), Error> {
    epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token)).map_err(Error::os("watch a socket"))
}

#[cfg(test)]
mod tests;
