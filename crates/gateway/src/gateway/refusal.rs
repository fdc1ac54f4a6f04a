//! What is said to who asks for what can't be done.

use crate::calls::Unpassable;
use crate::hops::NoHop;

/// A request that is refused: with this code, this reason, and these lines.
pub(super) struct Refusal(pub u16, pub &'static str, pub Vec<u8>);

pub(super) fn overloaded() -> Refusal {
    Refusal(503, "Service Unavailable", b"Retry-After: 5\r\n".to_vec())
}

/// What is said to who asks this gateway itself.
pub(super) fn for_us(method: &[u8]) -> Refusal {
    match method {
        b"OPTIONS" => {
            Refusal(200, "OK", b"Accept: application/sdp\r\nSupported: path\r\n".to_vec())
        }
        _ => Refusal(404, "Not Found", Vec::new()),
    }
}

pub(super) fn no_hop(why: &NoHop) -> Refusal {
    match why {
        NoHop::Forbidden => Refusal(403, "Forbidden", Vec::new()),
        NoHop::NoAnswer => {
            let lines = warning("the name service does not answer");
            Refusal(503, "Service Unavailable", lines)
        }
        NoHop::NoSuchName => Refusal(478, "Unresolvable Destination", Vec::new()),
        NoHop::Unknown(_) | NoHop::Uri => Refusal(416, "Unsupported URI Scheme", Vec::new()),
        NoHop::NoTransport => {
            Refusal(503, "Service Unavailable", warning("no such transport here"))
        }
    }
}

fn warning(text: &str) -> Vec<u8> {
    format!("Warning: 399 trunkline \"{text}\"\r\n").into_bytes()
}

pub(super) fn unpassable(why: Unpassable) -> Refusal {
    let lines = warning(&why.to_string());
    match why {
        Unpassable::NoPorts => Refusal(503, "Service Unavailable", lines),
        Unpassable::Sdp(_) => Refusal(400, "Bad Session Description", lines),
        Unpassable::Unfit(_) | Unpassable::Encryption => Refusal(488, "Not Acceptable Here", lines),
    }
}
