//! A TCP connection and a stream, between which data are copied in both directions.

use super::reset_on_close;
use super::tally::Tally;
use crate::clock;
use crate::sys::{self, TcpProgress};
use socket2::{SockRef, TcpKeepalive};
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use trunkline_client::{AsyncStream, Error, Reset};

/// Bytes copied at a time: a few TCP segments, or a few messages of a node.
const CHUNK: usize = 16 << 10;

/// Maximum of unsent bytes in the system's buffer for a slow reader. While they are queued, nothing
/// is read from the stream, and the nodes treat a program that reads nothing for minutes as
/// stalled.
const UNSENT: u32 = 64 << 10;

/// Interval between two looks whether the other end of a TCP connection acknowledges what is in
/// flight, and their number until it counts as gone. That is two minutes, and a little more: the
/// system probes a closed window every two minutes in the end.
const LOOK: Duration = Duration::from_secs(5);
const LOOKS: u32 = 26;

/// A connection without data in flight is probed by the system: after this silence, at this
/// interval and so often until the other end counts as gone, two minutes in all.
const IDLE: Duration = Duration::from_secs(60);
const PROBE: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// A TCP connection that is reset unless it has [ended well](Tcp::end).
pub struct Tcp(TcpStream);

impl Tcp {
    pub fn new(tcp: TcpStream) -> Tcp {
        reset_on_close(&tcp, true);
        // Data that a program writes have already been combined, or should not be.
        let _ = tcp.set_nodelay(true);
        // Without keepalive, a connection would stay forever after its host has gone.
        let keepalive =
            TcpKeepalive::new().with_time(IDLE).with_interval(PROBE).with_retries(PROBES);
        let _ = SockRef::from(&tcp).set_tcp_keepalive(&keepalive);
        let _ = SockRef::from(&tcp).set_tcp_notsent_lowat(UNSENT);
        Tcp(tcp)
    }

    /// Resolves when the connection has been reset.
    pub async fn lost(&self) -> io::Error {
        match self.0.ready(Interest::ERROR).await {
            Ok(_) => {
                self.0.take_error().ok().flatten().unwrap_or(ErrorKind::ConnectionReset.into())
            }
            Err(error) => error,
        }
    }

    /// Resolves when nothing of what was sent has been acknowledged for two minutes: the system
    /// would retransmit for a quarter of an hour. (`TCP_USER_TIMEOUT` would also end connections
    /// whose other end is there but reads nothing.)
    async fn vanished(&self) -> io::Error {
        let mut looks = 0;
        while looks < LOOKS {
            tokio::time::sleep(LOOK).await;
            let TcpProgress { is_waiting, last_ack } = sys::tcp_progress(&self.0);
            looks = if is_waiting && last_ack >= LOOK { looks + 1 } else { 0 };
        }
        ErrorKind::TimedOut.into()
    }

    async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            match self.0.try_read(buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.0.writable().await?;
            match self.0.try_write(bytes) {
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes closing the connection end it properly instead of resetting it: the system still
    /// delivers the data written so far.
    fn end(&self) {
        reset_on_close(&self.0, false);
    }
}

/// A stream that is reset unless it has [ended well](Stream::end).
pub struct Stream {
    stream: AsyncStream,
    ended: bool,
}

impl Stream {
    pub fn new(stream: AsyncStream) -> Stream {
        Stream { stream, ended: false }
    }

    fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ended {
            // This fails if the other end or its node has already reset the stream.
            let _ = self.stream.get_ref().reset();
        }
    }
}

/// Reason why a connection was reset.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    #[error("TCP: {0}")]
    Tcp(io::Error),
    #[error("the stream: {0}")]
    Stream(Error),
    #[error("the stream: {0}")]
    StreamIo(io::Error),
    #[error("nothing passed for as long as --idle allows")]
    Idle,
}

impl Lost {
    /// Whether this is worth logging: not an ordinary reset by the programs at the two ends.
    pub fn is_news(&self) -> bool {
        match self {
            Lost::Tcp(_) => false,
            Lost::Idle => true,
            Lost::Stream(error) => is_news(error),
            Lost::StreamIo(error) => {
                let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
                inner.is_none_or(is_news)
            }
        }
    }
}

