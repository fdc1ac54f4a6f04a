//! `[sip]`: the gateway's addresses for phones and proxies, and the sources it accepts.

mod networks;

use crate::units::Span;
use ipnet::IpNet;
use networks::NetworkSection;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;
use trunkline_gateway::{self as gateway, Destination, Route, Socket, Transport};
use trunkline_overlay::wire::NodeId;

/// Default maximum number of simultaneous calls.
const CALLS: usize = 1_000;
/// Bounds of the time after which a silent call is ended.
const LEAST_IDLE: Duration = Duration::from_secs(10);
const MOST_IDLE: Duration = Duration::from_secs(24 * 3_600);
/// Transactions allowed for each possible call: its INVITEs, plus registrations and queries.
const TRANSACTIONS: usize = 32;

/// The gateway's settings, parsed and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sip {
    /// Settings of the gateway logic.
    pub gateway: gateway::Config,
    /// Addresses to bind, in the order of the gateway's sockets.
    pub bind: Vec<SocketAddr>,
    /// Address at which media ports are bound.
    pub media: IpAddr,
    /// Lifetime of a packet on the overlay, in milliseconds.
    pub deadline_ms: u8,
    /// File to which a line is appended for each ended call.
    pub records: Option<PathBuf>,
    /// Certificate and roots for TLS.
    pub tls: Tls,
}

/// Files for TLS, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The certificate presented, with its chain, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Roots trusted for verifying servers.
    pub roots: Option<PathBuf>,
}

/// The `[sip]` section: settings of the gateway.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SipSection {
    listen: Vec<Spanned<TransportAddress>>,
    address: Option<Spanned<Address>>,
    #[serde(default)]
    names: Vec<HostName>,
    #[serde(default = "ports")]
    ports: Spanned<Ports>,
    #[serde(default)]
    allow: Vec<Network>,
    #[serde(default)]
    trust: Vec<networks::Trusted>,
    max_calls: Option<Spanned<usize>>,
    deadline: Option<Spanned<Span>>,
    records: Option<PathBuf>,
    certificate: Option<PathBuf>,
    certificate_key: Option<PathBuf>,
    roots: Option<PathBuf>,
    learn: Option<Spanned<Span>>,
    idle: Option<Spanned<Span>>,
    #[serde(default = "yes")]
    bye_at_stop: bool,
    #[serde(default)]
    route: Vec<Spanned<RouteSection>>,
    #[serde(default)]
    network: Vec<Spanned<NetworkSection>>,
}

/// A `[[sip.route]]` section: where calls to a destination go.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteSection {
    to: Name,
    via: TransportAddress,
    name: Option<HostName>,
}

fn yes() -> bool {
    true
}

fn ports() -> Spanned<Ports> {
    Spanned::new(0..0, Ports(30_000..=39_999))
}

/// A transport and an address: `"udp:192.0.2.1:5060"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TransportAddress {
    transport: Transport,
    address: SocketAddr,
}

impl FromStr for TransportAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<TransportAddress, String> {
        let wanted = "write udp:, tcp: or tls:, an IP address and a port, as in \
                      \"udp:192.0.2.1:5060\"";
        let wrong = || format!("\"{text}\" is not an address for SIP: {wanted}");
        let (transport, address) = text.split_once(':').ok_or_else(wrong)?;
        let transport = Transport::parse(transport.as_bytes()).ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        Ok(TransportAddress { transport, address })
    }
}

impl fmt::Display for TransportAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.in_uri(), self.address)
    }
}

/// A network or a single address: `"192.0.2.0/24"`, `"192.0.2.1"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Network(IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let one = text.parse::<IpAddr>().map(IpNet::from).ok();
        let network = text.parse::<IpNet>().ok().or(one).ok_or_else(|| {
            format!("\"{text}\" is not a network: write it as \"192.0.2.0/24\" or \"192.0.2.1\"")
        })?;
        // Either wider than intended, or a typing error.
        match network.trunc() {
            whole if whole == network => Ok(Network(network)),
            whole => Err(format!(
                "\"{text}\" is one address and a whole network: write \"{whole}\" or \"{}\"",
                network.addr()
            )),
        }
    }
}

