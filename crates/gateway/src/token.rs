//! What a gateway writes into a URI of its own, so that a request that comes back with
//! it takes the way of who said it first (RFC 5626, 5.2): where that was, and a proof
//! that nobody else has written it.

use core::net::{IpAddr, SocketAddr};
use ring::hmac;
use trunkline_sip::transaction::Hop;

/// Bytes of the proof.
const PROOF: usize = 10;

/// Writes tokens, and knows them again.
#[derive(Debug)]
pub(crate) struct Tokens {
    key: hmac::Key,
}

impl Tokens {
    pub fn new(secret: &[u8; 32]) -> Tokens {
        Tokens { key: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }

    /// `hop` as the user of a URI.
    pub fn write(&self, hop: &Hop) -> String {
        let mut bytes = vec![hop.socket as u8];
        match hop.remote.ip().to_canonical() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        bytes.extend(hop.remote.port().to_be_bytes());
        bytes.extend(hop.connection.map(u64::to_be_bytes).unwrap_or_default().iter());
        bytes.push(u8::from(hop.connection.is_some()));
        let proof = hmac::sign(&self.key, &bytes);
        bytes.extend(proof.as_ref().iter().take(PROOF));
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The hop that [`Tokens::write`] wrote.
    pub fn read(&self, token: &[u8]) -> Option<Hop> {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let bytes: Vec<u8> = token
            .chunks(2)
            .map(|pair| match pair {
                [a, b] => Some(digit(*a)? << 4 | digit(*b)?),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let (said, proof) = bytes.split_at_checked(bytes.len().checked_sub(PROOF)?)?;
        let expected = hmac::sign(&self.key, said);
        let differs = expected.as_ref().iter().zip(proof).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs != 0 {
            return None;
        }
        let (&socket, rest) = said.split_first()?;
        let (address, rest) = rest.split_at_checked(rest.len().checked_sub(11)?)?;
        let ip: IpAddr = match *address {
            [a, b, c, d] => [a, b, c, d].into(),
            _ => <[u8; 16]>::try_from(address).ok()?.into(),
        };
        let (port, rest) = rest.split_first_chunk()?;
        let (connection, rest) = rest.split_first_chunk()?;
        let connection = (rest == [1]).then(|| u64::from_be_bytes(*connection));
        let remote = SocketAddr::new(ip, u16::from_be_bytes(*port));
        Some(Hop { socket: socket.into(), remote, connection })
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
        ] {
            let hop = Hop { socket: 3, remote: remote.parse().unwrap(), connection };
            let token = tokens.write(&hop);
            assert_eq!(tokens.read(token.as_bytes()), Some(hop));
            assert_eq!(Tokens::new(&[8; 32]).read(token.as_bytes()), None);
            for n in 0..token.len() {
                let mut other = token.clone().into_bytes();
                other[n] = if other[n] == b'0' { b'1' } else { b'0' };
                assert_eq!(tokens.read(&other), None, "{n}");
                assert_eq!(tokens.read(&token.as_bytes()[..n]), None, "{n}");
            }
        }
        assert_eq!(tokens.read(b"alice"), None);
    }
}
