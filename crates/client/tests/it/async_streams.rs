//! Streams on tokio, against a node behind a Unix socket.

use crate::common::{FAR, FakeNode, Session, SocketPath, connected, refusal};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional, split};
use tokio::time::timeout;
use trunkline_client::{
    Address, AsyncListener, AsyncStream, ConnectOptions, Error, NodeId, RefusalReason, Reset,
};
use trunkline_overlay::session::wire::stream::{MAX_DATA, Notice, Request};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};

const WINDOW: u32 = 256 << 10;
const LONG: Duration = Duration::from_secs(20);

/// An open stream, and the node's side of it.
async fn open(path: &SocketPath, node: &FakeNode, credit: u32) -> (AsyncStream, Session) {
    thread::scope(|scope| {
        let session = scope.spawn(|| {
            let mut session = node.accept_and_bind(0);
            let connect =
                Request::Connect { to: FAR.node, port: FAR.port, messages: false, credit: WINDOW };
            session.expect(connect);
            session.notify(connected(false, credit));
            session
        });
        let runtime = tokio::runtime::Handle::current();
        let stream = tokio::task::block_in_place(|| {
            runtime.block_on(timeout(LONG, AsyncStream::connect(path.as_ref(), FAR)))
        });
        (stream.unwrap().unwrap(), session.join().unwrap())
    })
}

/// Plays the other end: sends `len` bytes within its credit, grants a few bytes at a time, and then
/// ends its direction. Returns all bytes that it received.
fn far_end(mut session: Session, len: usize, grant: u32) -> Vec<u8> {
    let (mut credit, mut sent, mut got) = (WINDOW as usize, 0, Vec::new());
    let (mut granted, mut shut, mut ended) = (grant, false, false);
    loop {
        while sent < len && credit > 0 {
            let n = (len - sent).min(credit).min(MAX_DATA);
            let data: Vec<u8> = (sent..sent + n).map(|n| (n % 251) as u8).collect();
            session.notify(Notice::Data(&data));
            (credit, sent) = (credit - n, sent + n);
        }
        if sent == len && !shut {
            session.notify(Notice::Shut);
            shut = true;
        }
        if shut && ended {
            return got;
        }
        match ToNode::parse(&session.read()).unwrap() {
            ToNode::Stream(Request::Data(bytes)) => {
                got.extend_from_slice(bytes);
                granted = granted.checked_sub(bytes.len() as u32).expect("beyond its credit");
                if granted == 0 {
                    session.notify(Notice::Credit(grant));
                    granted = grant;
                }
            }
            ToNode::Stream(Request::Credit(bytes)) => credit += bytes as usize,
            ToNode::Stream(Request::Shut) => ended = true,
            other => panic!("{other:?}"),
        }
    }
}