/// A network or a domain name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Name(Destination);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        if let Ok(network) = text.parse::<Network>() {
            return Ok(Name(Destination::Network(network.0)));
        }
        if text.contains('/') {
            return Err(text.parse::<Network>().err().unwrap_or_default());
        }
        let wrong = |_| {
            format!(
                "\"{text}\" is neither a network, as \"192.0.2.0/24\", nor a name, as \"b.example\""
            )
        };
        let name: HostName = text.parse().map_err(wrong)?;
        Ok(Name(Destination::Domain(name.0)))
    }
}

/// The name of a host or domain.
#[derive(Clone, PartialEq, Eq, Debug)]
struct HostName(String);

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let one = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_name = text.chars().all(one) && text.contains(|c: char| c.is_ascii_alphabetic());
        let wrong = || format!("\"{text}\" is not a name: write it as \"sip.b.example\"");
        is_name.then(|| HostName(text.to_ascii_lowercase())).ok_or_else(wrong)
    }
}

/// An IP address: `"203.0.113.7"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Address(IpAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = |_| format!("\"{text}\" is not an IP address: write it as \"203.0.113.7\"");
        text.parse().map(Address).map_err(wrong)
    }
}

/// A range of ports: `"30000-39999"`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Ports(RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let range = text
            .split_once('-')
            .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?));
        let wrong = || format!("\"{text}\" is not a range of ports: write it as \"30000-39999\"");
        let range: RangeInclusive<u16> = range.ok_or_else(wrong)?;
        match range.start() {
            0..1_024 => Err(format!("\"{text}\": media ports begin with 1024 or more")),
            _ if range.len() < 4 => {
                Err(format!("\"{text}\": a call takes four ports for each of its streams"))
            }
            _ => Ok(Ports(range)),
        }
    }
}

macro_rules! from_text {
    ($($name:ident: $wanted:literal,)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($wanted)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_str(Text)
            }
        }
    )*};
}
from_text! {
    TransportAddress: "an address for SIP in quotes, as \"udp:192.0.2.1:5060\"",
    Network: "a network in quotes, as \"192.0.2.0/24\"",
    Name: "a network or a name in quotes, as \"192.0.2.0/24\" or \"b.example\"",
    HostName: "a name in quotes, as \"sip.b.example\"",
    Address: "an IP address in quotes, as \"203.0.113.7\"",
    Ports: "a range of ports in quotes, as \"30000-39999\"",
}

/// Position of the mistake, if it has one; and its description.
type Wrong = (Option<std::ops::Range<usize>>, String);

