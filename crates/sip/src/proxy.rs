//! Request routing of a proxy (RFC 3261, 16.3 to 16.6): along the routes in a request, or to its
//! target.

use crate::edit::Edit;
use crate::message::{Fault, Message, Start};
use crate::name::Name;
use crate::value::{Address, Uri};

/// Reasons for not forwarding a request; its response has this [`code`](RouteError::code).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// The request is malformed.
    Fault(Fault),
    /// The request has passed too many hops.
    TooManyHops,
    /// The request requires extensions that this proxy doesn't support: these words.
    Extension(Vec<u8>),
    /// The Request-URI has another scheme than SIP, and no route leads to a proxy that might
    /// support it.
    Scheme,
}

impl RouteError {
    /// Status code of the response.
    pub fn code(&self) -> u16 {
        match self {
            RouteError::Fault(fault) => fault.code(),
            RouteError::TooManyHops => 483,
            RouteError::Extension(_) => 420,
            RouteError::Scheme => 416,
        }
    }

    /// Reason phrase of the response.
    pub fn reason(&self) -> String {
        match self {
            RouteError::Fault(fault) => fault.to_string(),
            RouteError::TooManyHops => "Too Many Hops".into(),
            RouteError::Extension(_) => "Bad Extension".into(),
            RouteError::Scheme => "Unsupported URI Scheme".into(),
        }
    }

    /// Additional header lines of the response.
    pub fn lines(&self) -> Vec<u8> {
        match self {
            RouteError::Extension(words) => [b"Unsupported: ", &words[..], b"\r\n"].concat(),
            _ => Vec::new(),
        }
    }
}

/// The next hop of a request, and the resulting changes to its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// SIP URI of the next hop, or without routes of the request's target.
    pub next: Vec<u8>,
    /// Whether routes named this proxy: the request belongs to a call in which the proxy has
    /// recorded itself, or it was explicitly routed through here.
    pub by_route: bool,
    /// The routes that named this proxy, in order.
    pub own: Vec<Vec<u8>>,
    /// Number of leading routes that named this proxy.
    first: usize,
    /// The actual Request-URI, if a route was in its place.
    uri: Option<Vec<u8>>,
    /// Number of routes removed from the end.
    last: usize,
    /// Whether the next hop expects its own URI as the Request-URI, as before RFC 3261.
    is_strict: bool,
}

