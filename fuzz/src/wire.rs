//! The parsers of external bytes: bytes to value and back to the same bytes.

use std::sync::{LazyLock, Mutex, PoisonError};
use trunkline_base::Time;
use trunkline_base::wire::Writer;
use trunkline_overlay::identity::Identity;
use trunkline_overlay::node::{EchoMessage, MIN_SIZE, PortUnbound};
use trunkline_overlay::session::remote::{
    Backlog, DATAGRAM_HEAD, Datagram, FrameReader, FromClient, FromNode, Keys, Limits, Opening,
    Responder, Token,
};
use trunkline_overlay::session::wire::stream::{Notice, Request};
use trunkline_overlay::session::wire::{MAX_HEAD, ToClient, ToNode};
use trunkline_overlay::trunk;
use trunkline_overlay::wire::{
    ENVELOPE_OVERHEAD, Frame, Frames, Incarnation, Nack, Null, Opened, Seal, SelectiveAck,
    open_header,
};

/// Parses `bytes` as an envelope, and also all of them as frames, so that the fuzzer reaches the
/// frames without guessing an envelope.
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

    // Sealing it again yields the same bytes, except for the sender's counter, which starts at 0
    // here.
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
            // Only a hello may differ: its unknown values may have any bytes, and unknown flags are
            // ignored.
            assert!(matches!(frame, Ok(Frame::Hello(_))), "{frame:?}");
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
        Frame::Nack(nack) => Nack::emit(nack.service, &nack.ranges().collect::<Vec<_>>(), w),
        Frame::Routing(frame) => w.bytes(frame),
        Frame::Goodbye(goodbye) => goodbye.emit(w),
        Frame::Path(path) => path.emit(w),
        Frame::Ack(ack) => SelectiveAck::emit(&ack.head, &ack.ranges().collect::<Vec<_>>(), w),
    }
    .expect("a frame takes the room that it came from");
}

/// Parses `message` as either end of a session would.
pub fn session_message(message: &[u8]) {
    if let Ok(parsed) = ToNode::parse(message) {
        let again =
            with_head(parsed.payload(), |w| parsed.emit_head(w).expect("a head fits MAX_HEAD"));
        assert_eq!(ToNode::parse(&again), Ok(parsed));
        match parsed {
            // Data appended by a newer client are not kept.
            ToNode::Bind { .. } => assert!(message.starts_with(&again)),
            // Unknown flags are not kept either.
            ToNode::Stream(Request::Connect { .. }) => assert_eq!(message.len(), again.len()),
            _ => assert_eq!(message, again),
        }
    }
    if let Ok(parsed) = ToClient::parse(message) {
        let again =
            with_head(parsed.payload(), |w| parsed.emit_head(w).expect("a head fits MAX_HEAD"));
        assert_eq!(ToClient::parse(&again), Ok(parsed));
        match parsed {
            ToClient::Received { .. } | ToClient::Stream(Notice::Data(_)) => {
                assert_eq!(message, again);
            }
            // Unknown flags and reasons are not kept.
            ToClient::Stream(_) => assert!(message.len() >= again.len()),
            _ => assert!(message.starts_with(&again)),
        }
    }
}

