//! Callers and listeners over the overlay, in real time.

use super::super::build::node;
use super::super::rows::Packet;
use super::super::{Carrier, Placed, SPACING, Scenario};
use super::watch::Watch;
use super::{Error, LATE, cannot};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trunkline_base::Time;
use trunkline_client::{Address, DatagramSocket, SocketOption};
use trunkline_overlay::wire::Service;
use trunkline_sim::voice::{self, Arrival, MAX_PACKET};

/// Clock of a run.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    /// Starts a clock at [`Time::ZERO`].
    fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Time since the clock was started.
    fn now(self) -> Time {
        Time::ZERO + self.0.elapsed()
    }

    /// Blocks the thread until `at`, in the time of the run.
    fn sleep_until(self, at: Time) {
        std::thread::sleep(at.since(self.now()));
    }
}

/// A call with both ends attached to their daemons.
struct Call<'a> {
    placed: Placed<'a>,
    caller: DatagramSocket,
    listener: DatagramSocket,
}

/// All calls of a scenario that use its overlay.
pub struct Calls<'a> {
    scenario: &'a Scenario,
    calls: Vec<Call<'a>>,
}

/// Packets that the listeners of the overlay's calls received.
pub struct Heard {
    /// The packets of each call over the overlay, in the order of the scenario's file.
    pub packets: Vec<Vec<Packet>>,
    /// Number of packets that a daemon did not accept; they count as lost.
    pub refused: u64,
    /// Number of packets of each call that were sent more than [`LATE`] after they were due.
    pub late: Vec<u64>,
}

/// Packets that the callers sent.
struct Sent {
    /// For each call, when each packet was sent.
    at: Vec<Vec<Time>>,
    refused: u64,
    late: Vec<u64>,
}

impl<'a> Calls<'a> {
    /// Attaches every caller and listener to its host's daemon, whose Unix socket is in `sockets`.
    pub fn attach(scenario: &'a Scenario, sockets: &[PathBuf]) -> Result<Calls<'a>, Error> {
        let overlay = |placed: Placed<'a>| match placed.call.carrier {
            Carrier::Overlay(service) => Some((placed, service)),
            Carrier::Plain => None,
        };
        let attach = |(placed, service): (Placed<'a>, Service)| {
            let call = placed.call;
            let caller = DatagramSocket::bind(sockets[call.ends.0].as_path(), 0)?;
            caller.set_option(SocketOption::Service(service))?;
            caller.set_option(SocketOption::Deadline(call.threshold))?;
            // A packet that the daemon has no room for is lost; the sender must not block.
            caller.set_option(SocketOption::Nonblocking(true))?;
            let listener = DatagramSocket::bind(sockets[call.ends.1].as_path(), placed.port)?;
            listener.set_option(SocketOption::Nonblocking(true))?;
            Ok(Call { placed, caller, listener })
        };
        let calls = scenario.placed().filter_map(overlay).map(attach);
        Ok(Calls { scenario, calls: calls.collect::<Result<_, Error>>()? })
    }

    /// Holds the calls, then waits for `drain` for packets in flight.
    /// `second` is called once per second of the calls.
    pub fn hold(&self, drain: Duration, watch: &Watch, second: &dyn Fn()) -> Result<Heard, Error> {
        let clock = Clock::start();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let listeners = scope.spawn(|| watch.note(self.listen(clock, &done)));
            let sent = self.send(clock, watch, second).and_then(|sent| {
                watch.sleep_until(Instant::now() + drain)?;
                Ok(sent)
            });
            done.store(true, Ordering::Relaxed);
            let arrivals = listeners.join().expect("listeners don't panic");
            let Sent { at: sent, refused, late } = sent?;
            let arrivals = arrivals.ok_or(Error::Halted)?;
            let call = |(sent, arrivals): (Vec<Time>, Vec<_>)| sent.into_iter().zip(arrivals);
            let packets = sent.into_iter().zip(arrivals).map(|both| call(both).collect());
            Ok(Heard { packets: packets.collect(), refused, late })
        })
    }

    /// Sends every packet when it is due.
    fn send(&self, clock: Clock, watch: &Watch, second: &dyn Fn()) -> Result<Sent, Error> {
        let (mut sent, mut refused) = (vec![Vec::new(); self.calls.len()], 0);
        let mut late = vec![0; self.calls.len()];
        let mut packet = [0; MAX_PACKET];
        let start = clock.now() + SPACING;
        let mut order: Vec<usize> = (0..self.calls.len()).collect();
        order.sort_by_key(|&n| self.calls[n].placed.offset);
        for k in 0..self.scenario.packets() {
            watch.check()?;
            for &n in &order {
                let (call, sent) = (&self.calls[n], &mut sent[n]);
                let Placed { call: to, port, offset } = call.placed;
                let due = start + offset + Duration::from_nanos(k * SPACING_NS);
                clock.sleep_until(due);
                let now = clock.now();
                late[n] += u64::from(now.since(due) > LATE);
                let packet = &mut packet[..to.bytes];
                voice::write(packet, port, (start + offset, k), now);
                let to = Address { node: node(to.ends.1), port };
                refused += u64::from(call.caller.send_to(packet, to).is_err());
                sent.push(now);
            }
            if self.calls.is_empty() {
                clock.sleep_until(start + Duration::from_nanos(k * SPACING_NS));
            }
            if k % PER_SECOND == 0 {
                second();
            }
        }
        Ok(Sent { at: sent, refused, late })
    }

    /// Records the first arrival of each packet, until `done` is set.
    fn listen(&self, clock: Clock, done: &AtomicBool) -> Result<Vec<Vec<Option<Arrival>>>, Error> {
        let wait = |e: nix::Error| cannot("wait for packets")(e.into());
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(wait)?;
        for (call, n) in self.calls.iter().zip(0..) {
            epoll.add(&call.listener, EpollEvent::new(EpollFlags::EPOLLIN, n)).map_err(wait)?;
        }
        let packets = self.scenario.packets() as usize;
        let mut arrivals = vec![vec![None; packets]; self.calls.len()];
        let mut events = [EpollEvent::empty(); 64];
        let mut buf = [0; 2_048];
        while !done.load(Ordering::Relaxed) {
            let n = match epoll.wait(&mut events, EpollTimeout::from(100u16)) {
                Err(nix::Error::EINTR) => 0,
                n => n.map_err(wait)?,
            };
            for event in &events[..n] {
                let n = event.data() as usize;
                while let Ok(got) = self.calls[n].listener.recv_from(&mut buf) {
                    let now = clock.now();
                    let Some((sent, k)) = voice::read(&buf[..got.len]) else { continue };
                    if let Some(arrival) = arrivals[n].get_mut(k as usize) {
                        let (delay, recovered) = (now.since(sent), got.recovered);
                        arrival.get_or_insert(Arrival { delay, recovered });
                    }
                }
            }
        }
        Ok(arrivals)
    }
}

const SPACING_NS: u64 = SPACING.as_nanos() as u64;
const PER_SECOND: u64 = 1_000_000_000 / SPACING_NS;
