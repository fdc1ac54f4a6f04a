//! What passes a host's interfaces: RTP as it came and when.

use super::{Error, Network, Place, cannot};
use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Every protocol (linux/if_ether.h), in network order.
const ALL: i32 = (0x0003u16.to_be()) as i32;

/// A packet of RTP.
#[derive(Clone, Debug)]
pub struct Rtp {
    /// Since the sniffer began.
    pub at: Duration,
    /// From.
    pub from: SocketAddrV4,
    /// To.
    pub to: SocketAddrV4,
    /// Its number.
    pub sequence: u16,
    /// Its timestamp.
    pub timestamp: u32,
    /// By its number.
    pub payload_type: u8,
    /// Its sender.
    pub ssrc: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// Listens until it is asked what it heard.
pub struct Sniffer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Rtp>>,
}

impl Sniffer {
    /// Listens at `place` from now on.
    pub fn start(network: &Network, place: Place) -> Result<Sniffer, Error> {
        let host = File::open(network.path(place)).map_err(cannot("open a namespace"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let socket = setns(&host, CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from);
            match socket.and_then(|()| open()) {
                Ok(socket) => {
                    let _ = tell.send(Ok(()));
                    listen(socket, &stopped)
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    Vec::new()
                }
            }
        });
        let begun = told.recv().map_err(|_| Error::Program("a sniffer did not start".into()))?;
        begun.map_err(cannot("listen to a namespace's packets"))?;
        Ok(Sniffer { stop, thread })
    }

    /// All that has passed.
    pub fn stop(self) -> Vec<Rtp> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn open() -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(ALL)))?;
    socket.set_recv_buffer_size(8 << 20)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(socket)
}

fn listen(mut socket: Socket, stop: &AtomicBool) -> Vec<Rtp> {
    let (began, mut heard, mut buffer) = (Instant::now(), Vec::new(), vec![0; 65_536]);
    while !stop.load(Ordering::Relaxed) {
        if let Ok(n) = socket.read(&mut buffer) {
            heard.extend(rtp(&buffer[..n], began.elapsed()));
        }
    }
    heard
}

/// The packet of RTP in an IPv4 packet, if it is one.
fn rtp(packet: &[u8], at: Duration) -> Option<Rtp> {
    let head = usize::from(packet.first()? & 15) * 4;
    if packet.first()? >> 4 != 4 || *packet.get(9)? != 17 {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let udp = packet.get(head..)?;
    let port = |at: usize| Some(u16::from_be_bytes(*udp.get(at..)?.first_chunk::<2>()?));
    let (from, to) =
        (SocketAddrV4::new(address(12)?, port(0)?), SocketAddrV4::new(address(16)?, port(2)?));
    let payload = udp.get(8..usize::from(port(4)?))?;
    // Reports are not.
    if from.port() < 1_024 || payload.get(1).is_some_and(|kind| (192..=223).contains(kind)) {
        return None;
    }
    let rtp = trunkline_media::rtp::parse(payload).ok()?;
    Some(Rtp {
        at,
        from,
        to,
        sequence: rtp.sequence,
        timestamp: rtp.timestamp,
        payload_type: rtp.payload_type,
        ssrc: rtp.ssrc,
        payload: rtp.payload.to_vec(),
    })
}