/// Finds the next hop of a request; `is_own` identifies this proxy's URIs.
///
/// # Errors
///
/// Returns [`RouteError`] if the request is not to be forwarded.
pub fn route(request: &Message, is_own: impl Fn(&Uri<'_>) -> bool) -> Result<Routed, RouteError> {
    if let Some(fault) = request.fault() {
        return Err(RouteError::Fault(fault));
    }
    if request.max_forwards() == Some(0) {
        return Err(RouteError::TooManyHops);
    }
    let required: Vec<&[u8]> = request.list(Name::ProxyRequire).collect();
    if !required.is_empty() {
        return Err(RouteError::Extension(required.join(&b", "[..])));
    }
    let Start::Request { uri, .. } = request.start() else {
        return Err(RouteError::Fault(Fault::Method));
    };
    let mut routes: Vec<&[u8]> =
        request.list(Name::Route).filter_map(|value| Some(Address::parse(value)?.uri)).collect();
    let names_own = |uri: &[u8]| Uri::parse(uri).is_some_and(|uri| is_own(&uri));
    // A hop older than RFC 3261 has replaced the Request-URI with this proxy's route, and appended
    // the URI to the routes (16.4).
    let is_displaced = Uri::parse(uri).is_some_and(|u| u.param("lr").is_some() && is_own(&u));
    let displaced = if is_displaced { routes.pop() } else { None };
    let first = routes.iter().take_while(|route| names_own(route)).count();
    let mut own: Vec<Vec<u8>> = routes.iter().take(first).map(|route| route.to_vec()).collect();
    if displaced.is_some() {
        own.insert(0, uri.to_vec());
    }
    let target = displaced.unwrap_or(uri);
    let next = routes.get(first).copied();
    let is_strict = next.and_then(Uri::parse).is_some_and(|next| next.param("lr").is_none());
    let towards = next.unwrap_or(target);
    if Uri::parse(towards).is_none() {
        return Err(RouteError::Scheme);
    }
    Ok(Routed {
        next: towards.to_vec(),
        by_route: !own.is_empty(),
        own,
        first,
        uri: displaced.map(<[u8]>::to_vec),
        last: usize::from(displaced.is_some()),
        is_strict,
    })
}

impl Routed {
    /// Whether the request must be encrypted on every hop, because its target or its next hop is a
    /// SIPS URI (RFC 3261, 16.6 and 26.2.2).
    pub fn is_secure(&self, request: &Message) -> bool {
        let Start::Request { uri, .. } = request.start() else { return false };
        let target = self.uri.as_deref().unwrap_or(uri);
        [target, &self.next].into_iter().filter_map(Uri::parse).any(|uri| uri.secure)
    }

    /// Updates the routes of the request.
    pub fn apply(&self, edit: &mut Edit<'_>) {
        let request = edit.message();
        let Start::Request { uri, .. } = request.start() else { return };
        let target = self.uri.as_deref().unwrap_or(uri);
        if self.last == 0 && !self.is_strict {
            return edit.pop(Name::Route, self.first);
        }
        let routes: Vec<&[u8]> = request.list(Name::Route).collect();
        let end = routes.len().saturating_sub(self.last);
        let mut left: Vec<Vec<u8>> =
            routes.get(self.first..end).unwrap_or_default().iter().map(|r| r.to_vec()).collect();
        if self.is_strict && !left.is_empty() {
            left.remove(0);
            left.push([b"<", target, b">"].concat());
            edit.set_uri(&self.next);
        } else {
            edit.set_uri(target);
        }
        match left.is_empty() {
            true => edit.remove(Name::Route),
            false => edit.set(Name::Route, &left.join(&b", "[..])),
        }
    }
}

/// Address of the next hop, as far as its URI specifies it (RFC 3263, 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name or an address; IPv6 addresses are in brackets.
    pub host: Vec<u8>,
    /// Port; without one, service names are looked up.
    pub port: Option<u16>,
    /// Transport in lower case, `udp`, `tcp`, `tls` …; `None` leaves the choice.
    pub transport: Option<Vec<u8>>,
}

