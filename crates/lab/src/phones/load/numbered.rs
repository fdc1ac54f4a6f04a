//! RTP packets that carry their number and send time, and the fate of each.

use super::super::{Error, Network, Place, cannot};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Bytes of a packet: 20 ms of G.711 with an RTP header.
const BYTES: usize = 172;

/// Receive buffer of a listener, in bytes: large enough that the listener itself loses no packets.
const ROOM: usize = 64 << 20;

/// Source port of the first call; each call has its own.
const FIRST: u16 = 40_000;

/// Longest time that a packet may be in flight.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// A packet rate and the time for which it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub per_second: f64,
    pub long: Duration,
}

/// The fate of a phase's packets.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Duration of the phase.
    pub took: Duration,
    /// For each packet that was sent, by its number: when, since the phase began, and its one-way
    /// delay, if it arrived.
    pub packets: Vec<(Duration, Option<Duration>)>,
}

impl Outcome {
    /// Share of the phase's packets that did not arrive.
    pub fn lost(&self) -> f64 {
        self.lost_from(Duration::ZERO)
    }

    /// Share of the packets sent at `begin` or later that did not arrive.
    pub fn lost_from(&self, begin: Duration) -> f64 {
        let first = self.packets.partition_point(|(at, _)| *at < begin);
        let later = &self.packets[first..];
        let lost = later.iter().filter(|(_, way)| way.is_none()).count();
        lost as f64 / later.len().max(1) as f64
    }

