//! Name resolution with the system's name servers and hosts file.

use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};
use trunkline_gateway::{Config, Found};

type Builder = ResolverBuilder<hickory_resolver::net::runtime::TokioRuntimeProvider>;

/// Files that configure name resolution; changes to them need no restart.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Timeout of the name service: a phone retransmits after the same time.
const PATIENCE: Duration = Duration::from_secs(4);

/// Finds the addresses of names that this gateway's sockets can reach.
pub struct Names {
    families: LookupIpStrategy,
    resolver: Option<TokioResolver>,
    /// Modification times of the files when they were last read; `None` before the first time.
    read: Option<[Option<SystemTime>; 2]>,
}

impl Names {
    /// Creates a resolver that has read no file yet.
    pub fn new(config: &Config) -> Names {
        let has = |v6| config.sockets.iter().any(|socket| socket.address.is_ipv6() == v6);
        Names { families: Names::families(has(false), has(true)), resolver: None, read: None }
    }

    /// Address families to look up for a gateway with IPv4 sockets, IPv6 sockets, or both.
    fn families(v4: bool, v6: bool) -> LookupIpStrategy {
        match (v4, v6) {
            (_, false) => LookupIpStrategy::Ipv4Only,
            (false, true) => LookupIpStrategy::Ipv6Only,
            // Not both at once: some name servers never answer for IPv6, and the IPv4 answer would
            // wait in vain (RFC 4074, 4.1).
            (true, true) => LookupIpStrategy::Ipv4thenIpv6,
        }
    }

    /// Resolver with the current system configuration; `None` if that is missing.
    pub fn resolver(&mut self) -> Option<TokioResolver> {
        let written = FILES.map(|file| fs::metadata(file).and_then(|data| data.modified()).ok());
        if self.read != Some(written) {
            let made = TokioResolver::builder_tokio().and_then(|it| self.build(it));
            self.resolver = made
                .inspect_err(|error| tracing::warn!("cannot look up names for SIP: {error}"))
                .ok();
            self.read = Some(written);
        }
        self.resolver.clone()
    }

    fn build(&self, mut builder: Builder) -> Result<TokioResolver, NetError> {
        let options = builder.options_mut();
        options.ip_strategy = self.families;
        options.timeout = options.timeout.min(PATIENCE / 2);
        // The gateway has its own cache.
        options.cache_size = 0;
        builder.build()
    }
}

/// Looks up `name` with `resolver`.
pub async fn find(resolver: Option<TokioResolver>, name: &str) -> Found {
    let (Some(resolver), Ok(parsed)) = (&resolver, Name::from_utf8(name)) else {
        return if resolver.is_some() { Found::Nothing } else { Found::NoAnswer };
    };
    match tokio::time::timeout(PATIENCE, resolver.lookup_ip(parsed)).await {
        Ok(Ok(found)) => {
            let fresh = found.valid_until().saturating_duration_since(Instant::now());
            let first: Option<IpAddr> = found.iter().next();
            first.map_or(Found::Nothing, |ip| Found::Address(ip, fresh))
        }
        Ok(Err(error)) if error.is_no_records_found() => Found::Nothing,
        Ok(Err(error)) => {
            tracing::debug!(%error, name, "the name service has no answer");
            Found::NoAnswer
        }
        Err(_) => Found::NoAnswer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::rdata::{A, AAAA};
    use hickory_resolver::proto::rr::{RData, Record, RecordType};
    use std::net::{Ipv4Addr, Ipv6Addr};
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
                ("none.example.", _) => answer.metadata.response_code = ResponseCode::NXDomain,
                ("fails.example.", _) => answer.metadata.response_code = ResponseCode::ServFail,
                _ => continue,
            }
            let bytes = answer.to_vec().expect("a message");
            socket.send_to(&bytes, from).await.expect("an answer");
        }
    }

    /// A resolver that queries the server run by [`serve`].
    async fn resolver(families: LookupIpStrategy) -> TokioResolver {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let mut connection = ConnectionConfig::udp();
        connection.port = socket.local_addr().expect("an address").port();
        tokio::spawn(serve(socket));
        let mut server = NameServerConfig::udp([127, 0, 0, 1].into());
        server.connections = vec![connection];
        let config = ResolverConfig::from_name_servers(vec![server]);
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(config, provider);
        let names = Names { families, resolver: None, read: None };
        names.build(builder).expect("a resolver")
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
                    tokio::spawn(
                        async move { find(resolver, &format!("{n}.silent.example")).await },
                    )
                })
                .collect();
            let ask = |name| find(Some(resolver.clone()), name);
            let good = ask("good.example").await;
            assert!(
                matches!(good, Found::Address(ip, fresh)
                if ip == IpAddr::from([192, 0, 2, 7]) && fresh <= Duration::from_secs(30)
                    && fresh > Duration::from_secs(20)),
                "{good:?}"
            );
            assert_eq!(ask("none.example").await, Found::Nothing);
            assert_eq!(ask("fails.example").await, Found::NoAnswer);
            assert_eq!(ask("not a..name").await, Found::Nothing);
            for asked in silent {
                assert_eq!(asked.await.expect("an answer"), Found::NoAnswer);
            }
            assert_eq!(find(None, "good.example").await, Found::NoAnswer);
        });
    }

    #[test]
    fn who_never_answers_for_ipv6_is_believed_of_ipv4() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let resolver = resolver(Names::families(true, true)).await;
            let ask = |name| find(Some(resolver.clone()), name);
            let half = ask("half.example").await;
            assert!(matches!(half, Found::Address(IpAddr::V4(_), _)), "{half:?}");
            let new = ask("new.example").await;
            assert!(matches!(new, Found::Address(IpAddr::V6(_), _)), "{new:?}");
        });
    }
}
