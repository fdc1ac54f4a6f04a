//! Key of a transaction on its upstream side (RFC 3261, 17.2.3).

use crate::message::{Message, Start};
use crate::name::Name;

/// Equal for a request, its retransmissions, its CANCEL, and the ACK of a response other than 2xx.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(Vec<Vec<u8>>);

impl Key {
    pub fn of(message: &Message) -> Key {
        let own = |bytes: &[u8]| bytes.to_vec();
        // ACK and CANCEL match their INVITE.
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
        // For requests older than RFC 3261: the elements that all of these share.
        let Start::Request { uri, .. } = message.start() else { return Key(Vec::new()) };
        let tag = message.from().and_then(|from| from.tag()).unwrap_or_default();
        let number = message.cseq().map_or(0, |cseq| cseq.number).to_be_bytes().to_vec();
        let via = message.list(Name::Via).next().unwrap_or_default();
        let call = message.call_id().unwrap_or_default();
        Key(vec![own(uri), own(tag), own(call), number, own(via), own(method)])
    }
}
