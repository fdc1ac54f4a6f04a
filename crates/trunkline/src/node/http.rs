//! `/metrics` for Prometheus and `/healthz` for whoever restarts daemons.

use super::metrics;
use crate::datapath::Asker;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at once, lest they take the descriptors that applications need:
/// several scrapers, and who looks by hand. The next waits for one of these.
const CONNECTIONS: usize = 32;

/// A connection on which nothing moves for so long is closed. A scraper connects
/// again.
const IDLE: Duration = Duration::from_secs(10);

/// Takes the address; whoever connects waits for [`serve`].
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves on `listener` from a thread of its own, until the process ends.
pub fn serve(listener: TcpListener, asker: Asker) -> io::Result<()> {
    let app = Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(health_page))
        .with_state(asker);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".into()).spawn(move || {
        let served = runtime
            .block_on(async { axum::serve(Door::new(listener, CONNECTIONS, IDLE)?, app).await });
        if let Err(error) = served {
            tracing::error!(%error, "metrics are no longer served");
        }
    })?;
    Ok(())
}

const SILENT: (StatusCode, &str) =
    (StatusCode::SERVICE_UNAVAILABLE, "the packet thread does not answer\n");

/// The packet thread answers within a second; that wait must not hold up
/// another request.
async fn ask<T: Send + 'static>(
    asker: Asker,
    what: impl FnOnce(&Asker) -> Option<T> + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(move || what(&asker)).await.ok().flatten()
}

async fn metrics_page(State(asker): State<Asker>) -> Response {
    let text = |asker: &Asker| metrics::render(asker.snapshot()?, asker.all_flows().ok()?).ok();
    let Some(text) = ask(asker, text).await else {
        return SILENT.into_response();
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn health_page(State(asker): State<Asker>) -> Response {
    match ask(asker, Asker::snapshot).await {
        Some(_) => "ok\n".into_response(),
        None => SILENT.into_response(),
    }
}

/// Lets in so many at once.
struct Door {
    listener: tokio::net::TcpListener,
    places: Arc<Semaphore>,
    idle: Duration,
}

impl Door {
    fn new(listener: TcpListener, places: usize, idle: Duration) -> io::Result<Door> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        Ok(Door { listener, places: Arc::new(Semaphore::new(places)), idle })
    }
}

impl axum::serve::Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        // Nobody closes the semaphore.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, from) = axum::serve::Listener::accept(&mut self.listener).await;
        let until = Box::pin(sleep(self.idle));
        (Visit { stream, until, idle: self.idle, _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when nothing moves on it.
struct Visit {
    stream: TcpStream,
    until: Pin<Box<Sleep>>,
    idle: Duration,
    _place: Option<OwnedSemaphorePermit>,
}

impl Visit {
    /// `done`, or an error if that is still to come and it is too late.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.until.as_mut().reset(Instant::now() + self.idle);
            return done;
        }
        self.until.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.in_time(cx, done)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.in_time(cx, done)
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

    #[test]
    fn so_many_at_once_and_none_that_is_silent_for_long() {
        let listener = bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let app = Router::new().route("/", get(|| async { "here" }));
                axum::serve(Door::new(listener, 2, Duration::from_millis(300)).unwrap(), app).await
            })
        });
        let connect = |say: &[u8]| {
            let mut stream = std::net::TcpStream::connect(address).expect("it listens");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
            stream.write_all(say).expect("it takes that");
            stream
        };
        let begun = std::time::Instant::now();
        let mut silent = [connect(b""), connect(b"GET / HT")];
        let mut third = connect(b"GET / HTTP/1.0\r\n\r\n");
        let mut text = String::new();
        third.read_to_string(&mut text).expect("an answer");
        assert!(text.ends_with("here"), "{text}");
        assert!(begun.elapsed() >= Duration::from_millis(300), "it did not wait for a place");
        for stream in &mut silent {
            // What has begun a request may be told why.
            stream.read_to_end(&mut Vec::new()).expect("closed");
        }
    }
}
