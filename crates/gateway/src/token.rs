//! Tokens in this gateway's own URIs: a request that returns with a token takes the flow of the
//! sender that first used the URI (RFC 5626, 5.2). A token holds the address of that flow, and a
//! proof that this gateway wrote it.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use core::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use ring::hmac;
use trunkline_sip::transaction::Hop;

/// Length of the proof in bytes: HMAC-SHA256.
const PROOF: usize = 32;

/// Writes and verifies tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    key: hmac::Key,
}

impl Tokens {
    pub fn new(secret: &[u8; 32]) -> Tokens {
        Tokens { key: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }

    /// Encodes `hop` as the user part of a URI.
    pub fn write(&self, hop: &Hop) -> String {
        let mut bytes = hop.socket.to_be_bytes().to_vec();
        bytes.extend(hop.remote.port().to_be_bytes());
        bytes.push(u8::from(hop.connection.is_some()));
        bytes.extend(hop.connection.unwrap_or(0).to_be_bytes());
        // In the form that the socket uses: a dual-stack IPv6 socket gives IPv4 addresses as
        // `::ffff:`, and its connections are found only by that form.
        match hop.remote {
            SocketAddr::V4(at) => bytes.extend(at.ip().octets()),
            SocketAddr::V6(at) => {
                bytes.extend(at.ip().octets());
                // The interface of a link-local address.
                if at.scope_id() != 0 {
                    bytes.extend(at.scope_id().to_be_bytes());
                }
            }
        }
        let proof = hmac::sign(&self.key, &bytes);
        bytes.extend(proof.as_ref());
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a token of [`Tokens::write`]; `None` if the proof doesn't match.
    pub fn read(&self, token: &[u8]) -> Option<Hop> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let (said, proof) = bytes.split_at_checked(bytes.len().checked_sub(PROOF)?)?;
        hmac::verify(&self.key, said, proof).ok()?;
        let (socket, rest) = said.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let (has_connection, rest) = rest.split_first()?;
        let (connection, address) = rest.split_first_chunk()?;
        let port = u16::from_be_bytes(*port);
        let remote: SocketAddr = match *address {
            [a, b, c, d] => ([a, b, c, d], port).into(),
            _ => {
                let (ip, scope) = address.split_first_chunk::<16>()?;
                let scope = match scope {
                    [] => 0,
                    scope => u32::from_be_bytes(scope.try_into().ok()?),
                };
                SocketAddrV6::new(Ipv6Addr::from(*ip), port, 0, scope).into()
            }
        };
        let connection = (*has_connection == 1).then(|| u64::from_be_bytes(*connection));
        Some(Hop { socket: u32::from_be_bytes(*socket), remote, connection })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_again_and_no_other_is() {
        let tokens = Tokens::new(&[7; 32]);
        for (remote, connection) in [
            ("192.0.2.1:5060", None),
            ("[2001:db8::1]:40000", Some(0)),
            ("192.0.2.1:1", Some(u64::MAX)),
            ("[::ffff:192.0.2.1]:40000", Some(1)),
            ("[fe80::1%7]:5060", Some(2)),
        ] {
            let hop = Hop { socket: 3, remote: remote.parse().unwrap(), connection };
            let token = tokens.write(&hop);
            assert_eq!(tokens.read(token.as_bytes()), Some(hop));
            assert_eq!(Tokens::new(&[8; 32]).read(token.as_bytes()), None);
            for n in 0..token.len() {
                let mut other = token.clone().into_bytes();
                other[n] = if other[n] == b'A' { b'B' } else { b'A' };
                assert_eq!(tokens.read(&other), None, "{n}");
                assert_eq!(tokens.read(&token.as_bytes()[..n]), None, "{n}");
            }
        }
        assert_eq!(tokens.read(b"alice"), None);
    }
}
