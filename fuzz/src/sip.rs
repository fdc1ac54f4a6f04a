//! The parsers of SIP messages and session descriptions, and the results of editing them.

use core::net::{IpAddr, Ipv4Addr};
use trunkline_sip::sdp::{Host, Sdp, SdpEdit};
use trunkline_sip::{Edit, Frame, Framer, Message, Name};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

/// Splits `bytes`, without the line ends at their start, behind the first line's text, which loses
/// the white space at its end.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let begin = bytes.iter().position(|b| !b"\r\n".contains(b)).unwrap_or(0);
    let bytes = &bytes[begin..];
    let end = bytes.iter().position(|&b| b == b'\n').unwrap_or(bytes.len());
    (bytes[..end].trim_ascii_end(), &bytes[end..])
}

/// Parses `datagram` as a SIP message. Only empty lines before it and white space at the end of its
/// first line are left away. After a proxy's edit, the added headers are present, the removed ones
/// are gone, and all else is the same byte for byte.
pub fn message(datagram: &[u8]) {
    let Ok(message) = Message::parse(datagram) else { return };
    let (received, kept) = (first_line(datagram), first_line(message.bytes()));
    assert!(received.0 == kept.0 && received.1.starts_with(kept.1));
    assert!(datagram.len() >= message.bytes().len());
    assert_eq!(Edit::new(&message).finish(), message.bytes());
    let _ = (message.via(), message.from(), message.to(), message.cseq());

    let mut edit = Edit::new(&message);
    edit.push_front(Name::Via, b"SIP/2.0/UDP me;branch=z9hG4bKme");
    let more = Message::parse(&edit.finish()).expect("a message stays one");
    // The message has the same fault afterwards, except for a missing Via.
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
}

/// Returns all messages of a stream, and whether framing was lost.
fn frames(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut framer, mut out) = (Framer::default(), Vec::new());
    for piece in stream.chunks(piece) {
        framer.push(piece);
        while let Some(Ok(frame)) = framer.poll() {
            out.push(match frame {
                Frame::Message(message) => message.bytes().to_vec(),
                Frame::Ping => Vec::new(),
            });
        }
    }
    (out, framer.is_lost())
}

/// Parses `input` as a stream of SIP messages, after one byte that is the size of the pieces in
/// which it arrives. The resulting messages are independent of that size.
pub fn stream(input: &[u8]) {
    let Some((&piece, stream)) = input.split_first() else { return };
    assert_eq!(frames(stream, usize::from(piece).max(1)), frames(stream, stream.len().max(1)));
}

/// Parses `text` as a session description. After an edit, every active stream points to the relay,
/// and is otherwise unchanged.
pub fn sdp(text: &[u8]) {
    let Ok(sdp) = Sdp::parse(text) else { return };
    let unchanged = SdpEdit::new(&sdp).finish();
    let blank = text.strip_prefix(&unchanged[..]).expect("what isn't edited stays as it was");
    let is_blank = blank.iter().all(|byte| b"\r\n\t \0".contains(byte));
    assert!(is_blank, "only blank lines and zero bytes at the end are left away");
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
}
