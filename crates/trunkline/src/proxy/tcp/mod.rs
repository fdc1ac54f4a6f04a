//! TCP connections over the overlay, each as one stream.

mod pair;
mod tally;

use super::endpoint::EndpointHost;
use super::share::{Origin, Place, Shares};
use super::{Args, Error, cannot, cannot_listen};
use crate::stop::Signals;
use pair::{Pair, Stream, Tcp};
use socket2::SockRef;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;
use tally::{RefusedConnection, Tally};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trunkline_client::{
    Address, AsyncListener, AsyncStream, Attachment, Error as ClientError, NodeId, StreamListener,
};

/// Time that a TCP server may take to accept a connection.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay before accepting again after the process ran out of descriptors.
const NO_FILES: Duration = Duration::from_millis(100);

/// The state that all connections of the proxy share.
struct Proxy {
    at: Attachment,
    places: Arc<Semaphore>,
    max: usize,
    shares: Shares,
    idle: Option<Duration>,
    tally: Tally,
}

/// Listener for connections or streams, and their destination.
enum Inlet {
    Tcp(TcpListener, Address),
    Overlay(Box<AsyncListener>, Arc<[SocketAddr]>),
}

/// Runs the proxy until a signal arrives; `own` is the local node's number.
pub fn run(args: &Args, at: Attachment, own: NodeId, stop: &Signals) -> Result<(), Error> {
    check(args)?;
    let (max, each) = args.max_flows();
    let (places, idle) = (Arc::new(Semaphore::new(max)), args.idle.map(|span| span.0));
    let shares = Shares::new(each);
    let proxy = Arc::new(Proxy { at, places, max, shares, idle, tally: Tally::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(cannot("start", ""))?;
    let ended = runtime.block_on(async {
        let inlets = listen(args, &proxy, own).await?;
        errln!("listening on {}, sending to {}", args.listen, args.send);
        // The tasks end with the runtime.
        let serve = |inlet| match inlet {
            Inlet::Tcp(listener, to) => tokio::spawn(from_tcp(proxy.clone(), listener, to)),
            Inlet::Overlay(listener, to) => {
                tokio::spawn(from_overlay(proxy.clone(), *listener, to))
            }
        };
        let _tasks: Vec<_> = inlets.into_iter().map(serve).collect();
        // This is deprecated, since another type's descriptor might be closed while in use. This
        // one outlives it, and the replacement is unsafe to call.
        #[allow(deprecated)]
        let signals = AsyncFd::with_interest(stop.as_fd().as_raw_fd(), Interest::READABLE);
        let signals = signals.map_err(cannot("wait for signals", ""))?;
        signals.readable().await.map(drop).map_err(cannot("wait for signals", ""))
    });
    // Dropping the runtime resets all open connections.
    drop(runtime);
    if ended.is_ok() {
        match args.json {
            true => outln!("{}", proxy.tally.json()),
            false => outln!("{}", proxy.tally.line()),
        }
    }
    ended
}

fn check(args: &Args) -> Result<(), Error> {
    let given = match (args.service, args.deadline) {
        (Some(_), _) => "--service",
        (_, Some(_)) => "--deadline",
        _ => return Ok(()),
    };
    Err(Error::Usage(format!(
        "{given} is for udp: a stream is reliable, and has no deadline: leave it out"
    )))
}

/// Binds the ports that the proxy listens on.
async fn listen(args: &Args, proxy: &Proxy, own: NodeId) -> Result<Vec<Inlet>, Error> {
    let (listen, send) = (&args.listen, &args.send);
    let end = if matches!(listen.place, EndpointHost::Tcp(_)) { listen } else { send };
    let what = format!("find the address of {end}");
    let hosts = end.hosts().map_err(cannot(what, "; is the name right?"))?;
    let with_port = |port| hosts.iter().map(move |host| SocketAddr::new(host.ip(), port));
    let mut inlets = Vec::new();
    for (port, to) in listen.ports().zip(send.ports()) {
        match (&listen.place, &send.place) {
            (EndpointHost::Node(node), _) if *node != own => {
                return Err(Error::Usage(format!(
                    "cannot listen on {node}:{port}: the node at {} is {own}, so it would be \
                     {own}:{port}",
                    proxy.at
                )));
            }
            (EndpointHost::Node(_), _) => {
                // The backlog equals the maximum number of open streams.
                let listener =
                    StreamListener::with_backlog(proxy.at.clone(), port, args.max_flows)?;
                let listener = AsyncListener::new(listener)?;
                inlets.push(Inlet::Overlay(Box::new(listener), with_port(to).collect()));
            }
            (_, EndpointHost::Node(node)) => {
                let Some(at) = with_port(port).next() else { continue };
                let listener = TcpListener::bind(at).await;
                let listener = listener.map_err(cannot_listen(format!("TCP {at}")))?;
                inlets.push(Inlet::Tcp(listener, Address { node: *node, port: to }));
            }
            _ => {}
        }
    }
    Ok(inlets)
}

impl Proxy {
    /// A permit for one more connection from `origin`, if fewer are open than allowed.
    fn place(&self, origin: Origin) -> Option<(OwnedSemaphorePermit, Place<'_>)> {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            self.tally.refused(
                RefusedConnection::TooMany,
                format_args!(
                    "a connection was refused: {} are open; allow more with --max-flows",
                    self.max
                ),
            );
            return None;
        };
        let share = self.shares.place(origin);
        if share.is_none() {
            self.tally.refused(
                RefusedConnection::TooManyOfNode,
                format_args!(
                    "a connection from {origin} was refused: it has {} already; allow more with \
                     --max-flows-per-node",
                    self.shares.max()
                ),
            );
        }
        Some((place, share?))
    }
}

