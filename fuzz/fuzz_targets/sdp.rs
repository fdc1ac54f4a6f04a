//! No session description makes the parser panic. Of what it accepts, all streams that
//! are wanted are then wanted where the relay says, and each is what it was.
#![no_main]

use core::net::{IpAddr, Ipv4Addr};
use libfuzzer_sys::fuzz_target;
use trunkline_sip::sdp::{Host, Sdp, SdpEdit};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

fuzz_target!(|text: &[u8]| {
    let Ok(sdp) = Sdp::parse(text) else { return };
    let unchanged = SdpEdit::new(&sdp).finish();
    let blank = text.strip_prefix(&unchanged[..]).expect("what isn't edited stays as it was");
    assert!(blank.iter().all(|byte| b"\r\n".contains(byte)), "only blank lines are left away");
    let mut edit = SdpEdit::new(&sdp);
    for (n, media) in sdp.media().iter().enumerate() {
        if media.port != 0 {
            edit.redirect(n, HERE, 5_000);
            edit.remove_attribute(Some(n), "x-here");
            edit.add_attribute(n, "x-here", "y");
        }
    }
    let changed = edit.finish();
    let after = Sdp::parse(&changed).expect("a description stays one");
    assert_eq!(after.media().len(), sdp.media().len());
    for (n, (old, new)) in sdp.media().iter().zip(after.media()).enumerate() {
        let same = |m: &trunkline_sip::sdp::Media<'_>| (m.transport, m.direction);
        assert_eq!((old.kind, old.formats, same(old)), (new.kind, new.formats, same(new)));
        assert_eq!(new.ports, if old.port == 0 { old.ports } else { 1 });
        if old.port != 0 {
            assert_eq!(new.port, 5_000);
            assert!(new.host == Host::Address(HERE) || old.is_held_by_address());
            assert_eq!(after.attributes(Some(n), "x-here").count(), 1);
        }
    }
});
