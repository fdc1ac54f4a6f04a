//! RTCP (RFC 3550 §6): reports between the two ends of a stream.
//!
//! The sender reports how many packets it sent and whether it has finished, which a receiver cannot
//! tell from packets that don't arrive; the receiver reports what arrived, and which sender report
//! it received last.

use rtcp_types::{
    Bye, Compound, CompoundBuilder, Packet, ReceiverReport, ReportBlock, RtcpPacketWriterExt,
    RtcpWriteError, Sdes, SdesChunk, SdesItem, SenderReport,
};

/// Maximum length of a packet that this module writes, in bytes.
pub const MAX_LEN: usize = 32 + MAX_SDES + 8;

/// Length of a description: header, source, type, length, text and end, padded to whole words.
const MAX_SDES: usize = (4 + 4 + 2 + MAX_NAME + 1).next_multiple_of(4);

/// Maximum length of a canonical name that this module writes, in bytes.
pub const MAX_NAME: usize = 64;

/// The canonical name (RFC 3550 §6.5.1): short-lived, and not identifying (RFC 7022 §4.2).
fn name(ssrc: u32) -> String {
    format!("{ssrc:08x}@trunkline")
}

/// A sender's report of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderInfo {
    /// SSRC of the sender.
    pub ssrc: u32,
    /// Wall-clock time: seconds since 1900 in the high half, their fraction in the low one; 0 if
    /// unknown.
    pub ntp: u64,
    /// The same time in the payload's clock.
    pub timestamp: u32,
    /// Number of packets sent since the beginning.
    pub packets: u32,
    /// Bytes of payload sent since the beginning.
    pub octets: u32,
}

/// A receiver's report of a stream (RFC 3550 §6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reception {
    /// SSRC of the stream's sender.
    pub source: u32,
    /// Share of packets lost since the receiver's previous report, in 1/256.
    pub fraction_lost: u8,
    /// Packets lost since the beginning; negative if more arrived than were sent. 24 bits of it are
    /// written.
    pub lost: i32,
    /// The highest sequence number received; the upper 16 bits count its wraps.
    pub highest: u32,
    /// Interarrival jitter (§6.4.1), in units of the payload's clock.
    pub jitter: u32,
    /// [`SenderInfo::stamp`] of the last sender report received; 0 if there was none.
    pub report: u32,
    /// Time since that report arrived, in 1/65,536 s.
    pub since: u32,
}

/// An RTCP packet, as far as the two ends of a call need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// SSRC of the packet's sender.
    pub ssrc: u32,
    /// The sender's report of its own stream, if any.
    pub report: Option<SenderInfo>,
    /// The first report of a stream that the sender receives, if any.
    pub reception: Option<Reception>,
    /// Whether the sender leaves: its stream has ended, or it no longer receives.
    pub bye: bool,
}

/// Errors in reading or writing a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RtcpError {
    /// The bytes are not a compound packet, or have no sender.
    #[error("not an RTCP packet with a sender")]
    Malformed,
    /// The caller's buffer is too small.
    #[error("cannot write an RTCP packet of {need} bytes into a buffer of {have}")]
    NoRoom {
        /// Size of the whole packet, in bytes.
        need: usize,
        /// Size of the buffer, in bytes.
        have: usize,
    },
}

/// Whether `bytes`, received on a port that RTP and RTCP share, are RTCP: its packet types are 192
/// to 223, values that RTP's marker and payload type together may not take (RFC 5761 §4).
pub fn is_rtcp(bytes: &[u8]) -> bool {
    matches!(bytes, [first, 192..=223, ..] if first >> 6 == 2)
}

/// Writes the rest of a compound packet (RFC 3550 §6.1) after `packet`: the sender's description
/// and, if `bye`, a goodbye.
fn finish(
    packet: CompoundBuilder<'_>,
    ssrc: u32,
    bye: bool,
    out: &mut [u8],
) -> Result<usize, RtcpError> {
    let (name, have) = (name(ssrc), out.len());
    let item = SdesItem::builder(SdesItem::CNAME, &name);
    let packet =
        packet.add_packet(Sdes::builder().add_chunk(SdesChunk::builder(ssrc).add_item(item)));
    let written = match bye {
        true => packet.add_packet(Bye::builder().add_source(ssrc)).write_into(out),
        false => packet.write_into(out),
    };
    written.map_err(|e| match e {
        RtcpWriteError::OutputTooSmall(need) => RtcpError::NoRoom { need, have },
        // No other error is possible with one short name and a loss of 24 bits.
        _ => RtcpError::Malformed,
    })
}

