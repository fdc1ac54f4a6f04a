//! What tells one transaction from another where it came from (RFC 3261, 17.2.3).

use crate::message::{Message, Start};
use crate::name::Name;

/// The same for a request, what is sent of it again, its CANCEL, and the ACK of a
/// response that is no 2xx.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(Vec<Vec<u8>>);

impl Key {
    pub fn of(message: &Message) -> Key {
        let own = |bytes: &[u8]| bytes.to_vec();
        // Those that go with an INVITE are told by it.
        let method = message.cseq().map_or(&b""[..], |cseq| match cseq.method {
            b"ACK" | b"CANCEL" => b"INVITE",
            other => other,
        });
        let via = message.via();
        let host = via.map(|via| via.host.to_ascii_lowercase()).unwrap_or_default();
        let port = via.and_then(|via| via.port).unwrap_or(5060).to_be_bytes().to_vec();
        if let Some(branch) = via.and_then(|via| via.branch()) {
            return Key(vec![own(branch).to_ascii_lowercase(), host, port, own(method)]);
        }
        // From before RFC 3261: what is the same in all of them.
        let Start::Request { uri, .. } = message.start() else { return Key(Vec::new()) };
        let tag = message.from().and_then(|from| from.tag()).unwrap_or_default();
        let number = message.cseq().map_or(0, |cseq| cseq.number).to_be_bytes().to_vec();
        let via = message.list(Name::Via).next().unwrap_or_default();
        let call = message.call_id().unwrap_or_default();
        Key(vec![own(uri), own(tag), own(call), number, own(via), own(method)])
    }
}
