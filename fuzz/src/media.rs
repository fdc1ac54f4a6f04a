//! The parsers of RTP, RTCP and WAV files: bytes → value → the same value.

use trunkline_media::{audio, rtcp, rtp};

/// Reads `datagram` as RTP. What the parser accepts survives emitting and parsing again.
pub fn rtp(datagram: &[u8]) {
    let Ok(packet) = rtp::parse(datagram) else { return };
    let mut out = vec![0; rtp::HEADER_LEN + packet.payload.len()];
    let len = packet.emit(&mut out).expect("a header and the payload fit");
    assert_eq!(rtp::parse(&out[..len]), Ok(packet));
}

/// Reads `datagram` as RTCP. What either end says of a stream survives emitting and parsing
/// again.
pub fn rtcp(datagram: &[u8]) {
    let Ok(packet) = rtcp::parse(datagram) else { return };
    let mut out = [0; rtcp::MAX_LEN];
    if let Some(report) = packet.report {
        let len = report.emit(packet.bye, &mut out).expect("it fits");
        assert!(rtcp::is_rtcp(&out[..len]));
        let sender = rtcp::Control { reception: None, ..packet };
        assert_eq!(rtcp::parse(&out[..len]), Ok(sender));
    }
    let said = packet.reception;
    let len = rtcp::emit_reception(packet.ssrc, said.as_ref(), packet.bye, &mut out);
    let receiver = rtcp::Control { report: None, ..packet };
    assert_eq!(rtcp::parse(&out[..len.expect("it fits")]), Ok(receiver));
}

/// Reads `file` as a WAV file. It never gives more sound than the file has bytes for.
pub fn wav(file: &[u8]) {
    if let Ok(pcm) = audio::read_wav(file) {
        // The lowest rate it takes is 1 kHz: one byte becomes eight samples.
        assert!(pcm.len() <= 8 * file.len());
    }
}
