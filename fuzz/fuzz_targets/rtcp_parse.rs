//! No datagram makes the RTCP parser panic, and what either end says of a stream
//! survives emitting and parsing again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_media::rtcp;

fuzz_target!(|datagram: &[u8]| {
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
});