/// Accepts TCP connections forever, and opens a stream for each.
async fn from_tcp(proxy: Arc<Proxy>, listener: TcpListener, to: Address) {
    loop {
        let (tcp, from) = match listener.accept().await {
            Ok((tcp, from)) => (Tcp::new(tcp), from),
            Err(error) => {
                proxy.tally.complain(format_args!("a connection did not come in: {error}"));
                tokio::time::sleep(NO_FILES).await;
                continue;
            }
        };
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let Some(_place) = proxy.place(from.into()) else { return };
            // The program may give up meanwhile: if only one end existed, it would be closed and
            // not reset.
            match AsyncStream::connect(proxy.at.clone(), to).await {
                Ok(stream) => join(&proxy, tcp, Stream::new(stream)).await,
                Err(error) => {
                    let why = match &error {
                        ClientError::Reset(_) | ClientError::Version => RefusedConnection::NoStream,
                        ClientError::Io { .. } => RefusedConnection::NoFiles,
                        _ => RefusedConnection::NodeAway,
                    };
                    proxy.tally.refused(
                        why,
                        format_args!("a connection was refused: no stream to {to}: {error}"),
                    );
                }
            }
        });
    }
}

/// Accepts streams forever, and opens a TCP connection for each.
async fn from_overlay(proxy: Arc<Proxy>, listener: AsyncListener, to: Arc<[SocketAddr]>) {
    loop {
        let (stream, from) = match listener.accept().await {
            Ok((stream, from)) => (Stream::new(stream), from),
            Err(error) => {
                proxy.tally.complain(format_args!("a stream did not come in: {error}"));
                tokio::time::sleep(NO_FILES).await;
                continue;
            }
        };
        let (proxy, to) = (proxy.clone(), to.clone());
        tokio::spawn(async move {
            let Some(_place) = proxy.place(Origin::Node(from.node)) else { return };
            match connect(&to, TCP_TIMEOUT).await {
                Ok(tcp) => join(&proxy, Tcp::new(tcp), stream).await,
                Err(error) => {
                    let at = to.first().map_or_else(String::new, SocketAddr::to_string);
                    proxy.tally.refused(
                        RefusedConnection::NoTcp,
                        format_args!(
                            "a stream from {from} was refused: no TCP connection to {at}: {error}"
                        ),
                    );
                }
            }
        });
    }
}

/// Connects to the first address that takes the connection. One that refuses is passed at once, and
/// one that is silent after its share of `time`: the next one may be there.
async fn connect(to: &[SocketAddr], time: Duration) -> std::io::Result<TcpStream> {
    let share = time / u32::try_from(to.len().max(1)).unwrap_or(u32::MAX);
    let mut refusal = std::io::ErrorKind::AddrNotAvailable.into();
    for at in to {
        match within(share, TcpStream::connect(at)).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

async fn within<T>(
    time: Duration,
    done: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    let late = |_| std::io::ErrorKind::TimedOut.into();
    tokio::time::timeout(time, done).await.unwrap_or_else(|over| Err(late(over)))
}

/// Copies in both directions until both have ended or one side is reset, and counts the result.
async fn join(proxy: &Proxy, tcp: Tcp, stream: Stream) {
    proxy.tally.opened();
    let ended = Pair::new(tcp, stream, &proxy.tally).run(proxy.idle).await;
    if let Err(lost) = ended
        && lost.is_news()
    {
        proxy.tally.complain(format_args!("a connection broke off: {lost}"));
    }
}

/// Sets whether closing the socket resets the connection instead of ending it properly.
fn reset_on_close(tcp: &TcpStream, on: bool) {
    // This fails only for descriptors that are not sockets.
    let _ = SockRef::from(tcp).set_linger(on.then_some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::io::ErrorKind;

    /// A listener whose queue takes `backlog` connections.
    fn listener(backlog: i32) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(backlog).unwrap();
        socket
    }

    fn at(socket: &Socket) -> SocketAddr {
        socket.local_addr().unwrap().as_socket().unwrap()
    }

    #[test]
    fn a_host_is_reached_past_addresses_that_refuse_or_are_silent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let refusing = at(&listener(1));
            let (good, full) = (listener(9), listener(0));
            // Segments to a listener whose queue is full are dropped.
            let mut waiting = Vec::new();
            let brief = Duration::from_millis(300);
            while let Ok(tcp) = within(brief, TcpStream::connect(at(&full))).await {
                waiting.push(tcp);
            }
            // A silent address would have timed out.
            let refused = connect(&[refusing], TCP_TIMEOUT).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert!(connect(&[refusing, at(&good)], TCP_TIMEOUT).await.is_ok());
            let all = [at(&full), at(&good)];
            let at_once = within(2 * brief, TcpStream::connect(&all[..])).await;
            assert_eq!(at_once.unwrap_err().kind(), ErrorKind::TimedOut, "all in one");
            let reached = connect(&all, 2 * brief).await.unwrap();
            assert_eq!(reached.peer_addr().unwrap(), at(&good));
            let silent = connect(&[at(&full)], brief).await;
            assert_eq!(silent.unwrap_err().kind(), ErrorKind::TimedOut);
        });
    }
}