    /// Packets sent per second.
    pub fn rate(&self) -> f64 {
        self.packets.len() as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Send time of the last packet that did not arrive within `patience`; zero if all did.
    pub fn last_missed(&self, patience: Duration) -> Duration {
        let is_missed = |way: &Option<Duration>| way.is_none_or(|way| way > patience);
        let missed = self.packets.iter().rev().find(|(_, way)| is_missed(way));
        missed.map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// The median and the 99th percentile of the one-way delays.
    pub fn ways(&self) -> Option<[Duration; 2]> {
        let mut ways: Vec<Duration> = self.packets.iter().filter_map(|(_, way)| *way).collect();
        ways.sort_unstable();
        let at = |share: f64| ways.get((ways.len() as f64 * share) as usize).copied();
        Some([at(0.5)?, at(0.99)?])
    }
}

/// Counts packets that arrive at a port; stops when dropped.
pub struct Listener {
    epoch: Instant,
    stop: Arc<AtomicBool>,
    heard: mpsc::Receiver<(u32, Duration)>,
    /// Number of the next packet to this listener.
    next: u32,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Listener {
    /// Starts to listen at port `port` of `place`.
    pub fn start(network: &Network, place: Place, port: u16) -> Result<Listener, Error> {
        let (epoch, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let ((ready, is_ready), (tell, heard)) = (mpsc::channel(), mpsc::channel());
        let stopped = Arc::clone(&stop);
        network.within(place, move || match open(port) {
            Ok(socket) => {
                let _ = ready.send(Ok(()));
                listen(&socket, epoch, &stopped, &tell);
            }
            Err(error) => drop(ready.send(Err(error))),
        })?;
        let begun = is_ready.recv().map_err(|_| Error::Program("the listener has ended".into()))?;
        begun.map_err(cannot("listen to media"))?;
        Ok(Listener { epoch, stop, heard, next: 0 })
    }

    /// Sends from `from` to all of `to` in turn, with packets that arrive at this listener. Returns
    /// the outcome of each phase.
    pub fn play(
        &mut self,
        network: &Network,
        (from, to): (Place, &[SocketAddr]),
        phases: &[Phase],
    ) -> Result<Vec<Outcome>, Error> {
        let (to, phases) = (to.to_vec(), phases.to_vec());
        let (first, epoch) = (self.next, self.epoch);
        let sender = network.within(from, move || send(&to, &phases, first, epoch))?;
        let broke = || Error::Program("a sender of media failed".into());
        let sent = sender.join().ok().flatten().ok_or_else(broke)?;
        std::thread::sleep(AFTERWARDS);
        let mut sent = sent.map_err(cannot("send media"))?;
        let all = sent.iter_mut().flat_map(|outcome| outcome.packets.iter_mut());
        let mut places: Vec<_> = all.map(|(_, way)| way).collect();
        for (number, way) in self.heard.try_iter() {
            // Some packets are from earlier phases, so late that they count as lost.
            let place = number.checked_sub(first).and_then(|n| places.get_mut(n as usize));
            place.into_iter().for_each(|place| **place = Some(way));
        }
        self.next = first.wrapping_add(places.len() as u32);
        Ok(sent)
    }
}

fn send(
    to: &[SocketAddr],
    phases: &[Phase],
    first: u32,
    epoch: Instant,
) -> io::Result<Vec<Outcome>> {
    let mut sockets = Vec::new();
    // The same ports each time: a relay learns the source of a call's packets.
    for (at, port) in to.iter().zip(FIRST..) {
        let socket = UdpSocket::bind(("0.0.0.0", port))?;
        socket.connect(at)?;
        sockets.push(socket);
    }
    let (mut number, mut packet) = (first, [0u8; BYTES]);
    packet[0] = 0x80;
    let calls = sockets.len() as u32;
    let mut outcomes = Vec::new();
    for phase in phases {
        let (began, mut outcome) = (Instant::now(), Outcome::default());
        while began.elapsed() < phase.long {
            let due = (began.elapsed().as_secs_f64() * phase.per_second) as usize;
            if due <= outcome.packets.len() {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            // Each call numbers its packets separately, in order.
            let (turn, call) = (number / calls, number % calls);
            packet[2..4].copy_from_slice(&(turn as u16).to_be_bytes());
            packet[4..8].copy_from_slice(&turn.wrapping_mul(160).to_be_bytes());
            packet[8..12].copy_from_slice(&call.to_be_bytes());
            packet[12..16].copy_from_slice(&number.to_be_bytes());
            let now = epoch.elapsed().as_nanos() as u64;
            packet[16..24].copy_from_slice(&now.to_be_bytes());
            // Packets that the kernel refuses count as lost, like those that it drops later.
            let _ = sockets[call as usize].send(&packet);
            outcome.packets.push((began.elapsed(), None));
            number += 1;
        }
        outcome.took = began.elapsed();
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn open(port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    setsockopt(&socket, sockopt::RcvBufForce, &ROOM)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(socket)
}

/// Reports each packet that arrives, with its number and one-way delay.
fn listen(
    socket: &UdpSocket,
    epoch: Instant,
    stop: &AtomicBool,
    tell: &mpsc::Sender<(u32, Duration)>,
) {
    let mut packet = [0; BYTES];
    while !stop.load(Ordering::Relaxed) {
        if socket.recv(&mut packet).is_ok_and(|n| n == BYTES)
            && let Some(number) = packet[12..].first_chunk()
            && let Some(sent) = packet[16..].first_chunk()
        {
            let sent = Duration::from_nanos(u64::from_be_bytes(*sent));
            let way = epoch.elapsed().saturating_sub(sent);
            let _ = tell.send((u32::from_be_bytes(*number), way));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_say_when_all_was_well_again() {
        let ms = Duration::from_millis;
        let way = |n: u64| (ms(n), (n != 3).then(|| ms(if n == 5 { 80 } else { n })));
        let outcome = Outcome { took: ms(10), packets: (0..10).map(way).collect() };
        assert_eq!((outcome.lost(), outcome.lost_from(ms(6))), (0.1, 0.0));
        assert_eq!(outcome.lost_from(ms(2)), 0.125);
        assert_eq!(outcome.last_missed(ms(60)), ms(5));
        assert_eq!(outcome.last_missed(ms(90)), ms(3));
        assert_eq!(outcome.ways(), Some([ms(6), ms(80)]));
        assert_eq!(outcome.rate(), 1_000.0);
        assert_eq!(Outcome::default().ways(), None);
    }
}
