//! Detection of SIP through a datagram proxy. The media of its calls take a different path, outside
//! the overlay, which would otherwise go unnoticed.

use super::Forward;
use super::port::Packet;
use crate::call::line::Target;
use std::net::SocketAddr;
use trunkline_sip::Message;
use trunkline_sip::sdp::{Host, Sdp};

/// Inspects packets for SIP calls, until it finds one.
pub struct CallDetector {
    /// UDP addresses at which this proxy listens or to which it sends.
    own: Vec<SocketAddr>,
    is_over: bool,
}

impl CallDetector {
    pub fn new(forwards: &[Forward]) -> CallDetector {
        let ends = |forward: &Forward| match forward.to {
            Target::Udp(address) => Some(address),
            Target::Overlay(_) => forward.listens_at,
        };
        CallDetector { own: forwards.iter().filter_map(ends).collect(), is_over: false }
    }

    /// Warns of the first call with media that this proxy does not carry.
    pub fn look(&mut self, packets: &[Packet<'_>]) {
        if self.is_over {
            return;
        }
        let Some(at) = packets.iter().find_map(|(_, bytes)| media(bytes, &self.own)) else {
            return;
        };
        self.is_over = true;
        tracing::warn!(
            "a call is set up through this proxy, and its media bypass the overlay: SIP wants \
             them at {at}, where this proxy neither listens nor sends. Give the node a [sip] \
             section, and the phone the node as its outbound proxy (docs/gateway.md)"
        );
    }
}

/// Media address in a call set-up `datagram`, unless it is one of `own`.
fn media(datagram: &[u8], own: &[SocketAddr]) -> Option<SocketAddr> {
    // RTP, which most packets are, does not begin like this.
    if !datagram.starts_with(b"INVITE ") && !datagram.starts_with(b"SIP/2.0 ") {
        return None;
    }
    let message = Message::parse(datagram).ok()?;
    let sdp = Sdp::parse(message.body()).ok()?;
    let wanted = sdp.media().iter().filter(|media| media.port != 0);
    let at = |media: &trunkline_sip::sdp::Media<'_>| match media.host {
        Host::Address(ip) => Some(SocketAddr::new(ip, media.port)),
        Host::Name(_) => None,
    };
    let is_own = |at: &SocketAddr| {
        let same = |own: &SocketAddr| own.ip() == at.ip() || own.ip().is_unspecified();
        own.iter().any(|own| own.port() == at.port() && same(own))
    };
    wanted.filter_map(at).find(|at| !is_own(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calls_media_are_found_unless_they_are_carried() {
        let invite =
            b"INVITE sip:b@192.0.2.2 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
            Content-Type: application/sdp\r\nContent-Length: 95\r\n\r\n\
            v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n\
            m=audio 4000 RTP/AVP 0\r\n";
        let at: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let own = |text: &str| [text.parse().unwrap()];
        assert_eq!(media(invite, &[]), Some(at));
        assert_eq!(media(invite, &own("127.0.0.1:4000")), Some(at));
        assert_eq!(media(invite, &own("192.0.2.1:4000")), None);
        assert_eq!(media(invite, &own("0.0.0.0:4000")), None);
        let text = String::from_utf8(invite.to_vec()).unwrap();
        assert_eq!(media(text.replace("INVITE", "BYE").as_bytes(), &[]), None);
        let answer = text.replace("INVITE sip:b@192.0.2.2 SIP/2.0", "SIP/2.0 200 OK");
        assert_eq!(media(answer.as_bytes(), &[]), Some(at));
        // A declined stream, and a message that is not SIP.
        assert_eq!(media(text.replace("audio 4000", "audio 0").as_bytes(), &[]), None);
        assert_eq!(media(b"INVITE nobody\r\n", &[]), None);
        assert_eq!(media(&[0x80; 172], &[]), None);
    }
}
