//! Name resolution with the system's name servers, hosts file and search list.

use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime};

type Builder = ResolverBuilder<TokioRuntimeProvider>;

/// Files that configure name resolution; changes to them need no restart.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Timeout of the name service for somebody who waits: a phone retransmits after the same time.
pub const FOR_PHONES: Duration = Duration::from_secs(4);

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<A> {
    /// The addresses, at least one, and how long they may be used.
    Addresses(Vec<A>, Duration),
    /// The name doesn't exist.
    NoName,
    /// The name exists, but has no address of the requested families.
    Nothing,
    /// The name service failed, or did not answer.
    Silence,
}

/// Finds the addresses of names.
pub struct Resolver {
    families: LookupIpStrategy,
    timeout: Duration,
    resolver: Option<TokioResolver>,
    /// Modification times of the files when they were last read; `None` before the first time.
    read: Option<[Option<SystemTime>; 2]>,
}

impl Resolver {
    /// Creates a resolver for IPv4 addresses, IPv6 addresses, or both, which waits for the answer to
    /// each query for `timeout`. It has read no file yet.
    pub fn new(v4: bool, v6: bool, timeout: Duration) -> Resolver {
        let families = match (v4, v6) {
            (_, false) => LookupIpStrategy::Ipv4Only,
            (false, true) => LookupIpStrategy::Ipv6Only,
            // Not both at once: some name servers never answer for IPv6, and the IPv4 answer would
            // wait in vain (RFC 4074, 4.1).
            (true, true) => LookupIpStrategy::Ipv4thenIpv6,
        };
        Resolver { families, timeout, resolver: None, read: None }
    }

    /// Resolver with the current system configuration; `None` if that is missing.
    pub fn current(&mut self) -> Option<TokioResolver> {
        let written = FILES.map(|file| fs::metadata(file).and_then(|data| data.modified()).ok());
        if self.read != Some(written) {
            let made = self.build(TokioResolver::builder_tokio().unwrap_or_else(|_| local()));
            self.resolver =
                made.inspect_err(|error| tracing::warn!("cannot look up names: {error}")).ok();
            self.read = Some(written);
        }
        self.resolver.clone()
    }

    fn build(&self, mut builder: Builder) -> Result<TokioResolver, NetError> {
        let options = builder.options_mut();
        options.ip_strategy = self.families;
        options.timeout = self.timeout;
        // Those who ask keep the answers themselves.
        options.cache_size = 0;
        builder.build()
    }
}

/// The default of resolv.conf(5): a name server on this machine. There may be none, but the hosts
/// file needs none.
fn local() -> Builder {
    let server = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
    let config = ResolverConfig::from_name_servers(vec![server]);
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}

/// Looks up `name` with `resolver`, within `patience`.
pub async fn look_up(
    resolver: Option<TokioResolver>,
    name: &str,
    patience: Duration,
) -> Answer<IpAddr> {
    let (Some(resolver), Ok(parsed)) = (&resolver, Name::from_utf8(name)) else {
        return if resolver.is_some() { Answer::NoName } else { Answer::Silence };
    };
    match tokio::time::timeout(patience, look_up_as_written(resolver, parsed)).await {
        Ok(Ok(found)) => {
            let fresh = found.valid_until().saturating_duration_since(Instant::now());
            match found.iter().collect::<Vec<_>>() {
                none if none.is_empty() => Answer::Nothing,
                addresses => Answer::Addresses(addresses, fresh),
            }
        }
        Ok(Err(error)) if error.is_nx_domain() => Answer::NoName,
        Ok(Err(error)) if error.is_no_records_found() => Answer::Nothing,
        Ok(Err(error)) => {
            tracing::debug!(%error, name, "the name service has no answer");
            Answer::Silence
        }
        Err(_) => Answer::Silence,
    }
}