impl SipSection {
    /// Checks the section for node `node`, which uses the addresses `taken` itself.
    pub fn checked(self, node: NodeId, taken: &[SocketAddr]) -> Result<Sip, Wrong> {
        let first = self.listen.first().ok_or_else(|| {
            (None, "[sip] listen is empty: give at least one, as \"udp:192.0.2.1:5060\"".into())
        })?;
        for (n, place) in self.listen.iter().enumerate() {
            self.check_place(place, n).map_err(|what| (Some(place.span()), what))?;
        }
        for (n, route) in self.route.iter().enumerate() {
            self.check_route(route.get_ref(), n).map_err(|what| (Some(route.span()), what))?;
        }
        self.check_address()?;
        self.check_calls()?;
        let is_local = self.listen.iter().all(|place| place.get_ref().address.ip().is_loopback());
        if self.allow.is_empty() && !is_local {
            let what = "[sip] can be reached from other hosts and has no `allow`: name the \
                        networks whose phones and proxies may call, as allow = \
                        [\"192.0.2.0/24\"]";
            return Err((Some(first.span()), what.into()));
        }
        let ports = self.ports.get_ref().0.clone();
        if let Some(own) = taken.iter().find(|own| ports.contains(&own.port())) {
            let what = format!("the node's own port {own} is one of [sip] ports: move one of both");
            let span = Some(self.ports.span()).filter(|span| !span.is_empty());
            return Err((span, what));
        }
        let deadline = self.deadline.as_ref().map_or(100, |d| d.get_ref().0.as_millis());
        let deadline_ms = u8::try_from(deadline).ok().filter(|ms| *ms > 0).ok_or_else(|| {
            let span = self.deadline.as_ref().map(Spanned::span);
            (span, "[sip] deadline is 1 to 255 ms".to_owned())
        })?;
        let tls = self.tls().map_err(|what| (Some(first.span()), what))?;
        let bind: Vec<_> = self.listen.iter().map(|place| place.get_ref().address).collect();
        let route = |route: Spanned<RouteSection>| {
            let RouteSection { to, via, name } = route.into_inner();
            let name = name.map(|name| name.0);
            Route { to: to.0, via: via.address, transport: via.transport, name }
        };
        let max_calls = self.max_calls.map_or(CALLS, Spanned::into_inner);
        let public = self.address.map(|address| address.into_inner().0);
        let socket = |place: &Spanned<TransportAddress>| {
            let TransportAddress { transport, address } = *place.get_ref();
            let ip = public.unwrap_or(address.ip());
            let local = address.ip();
            Socket { transport, address: SocketAddr::new(ip, address.port()), local }
        };
        let elsewhere = networks::elsewhere(networks::learn(self.learn.as_ref())?);
        let all = distinct(bind.iter().map(SocketAddr::ip));
        let media = media_address(&all);
        let gateway = gateway::Config {
            node,
            sockets: self.listen.iter().map(socket).collect(),
            names: self.names.into_iter().map(|name| name.0).collect(),
            media: public.map_or(all, |public| vec![public]),
            // Filled in at start.
            own: Vec::new(),
            ports,
            allow: match self.allow.is_empty() {
                true => vec![IpNet::from(IpAddr::from([127, 0, 0, 1])), loopback_v6()],
                false => self.allow.iter().map(|network| network.0).collect(),
            },
            trust: self.trust.iter().map(|trusted| trusted.network.0).collect(),
            nodes: self.trust.iter().filter_map(networks::Trusted::known).collect(),
            routes: self.route.into_iter().map(route).collect(),
            networks: networks::checked(self.network, &elsewhere)?,
            elsewhere: Arc::new(elsewhere),
            idle: idle(self.idle.as_ref())?,
            bye_at_stop: self.bye_at_stop,
            max_calls,
            max_transactions: max_calls.saturating_mul(TRANSACTIONS),
        };
        Ok(Sip { gateway, bind, media, deadline_ms, records: self.records, tls })
    }

    fn check_calls(&self) -> Result<(), Wrong> {
        if let Some(none) = self.max_calls.as_ref().filter(|calls| *calls.get_ref() == 0) {
            return Err((Some(none.span()), "[sip] max_calls is 1 or more".into()));
        }
        Ok(())
    }

    fn check_address(&self) -> Result<(), Wrong> {
        let Some(public) = &self.address else { return Ok(()) };
        let ip = public.get_ref().0;
        let differs =
            |place: &&Spanned<TransportAddress>| place.get_ref().address.is_ipv4() != ip.is_ipv4();
        match self.listen.iter().find(differs) {
            Some(other) => {
                let other = other.get_ref();
                let what = format!("{other} can't be reached at {ip}: it is of another family");
                Err((Some(public.span()), what))
            }
            None => Ok(()),
        }
    }

    fn check_place(&self, place: &Spanned<TransportAddress>, n: usize) -> Result<(), String> {
        let TransportAddress { transport, address } = *place.get_ref();
        if self.listen[..n].iter().any(|other| other.get_ref() == place.get_ref()) {
            return Err(format!("{} is there twice", place.get_ref()));
        }
        if address.ip().is_unspecified() && self.address.is_none() {
            return Err(format!(
                "{address} is every address of this machine, but phones need one: listen at \
                 that, or give it as `address`"
            ));
        }
        if address.port() == 0 {
            return Err("give the port that phones are to use, as 5060".into());
        }
        if transport == Transport::Tls && self.certificate.is_none() {
            return Err("tls: needs `certificate` and `certificate_key`, two files in PEM".into());
        }
        Ok(())
    }

