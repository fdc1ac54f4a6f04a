//! The parsers of outside bytes: bytes → value → the same bytes.

use trunkline_base::wire::Writer;
use trunkline_overlay::node::{EchoMessage, MIN_SIZE};
use trunkline_overlay::session::remote::{Datagram, FrameReader, FromClient, FromNode};
use trunkline_overlay::session::wire::{MAX_HEAD, ToClient, ToNode};
use trunkline_overlay::wire::{
    ENVELOPE_OVERHEAD, Frame, Frames, Incarnation, Nack, Null, Opened, Seal, open_header,
};

/// Reads `bytes` as an envelope, and all of them as frames too, so that the
/// fuzzer need not guess an envelope to reach the frames.
pub fn envelope(bytes: &[u8]) {
    frames(bytes);
    let Ok(header) = open_header(bytes) else { return };
    let mut opened = bytes.to_vec();
    let mut receiver = Seal::Null(Null::new(header.receiver, Incarnation(0)));
    let Ok((first, counter)) = receiver.open(&mut opened) else { return };
    assert_eq!(counter, u64::from(header.counter));
    assert_eq!(
        first,
        Opened::Fresh { first: true },
        "the first envelope of a peer is a fresh start"
    );
    assert_eq!(receiver.open(&mut opened), Ok((Opened::Same, header.counter.into())));
    assert_eq!(opened, bytes, "opening leaves an unsealed envelope as it is");
    frames(Seal::frames(bytes));

    // Sealed again it is the same, but for the sender's counter, which starts
    // at 0 here.
    let tag = &bytes[bytes.len() - 16..];
    let incarnation = tag.first_chunk().map(|b| Incarnation(u64::from_be_bytes(*b)));
    let mut sender = Seal::Null(Null::new(header.receiver, incarnation.unwrap()));
    let mut again = vec![0; bytes.len()];
    Seal::frames_mut(&mut again).copy_from_slice(Seal::frames(bytes));
    sender.seal(&mut again);
    again[4..8].copy_from_slice(&header.counter.to_be_bytes());
    assert_eq!(again, bytes);
    assert_eq!(again.len(), Seal::frames(&again).len() + ENVELOPE_OVERHEAD);
}

fn frames(plaintext: &[u8]) {
    let mut out = vec![0; plaintext.len()];
    let mut w = Writer::new(&mut out);
    let mut whole = true;
    for frame in Frames::new(plaintext) {
        let start = w.len();
        match frame {
            Ok(frame) => emit(&frame, &mut w),
            Err(_) => {
                whole = false;
                continue;
            }
        }
        let (came, went) = (&plaintext[start..w.len()], &w.written()[start..]);
        if came != went {
            // The one freedom: a hello that echoes nothing may write anything
            // as the timestamp that it does not echo.
            assert!(matches!(frame, Ok(Frame::Hello(h)) if h.echo.is_none()), "{frame:?}");
            assert_eq!((&came[..7], &came[11..]), (&went[..7], &went[11..]));
        }
        assert_eq!(Frames::new(went).next(), Some(frame));
    }
    assert!(!whole || w.room() == 0, "what is not an error is a frame");
}

fn emit(frame: &Frame<'_>, w: &mut Writer<'_>) {
    match frame {
        Frame::Data(header, payload) => {
            let len = payload.len().try_into().expect("a length is 16 bits");
            header.emit(len, w).and_then(|()| w.bytes(payload))
        }
        Frame::Hello(hello) => hello.emit(w),
        Frame::Nack(nack) => Nack::emit(&nack.ranges().collect::<Vec<_>>(), w),
        Frame::Routing(frame) => w.bytes(frame),
    }
    .expect("a frame takes the room that it came from");
}

/// Reads `message` as either end of a session would.
pub fn session_message(message: &[u8]) {
    if let Ok(parsed) = ToNode::parse(message) {
        let payload = match parsed {
            ToNode::Send { payload, .. } => payload,
            ToNode::Bind { .. } | ToNode::Metric(_) => &[],
        };
        let again = with_head(payload, |w| parsed.emit_head(w).expect("a head fits MAX_HEAD"));
        assert_eq!(ToNode::parse(&again), Ok(parsed));
        // What a newer client may have appended to a bind is not kept.
        assert!(message.starts_with(&again));
        assert!(matches!(parsed, ToNode::Bind { .. }) || message == again);
    }
    if let Ok(parsed) = ToClient::parse(message) {
        let payload = match parsed {
            ToClient::Received { payload, .. } => payload,
            ToClient::Bound { .. } | ToClient::Error { .. } => &[],
        };
        let again = with_head(payload, |w| parsed.emit_head(w).expect("a head fits MAX_HEAD"));
        assert_eq!(ToClient::parse(&again), Ok(parsed));
        assert!(message.starts_with(&again));
        assert!(!matches!(parsed, ToClient::Received { .. }) || message == again);
    }
}

/// Reads `bytes` as a datagram, as one message either way, and as a stream of
/// messages that comes in pieces.
pub fn remote_message(bytes: &[u8]) {
    if let Ok(datagram) = Datagram::parse(bytes) {
        assert_eq!([&datagram.head()[..], datagram.message].concat(), bytes);
        carried(datagram.message);
    }
    carried(bytes);
    let (mut reader, mut rest) = (FrameReader::default(), bytes);
    while let Some(size) = rest.first() {
        let room = reader.room();
        let n = room.len().min(rest.len()).min(usize::from(*size).max(1));
        room[..n].copy_from_slice(&rest[..n]);
        rest = &rest[n..];
        match reader.filled(n) {
            Ok(message) => message.into_iter().for_each(carried),
            Err(_) => return,
        }
    }
}

fn carried(message: &[u8]) {
    let written = |emit: &dyn Fn(&mut Writer<'_>)| {
        let mut out = vec![0; message.len().max(16)];
        let mut w = Writer::new(&mut out);
        emit(&mut w);
        w.written().to_vec()
    };
    if let Ok(parsed) = FromClient::parse(message) {
        let again = written(&|w| parsed.emit(w).expect("no longer than it came"));
        // What a newer client may have appended is not kept.
        assert!(message.starts_with(&again));
        assert_eq!(FromClient::parse(&again), Ok(parsed));
    }
    if let Ok(parsed) = FromNode::parse(message) {
        let again = written(&|w| parsed.emit(w).expect("no longer than it came"));
        assert!(message.starts_with(&again));
        assert_eq!(FromNode::parse(&again), Ok(parsed));
    }
}

fn with_head(payload: &[u8], emit: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    emit(&mut w);
    [w.written(), payload].concat()
}

/// Reads `payload` as a packet between two nodes.
pub fn echo_message(payload: &[u8]) {
    let Some(message) = EchoMessage::parse(payload) else { return };
    let mut head = [0; MIN_SIZE];
    message.emit(&mut Writer::new(&mut head)).unwrap();
    assert_eq!(head, payload[..MIN_SIZE]);
}
