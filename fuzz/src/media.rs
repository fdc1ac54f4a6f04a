//! The parsers of RTP, RTCP and WAV files: bytes to value and back to the same value.

use trunkline_media::{audio, rtcp, rtp};

/// Parses `datagram` as RTP. An accepted packet survives emitting and parsing again.
pub fn rtp(datagram: &[u8]) {
    let Ok(packet) = rtp::parse(datagram) else { return };
    let mut out = vec![0; rtp::HEADER_LEN + packet.payload.len()];
    let len = packet.emit(&mut out).expect("a header and the payload fit");
    assert_eq!(rtp::parse(&out[..len]), Ok(packet));
}

/// Parses `datagram` as RTCP. The reports of both ends survive emitting and parsing again.
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

/// Parses `file` as a WAV file. The samples are bounded by the size of the file.
pub fn wav(file: &[u8]) {
    if let Ok(pcm) = audio::read_wav(file) {
        // The lowest rate accepted is 1 kHz, where one byte becomes eight samples.
        assert!(pcm.len() <= 8 * file.len());
    }
}