    fn check_route(&self, route: &RouteSection, n: usize) -> Result<(), String> {
        let RouteSection { to, via, name } = route;
        if self.route[..n].iter().any(|other| other.get_ref().to == *to) {
            return Err("there is a route for the same `to` already".into());
        }
        let transport = via.transport.in_uri();
        if self.listen.iter().any(|place| place.get_ref() == via) {
            return Err(format!("{via} is this gateway itself: `via` names the next hop"));
        }
        let reaches = |place: &TransportAddress| {
            place.transport == via.transport && place.address.is_ipv4() == via.address.is_ipv4()
        };
        if !self.listen.iter().any(|place| reaches(place.get_ref())) {
            return Err(format!(
                "nothing gets to {via}: `listen` has no {transport}: at an address of its family"
            ));
        }
        match via.transport {
            Transport::Tls if self.roots.is_none() => {
                Err(format!("{via} needs `roots` in [sip]: the certificates to verify it with"))
            }
            Transport::Udp | Transport::Tcp if name.is_some() => {
                Err(format!("`name` is what a certificate says, and {via} shows none"))
            }
            _ => Ok(()),
        }
    }

    fn tls(&self) -> Result<Tls, String> {
        let own = match (&self.certificate, &self.certificate_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return Err("`certificate` and `certificate_key` in [sip] go together".into()),
        };
        Ok(Tls { own, roots: self.roots.clone() })
    }
}

fn distinct(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for ip in addresses {
        all.extend((!all.contains(&ip)).then_some(ip));
    }
    all
}

/// Time after which a silent call is ended: ten minutes, unless the file says otherwise.
fn idle(span: Option<&Spanned<Span>>) -> Result<Duration, Wrong> {
    let Some(span) = span else { return Ok(Duration::from_secs(600)) };
    match span.get_ref().0 {
        time if (LEAST_IDLE..=MOST_IDLE).contains(&time) => Ok(time),
        _ => Err((Some(span.span()), "[sip] idle is 10 s to 24 h".into())),
    }
}

/// The address at which media ports are bound to receive at all of `addresses`: with `::`, also at
/// those of IPv4.
fn media_address(addresses: &[IpAddr]) -> IpAddr {
    match addresses {
        [one] => *one,
        all if all.iter().all(IpAddr::is_ipv4) => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn loopback_v6() -> IpNet {
    IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST))
}