impl Target {
    /// Reads the target of a SIP URI.
    pub fn of(uri: &[u8]) -> Option<Target> {
        let uri = Uri::parse(uri)?;
        let value = |name| uri.param(name).flatten();
        let said = value("transport").map(<[u8]>::to_ascii_lowercase);
        let transport = match said.as_deref() {
            // SIPS requires TLS on every hop.
            None | Some(b"tcp") if uri.secure => Some(b"tls".to_vec()),
            _ => said,
        };
        let host = value("maddr").unwrap_or(uri.host).to_vec();
        Some(Target { host, port: uri.port, transport })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Routes a request with this URI and these additional fields, at `me`.
    fn routed(uri: &str, fields: &str) -> Result<(Routed, Vec<String>, String), RouteError> {
        let text = format!(
            "OPTIONS {uri} SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\n\
             To: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\n{fields}\r\n"
        );
        let request = Message::parse(text.as_bytes()).unwrap();
        let routed = route(&request, |uri| uri.host == b"me")?;
        let mut edit = Edit::new(&request);
        routed.apply(&mut edit);
        let after = Message::parse(&edit.finish()).unwrap();
        assert_eq!(after.fault(), None);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let Start::Request { uri, .. } = after.start() else { panic!() };
        Ok((routed, after.list(Name::Route).map(text).collect(), text(uri)))
    }

    #[test]
    fn it_goes_where_the_routes_lead_or_to_whom_it_is_for() {
        for (uri, fields, next, routes, after) in [
            ("sip:b@h", "", "sip:b@h", &[][..], "sip:b@h"),
            ("sip:b@h", "Route: <sip:r;lr>\r\n", "sip:r;lr", &["<sip:r;lr>"], "sip:b@h"),
            ("sip:b@h", "Route: <sip:me;lr>\r\n", "sip:b@h", &[], "sip:b@h"),
            // Two routes of this proxy, as for two transports, and then another.
            (
                "sip:b@h",
                "Route: <sip:me;lr>, <sip:me;transport=tcp;lr>\r\nRoute: <sip:r;lr>\r\n",
                "sip:r;lr",
                &["<sip:r;lr>"],
                "sip:b@h",
            ),
            ("tel:1", "Route: <sip:r;lr>\r\n", "sip:r;lr", &["<sip:r;lr>"], "tel:1"),
            // The next hop is older than RFC 3261.
            (
                "sip:b@h",
                "Route: <sip:me;lr>, <sip:r>, <sip:s;lr>\r\n",
                "sip:r",
                &["<sip:s;lr>", "<sip:b@h>"],
                "sip:r",
            ),
            ("sip:b@h", "Route: <sip:r>\r\n", "sip:r", &["<sip:b@h>"], "sip:r"),
            // The previous hop is older than RFC 3261.
            ("sip:me;lr", "Route: <sip:b@h>\r\n", "sip:b@h", &[], "sip:b@h"),
            (
                "sip:me;lr",
                "Route: <sip:r;lr>, <sip:b@h>\r\n",
                "sip:r;lr",
                &["<sip:r;lr>"],
                "sip:b@h",
            ),
        ] {
            let (routed, left, now) = routed(uri, fields).unwrap();
            assert_eq!(String::from_utf8_lossy(&routed.next), next, "{uri} {fields}");
            assert_eq!(
                (left, now.as_str()),
                (routes.iter().map(|r| r.to_string()).collect(), after)
            );
            let through = fields.contains("sip:me") || uri.contains("me;lr");
            assert_eq!(routed.by_route, through, "{uri} {fields}");
        }
    }

    #[test]
    fn one_that_wants_tls_on_every_hop_says_so_in_its_uri_or_its_next_route() {
        for (uri, fields, wants) in [
            ("sip:b@h", "", false),
            ("sip:b@h;transport=tls", "", false),
            ("sips:b@h", "", true),
            ("sips:b@h", "Route: <sip:r;lr>\r\n", true),
            ("sip:b@h", "Route: <sips:r;lr>\r\n", true),
            ("sip:b@h", "Route: <sips:me;lr>, <sip:r;lr>\r\n", false),
            // The previous hop is older than RFC 3261.
            ("sip:me;lr", "Route: <sip:r;lr>, <sips:b@h>\r\n", true),
        ] {
            let text = format!(
                "OPTIONS {uri} SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n\
                 From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\n\
                 {fields}\r\n"
            );
            let request = Message::parse(text.as_bytes()).unwrap();
            let routed = route(&request, |uri| uri.host == b"me").unwrap();
            assert_eq!(routed.is_secure(&request), wants, "{uri} {fields}");
        }
    }

    #[test]
    fn what_goes_nowhere_is_told_why() {
        for (uri, fields, code) in [
            ("sip:b@h", "Max-Forwards: 0\r\n", 483),
            ("sip:b@h", "Proxy-Require: a\r\nProxy-Require: b\r\n", 420),
            ("tel:1", "", 416),
            ("soap.beep://192.0.2.103:3002", "", 416),
            ("sip:b@h; x", "", 400),
            ("sip:b@h", "Route: <sip:\r\n", 400),
        ] {
            let why = routed(uri, fields).unwrap_err();
            assert_eq!(why.code(), code, "{uri} {fields}");
            let lines = String::from_utf8(why.lines()).unwrap();
            assert_eq!(lines, if code == 420 { "Unsupported: a, b\r\n" } else { "" });
        }
    }

    #[test]
    fn a_target_says_what_its_uri_does() {
        let target = |uri: &str| {
            let t = Target::of(uri.as_bytes())?;
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            Some((text(t.host), t.port, t.transport.map(text)))
        };
        let some = |host: &str, port, transport: Option<&str>| {
            Some((host.into(), port, transport.map(String::from)))
        };
        assert_eq!(target("sip:b@h"), some("h", None, None));
        assert_eq!(target("sip:b@h:7;transport=TCP"), some("h", Some(7), Some("tcp")));
        assert_eq!(target("sips:b@[::1];transport=tcp"), some("[::1]", None, Some("tls")));
        assert_eq!(target("sips:b@h;maddr=m;transport=ws"), some("m", None, Some("ws")));
        assert_eq!(target("tel:1"), None);
    }
}