impl SenderInfo {
    /// The identifier of this report in a receiver's report: the middle of [`SenderInfo::ntp`].
    pub fn stamp(&self) -> u32 {
        (self.ntp >> 16) as u32
    }

    /// Writes the report, the sender's description and, if `bye`, a goodbye, as one packet (RFC
    /// 3550 §6.1) to the front of `out`; returns its length, at most [`MAX_LEN`].
    pub fn emit(&self, bye: bool, out: &mut [u8]) -> Result<usize, RtcpError> {
        let &SenderInfo { ssrc, ntp, timestamp, packets, octets } = self;
        let report = SenderReport::builder(ssrc)
            .ntp_timestamp(ntp)
            .rtp_timestamp(timestamp)
            .packet_count(packets)
            .octet_count(octets);
        finish(Compound::builder().add_packet(report), ssrc, bye, out)
    }
}

/// Writes the report of the receiver `ssrc` as one packet to the front of `out`: `reception`, if
/// any, its description and, if `bye`, a goodbye. Returns its length, at most [`MAX_LEN`].
pub fn emit_reception(
    ssrc: u32,
    reception: Option<&Reception>,
    bye: bool,
    out: &mut [u8],
) -> Result<usize, RtcpError> {
    let block = |r: &Reception| {
        ReportBlock::builder(r.source)
            .fraction_lost(r.fraction_lost)
            .cumulative_lost(r.lost as u32 & 0xff_ffff)
            .extended_sequence_number(r.highest)
            .interarrival_jitter(r.jitter)
            .last_sender_report_timestamp(r.report)
            .delay_since_last_sender_report_timestamp(r.since)
    };
    let report = ReceiverReport::builder(ssrc);
    let report = match reception {
        Some(reception) => report.add_report_block(block(reception)),
        None => report,
    };
    finish(Compound::builder().add_packet(report), ssrc, bye, out)
}

fn read_block(block: &ReportBlock<'_>) -> Reception {
    Reception {
        source: block.ssrc(),
        fraction_lost: block.fraction_lost(),
        // The 24 bits are signed, which `rtcp-types` leaves to the reader.
        lost: (block.cumulative_lost() << 8) as i32 >> 8,
        highest: block.extended_sequence_number(),
        jitter: block.interarrival_jitter(),
        report: block.last_sender_report_timestamp(),
        since: block.delay_since_last_sender_report_timestamp(),
    }
}

