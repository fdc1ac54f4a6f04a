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

/// Time that a lookup may take in all. No one waits for it, and a slow name server is better than none;
/// but an operator should learn within ten seconds that there is none.
const PATIENCE: Duration = Duration::from_secs(9);
/// Time that each query may take: an answer to a former one is not taken.
const TIMEOUT: Duration = Duration::from_millis(8_500);

/// Time to wait for the other family's addresses once those of one are known (RFC 8305, 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(250);

/// Time to wait for the addresses of a family that is not useful, of a name that has no other: the
/// operator should know that it has these.
const USELESS_DELAY: Duration = Duration::from_secs(1);

/// Lifetime that the resolver reports for the hosts file, less a margin: the longest that it knows.
const LIFELONG: Duration = Duration::from_secs(86_000);

/// The resolver of a family, if the system has name servers, and whether the family is useful.
type Family = (Option<TokioResolver>, bool);

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
    /// Starts the thread. `useful`: whether IPv4 and IPv6 addresses are useful; `wake` tells of
    /// replies. A name that has only addresses of the other family is answered with those.
    pub fn start(useful: [bool; 2], wake: Arc<EventFd>) -> io::Result<Lookups> {
        let (queries, inbox) = tokio::sync::mpsc::unbounded_channel();
        let (outbox, replies) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // One for each family: a server that answers for one alone then delays nothing.
        let resolvers = [Resolver::new(true, false, TIMEOUT), Resolver::new(false, true, TIMEOUT)];
        std::thread::Builder::new()
            .name("names".into())
            .spawn(move || runtime.block_on(serve(inbox, (resolvers, useful), &outbox, &wake)))?;
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
    (mut resolvers, useful): ([Resolver; 2], [bool; 2]),
    outbox: &Sender<Reply>,
    wake: &Arc<EventFd>,
) {
    while let Some(query) = inbox.recv().await {
        let [v4, v6] = resolvers.each_mut().map(Resolver::current);
        let (v4, v6) = ((v4, useful[0]), (v6, useful[1]));
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
    let ask = async |resolver, patience| resolver::look_up(resolver, &host.name, patience).await;
    let useless = [&v4, &v6].into_iter().find(|(_, is_useful)| !is_useful);
    let useless = useless.map(|(resolver, _)| resolver.clone());
    let patience = if useless.is_some() { PATIENCE - USELESS_DELAY } else { PATIENCE };
    let of = async |(resolver, is_useful): Family| match is_useful {
        true => ask(resolver, patience).await,
        false => Answer::Nothing,
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
    let mut answer = together([first, second], host.port);
    if let Some(resolver) = useless.filter(|_| !matches!(answer, Answer::Addresses(..)))
        && let other @ Answer::Addresses(..) = ask(resolver, USELESS_DELAY).await
    {
        answer = together([other], host.port);
    }
    reply(answer);
}

/// Combines the answers of both families.
fn together(answers: impl IntoIterator<Item = Answer<IpAddr>>, port: u16) -> Answer<SocketAddr> {
    let (mut all, mut fresh) = (Vec::new(), Duration::MAX);
    let (mut silent, mut unknown) = (false, false);
    for answer in answers {
        match answer {
            Answer::Addresses(addresses, lasts) => {
                all.extend(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)));
                // The hosts file gives no lifetime, and may change at any time.
                fresh = fresh.min(if lasts < LIFELONG { lasts } else { Duration::ZERO });
            }
            Answer::NoName => unknown = true,
            Answer::Nothing => {}
            Answer::Silence => silent = true,
        }
    }
    all.truncate(MAX_ADDRESSES);
    match all.is_empty() {
        false => Answer::Addresses(all, fresh),
        // A name that doesn't exist has no address of either family (RFC 8020).
        true if unknown => Answer::NoName,
        true if silent => Answer::Silence,
        true => Answer::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;

    /// A resolver that queries the server at `address`.
    fn of_server(address: SocketAddr) -> TokioResolver {
        let mut connection = ConnectionConfig::udp();
        connection.port = address.port();
        let mut server = NameServerConfig::udp(address.ip());
        server.connections = vec![connection];
        let config = ResolverConfig::from_name_servers(vec![server]);
        let provider = TokioRuntimeProvider::default();
        let mut builder = TokioResolver::builder_with_config(config, provider);
        builder.options_mut().timeout = TIMEOUT;
        builder.build().expect("a resolver")
    }

    /// A name server that never answers, and one IP version in `listen`.
    #[test]
    fn an_operator_learns_within_ten_seconds_that_no_name_server_answers() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
            let resolver = of_server(silent.local_addr().expect("bound"));
            let host = Host { name: "relay.example".into(), port: 7_000 };
            let started = tokio::time::Instant::now();
            let families = [true, false].map(|is_useful| (Some(resolver.clone()), is_useful));
            let [v4, v6] = families;
            of_name(&host, v4, v6, |answer| assert_eq!(answer, Answer::Silence)).await;
            let took = started.elapsed();
            assert!(took <= PATIENCE && took > PATIENCE - USELESS_DELAY, "{took:?}");
        });
    }

    #[test]
    fn both_families_answers_are_one() {
        let of = |answers: [Answer<IpAddr>; 2]| together(answers, 7_000);
        let found = || Answer::Addresses(vec![[192, 0, 2, 1].into()], Duration::ZERO);
        let expected = Answer::Addresses(vec![([192, 0, 2, 1], 7_000).into()], Duration::ZERO);
        for other in [Answer::NoName, Answer::Nothing, Answer::Silence] {
            assert_eq!(of([other, found()]), expected);
        }
        for (answers, expected) in [
            ([Answer::NoName, Answer::Silence], Answer::NoName),
            ([Answer::Nothing, Answer::NoName], Answer::NoName),
            ([Answer::Nothing, Answer::Silence], Answer::Silence),
            ([Answer::Nothing, Answer::Nothing], Answer::Nothing),
        ] {
            assert_eq!(of(answers), expected);
        }
    }
}