impl Sip {
    /// Number of the node's sessions that the gateway's calls may need.
    pub fn sessions(&self) -> usize {
        self.gateway.ports.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::path::Path;

    const GOOD: &str = r#"[node]
id = 1
key = "a.key"
listen = ["0.0.0.0:7000"]

[sip]
listen = ["udp:192.0.2.1:5060", "tcp:192.0.2.1:5060"]
ports = "20000-20099"
allow = ["192.0.2.0/24", "2001:db8::7"]
trust = ["198.51.100.1"]
deadline = "80ms"

[[sip.route]]
to = "B.example"
via = "udp:198.51.100.1:5060"
"#;

    fn read(text: &str) -> Result<Sip, String> {
        let config = parse(Path::new("x.toml"), text).map_err(|e| e.to_string())?;
        Ok(config.sip.expect("a gateway"))
    }

    #[test]
    fn what_a_file_says_of_a_gateway() {
        let sip = read(GOOD).unwrap();
        let address = "192.0.2.1:5060".parse().unwrap();
        assert_eq!(sip.bind, [address; 2]);
        assert_eq!(
            sip.gateway.sockets[1],
            Socket { transport: Transport::Tcp, address, local: address.ip() }
        );
        assert_eq!((sip.gateway.media.len(), sip.deadline_ms), (1, 80));
        assert_eq!(sip.gateway.routes[0].to, Destination::Domain("b.example".into()));
        assert_eq!((sip.gateway.routes[0].name.as_deref(), sip.gateway.names.len()), (None, 0));
        let tls = "certificate = \"a\"\ncertificate_key = \"b\"\nroots = \"c\"\n";
        let text = GOOD.replace("ports =", &format!("{tls}names = [\"SIP.a.example\"]\nports ="));
        let text =
            text.replace("tcp:192.0.2.1:5060", "tls:192.0.2.1:5061").replace("udp:198", "tls:198");
        let sip = read(&(text + "name = \"Sip.b.example\"\n")).unwrap();
        assert_eq!(sip.gateway.routes[0].name.as_deref(), Some("sip.b.example"));
        assert_eq!(sip.gateway.names, ["sip.a.example"]);
        // The sessions that it needs are added to the node's.
        let with = parse(Path::new("x.toml"), GOOD).unwrap().overlay.max_sessions;
        assert_eq!(with, trunkline_overlay::node::Config::MAX_SESSIONS + 100);
        // Behind a NAT the bound and the advertised address differ.
        let text = GOOD.replace("192.0.2.1:5060", "0.0.0.0:5060");
        let sip = read(&text.replace("ports =", "address = \"203.0.113.7\"\nports =")).unwrap();
        assert_eq!(sip.bind[0].to_string(), "0.0.0.0:5060");
        assert_eq!(sip.gateway.sockets[0].address.to_string(), "203.0.113.7:5060");
        assert_eq!(sip.gateway.media[0].to_string(), "203.0.113.7");
        // Loopback sources need no `allow`.
        let own = GOOD.replace("192.0.2.1:5060", "127.0.0.1:5060").replace("allow", "#");
        assert!(read(&own).unwrap().gateway.allow.iter().all(|n| n.addr().is_loopback()));
    }

    #[test]
    fn a_mistake_has_a_line_and_a_way_out() {
        for (old, new, place, says) in [
            ("allow", "#allow", "7:11", "has no `allow`: name the networks"),
            ("udp:192", "sctp:192", "7:11", "is not an address for SIP: write udp:, tcp: or tls:"),
            ("udp:192.0.2.1:5060", "udp:0.0.0.0:5060", "7:11", "phones need one: listen at"),
            ("udp:192.0.2.1:5060", "udp:192.0.2.1:0", "7:11", "give the port"),
            ("tcp:192.0.2.1:5060", "tls:192.0.2.1:5061", "7:33", "needs `certificate` and"),
            ("20000-20099", "20000", "8:9", "is not a range of ports"),
            ("20000-20099", "80-2000", "8:9", "begin with 1024"),
            ("20000-20099", "20000-20002", "8:9", "takes four ports"),
            ("20000-20099", "6000-8000", "8:9", "the node's own port 0.0.0.0:7000 is one of"),
            ("192.0.2.0/24", "192.0.2.0/33", "9:10", "is not a network: write it as"),
            ("80ms", "1 s", "11:12", "1 to 255 ms"),
            ("B.example", "b@example", "14:6", "is neither a network"),
            ("udp:198", "198", "15:7", "is not an address for SIP"),
            ("192.0.2.0/24", "192.0.2.9/24", "9:10", "write \"192.0.2.0/24\" or \"192.0.2.9\""),
            ("\"B.example\"", "\"192.0.2.9/24\"", "14:6", "is one address and a whole network"),
            ("\"20000-20099\"", "20000", "8:9", "a range of ports in quotes, as"),
            ("trust =", "address = \"sip.a.example\"\ntrust =", "10:11", "is not an IP address"),
            ("trust =", "address = \"2001:db8::1\"\ntrust =", "10:11", "of another family"),
            (
                "[[sip.route]]",
                "[[sip.route]]\nto = \"b.example\"\nvia = \"udp:198.51.100.2:5060\"\n\n[[sip.route]]",
                "17:1",
                "the same `to` already",
            ),
            ("trust =", "names = [\"a b\"]\ntrust =", "10:10", "is not a name: write it as"),
            ("udp:198.51", "tls:198.51", "13:1", "no tls: at an address of its family"),
            ("udp:198.51.100.1", "udp:[::1]", "13:1", "no udp: at an address of its family"),
            ("udp:198.51.100.1", "tcp:192.0.2.1", "13:1", "is this gateway itself"),
            ("60\"\n", "60\"\nname = \"b.example\"\n", "13:1", "shows none"),
            ("tcp:192", "udp:192", "7:33", "is there twice"),
            ("tcp:192.0.2.1:5060", "tcp:192.0.2.1:0", "7:33", "give the port"),
            ("trust =", "max_calls = 0\ntrust =", "10:13", "1 or more"),
            ("deadline", "dead", "11:1", "unknown field `dead`"),
            ("deadline =", "certificate = \"a.pem\"\ndeadline =", "7:11", "go together"),
        ] {
            assert!(GOOD.contains(old), "{old}");
            let error = read(&GOOD.replacen(old, new, 1)).expect_err(new);
            assert!(error.starts_with(&format!("x.toml:{place}: ")), "{error}");
            assert!(error.contains(says), "{error}");
        }
    }
}
