//! No datagram makes the RTCP parser panic, and what it says of a stream survives
//! emitting and parsing again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_media::rtcp;

fuzz_target!(|datagram: &[u8]| {
    let Ok(packet) = rtcp::parse(datagram) else { return };
    let Some(report) = packet.report else { return };
    let mut out = [0; rtcp::MAX_LEN];
    let len = report.emit(packet.bye, &mut out).expect("it fits");
    assert!(rtcp::is_rtcp(&out[..len]));
    assert_eq!(rtcp::parse(&out[..len]), Ok(packet));
});