/// Looks up `name`. If no name of the search list exists, the answer is that for the name without
/// it: the name may exist without such an address.
async fn look_up_as_written(
    resolver: &TokioResolver,
    mut name: Name,
) -> Result<LookupIp, NetError> {
    let unknown = match resolver.lookup_ip(name.clone()).await {
        Err(error) if error.is_nx_domain() && !name.is_fqdn() => error,
        other => return other,
    };
    name.set_fqdn(true);
    match resolver.lookup_ip(name).await {
        Err(error) if !error.is_no_records_found() => Err(unknown),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::config::ConnectionConfig;
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::rdata::{A, AAAA};
    use hickory_resolver::proto::rr::{RData, Record, RecordType};
    use std::net::Ipv6Addr;
    use tokio::net::UdpSocket;

    /// Answers each query as its name demands.
    async fn serve(socket: UdpSocket) {
        let mut buffer = [0; 1_500];
        loop {
            let (n, from) = socket.recv_from(&mut buffer).await.expect("a query");
            let query = Message::from_vec(&buffer[..n]).expect("a message");
            let name = query.queries[0].name().clone();
            let is_v6 = query.queries[0].query_type() == RecordType::AAAA;
            let mut answer = query.into_response();
            match (name.to_utf8().to_ascii_lowercase().as_str(), is_v6) {
                ("good.example." | "half.example.", false) => {
                    let rdata = RData::A(A(Ipv4Addr::new(192, 0, 2, 7)));
                    answer.add_answer(Record::from_rdata(name, 30, rdata));
                }
                ("new.example.", true) => {
                    let rdata = RData::AAAA(AAAA(Ipv6Addr::LOCALHOST));
                    answer.add_answer(Record::from_rdata(name, 30, rdata));
                }
                ("new.example.", false) => {}
                (suffixed, _) if suffixed.ends_with(".corp.example.") => {
                    answer.metadata.response_code = ResponseCode::NXDomain;
                }
                ("none.example.", _) => answer.metadata.response_code = ResponseCode::NXDomain,
                ("fails.example.", _) => answer.metadata.response_code = ResponseCode::ServFail,
                _ => continue,
            }
            let bytes = answer.to_vec().expect("a message");
            socket.send_to(&bytes, from).await.expect("an answer");
        }
    }

    /// The settings with which a resolver queries `socket`.
    fn server(socket: &UdpSocket) -> NameServerConfig {
        let mut connection = ConnectionConfig::udp();
        connection.port = socket.local_addr().expect("an address").port();
        let mut server = NameServerConfig::udp([127, 0, 0, 1].into());
        server.connections = vec![connection];
        server
    }

    /// A resolver that queries the server run by [`serve`].
    async fn resolver(families: LookupIpStrategy) -> TokioResolver {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let server = server(&socket);
        tokio::spawn(serve(socket));
        let config = ResolverConfig::from_name_servers(vec![server]);
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(config, provider);
        let timeout = FOR_PHONES / 2;
        let unread = Resolver { families, timeout, resolver: None, read: None };
        unread.build(builder).expect("a resolver")
    }

    #[test]
    fn what_the_name_service_says_and_that_it_says_nothing_are_told_apart() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let resolver = resolver(LookupIpStrategy::Ipv4Only).await;

            // A thousand queries without an answer don't delay others.
            let silent: Vec<_> = (0..1_000)
                .map(|n| {
                    let resolver = Some(resolver.clone());
                    tokio::spawn(async move {
                        look_up(resolver, &format!("{n}.silent.example"), FOR_PHONES).await
                    })
                })
                .collect();
            let ask = |name| look_up(Some(resolver.clone()), name, FOR_PHONES);
            let good = ask("good.example").await;
            assert!(
                matches!(&good, &Answer::Addresses(ref all, fresh)
                if *all == [IpAddr::from([192, 0, 2, 7])] && fresh <= Duration::from_secs(30)
                    && fresh > Duration::from_secs(20)),
                "{good:?}"
            );
            assert_eq!(ask("none.example").await, Answer::NoName);
            assert_eq!(ask("new.example").await, Answer::Nothing, "it has an IPv6 address alone");
            assert_eq!(ask("fails.example").await, Answer::Silence);
            assert_eq!(ask("not a..name").await, Answer::NoName);
            for asked in silent {
                assert_eq!(asked.await.expect("an answer"), Answer::Silence);
            }
            assert_eq!(look_up(None, "good.example", FOR_PHONES).await, Answer::Silence);
        });
    }

    /// A name of the search list doesn't exist, but the name itself does.
    #[test]
    fn a_name_without_an_address_is_told_apart_in_spite_of_a_search_list() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
            let server = server(&socket);
            tokio::spawn(serve(socket));
            let corp = Name::from_ascii("corp.example.").expect("a name");
            let config = ResolverConfig::from_parts(Some(corp), vec![], vec![server]);
            let provider = TokioRuntimeProvider::default();
            let builder = TokioResolver::builder_with_config(config, provider);
            let families = LookupIpStrategy::Ipv4Only;
            let unread = Resolver { families, timeout: FOR_PHONES, resolver: None, read: None };
            let resolver = unread.build(builder).expect("a resolver");
            let ask = |name| look_up(Some(resolver.clone()), name, FOR_PHONES);
            assert_eq!(ask("new.example").await, Answer::Nothing);
            assert_eq!(ask("none.example").await, Answer::NoName);
        });
    }

    #[test]
    fn who_never_answers_for_ipv6_is_believed_of_ipv4() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let resolver = resolver(Resolver::new(true, true, FOR_PHONES / 2).families).await;
            let ask = |name| look_up(Some(resolver.clone()), name, FOR_PHONES);
            let half = ask("half.example").await;
            assert!(matches!(&half, Answer::Addresses(all, _) if all[0].is_ipv4()), "{half:?}");
            let new = ask("new.example").await;
            assert!(matches!(&new, Answer::Addresses(all, _) if all[0].is_ipv6()), "{new:?}");
        });
    }
}
