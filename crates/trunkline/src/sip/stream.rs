//! SIP connections: TCP, and TLS over it.

use super::Input;
use super::tls::Tls;
use crate::clock;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use trunkline_base::Time;
use trunkline_sip::transaction::Hop;
use trunkline_sip::{Frame, Framer, Message, Start, reply};

/// Maximum number of messages queued for a connection.
pub const OUTBOX: usize = 512;

/// Maximum number of bytes queued for all connections with one address.
pub const ROOM: usize = 4 << 20;

/// A message that waits to be written, and its share of the room.
pub struct Waiting {
    /// Message as it is written.
    pub bytes: Vec<u8>,
    /// The part of [`ROOM`] that the message occupies until it is dropped.
    pub room: OwnedSemaphorePermit,
}

/// Time limit for establishing a connection.
pub const CONNECT: Duration = Duration::from_secs(5);
/// The same for a connection that is made only because a request is long: UDP will do.
pub const BRIEF: Duration = Duration::from_millis(500);

/// Time for the rest of a stream whose last message has been refused, and its maximum size in bytes.
const PARTING: Duration = Duration::from_secs(1);
const MAX_UNREAD: usize = 1 << 20;

/// Time limit for the other end to accept a message.
const WRITE: Duration = Duration::from_secs(10);

/// Time limit for the first message on a connection: the duration of a transaction.
pub const FIRST: Duration = Duration::from_secs(32);

/// Silence after which the system probes a connection, the interval and number of its probes, and the
/// time after which an other end that answers nothing has vanished. Dead connections must not keep an
/// address from new ones.
const PROBE: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
const VANISHED: Duration = Duration::from_secs(40);

/// Channel ends and parameters of a connection's task.
pub struct Line {
    /// Source of its messages.
    pub hop: Hop,
    /// Queue for received messages.
    pub inbox: mpsc::Sender<Input>,
    /// Queue of messages to send.
    pub outbox: mpsc::Receiver<Waiting>,
    /// Time limit for the first message in either direction; `None` once it has passed.
    pub patience: Option<Duration>,
    /// When bytes last arrived.
    pub activity: Arc<Activity>,
}

/// When bytes last arrived on a connection. Those sent to it show no use of it.
#[derive(Debug, Default)]
pub struct Activity {
    last: AtomicU64,
}

impl Activity {
    /// The activity of a connection that is being made now.
    pub fn begin() -> Arc<Activity> {
        let activity = Activity::default();
        activity.bytes();
        Arc::new(activity)
    }

    /// Notes that bytes have arrived: a keep-alive, too, shows that a connection is wanted.
    fn bytes(&self) {
        self.last.store(clock::now().as_nanos(), Ordering::Relaxed);
    }

    /// Time of the last byte that has arrived, or of the beginning.
    pub fn last(&self) -> Time {
        Time::from_nanos(self.last.load(Ordering::Relaxed))
    }
}

/// Serves an incoming connection until it ends.
pub async fn serve(tls: Option<Tls>, stream: TcpStream, line: Line) {
    let (inbox, connection) = (line.inbox.clone(), line.hop.connection);
    keep_alive(&stream);
    let ended = match tls.map(|tls| tls.acceptor) {
        None => carry(stream, line).await,
        Some(Some(acceptor)) => {
            match tokio::time::timeout(CONNECT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => carry(stream, line).await,
                Ok(Err(error)) => Err(error),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        }
        Some(None) => Err(io::ErrorKind::Unsupported.into()),
    };
    over(ended);
    report(None, &inbox, connection).await;
}

/// Establishes a connection and serves it until it ends. With TLS the other end must present a
/// certificate for `name` or, without a name, for its address. `patience` bounds the time until TCP is
/// connected.
pub async fn connect((tls, name): (Option<Tls>, Option<String>), patience: Duration, line: Line) {
    let (inbox, connection) = (line.inbox.clone(), line.hop.connection);
    let to = line.hop.remote.ip();
    let why = match (open(line.hop, patience).await, tls.map(|tls| tls.connector)) {
        (Err(error), _) => Some(error),
        (Ok(_), Some(None)) => Some(io::Error::other("[sip] needs `roots` to verify servers")),
        (Ok(stream), None) => {
            over(carry(stream, line).await);
            None
        }
        (Ok(stream), Some(Some(connector))) => match secure(connector, stream, name, to).await {
            Err(error) => Some(error),
            Ok(stream) => {
                over(carry(stream, line).await);
                None
            }
        },
    };
    report(why, &inbox, connection).await;
}

/// Logs the end of an established connection; most end with an error.
fn over(ended: io::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a SIP connection has ended");
    }
}

