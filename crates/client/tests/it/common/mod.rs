//! A fake node that sends what a test requires.

#[path = "../../../../trunkline/tests/it/common/on_time.rs"]
pub mod on_time;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trunkline_base::wire::Writer;
use trunkline_client::{Address, DatagramSocket, Error, NodeId};
use trunkline_overlay::session::wire::stream::{Notice, Request};
use trunkline_overlay::session::wire::{
    MAX_HEAD, MAX_MESSAGE, RefusalReason, SESSION_VERSION, ToClient, ToNode,
};

/// A unique socket path, removed when dropped.
pub struct SocketPath(PathBuf);

impl SocketPath {
    pub fn new() -> SocketPath {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("trunkline-client-test-{}-{number}.sock", std::process::id());
        SocketPath(std::env::temp_dir().join(name))
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub struct FakeNode(UnixListener);

impl FakeNode {
    pub fn listen(path: &SocketPath) -> FakeNode {
        let _ = fs::remove_file(path);
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None);
        let fd = fd.unwrap();
        bind(fd.as_raw_fd(), &UnixAddr::new(path.as_ref()).unwrap()).unwrap();
        listen(&fd, Backlog::new(8).unwrap()).unwrap();
        FakeNode(UnixListener::from(fd))
    }

    /// Accepts a session without answering it.
    pub fn accept(&self) -> Session {
        assert!(readable(&self.0, 5_000), "nobody connects");
        let (stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Session(stream)
    }

    /// Accepts a session that requests `port`, and gives it `port` or, if that is 0, 4321.
    pub fn accept_and_bind(&self, port: u16) -> Session {
        let mut session = self.accept();
        let bind = session.read();
        assert_eq!(ToNode::parse(&bind), Ok(ToNode::Bind { version: SESSION_VERSION, port }));
        session.say(&bound(if port == 0 { 4321 } else { port }));
        session
    }
}

pub fn bound(port: u16) -> ToClient<'static> {
    ToClient::Bound { node: NodeId(1), port, max_payload: 1200 }
}

pub fn refusal(refusal: RefusalReason, node: u32, port: u16) -> ToClient<'static> {
    ToClient::Error { refusal, node: NodeId(node), port }
}

/// One accepted client connection.
pub struct Session(UnixStream);

impl Session {
    /// Reads the next message; empty at the end of the session.
    pub fn read(&mut self) -> Vec<u8> {
        let mut buf = vec![0; MAX_MESSAGE];
        let len = self.0.read(&mut buf).unwrap();
        buf.truncate(len);
        buf
    }

    /// Reads the next message, which must equal `request`.
    #[track_caller]
    pub fn expect(&mut self, request: Request<'_>) {
        assert_eq!(ToNode::parse(&self.read()), Ok(ToNode::Stream(request)));
    }

    /// Reads `len` bytes of data from the next messages; credit in between is ignored.
    #[track_caller]
    pub fn read_data(&mut self, len: usize) -> Vec<u8> {
        let mut data = Vec::new();
        while data.len() < len {
            match ToNode::parse(&self.read()) {
                Ok(ToNode::Stream(Request::Data(bytes))) => data.extend_from_slice(bytes),
                Ok(ToNode::Stream(Request::Credit(_))) => {}
                other => panic!("no data: {other:?}"),
            }
        }
        data
    }

    /// Sends a notice about a stream.
    pub fn notify(&mut self, notice: Notice<'_>) {
        self.say(&ToClient::Stream(notice));
    }

    pub fn say(&mut self, message: &ToClient<'_>) {
        self.say_bytes(&emit(message));
    }

    pub fn say_bytes(&mut self, bytes: &[u8]) {
        // A client that rejected an earlier message may have hung up.
        match self.0.write_all(bytes) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.unwrap(),
        }
    }
}

pub fn emit(message: &ToClient<'_>) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    message.emit_head(&mut w).unwrap();
    let mut bytes = w.written().to_vec();
    bytes.extend_from_slice(message.payload());
    bytes
}

/// Notice that a stream is open, from 1:4321 to 7:70.
pub fn connected(messages: bool, credit: u32) -> Notice<'static> {
    Notice::Connected {
        node: NodeId(1),
        port: 4321,
        peer: FAR.node,
        peer_port: FAR.port,
        messages,
        credit,
    }
}

/// A received packet from 7:70.
pub fn packet(payload: &[u8]) -> ToClient<'_> {
    ToClient::Received {
        service: trunkline_client::Service::RealTime,
        recovered: true,
        remaining_ms: 42,
        flow_seq: 65_535,
        from: NodeId(7),
        port: 70,
        payload,
    }
}

pub const FAR: Address = Address { node: NodeId(7), port: 70 };

/// A socket on `port`, and the node's side of its session.
pub fn attach(node: &FakeNode, path: &SocketPath, port: u16) -> (DatagramSocket, Session) {
    thread::scope(|scope| {
        let socket = scope.spawn(|| DatagramSocket::bind(path.as_ref(), port));
        let session = node.accept_and_bind(port);
        (socket.join().unwrap().unwrap(), session)
    })
}

/// Result of bind when the node's first message is `answer`.
pub fn bind_answered(
    node: &FakeNode,
    path: &SocketPath,
    answer: &[u8],
) -> Result<DatagramSocket, Error> {
    thread::scope(|scope| {
        let socket = scope.spawn(|| DatagramSocket::bind(path.as_ref(), 5));
        let mut session = node.accept();
        session.read();
        if !answer.is_empty() {
            session.say_bytes(answer);
        }
        drop(session);
        socket.join().unwrap()
    })
}

pub fn readable(fd: impl AsFd, wait_ms: u16) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(wait_ms)).unwrap() == 1
}

/// Retries until the condition holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