/// Reads one packet. Never panics on any input.
pub fn parse(bytes: &[u8]) -> Result<Control, RtcpError> {
    let (mut report, mut reception) = (None, None);
    let (mut ssrc, mut bye) = (None, false);
    for packet in Compound::parse(bytes).map_err(|_| RtcpError::Malformed)? {
        match packet.map_err(|_| RtcpError::Malformed)? {
            Packet::Sr(sr) => {
                ssrc.get_or_insert(sr.ssrc());
                report = Some(SenderInfo {
                    ssrc: sr.ssrc(),
                    ntp: sr.ntp_timestamp(),
                    timestamp: sr.rtp_timestamp(),
                    packets: sr.packet_count(),
                    octets: sr.octet_count(),
                });
                reception = reception.or(sr.report_blocks().next().map(|b| read_block(&b)));
            }
            Packet::Rr(rr) => {
                ssrc.get_or_insert(rr.ssrc());
                reception = reception.or(rr.report_blocks().next().map(|b| read_block(&b)));
            }
            // A mixer may send it for other sources.
            Packet::Bye(packet) => {
                let first = packet.ssrcs().next();
                bye |= first.is_some_and(|first| *ssrc.get_or_insert(first) == first);
            }
            _ => {}
        }
    }
    let ssrc = ssrc.ok_or(RtcpError::Malformed)?;
    Ok(Control { ssrc, report: report.filter(|r| r.ssrc == ssrc), reception, bye })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(
            ssrc: u32, ntp: u64, timestamp: u32, packets: u32, octets: u32, bye: bool,
        ) {
            let report = SenderInfo { ssrc, ntp, timestamp, packets, octets };
            let mut out = [0; MAX_LEN];
            let len = report.emit(bye, &mut out).unwrap();
            prop_assert!(is_rtcp(&out[..len]));
            let control = Control { ssrc, report: Some(report), reception: None, bye };
            prop_assert_eq!(parse(&out[..len]), Ok(control));
            let need = RtcpError::NoRoom { need: len, have: len - 1 };
            prop_assert_eq!(report.emit(bye, &mut out[..len - 1]), Err(need));
        }

        #[test]
        fn a_receiver_is_read_as_it_was_written(
            ssrc: u32, source: u32, fraction_lost: u8, lost in -(1 << 23)..1 << 23,
            highest: u32, jitter: u32, ntp: u64, since: u32, any: bool, bye: bool,
        ) {
            let sent = SenderInfo { ssrc: source, ntp, timestamp: 0, packets: 0, octets: 0 };
            let report = sent.stamp();
            let said =
                Reception { source, fraction_lost, lost, highest, jitter, report, since };
            let reception = any.then_some(said);
            let mut out = [0; MAX_LEN];
            let len = emit_reception(ssrc, reception.as_ref(), bye, &mut out).unwrap();
            prop_assert!(is_rtcp(&out[..len]));
            let control = Control { ssrc, report: None, reception, bye };
            prop_assert_eq!(parse(&out[..len]), Ok(control));
        }

        #[test]
        fn any_bytes_are_a_packet_or_an_error(
            mut bytes in vec(any::<u8>(), 0..120), lead: bool, kind in 192u8..224,
        ) {
            // Half of the time with a valid header, to get past it.
            if lead && bytes.len() >= 4 {
                let words = (bytes.len() / 4 - 1) as u16;
                (bytes[0], bytes[1]) = (0x80 | bytes[0] & 0x1f, kind);
                bytes[2..4].copy_from_slice(&words.to_be_bytes());
            }
            let Ok(packet) = parse(&bytes) else { return Ok(()) };
            let mut out = [0; MAX_LEN];
            let Control { ssrc, bye, ref reception, .. } = packet;
            let len = emit_reception(ssrc, reception.as_ref(), bye, &mut out).unwrap();
            prop_assert_eq!(parse(&out[..len]), Ok(Control { report: None, ..packet }));
        }

        /// RTP is not taken for RTCP, nor the other way round.
        #[test]
        fn the_two_share_a_port(marker: bool, payload in vec(any::<u8>(), 0..200), first: u8) {
            for payload_type in [crate::rtp::PCMU, crate::rtp::PCMA, 18, 96, 127] {
                let view = crate::rtp::RtpView {
                    payload_type, marker, sequence: 1, timestamp: 2, ssrc: 3, payload: &payload,
                };
                let mut out = [0; 300];
                let len = view.emit(&mut out).unwrap();
                prop_assert!(!is_rtcp(&out[..len]));
            }
            prop_assert!(!is_rtcp(&[first]) && !is_rtcp(&[first & 0x7f, 200, 0, 0]));
        }
    }

    /// As ffmpeg writes it with `-rtpflags send_bye`: a goodbye without a name, in a separate
    /// packet.
    #[test]
    fn others_write_it_otherwise() {
        let bye = [0x81, 203, 0, 1, 0, 0, 0, 7];
        assert_eq!(parse(&bye), Ok(Control { ssrc: 7, report: None, reception: None, bye: true }));
        let empty = [0x80, 201, 0, 1, 0, 0, 0, 9];
        let of_another = [&empty[..], &bye].concat();
        let control = Control { ssrc: 9, report: None, reception: None, bye: false };
        assert_eq!(parse(&of_another), Ok(control));
        assert_eq!(parse(&[]), Err(RtcpError::Malformed));
        assert_eq!(parse(&[0x80, 203, 0, 0]), Err(RtcpError::Malformed), "nobody's end");
    }
}
