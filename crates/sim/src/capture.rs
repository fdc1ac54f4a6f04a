//! Captures of the traffic at an end of a wire, in files for Wireshark.
//!
//! The format is pcapng rather than pcap because its packets carry comments, which show at the
//! sender's end what will happen to a datagram. Each end has a file of its own, as if `tcpdump` ran
//! on both hosts: in one file for both, Wireshark would see every packet twice, and its analysis of
//! RTP would find no loss.

use crate::endpoints::WireId;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;
use etherparse::{IpDscp, IpEcn, IpNumber, Ipv4Header, UdpHeader};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use std::borrow::Cow;
use std::io::{self, Write};
use trunkline_base::Time;
use trunkline_net::Protocol;

/// An end of a wire. The order is that of the hosts in [`World::connect`](crate::World::connect),
/// of a link in [`Topology`](crate::Topology), or of the ends of a plain path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireEnd {
    /// The end where the first direction of the wire begins.
    First,
    /// The end where the first direction of the wire ends.
    Second,
}

impl WireEnd {
    /// Direction of `wire` that begins at this end.
    pub(crate) fn direction(self, wire: WireId) -> u32 {
        2 * wire.0 + self.index() as u32
    }

    pub(crate) fn index(self) -> usize {
        match self {
            WireEnd::First => 0,
            WireEnd::Second => 1,
        }
    }
}

/// An error in writing a capture.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture of {what}: {source}")]
pub struct CaptureError {
    what: String,
    source: io::Error,
}

/// The parts of a datagram that a capture records.
pub struct Datagram<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub protocol: Protocol,
    /// TOS byte: DSCP and ECN.
    pub tos: u8,
    /// Number of the datagram in its direction.
    pub number: u16,
    pub payload: &'a [u8],
}

/// Direction of a packet at the interface: bits 0 and 1 of its flags (pcapng, section 4.3.1).
#[derive(Clone, Copy)]
pub enum CaptureDirection {
    Received = 1,
    Sent = 2,
}

/// A capture file at one end of a wire.
pub struct Capture {
    what: String,
    out: PcapNgWriter<Box<dyn Write>>,
    packet: Vec<u8>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl Capture {
    /// Starts a capture file by writing its header to `out`.
    pub fn new(what: String, out: Box<dyn Write>) -> Result<Capture, CaptureError> {
        let section = SectionHeaderBlock {
            // Fixed, so that the file is the same on every machine.
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication("trunkline-sim".into())],
            ..SectionHeaderBlock::default()
        };
        let interface = InterfaceDescriptionBlock {
            // Raw IP without a link layer, as there are no MAC addresses.
            linktype: DataLink::RAW,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(what.clone().into()),
                // Timestamps count units of 10⁻⁹ s.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        };
        let begun = PcapNgWriter::with_section_header(out, section).and_then(|mut out| {
            out.write_pcapng_block(interface)?;
            Ok(out)
        });
        match begun {
            Ok(out) => Ok(Capture { what, out, packet: Vec::new(), failed: None }),
            Err(why) => Err(CaptureError { what, source: io_error(why) }),
        }
    }

    /// Records a datagram with IP and UDP headers. An error is kept for [`Capture::finish`].
    pub fn record(
        &mut self,
        now: Time,
        passing: CaptureDirection,
        datagram: &Datagram<'_>,
        comment: Option<&'static str>,
    ) {
        if self.failed.is_some() {
            return;
        }
        self.failed = self.try_record(now, passing, datagram, comment).err();
    }

    fn try_record(
        &mut self,
        now: Time,
        passing: CaptureDirection,
        datagram: &Datagram<'_>,
        comment: Option<&'static str>,
    ) -> io::Result<()> {
        self.packet.clear();
        put_packet(datagram, &mut self.packet)?;
        let mut options = vec![EnhancedPacketOption::Flags(passing as u32)];
        options.extend(comment.map(|c| EnhancedPacketOption::Comment(Cow::Borrowed(c))));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            // `Time::ZERO` is shown as the beginning of 1970.
            timestamp: Duration::from_nanos(now.as_nanos()),
            // The packet was written, so it is shorter than 64 KiB.
            original_len: self.packet.len() as u32,
            data: Cow::Borrowed(&self.packet),
            options,
        };
        self.out.write_pcapng_block(block).map(drop).map_err(io_error)
    }

    /// Flushes the file and returns the first error.
    pub fn finish(mut self) -> Result<(), CaptureError> {
        let done = match self.failed.take() {
            None => self.out.get_mut().flush(),
            Some(why) => Err(why),
        };
        done.map_err(|source| CaptureError { what: self.what, source })
    }
}

fn io_error(why: PcapError) -> io::Error {
    match why {
        PcapError::IoError(why) => why,
        other => io::Error::other(other),
    }
}

/// Appends the datagram with its headers (RFC 791, RFC 768) and checksums. For protocols other than
/// UDP, the payload directly follows the IP header.
fn put_packet(datagram: &Datagram<'_>, packet: &mut Vec<u8>) -> io::Result<()> {
    let [from, to] = [datagram.from, datagram.to].map(|a| match a {
        SocketAddr::V4(a) => a,
        // No address in a world is IPv6; see `address`.
        SocketAddr::V6(a) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, a.port()),
    });
    let payload = datagram.payload;
    let is_udp = datagram.protocol == Protocol::UDP;
    let length = payload.len() + if is_udp { UdpHeader::LEN } else { 0 };
    let too_long =
        || io::Error::other(format!("{} bytes don't fit into a UDP datagram", payload.len()));
    let mut ip = Ipv4Header::new(
        u16::try_from(length).map_err(|_| too_long())?,
        64,
        IpNumber(datagram.protocol.0),
        from.ip().octets(),
        to.ip().octets(),
    )
    .map_err(|_| too_long())?;
    ip.dscp = IpDscp::try_new(datagram.tos >> 2).unwrap_or_default();
    ip.ecn = IpEcn::try_new(datagram.tos & 0b11).unwrap_or_default();
    ip.identification = datagram.number;
    ip.dont_fragment = true;
    ip.header_checksum = ip.calc_header_checksum();
    packet.extend_from_slice(&ip.to_bytes());
    if is_udp {
        let udp = UdpHeader::with_ipv4_checksum(from.port(), to.port(), &ip, payload)
            .map_err(|_| too_long())?;
        packet.extend_from_slice(&udp.to_bytes());
    }
    packet.extend_from_slice(payload);
    Ok(())
}
