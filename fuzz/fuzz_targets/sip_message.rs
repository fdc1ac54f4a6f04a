//! No datagram makes the SIP parser panic. What a proxy adds to a message is there, what
//! it takes away is gone, and all else stays byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_sip::{Edit, Message, Name};

fuzz_target!(|datagram: &[u8]| {
    let Ok(message) = Message::parse(datagram) else { return };
    assert!(datagram.starts_with(message.bytes()));
    assert_eq!(Edit::new(&message).finish(), message.bytes());
    let _ = (message.via(), message.from(), message.to(), message.cseq());

    let mut edit = Edit::new(&message);
    edit.push_front(Name::Via, b"SIP/2.0/UDP me;branch=z9hG4bKme");
    let more = Message::parse(&edit.finish()).expect("a message stays one");
    // What is wrong with it is as wrong afterwards, but that a hop may have been missing.
    let hopless = message.list(Name::Via).next().is_none();
    assert!(hopless || more.fault() == message.fault());
    let mut edit = Edit::new(&more);
    edit.pop(Name::Via, 1);
    assert_eq!(edit.finish(), message.bytes());

    let mut edit = Edit::new(&message);
    edit.set(Name::MaxForwards, b"7");
    edit.pop(Name::Route, 1);
    let part = message.part("application/sdp").map_or(message.body(), |part| part.bytes);
    edit.set_part(part, b"new");
    let changed = Message::parse(&edit.finish()).expect("a message stays one");
    let length = message.body().len() - part.len() + 3;
    assert_eq!((changed.max_forwards(), changed.body().len()), (Some(7), length));
    let routes = message.list(Name::Route).count();
    assert_eq!(changed.list(Name::Route).count(), routes.saturating_sub(1));
});