fn is_pattern(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_streams_are_copied_into_each_other() {
    let path = SocketPath::new();
    let node = FakeNode::listen(&path);
    for (len_a, len_b) in [(1_000_000, 700_001), (0, 400_000), (300_000, 0)] {
        let (mut a, session_a) = open(&path, &node, 3_001).await;
        let (mut b, session_b) = open(&path, &node, 10_007).await;
        let far_a = thread::spawn(move || far_end(session_a, len_a, 3_001));
        let far_b = thread::spawn(move || far_end(session_b, len_b, 10_007));
        let copied = timeout(LONG, copy_bidirectional(&mut a, &mut b)).await;
        assert_eq!(copied.expect("it stalls").unwrap(), (len_a as u64, len_b as u64));
        let (got_a, got_b) = (far_a.join().unwrap(), far_b.join().unwrap());
        assert_eq!((got_a.len(), got_b.len()), (len_b, len_a));
        assert!(is_pattern(&got_a) && is_pattern(&got_b));
    }
}

/// The halves run in separate tasks, and each depends on events that the other may have taken off
/// the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_task_sleeps_through_the_others_news() {
    const ROUNDS: usize = 2_000;
    let path = SocketPath::new();
    let node = FakeNode::listen(&path);
    let (stream, mut session) = open(&path, &node, 1).await;
    let far = thread::spawn(move || {
        for n in 0..ROUNDS {
            session.read_data(1);
            session.notify(Notice::Credit(1));
            session.notify(Notice::Data(&[n as u8]));
        }
        session
    });
    let (mut reader, mut writer) = split(stream);
    let written = tokio::spawn(async move {
        for _ in 0..ROUNDS {
            writer.write_all(&[1]).await.unwrap();
        }
        writer
    });
    let read = tokio::spawn(async move {
        for n in 0..ROUNDS {
            assert_eq!(reader.read_u8().await.unwrap(), n as u8);
        }
        reader
    });
    let (reader, writer) = (timeout(LONG, read).await, timeout(LONG, written).await);
    let stream = reader.expect("the reader sleeps").unwrap();
    let mut stream = stream.unsplit(writer.expect("the writer sleeps").unwrap());
    let mut session = far.join().unwrap();

    // A half that waited once and is no longer polled does not block the other.
    let (mut reader, mut writer) = split(stream);
    let byte = timeout(Duration::from_millis(20), reader.read_u8()).await;
    assert!(byte.is_err());
    session.notify(Notice::Credit(1));
    timeout(LONG, writer.write_all(&[1; 2])).await.expect("it sleeps").unwrap();
    stream = reader.unsplit(writer);
    let blocked = timeout(Duration::from_millis(20), stream.write_all(&[1])).await;
    assert!(blocked.is_err());
    session.notify(Notice::Data(&[5]));
    assert_eq!(timeout(LONG, stream.read_u8()).await.expect("it sleeps").unwrap(), 5);

    session.notify(Notice::Reset(Reset::Stalled));
    let error = timeout(LONG, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(matches!(stream.into_inner().read(&mut [0]), Err(Error::Reset(Reset::Stalled))));
}

#[tokio::test]
async fn connect_says_why_not() {
    fn sendable<T: Send>(future: T) -> T {
        future
    }
    let path = SocketPath::new();
    let connect = || sendable(AsyncStream::connect(path.as_ref(), FAR));
    assert!(matches!(connect().await, Err(Error::NotRunning { .. })));
    let node = FakeNode::listen(&path);
    let behaved = thread::spawn(move || {
        let mut session = node.accept();
        session.read();
        session.say(&refusal(RefusalReason::Version, 0, 0));
        let mut session = node.accept_and_bind(0);
        session.read();
        session.notify(Notice::Reset(Reset::NotListening));
        let mut session = node.accept_and_bind(9);
        session.read();
        (node, session)
    });
    assert!(matches!(connect().await, Err(Error::Version)));
    assert!(matches!(connect().await, Err(Error::Reset(Reset::NotListening))));
    let options = ConnectOptions::new().port(9).timeout(Duration::from_millis(50));
    let error = options.connect_async(path.as_ref(), FAR).await.unwrap_err();
    assert!(matches!(error, Error::Reset(Reset::Timeout)), "{error}");
    behaved.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_come_in_also_after_a_restart() {
    fn sendable<T: Send>(future: T) -> T {
        future
    }
    let path = SocketPath::new();
    let node = FakeNode::listen(&path);
    let far = thread::spawn(move || {
        let mut listener = node.accept_and_bind(5);
        listener.expect(Request::Listen { backlog: 32 });
        let mut streams = VecDeque::new();
        for token in 0..4 {
            if token == 2 {
                drop(listener);
                listener = node.accept_and_bind(5);
                listener.expect(Request::Listen { backlog: 32 });
            }
            let (from, port) = (FAR.node, FAR.port);
            let incoming = Notice::Incoming { token, from, port, messages: false };
            listener.say(&ToClient::Stream(incoming));
            let mut stream = node.accept();
            stream.expect(Request::Accept { version: SESSION_VERSION, token, credit: WINDOW });
            stream.notify(connected(false, 9));
            stream.notify(Notice::Data(&[token as u8]));
            streams.push_back(stream);
        }
        streams
    });
    let listener = sendable(AsyncListener::bind(path.as_ref(), 5)).await.unwrap();
    assert_eq!(listener.get_ref().local(), Address { node: NodeId(1), port: 5 });
    for n in 0..4 {
        let accepted = timeout(LONG, sendable(listener.accept())).await.expect("it sleeps");
        let (mut stream, from) = accepted.unwrap();
        assert_eq!(from, FAR);
        assert_eq!(timeout(LONG, stream.read_u8()).await.expect("it sleeps").unwrap(), n);
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown().await.unwrap();
    }
    for mut stream in far.join().unwrap() {
        stream.expect(Request::Data(b"bye"));
        stream.expect(Request::Shut);
    }
}
