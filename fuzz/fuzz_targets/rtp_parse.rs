//! No datagram makes the RTP parser panic, and what it accepts survives
//! emitting and parsing again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_media::rtp;

fuzz_target!(|datagram: &[u8]| {
    let Ok(packet) = rtp::parse(datagram) else { return };
    let mut out = vec![0; rtp::HEADER_LEN + packet.payload.len()];
    let len = packet.emit(&mut out).expect("a header and the payload fit");
    assert_eq!(rtp::parse(&out[..len]), Ok(packet));
});