fn is_news(error: &Error) -> bool {
    !matches!(error, Error::Reset(Reset::Aborted | Reset::Closed))
}

/// A TCP connection and its stream.
pub struct Pair<'a> {
    tcp: Tcp,
    stream: Stream,
    tally: &'a Tally,
    /// Time of the last copied data, in nanoseconds of the clock.
    passed: AtomicU64,
    is_whole: bool,
}

impl Pair<'_> {
    pub fn new(tcp: Tcp, stream: Stream, tally: &Tally) -> Pair<'_> {
        let passed = AtomicU64::new(clock::now().as_nanos());
        Pair { tcp, stream, tally, passed, is_whole: false }
    }

    /// Copies in both directions until both have ended and each side has received everything. If
    /// one side is reset, or nothing is copied for `idle`, both are reset and the error states the
    /// reason.
    pub async fn run(mut self, idle: Option<Duration>) -> Result<(), Lost> {
        let both = async {
            tokio::try_join!(self.up(), self.down())?;
            self.stream.stream.finish().await.map_err(Lost::Stream)
        };
        tokio::select! {
            // Data that both sides sent before a reset are copied first.
            biased;
            ended = both => ended?,
            error = self.tcp.lost() => return Err(Lost::Tcp(error)),
            error = self.tcp.vanished() => return Err(Lost::Tcp(error)),
            // Nothing more is reported to the reader of a stream after its end.
            Err(error) = self.stream.stream.finish() => return Err(Lost::Stream(error)),
            () = self.idle(idle) => return Err(Lost::Idle),
        }
        self.is_whole = true;
        self.tcp.end();
        self.stream.end();
        Ok(())
    }

    /// Copies from the TCP connection to the stream.
    async fn up(&self) -> Result<(), Lost> {
        let mut stream = &self.stream.stream;
        let mut buf = vec![0; CHUNK];
        loop {
            let n = self.tcp.read(&mut buf).await.map_err(Lost::Tcp)?;
            if n == 0 {
                return stream.shutdown().await.map_err(Lost::StreamIo);
            }
            stream.write_all(&buf[..n]).await.map_err(Lost::StreamIo)?;
            self.tally.went(n);
            self.note();
        }
    }

    /// Copies from the stream to the TCP connection.
    async fn down(&self) -> Result<(), Lost> {
        let mut stream = &self.stream.stream;
        let mut buf = vec![0; CHUNK];
        loop {
            let n = stream.read(&mut buf).await.map_err(Lost::StreamIo)?;
            if n == 0 {
                return SockRef::from(&self.tcp.0).shutdown(Shutdown::Write).map_err(Lost::Tcp);
            }
            self.tcp.write_all(&buf[..n]).await.map_err(Lost::Tcp)?;
            self.tally.came(n);
            self.note();
        }
    }

    fn note(&self) {
        self.passed.store(clock::now().as_nanos(), Ordering::Relaxed);
    }

    /// Resolves when nothing has been copied in either direction for `limit`; never, if that is
    /// `None`.
    async fn idle(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return pending().await };
        loop {
            let silent =
                clock::now().as_nanos().saturating_sub(self.passed.load(Ordering::Relaxed));
            match limit.checked_sub(Duration::from_nanos(silent)) {
                None | Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        self.tally.ended(self.is_whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;

    #[test]
    fn a_vanished_client_is_probed_after_a_minute_and_gone_after_two() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let tcp = Tcp::new(TcpStream::from_std(tcp).unwrap());
        let socket = SockRef::from(&tcp.0);
        assert!(socket.keepalive().unwrap());
        let (time, interval) = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
        let (time, interval) = (time.unwrap(), interval.unwrap());
        assert_eq!(time, Duration::from_secs(60));
        let retries = socket.tcp_keepalive_retries().unwrap();
        assert_eq!(time + retries * interval, Duration::from_secs(120));
    }

    #[test]
    fn an_end_that_acknowledges_but_does_not_read_has_not_vanished() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        tcp.set_nonblocking(true).unwrap();
        while (&tcp).write(&[0; 4_096]).is_ok() {}
        std::thread::sleep(Duration::from_millis(500));
        let state = sys::tcp_progress(&tcp);
        assert!(!state.is_waiting || state.last_ack < LOOK, "{state:?}");
    }
}
