//! Captures the traffic of a host's interfaces: RTP packets and their arrival times.

use super::{Error, Network, PhoneHost, cannot};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read as _;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trunkline_media::rtcp::is_rtcp;
use trunkline_media::rtp;

/// Captures every protocol (linux/if_ether.h), in network byte order.
const ALL: i32 = (0x0003u16.to_be()) as i32;

/// A captured RTP packet.
#[derive(Clone, Debug)]
pub struct Rtp {
    /// Capture time since the sniffer began.
    pub at: Duration,
    /// Source address of the packet.
    pub from: SocketAddrV4,
    /// Destination address of the packet.
    pub to: SocketAddrV4,
    /// Sequence number of the packet.
    pub sequence: u16,
    /// The packet's timestamp, in the payload's clock.
    pub timestamp: u32,
    /// The payload type (RFC 3551).
    pub payload_type: u8,
    /// The stream's synchronization source.
    pub ssrc: u32,
    /// Payload after the RTP header.
    pub payload: Vec<u8>,
}

/// Captures packets until stopped.
pub struct Sniffer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<Vec<Rtp>>>,
}

impl Sniffer {
    /// Starts to capture at `place`.
    pub fn start(network: &Network, place: PhoneHost) -> Result<Sniffer, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = network.within(place, move || match open() {
            Ok(socket) => {
                let _ = tell.send(Ok(()));
                listen(socket, &stopped)
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                Vec::new()
            }
        })?;
        let begun = told.recv().map_err(|_| Error::Program("a sniffer did not start".into()))?;
        begun.map_err(cannot("listen to a namespace's packets"))?;
        Ok(Sniffer { stop, thread })
    }

    /// Stops, and returns all captured packets.
    pub fn stop(self) -> Vec<Rtp> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten().unwrap_or_default()
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

/// The RTP packet in an IPv4 packet, if there is one.
fn rtp(packet: &[u8], at: Duration) -> Option<Rtp> {
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (sliced.net, sliced.transport)
    else {
        return None;
    };
    let (from, to) = (ip.header().source_addr(), ip.header().destination_addr());
    let from = SocketAddrV4::new(from, udp.source_port());
    let to = SocketAddrV4::new(to, udp.destination_port());
    if from.port() < 1_024 || is_rtcp(udp.payload()) {
        return None;
    }
    let rtp = rtp::parse(udp.payload()).ok()?;
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
