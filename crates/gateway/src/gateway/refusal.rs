//! What is said to who asks for what can't be done.

use crate::calls::Unpassable;
use crate::hops::NoHop;

/// A request that is refused.
pub(super) struct Refusal {
    /// The response's status code.
    pub code: u16,
    /// The response's reason phrase.
    pub reason: &'static str,
    /// Why, for the log of this gateway and that of who asked; `None` of what needs no
    /// one's attention.
    pub why: Option<&'static str>,
    /// Lines of the response's header.
    extra: Vec<u8>,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, why: &'static str) -> Refusal {
        Refusal { code, reason, why: Some(why), extra: Vec::new() }
    }

    fn with(self, extra: &[u8]) -> Refusal {
        Refusal { extra: extra.to_vec(), ..self }
    }

    /// The same, of which the log isn't told.
    fn quietly(self) -> Refusal {
        Refusal { extra: self.lines(), why: None, ..self }
    }

    /// All lines that the response's header has of it.
    pub fn lines(&self) -> Vec<u8> {
        let mut lines = self.extra.clone();
        lines.extend(self.why.map(warning).unwrap_or_default());
        lines
    }
}

/// More than this gateway takes now.
pub(super) fn overloaded(why: &'static str) -> Refusal {
    Refusal::new(503, "Service Unavailable", why).with(b"Retry-After: 5\r\n")
}

/// What is said to who asks this gateway itself.
pub(super) fn for_us(method: &[u8], is_draining: bool) -> Refusal {
    match method {
        // Who asks so before each call sends it elsewhere.
        b"OPTIONS" if is_draining => overloaded(DRAINING).quietly(),
        b"OPTIONS" => {
            let extra = b"Accept: application/sdp\r\nSupported: path\r\n".to_vec();
            Refusal { code: 200, reason: "OK", why: None, extra }
        }
        _ => Refusal { code: 404, reason: "Not Found", why: None, extra: Vec::new() },
    }
}

/// Why a gateway that is being drained takes no call.
pub(super) const DRAINING: &str = "this gateway is being drained";

/// A request that has been here before.
pub(super) fn comes_round() -> Refusal {
    let why = "it came from here, or would come back: look at the routes and the registrar";
    Refusal::new(482, "Loop Detected", why)
}

/// A message that is too long for a datagram, where there is no connection.
pub(super) fn too_large() -> Refusal {
    let why = "too long for a datagram, and no connection is to be had there";
    Refusal::new(513, "Message Too Large", why)
}

pub(super) fn no_hop(why: &NoHop) -> Refusal {
    match why {
        NoHop::Forbidden => {
            let why = "it is for this host's loopback, or for an address that is no host's";
            Refusal::new(403, "Forbidden", why)
        }
        NoHop::NoAnswer => {
            Refusal::new(503, "Service Unavailable", "the name service does not answer")
        }
        NoHop::NoSuchName => {
            let why = "the name service knows no such host";
            Refusal::new(478, "Unresolvable Destination", why)
        }
        NoHop::Unknown(_) | NoHop::Uri => {
            let why = "only sip: and sips: URIs have a way from here";
            Refusal::new(416, "Unsupported URI Scheme", why)
        }
        NoHop::NoTransport => {
            let why = "no socket of this gateway gets there by that transport";
            Refusal::new(503, "Service Unavailable", why)
        }
    }
}

fn warning(text: &str) -> Vec<u8> {
    format!("Warning: 399 trunkline \"{text}\"\r\n").into_bytes()
}

/// A description that can't be relayed; the log is told in more words.
pub(super) fn unpassable(why: Unpassable) -> Refusal {
    let (code, reason) = match why {
        Unpassable::NoPorts => (503, "Service Unavailable"),
        Unpassable::Sdp(_) => (400, "Bad Session Description"),
        Unpassable::Unreadable => (415, "Unsupported Media Type"),
        Unpassable::Unfit(_) | Unpassable::Encryption => (488, "Not Acceptable Here"),
    };
    let mut extra = warning(&why.to_string());
    if why == Unpassable::Unreadable {
        extra.extend(b"Accept: application/sdp\r\nAccept-Encoding: identity\r\n");
    }
    Refusal { code, reason, why: None, extra }
}