async fn open(to: Hop, patience: Duration) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(patience, TcpStream::connect(to.remote)).await;
    let stream = stream.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    keep_alive(&stream);
    Ok(stream)
}

async fn secure(
    connector: TlsConnector,
    stream: TcpStream,
    name: Option<String>,
    to: IpAddr,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = match name {
        Some(name) => ServerName::try_from(name).map_err(io::Error::other)?,
        None => ServerName::from(to),
    };
    let made = tokio::time::timeout(CONNECT, connector.connect(name, stream));
    made.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn report(why: Option<io::Error>, inbox: &mpsc::Sender<Input>, connection: Option<u64>) {
    if let Some(connection) = connection {
        let _ = inbox.send(Input::Closed(connection, why)).await;
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let written = tokio::time::timeout(WRITE, stream.write_all(bytes)).await;
    written.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Lets the system end a connection whose other end has vanished, within [`VANISHED`]: whether it is
/// silent, or doesn't acknowledge what is sent.
fn keep_alive(stream: &TcpStream) {
    let often = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(PROBES);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&often);
    let _ = socket.set_tcp_user_timeout(Some(VANISHED));
    let _ = stream.set_nodelay(true);
}

/// Moves messages in both directions.
async fn carry(mut stream: impl AsyncRead + AsyncWrite + Unpin, mut line: Line) -> io::Result<()> {
    let first = tokio::time::sleep(line.patience.unwrap_or(Duration::MAX));
    tokio::pin!(first);
    let mut framer = Framer::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let room = framer.room().min(buffer.len());
        tokio::select! {
            read = stream.read(&mut buffer[..room]) => match read? {
                0 => return Ok(()),
                n => {
                    line.activity.bytes();
                    framer.push(&buffer[..n]);
                    if !take(&mut framer, &mut stream, &mut line).await? {
                        part(&mut stream, &mut buffer).await;
                        return Ok(());
                    }
                }
            },
            message = line.outbox.recv() => match message {
                Some(Waiting { bytes, room }) => {
                    line.patience = None;
                    write(&mut stream, &bytes).await?;
                    drop(room);
                }
                None => return Ok(()),
            },
            // Slots are meant for peers that send messages.
            () = &mut first, if line.patience.is_some() => return Ok(()),
        }
    }
}

/// Passes on complete messages; false if the rest can't be parsed.
async fn take(
    framer: &mut Framer,
    stream: &mut (impl AsyncWrite + Unpin),
    line: &mut Line,
) -> io::Result<bool> {
    while let Some(frame) = framer.poll() {
        match frame {
            // Without its body the message would mean something else.
            Ok(Frame::Message(message)) if framer.is_lost() => {
                refuse(&message, stream, line).await?;
            }
            Ok(Frame::Message(message)) => {
                line.patience = None;
                let input = Input::Message(line.hop, Box::new(message));
                if line.inbox.send(input).await.is_err() {
                    return Ok(false);
                }
            }
            Ok(Frame::Ping) => write(stream, b"\r\n").await?,
            Err(error) => {
                let why = (error.to_string(), None);
                let _ = line.inbox.send(Input::Malformed(line.hop, error.is_for_size(), why)).await;
                return Err(io::Error::other(error.to_string()));
            }
        }
    }
    Ok(!framer.is_lost())
}

/// Answers the last message of a stream: the start of the next one is unknown.
async fn refuse(
    message: &Message,
    stream: &mut (impl AsyncWrite + Unpin),
    line: &mut Line,
) -> io::Result<()> {
    let is_asked = matches!(message.start(), Start::Request { method, .. } if method != b"ACK");
    let (code, why) = match message.excess() {
        Some(limit) => (limit.code(), limit.to_string()),
        None => (400, "Bad Content-Length".to_owned()),
    };
    let code = Some(code).filter(|_| is_asked && message.via().is_some());
    let is_for_size = message.excess().is_some();
    let _ = line.inbox.send(Input::Malformed(line.hop, is_for_size, (why.clone(), code))).await;
    if let Some(code) = code {
        let said = (code, &*why);
        write(stream, &reply::response(message, line.hop.remote, said, b"fault", b"")).await?;
    }
    Ok(())
}

/// Lets the answer to a last message arrive: a connection that is closed with unread bytes is reset,
/// and the answer with it.
async fn part(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), buffer: &mut [u8]) {
    let read_on = async {
        stream.shutdown().await?;
        for _ in 0..MAX_UNREAD / buffer.len() {
            if stream.read(buffer).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(PARTING, read_on).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::config;
    use tokio::net::TcpListener;

    /// Files with a self-signed certificate for `name`.
    fn tls(name: &str) -> Tls {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = |of: &str, text: String| {
            let path = directory.path().join(of);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate = file("certificate.pem", made.cert.pem());
        let key = file("key.pem", made.signing_key.serialize_pem());
        Tls::read(&config::Tls { own: Some((certificate.clone(), key)), roots: Some(certificate) })
            .unwrap()
    }

    /// Whether a message reaches a server that presents a certificate for `shown`, when the client
    /// expects `wanted`.
    async fn talks(shown: &str, wanted: Option<&str>) -> bool {
        let tls = tls(shown);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = listener.local_addr().unwrap();
        let (at_server, mut server) = mpsc::channel(9);
        let (at_client, mut client) = mpsc::channel(9);
        let line = |inbox: &mpsc::Sender<Input>| {
            let (outbox, reader) = mpsc::channel(9);
            let hop = Hop { socket: 0, remote, connection: Some(1) };
            (
                outbox,
                Line {
                    hop,
                    inbox: inbox.clone(),
                    outbox: reader,
                    patience: None,
                    activity: Activity::begin(),
                },
            )
        };
        let (_answers, at) = line(&at_server);
        let shows = Some(tls.clone());
        tokio::spawn(async move { serve(shows, listener.accept().await.unwrap().0, at).await });
        let (outbox, from) = line(&at_client);
        tokio::spawn(connect((Some(tls), wanted.map(str::to_owned)), CONNECT, from));
        let room = Arc::new(tokio::sync::Semaphore::new(ROOM)).try_acquire_many_owned(9).unwrap();
        let bytes = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n".to_vec();
        let _ = outbox.send(Waiting { bytes, room }).await;
        tokio::select! {
            input = server.recv() => matches!(input, Some(Input::Message(..))),
            input = client.recv() => !matches!(input, Some(Input::Closed(1, Some(_)))),
        }
    }

    #[test]
    fn a_request_that_does_not_say_how_long_it_is_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut phone = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (inbox, mut inputs) = mpsc::channel(9);
            let (_answers, outbox) = mpsc::channel(9);
            let (stream, remote) = listener.accept().await.unwrap();
            let hop = Hop { socket: 0, remote, connection: Some(1) };
            tokio::spawn(serve(
                None,
                stream,
                Line { hop, inbox, outbox, patience: None, activity: Activity::begin() },
            ));
            let invite = b"INVITE sip:b@h SIP/2.0\r\nVia: SIP/2.0/TCP a;branch=z9hG4bK1\r\n\
                From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n\
                Content-Type: application/sdp\r\n\r\nv=0\r\n";
            phone.write_all(invite).await.unwrap();
            let mut answer = String::new();
            phone.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("SIP/2.0 400 Bad Content-Length\r\n"), "{answer}");
            let Some(Input::Malformed(..)) = inputs.recv().await else { panic!("{answer}") };
            drop(phone);
            assert!(matches!(inputs.recv().await, Some(Input::Closed(1, None))));
        });
    }

    #[test]
    fn a_request_that_is_too_large_is_refused_before_the_connection_is_closed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let fields = "Via: SIP/2.0/TCP a;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
                To: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n";
            let line = format!("X: {}\r\n", "y".repeat(32 << 10));
            let many = "X: y\r\n".repeat(60_000);
            for (head, length) in [
                (format!("{line}{fields}"), 0),
                (format!("{fields}{line}"), 0),
                (format!("{fields}{many}"), 0),
                (fields.to_owned(), 70_000),
            ] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut phone = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let (inbox, mut inputs) = mpsc::channel(9);
                let (_answers, outbox) = mpsc::channel(9);
                let (stream, remote) = listener.accept().await.unwrap();
                let hop = Hop { socket: 0, remote, connection: Some(1) };
                let activity = Activity::begin();
                let line = Line { hop, inbox, outbox, patience: None, activity };
                tokio::spawn(serve(None, stream, line));
                let first = "INVITE sip:b@h SIP/2.0\r\n";
                let invite = format!("{first}{head}Content-Length: {length}\r\n\r\n");
                phone.write_all(invite.as_bytes()).await.unwrap();
                let mut answer = String::new();
                phone.read_to_string(&mut answer).await.unwrap();
                assert!(answer.starts_with("SIP/2.0 513 Message Too Large: "), "{answer}");
                assert!(answer.contains("\r\nCSeq: 1 INVITE\r\n"), "{answer}");
                let said = inputs.recv().await;
                let Some(Input::Malformed(_, true, (_, Some(513)))) = said else { panic!() };
                drop(phone);
                assert!(matches!(inputs.recv().await, Some(Input::Closed(1, None))));
            }
        });
    }

    #[test]
    fn the_system_ends_a_connection_whose_other_end_has_vanished() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let hop = Hop { socket: 0, remote: listener.local_addr().unwrap(), connection: None };
            let made = open(hop, CONNECT).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            keep_alive(&accepted);
            for stream in [made, accepted] {
                let socket = SockRef::from(&stream);
                assert!(socket.keepalive().unwrap());
                let after = socket.tcp_keepalive_time().unwrap();
                let probes = socket.tcp_keepalive_interval().unwrap();
                let count = socket.tcp_keepalive_retries().unwrap();
                assert!(after + count * probes <= Duration::from_secs(40));
                let unacknowledged = socket.tcp_user_timeout().unwrap();
                assert!(unacknowledged.is_some_and(|time| time <= Duration::from_secs(40)));
            }
        });
    }

    #[test]
    fn who_connects_and_says_nothing_has_to_go() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let message = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n";
            for said in [&b""[..], b"\r\n\r\n", &message[..20], &message[..]] {
                let (mut phone, stream) = tokio::io::duplex(999);
                let (inbox, mut inputs) = mpsc::channel(9);
                let (_answers, outbox) = mpsc::channel(9);
                let hop =
                    Hop { socket: 0, remote: ([192, 0, 2, 1], 1).into(), connection: Some(1) };
                let patience = Some(Duration::from_millis(50));
                let over = tokio::spawn(carry(
                    stream,
                    Line { hop, inbox, outbox, patience, activity: Activity::begin() },
                ));
                phone.write_all(said).await.unwrap();
                let stays = said.len() == message.len();
                if stays {
                    assert!(matches!(inputs.recv().await, Some(Input::Message(..))));
                }
                let ended = tokio::time::timeout(Duration::from_millis(300), over).await;
                assert_eq!(ended.is_err(), stays, "{said:?}");
            }
        });
    }

    #[test]
    fn who_is_connected_to_shows_that_it_is_who_was_asked_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            assert!(talks("pbx.example", Some("pbx.example")).await);
            assert!(!talks("pbx.example", Some("other.example")).await);
            assert!(!talks("pbx.example", None).await);
            assert!(talks("127.0.0.1", None).await);
            assert!(!talks("127.0.0.1", Some("pbx.example")).await);
        });
    }
}
