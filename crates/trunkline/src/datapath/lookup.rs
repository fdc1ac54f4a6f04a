//! Lookups of neighbours' names, in a thread of their own: a name service may take seconds.

use crate::node::config::Host;
use crate::resolver::{self, Answer, Resolver};
use hickory_resolver::TokioResolver;
use nix::net::if_::if_nametoindex;
use nix::sys::eventfd::EventFd;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use trunkline_overlay::node::LinkName;

/// Maximum number of addresses of one name that are tried.
const MAX_ADDRESSES: usize = 64;

/// Time that a lookup may take. No one waits for it, and a slow name server is better than none; but
/// an operator should learn within ten seconds that there is none.
const PATIENCE: Duration = Duration::from_secs(9);
/// Time that each query may take: an answer to a former one is not taken.
const TIMEOUT: Duration = Duration::from_millis(8_500);

/// Time to wait for the other family's addresses once those of one are known (RFC 8305, 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(250);

/// Lifetime that the resolver reports for the hosts file, less a margin: the longest that it knows.
const LIFELONG: Duration = Duration::from_secs(86_000);

/// The resolver of a family that is useful, if the system has name servers.
type Family = Option<Option<TokioResolver>>;

/// A link and the name at which its neighbour is.
pub type Query = (LinkName, Host);

/// A query with its answer.
pub type Reply = (Query, Answer<SocketAddr>);

/// The thread that looks up names.
pub struct Lookups {
    queries: tokio::sync::mpsc::UnboundedSender<Query>,
    replies: Receiver<Reply>,
}

impl Lookups {
    /// Starts the thread. `families`: whether IPv4 and IPv6 addresses are useful; `wake` tells of
    /// replies.
    pub fn start([v4, v6]: [bool; 2], wake: Arc<EventFd>) -> io::Result<Lookups> {
        let (queries, inbox) = tokio::sync::mpsc::unbounded_channel();
        let (outbox, replies) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // One for each family: a server that answers for one alone then delays nothing.
        let resolvers = [
            v4.then(|| Resolver::new(true, false, TIMEOUT)),
            v6.then(|| Resolver::new(false, true, TIMEOUT)),
        ];
        std::thread::Builder::new()
            .name("names".into())
            .spawn(move || runtime.block_on(serve(inbox, resolvers, &outbox, &wake)))?;
        Ok(Lookups { queries, replies })
    }

    /// Looks up a name. The caller sends one query for each link at a time.
    pub fn ask(&self, query: Query) {
        let _ = self.queries.send(query);
    }

    /// The next reply, if there is one.
    pub fn reply(&self) -> Option<Reply> {
        self.replies.try_recv().ok()
    }
}

async fn serve(
    mut inbox: tokio::sync::mpsc::UnboundedReceiver<Query>,
    mut resolvers: [Option<Resolver>; 2],
    outbox: &Sender<Reply>,
    wake: &Arc<EventFd>,
) {
    while let Some(query) = inbox.recv().await {
        let [v4, v6] = resolvers.each_mut().map(|it| it.as_mut().map(Resolver::current));
        let (outbox, wake) = (outbox.clone(), Arc::clone(wake));
        tokio::spawn(async move {
            let reply = |answer| {
                let _ = outbox.send((query.clone(), answer));
                let _ = wake.write(1);
            };
            match query.1.zone() {
                Some(_) => reply(of_zone(&query.1)),
                None => of_name(&query.1, v4, v6, reply).await,
            }
        });
    }
}

/// The address of a name such as `fe80::1%eth0`. The number of an interface may change at any time.
fn of_zone(host: &Host) -> Answer<SocketAddr> {
    let address = host.zone().and_then(|(ip, interface)| {
        Some(SocketAddrV6::new(ip, host.port, 0, if_nametoindex(interface).ok()?))
    });
    address.map_or(Answer::Nothing, |it| Answer::Addresses(vec![it.into()], Duration::ZERO))
}

/// Replies with the addresses of a name: those of both families, or first those of one and later
/// all.
async fn of_name(host: &Host, v4: Family, v6: Family, reply: impl Fn(Answer<SocketAddr>)) {
    let of = async |resolver: Family| match resolver {
        Some(current) => resolver::look_up(current, &host.name, PATIENCE).await,
        None => Answer::Nothing,
    };
    let (mut v4, mut v6) = (pin!(of(v4)), pin!(of(v6)));
    let mut other: Pin<&mut (dyn Future<Output = Answer<IpAddr>> + Send)>;
    let first = tokio::select! {
        answer = &mut v6 => { other = v4; answer }
        answer = &mut v4 => { other = v6; answer }
    };
    let second = match tokio::time::timeout(RESOLUTION_DELAY, other.as_mut()).await {
        Ok(second) => second,
        Err(_) => {
            if matches!(first, Answer::Addresses(..)) {
                reply(together([first.clone()], host.port));
            }
            other.await
        }
    };
    reply(together([first, second], host.port));
}

/// Combines the answers of both families.
fn together(answers: impl IntoIterator<Item = Answer<IpAddr>>, port: u16) -> Answer<SocketAddr> {
    let (mut all, mut fresh, mut silent) = (Vec::new(), Duration::MAX, false);
    for answer in answers {
        match answer {
            Answer::Addresses(addresses, lasts) => {
                all.extend(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)));
                // The hosts file gives no lifetime, and may change at any time.
                fresh = fresh.min(if lasts < LIFELONG { lasts } else { Duration::ZERO });
            }
            Answer::Nothing => {}
            Answer::Silence => silent = true,
        }
    }
    all.truncate(MAX_ADDRESSES);
    match all.is_empty() {
        false => Answer::Addresses(all, fresh),
        true if silent => Answer::Silence,
        true => Answer::Nothing,
    }
}
