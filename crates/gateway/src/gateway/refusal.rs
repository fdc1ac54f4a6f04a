//! Responses to requests that can't be forwarded.

use crate::calls::DescriptionError;
use crate::hops::NoHop;

/// A response that refuses a request.
pub(super) struct RefusedRequest {
    /// The response's status code.
    pub code: u16,
    /// Reason phrase of the response.
    pub reason: &'static str,
    /// The reason, for this gateway's log and the response's Warning header; `None` if it needs no
    /// attention.
    pub why: Option<&'static str>,
    /// Additional header lines of the response.
    extra: Vec<u8>,
    /// Whether a trunk takes no new calls.
    pub by_trunk: bool,
}

impl RefusedRequest {
    fn new(code: u16, reason: &'static str, why: &'static str) -> RefusedRequest {
        RefusedRequest { code, reason, why: Some(why), extra: Vec::new(), by_trunk: false }
    }

    fn with(self, extra: &[u8]) -> RefusedRequest {
        RefusedRequest { extra: extra.to_vec(), ..self }
    }

    /// The same refusal, kept out of the log.
    fn quietly(self) -> RefusedRequest {
        RefusedRequest { extra: self.lines(), why: None, ..self }
    }

    /// All header lines that the refusal adds to the response.
    pub fn lines(&self) -> Vec<u8> {
        let mut lines = self.extra.clone();
        lines.extend(self.why.map(warning).unwrap_or_default());
        lines
    }
}

/// A refusal because of overload.
pub(super) fn overloaded(why: &'static str) -> RefusedRequest {
    RefusedRequest::new(503, "Service Unavailable", why).with(b"Retry-After: 5\r\n")
}

/// Refusal of a call that the trunk to the next gateway does not take.
pub(super) fn trunk_is_full() -> RefusedRequest {
    let why = "the trunk to the next gateway takes no new calls: it would exceed its share";
    RefusedRequest { by_trunk: true, ..overloaded(why) }
}

/// The response to a request addressed to this gateway.
pub(super) fn for_us(method: &[u8], is_draining: bool) -> RefusedRequest {
    match method {
        // Senders that probe with OPTIONS before each call then choose another gateway.
        b"OPTIONS" if is_draining => overloaded(DRAINING).quietly(),
        b"OPTIONS" => {
            let extra = b"Accept: application/sdp\r\nSupported: path\r\n".to_vec();
            RefusedRequest { code: 200, reason: "OK", why: None, extra, by_trunk: false }
        }
        _ => {
            let (code, reason) = (404, "Not Found");
            RefusedRequest { code, reason, why: None, extra: Vec::new(), by_trunk: false }
        }
    }
}

/// Reason given while the gateway is being drained.
pub(super) const DRAINING: &str = "this gateway is being drained";

/// Refusal of a request that has been here before.
pub(super) fn comes_round() -> RefusedRequest {
    let why = "it came from here, or would come back: check the routes and the registrar";
    RefusedRequest::new(482, "Loop Detected", why)
}

/// Refusal of a message that is too long for a datagram, where no connection can be made.
pub(super) fn too_large() -> RefusedRequest {
    let why = "too long for a datagram, and no connection can be made";
    RefusedRequest::new(513, "Message Too Large", why)
}

/// Refusal of a message that becomes too large by what a proxy adds to it.
pub(super) fn grows_too_large() -> RefusedRequest {
    let why = "with the header fields that a proxy adds it has more than 65,535 bytes";
    RefusedRequest::new(513, "Message Too Large", why)
}

pub(super) fn no_hop(why: &NoHop) -> RefusedRequest {
    match why {
        NoHop::Forbidden => {
            let why = "it is for this host's loopback, or for an address that is not a host's";
            RefusedRequest::new(403, "Forbidden", why)
        }
        NoHop::NoAnswer => {
            RefusedRequest::new(503, "Service Unavailable", "the name service does not answer")
        }
        NoHop::NoSuchName => {
            let why = "the host name has no address";
            RefusedRequest::new(478, "Unresolvable Destination", why)
        }
        NoHop::Unknown(_) | NoHop::Uri => {
            let why = "only sip: and sips: URIs are supported";
            RefusedRequest::new(416, "Unsupported URI Scheme", why)
        }
        NoHop::NoTransport => {
            let why = "no socket of this gateway reaches it by that transport";
            RefusedRequest::new(503, "Service Unavailable", why)
        }
    }
}

fn warning(text: &str) -> Vec<u8> {
    format!("Warning: 399 trunkline \"{text}\"\r\n").into_bytes()
}

/// Refusal of a description that can't be relayed; [`Event::Refused`](super::Event::Refused) logs
/// it in more detail.
pub(super) fn unpassable(why: DescriptionError) -> RefusedRequest {
    let (code, reason) = match why {
        DescriptionError::NoPorts | DescriptionError::Trunk(_) => (503, "Service Unavailable"),
        DescriptionError::Sdp(_) => (400, "Bad Session Description"),
        DescriptionError::Unreadable => (415, "Unsupported Media Type"),
        DescriptionError::MediaRejected(_) | DescriptionError::Encryption => {
            (488, "Not Acceptable Here")
        }
    };
    let mut extra = warning(&why.to_string());
    if matches!(why, DescriptionError::Trunk(_)) {
        extra.extend(b"Retry-After: 5\r\n");
    }
    if why == DescriptionError::Unreadable {
        extra.extend(b"Accept: application/sdp\r\nAccept-Encoding: identity\r\n");
    }
    let by_trunk = matches!(why, DescriptionError::Trunk(_));
    RefusedRequest { code, reason, why: None, extra, by_trunk }
}