/// Parses `bytes` as a datagram, as one message in either direction, and as a stream of messages
/// that arrives in pieces; each in the clear and sealed.
pub fn remote_message(bytes: &[u8]) {
    authenticating(bytes);
    sealed(bytes);
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

/// Identities of a client and of the node that admits it.
fn identities() -> (Identity, Identity) {
    (Identity::from_secret(&[1; 32]), Identity::from_secret(&[2; 32]))
}

pub(crate) fn responder() -> Responder {
    let (client, node) = identities();
    Responder::new(&node, &[client.public()], Limits::default(), [3; 32])
}

/// Starts a handshake of this client, and returns its first message.
pub(crate) fn opening() -> (Opening, Vec<u8>) {
    let (client, node) = identities();
    Opening::begin(&client, &node.public(), [4; 32]).expect("a key")
}

/// The two ends of a connection, in step.
static ENDS: LazyLock<Mutex<(Keys, Keys)>> = LazyLock::new(|| {
    let (opening, first) = opening();
    let answered = responder().answer(&first, Token(7)).expect("a known client");
    let (token, keys) = opening.finish(&answered.response).expect("by the node");
    assert_eq!(token, Token(7));
    Mutex::new((keys, answered.keys))
});

/// Checks that only bytes made by a client authenticate it.
fn authenticating(bytes: &[u8]) {
    static OWN: LazyLock<Vec<u8>> = LazyLock::new(|| opening().1);
    if let Ok(FromClient::Initiation(message)) = FromClient::parse(bytes) {
        // The fuzzer finds no valid MAC, so the code behind the check is called directly.
        let mut node = responder();
        let checked = node.check(Time::ZERO, ([192, 0, 2, 1], 7).into(), message).is_ok();
        let answered = responder().answer(message, Token(7)).is_ok();
        assert!(message == *OWN || !(checked && answered));
    }
    if let Ok(FromNode::Response(message)) = FromNode::parse(bytes) {
        // The answer in the seed has a different ephemeral key from this handshake's.
        let _ = opening().0.finish(message);
    }
}

/// Checks that each end opens exactly the messages that the other seals.
fn sealed(bytes: &[u8]) {
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    let (a, b) = &mut *ends;
    assert_eq!(b.open_datagram(&mut bytes.to_vec()), None, "a forged datagram");
    let Some((first, message)) = bytes.split_first() else { return };
    let head = Datagram { token: Token(7), counter: (*first).into(), message: &[] }.head();
    let mut datagram = [&head[..], message].concat();
    let tag = a.seal_datagram(&head, &mut datagram[DATAGRAM_HEAD..]).expect("not used up");
    datagram.extend(tag);
    assert_eq!(b.open_datagram(&mut datagram), Some(DATAGRAM_HEAD + message.len()));
    assert_eq!(&datagram[DATAGRAM_HEAD..][..message.len()], message);

    let (mut out, mut reader) = (Backlog::default(), FrameReader::default());
    let messages: Vec<_> = message.chunks(usize::from(*first).max(1)).collect();
    for message in &messages {
        assert!(out.seal(a, [message, &[]]));
    }
    let (mut rest, mut read) = (out.rest(), messages.iter());
    while !rest.is_empty() {
        let room = reader.room();
        let n = room.len().min(rest.len());
        room[..n].copy_from_slice(&rest[..n]);
        rest = &rest[n..];
        if reader.filled(n).expect("a length that was written").is_some() {
            assert!(reader.open(b));
            assert_eq!(reader.whole(), read.next().copied());
        }
    }
    assert_eq!(read.next(), None);
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
        // Data appended by a newer client are not kept.
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

/// Parses `payload` as a message between the two ends of a trunk, and accepts all of it.
pub fn trunk_message(payload: &[u8]) {
    let Some(message) = trunk::Message::parse(payload) else { return };
    let mut head = [0; 32];
    let mut w = Writer::new(&mut head);
    message.emit(&mut w).expect("there is room for each message");
    assert_eq!(w.written(), &payload[..w.len()]);
    assert_eq!(PortUnbound::parse(payload), None);
    assert_eq!(EchoMessage::parse(payload), None);
    let trunk::Message::Packets(head, rest) = message else { return };
    let mut bytes = Vec::new();
    for entry in trunk::Entries::new(&head, rest) {
        let Ok(entry) = entry else { return };
        let begin = bytes.len();
        entry.push(&mut bytes);
        assert_eq!(bytes.len() - begin, entry.size());
        // A definition may be longer than its known part.
        if !matches!(entry, trunk::Entry::Definition { .. }) {
            assert!(rest.windows(entry.size()).any(|part| part == &bytes[begin..]));
        }
    }
}

/// Parses `payload` as a packet between two nodes.
pub fn echo_message(payload: &[u8]) {
    if let Some(message) = PortUnbound::parse(payload) {
        let mut bytes = [0; PortUnbound::SIZE];
        message.emit(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!(bytes, payload[..PortUnbound::SIZE]);
        assert_eq!(EchoMessage::parse(payload), None);
    }
    let Some(message) = EchoMessage::parse(payload) else { return };
    let mut head = [0; MIN_SIZE];
    message.emit(&mut Writer::new(&mut head)).unwrap();
    assert_eq!(head, payload[..MIN_SIZE]);
}
