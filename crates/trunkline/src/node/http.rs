//! `/metrics` for Prometheus and `/healthz` for supervisors.

use super::metrics;
use crate::addresses;
use crate::datapath::NodeHandle;
use crate::sip;
use axum::Router;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::IncomingStream;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Maximum number of connections, so that they don't take the descriptors that applications need:
/// enough for several scrapers and a manual look. See [`LimitedListener`] for one more.
const CONNECTIONS: usize = 32;

/// Time limit for a whole connection, from its first byte to the last of the answer, so that a slow
/// sender can't keep its slot. A connection serves one request: a scraper that connects every 15 s
/// would find an idle one closed.
const IN_ALL: Duration = Duration::from_secs(10);

/// Binds the address; clients wait until [`serve`] runs.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = addresses::tcp(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves on `listener` from a dedicated thread, until the process ends.
pub fn serve(
    listener: TcpListener,
    handle: NodeHandle,
    sip: Option<sip::GatewayHandle>,
) -> io::Result<()> {
    let app = Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(health_page))
        .with_state((handle, sip));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".into()).spawn(move || {
        if let Err(error) = runtime.block_on(run(listener, app, CONNECTIONS, IN_ALL)) {
            tracing::error!(%error, "metrics are no longer served");
        }
    })?;
    Ok(())
}

async fn run(
    listener: TcpListener,
    app: Router,
    places: usize,
    in_all: Duration,
) -> io::Result<()> {
    let app = app.layer(middleware::from_fn(one_request));
    let app = app.into_make_service_with_connect_info::<Turn>();
    axum::serve(LimitedListener::new(listener, places, in_all)?, app).await
}

/// Marks that the node now owes the answer, and closes the connection after it.
async fn one_request(ConnectInfo(turn): ConnectInfo<Turn>, asked: Request, next: Next) -> Response {
    turn.set(true);
    let mut answer = next.run(asked).await;
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

const SILENT: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "the packet thread does not answer\n");

/// Queries the packet thread without blocking other requests. It answers within a second.
async fn ask<T: Send + 'static>(
    handle: NodeHandle,
    what: impl FnOnce(&NodeHandle) -> Option<T> + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(move || what(&handle)).await.ok().flatten()
}

/// Handles of the node and its gateway, which answer requests.
type Askers = (NodeHandle, Option<sip::GatewayHandle>);

async fn metrics_page(State((handle, sip)): State<Askers>, asked: HeaderMap) -> Response {
    // A hung gateway must not hide the node.
    let text = move |handle: &NodeHandle| {
        let report = sip.as_ref().and_then(|sip| sip.report(0, usize::MAX));
        metrics::render(handle.snapshot()?, handle.all_flows().ok()?, report).ok()
    };
    let Some(text) = ask(handle, text).await else {
        return SILENT.into_response();
    };
    // Prometheus requests OpenMetrics. The output of `curl` is meant for `promtool check metrics`,
    // which reads only the older format.
    let mut accepts = asked.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let (kind, text) = match accepts.any(|kinds| kinds.contains("application/openmetrics-text")) {
        true => (metrics::OPEN_METRICS, text),
        false => (metrics::CLASSIC, metrics::classic(&text)),
    };
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn health_page(State((handle, _)): State<Askers>) -> Response {
    match ask(handle, NodeHandle::snapshot).await {
        Some(_) => "ok\n".into_response(),
        None => SILENT.into_response(),
    }
}

/// Accepts a limited number of connections. When all slots are taken, a new connection gets the
/// slot of the one that has kept the node waiting longest.
struct LimitedListener {
    listener: tokio::net::TcpListener,
    places: Arc<Semaphore>,
    in_all: Duration,
    /// Open connections, oldest first; some may have ended.
    visits: VecDeque<(Turn, oneshot::Sender<()>)>,
}

/// Grace period in which a connection without a request is not closed: a client that sends its
/// request immediately has done so by then, however many silent ones connect.
const GRACE: Duration = Duration::from_millis(100);
/// Interval at which the listener looks again for a connection to close.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl LimitedListener {
    fn new(listener: TcpListener, places: usize, in_all: Duration) -> io::Result<LimitedListener> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let places = Arc::new(Semaphore::new(places));
        Ok(LimitedListener { listener, places, in_all, visits: VecDeque::new() })
    }

    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        loop {
            self.visits.retain(|(_, send_away)| !send_away.is_closed());
            if self.places.available_permits() == 0
                && let Some(i) = self.visits.iter().position(|(turn, _)| turn.is_theirs())
                && let Some((_, send_away)) = self.visits.remove(i)
            {
                // It may be closing already.
                let _ = send_away.send(());
            }
            let free = Arc::clone(&self.places).acquire_owned();
            if let Ok(place) = timeout(LOOK_AGAIN, free).await {
                // The semaphore is never closed.
                return place.ok();
            }
        }
    }
}

impl axum::serve::Listener for LimitedListener {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        let (stream, from) = axum::serve::Listener::accept(&mut self.listener).await;
        let place = self.place().await;
        let (send_away, sent_away) = oneshot::channel();
        let turn = Turn { since: Instant::now(), ours: Arc::default() };
        self.visits.push_back((turn.clone(), send_away));
        let until = Box::pin(sleep(self.in_all));
        (Visit { stream, until, sent_away, turn, _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether a connection is waiting for the node: its request is complete, and the answer is not
/// waiting for the client to read it.
#[derive(Clone)]
struct Turn {
    since: Instant,
    ours: Arc<AtomicBool>,
}

impl Turn {
    fn set(&self, ours: bool) {
        self.ours.store(ours, Ordering::Relaxed);
    }

    fn is_theirs(&self) -> bool {
        !self.ours.load(Ordering::Relaxed) && self.since.elapsed() >= GRACE
    }
}

impl Connected<IncomingStream<'_, LimitedListener>> for Turn {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Turn {
        stream.io().turn.clone()
    }
}

/// A connection with a time limit.
struct Visit {
    stream: TcpStream,
    until: Pin<Box<Sleep>>,
    sent_away: oneshot::Receiver<()>,
    turn: Turn,
    _place: Option<OwnedSemaphorePermit>,
}

impl Visit {
    /// Fails when the time limit is exceeded.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let late = self.until.as_mut().poll(cx).is_ready();
        match late || Pin::new(&mut self.sent_away).poll(cx).is_ready() {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.poll_over(cx) {
            Poll::Ready(over) => Poll::Ready(over),
            Poll::Pending => Pin::new(&mut self.stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(over) = self.poll_over(cx) {
            return Poll::Ready(over.map(|()| 0));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_pending() {
            self.turn.set(false);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::thread;

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Serves with two slots and a limit of `in_all` for each connection. The answer takes a third
    /// of a second, or exceeds all buffers in between.
    fn serve(in_all: Duration) -> SocketAddr {
        let listener = bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        thread::spawn(move || {
            let page = || async {
                sleep(Duration::from_millis(300)).await;
                "here"
            };
            let app = Router::new().route("/", get(page));
            let app = app.route("/large", get(|| async { vec![b'x'; 64 << 20] }));
            runtime.block_on(run(listener, app, 2, in_all))
        });
        address
    }

    fn connect(to: SocketAddr, say: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(to).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        stream.write_all(say).expect("it takes that");
        stream
    }

    fn answer(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// Sends a byte at a time until the connection is closed; returns the time of that.
    fn dribble(mut stream: TcpStream) -> Instant {
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let gone = match stream.read(&mut [0; 100]) {
                Ok(n) => n == 0,
                Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            };
            if gone || stream.write_all(b"x").is_err() {
                return Instant::now();
            }
            assert!(Instant::now() < until, "it is never sent away");
        }
    }

    #[test]
    fn a_request_has_so_long_in_all_however_it_dribbles() {
        let address = serve(Duration::from_millis(600));
        let begun = Instant::now();
        let silent = connect(address, b"");
        let dribbling = connect(address, b"GET / HTTP/1.1\r\nX: ");
        let dribbled = thread::spawn(move || dribble(dribbling));
        answer(silent);
        for ended in [Instant::now(), dribbled.join().expect("it ends")] {
            let took = ended - begun;
            assert!((600..5_000).contains(&took.as_millis()), "{took:?}");
        }
    }

    #[test]
    fn the_reader_of_an_answer_has_no_longer() {
        let address = serve(Duration::from_millis(600));
        let mut slow = connect(address, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
        thread::sleep(Duration::from_millis(1_500));
        let (mut got, mut some) = (0, vec![0; 1 << 20]);
        while let Ok(n @ 1..) = slow.read(&mut some) {
            got += n;
        }
        assert!(got < 64 << 20, "it was kept for all of the answer");
    }

    #[test]
    fn whoever_keeps_the_node_waiting_makes_place_and_nobody_else() {
        let address = serve(Duration::from_secs(15));
        let begun = Instant::now();
        let large = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
        // Clients that send no request, send it slowly, or don't read; always more than there are
        // slots.
        let crowd = || [connect(address, b""), connect(address, b"GET"), connect(address, large)];
        let mut idle: Vec<_> = crowd().into();
        let dribbling = connect(address, b"GET / HTTP/1.1\r\nX: ");
        let dribbled = thread::spawn(move || dribble(dribbling));
        let whole = [connect(address, ASK), connect(address, ASK)];
        // While these two are being answered, their slots are safe.
        thread::sleep(Duration::from_millis(100));
        idle.extend(crowd());
        for stream in whole {
            let text = answer(stream);
            assert!(text.ends_with("here"), "{text}");
            assert!(text.to_lowercase().contains("connection: close"), "{text}");
        }
        assert!(answer(connect(address, ASK)).ends_with("here"));
        dribbled.join().expect("it is sent away");
        assert!(begun.elapsed() < Duration::from_secs(10), "it waited: {:?}", begun.elapsed());
    }
}
