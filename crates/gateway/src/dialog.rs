//! The dialog of a call, as a gateway needs it to end the call itself: a BYE to each end in the name
//! of the other (RFC 3261, 15).

use core::time::Duration;
use trunkline_sip::value::{Address, Uri};
use trunkline_sip::{Message, Name};

/// Maximum number of bytes kept of the way to one end: others may write much into a call's headers.
const MAX_BYTES: usize = 2_048;

/// Why the gateway ends a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No packet and no message have arrived for too long.
    Idle,
    /// The operator ends it, by `calls hangup`.
    Operator,
    /// The gateway stops, and its calls with it.
    Stopped,
    /// Its INVITE was accepted after it had ended.
    Late,
    /// An end has hung up, and its own BYE can't be forwarded.
    HungUp,
}

impl Cause {
    /// The causes that are told to other gateways, and the words for them.
    const TOLD: [(Cause, &[u8]); 3] =
        [(Cause::Idle, b"idle"), (Cause::Operator, b"operator"), (Cause::Stopped, b"stopped")];

    /// The cause that another gateway gives in its BYE.
    pub fn told(bye: &Message) -> Option<Cause> {
        let word = bye.first(Name::Ended)?;
        Cause::TOLD.iter().find(|(_, other)| *other == word).map(|(cause, _)| *cause)
    }

    fn word(self) -> Option<&'static [u8]> {
        Cause::TOLD.iter().find(|(cause, _)| *cause == self).map(|(_, word)| *word)
    }

    /// Status code and text for the Reason (RFC 3326).
    fn reason(self) -> (u16, &'static str) {
        match self {
            Cause::Idle => (408, "no packet and no message"),
            Cause::Operator => (200, "ended by the operator"),
            Cause::Stopped => (503, "the gateway stops"),
            Cause::Late => (487, "accepted after the call had ended"),
            Cause::HungUp => (200, "the other end has hung up"),
        }
    }
}

/// One end of a dialog.
#[derive(Clone, Debug)]
pub(crate) struct DialogEnd {
    /// From or To of this end, with its tag.
    address: Vec<u8>,
    /// How requests reach it. Without this, the other end can still be told something in its name.
    pub way: Option<Way>,
    /// The highest number of its requests so far.
    number: u32,
    /// The number of the INVITE by which it has begun the dialog.
    invite: u32,
}

/// The way to an end of a dialog.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// URI for requests to the end.
    pub target: Vec<u8>,
    /// The proxies between the gateway and the end, the nearest first.
    pub routes: Vec<Vec<u8>>,
}

impl Way {
    fn bounded(self) -> Option<Way> {
        let routes: usize = self.routes.iter().map(Vec::len).sum();
        (self.target.len() + routes <= MAX_BYTES).then_some(self)
    }
}

impl DialogEnd {
    /// The sender of a request that begins or continues a dialog. It can't be reached if it names no
    /// URI, or a way that is too long to be kept.
    pub fn of_request(message: &Message) -> Option<DialogEnd> {
        let address = kept(message.first(Name::From)?);
        let routes = message.list(Name::RecordRoute).map(<[u8]>::to_vec).collect();
        let way = contact(message).and_then(|target| Way { target, routes }.bounded());
        let number = message.cseq()?.number;
        Some(DialogEnd { address, way, number, invite: number })
    }

    /// The sender of a response; `is_own` identifies this gateway's own routes, behind which are
    /// those of the other side.
    pub fn of_response(message: &Message, is_own: impl Fn(&Uri<'_>) -> bool) -> Option<DialogEnd> {
        let end = DialogEnd::of_answer(message, is_own)?;
        Some(DialogEnd { way: end.way.and_then(Way::bounded), ..end })
    }

    /// The same without a bound, for an end that isn't kept.
    pub fn of_answer(message: &Message, is_own: impl Fn(&Uri<'_>) -> bool) -> Option<DialogEnd> {
        let address = kept(message.first(Name::To)?);
        let uri = |route: &[u8]| {
            let address = Address::parse(route)?;
            Some(Uri::parse(address.uri).is_some_and(|uri| is_own(&uri)))
        };
        let beyond = message.list(Name::RecordRoute).take_while(|route| uri(route) == Some(false));
        let mut routes: Vec<Vec<u8>> = beyond.map(<[u8]>::to_vec).collect();
        routes.reverse();
        let way = contact(message).map(|target| Way { target, routes });
        Some(DialogEnd { address, way, number: 0, invite: 0 })
    }

    /// The sender of an INVITE in whose name its late answer is ended; requests don't go to it.
    pub fn of_late(invite: &Message) -> Option<DialogEnd> {
        let (address, number) = (invite.first(Name::From)?.to_vec(), invite.cseq()?.number);
        Some(DialogEnd { address, way: None, number, invite: number })
    }

    /// Updates the end from a later message of its own: it may be reached elsewhere, and numbers its
    /// requests.
    pub fn update(&mut self, message: &Message, is_request: bool) {
        if let Some(target) = contact(message).filter(|target| target.len() <= MAX_BYTES / 2)
            && let Some(way) = &mut self.way
        {
            way.target = target;
        }
        if is_request {
            let number = message.cseq().map_or(0, |cseq| cseq.number);
            self.number = self.number.max(number);
        }
    }

    /// The lines of a BYE to this end from `other`, behind the Via, with a cause. Another gateway is
    /// told it in our own header, too: phones write all kinds of things into a Reason.
    pub fn bye(
        &self,
        other: &mut DialogEnd,
        call_id: &[u8],
        (why, is_gateway): (Cause, bool),
    ) -> Vec<u8> {
        other.number = other.number.saturating_add(1);
        let (code, text) = why.reason();
        let mut more = format!("Reason: SIP;cause={code};text=\"{text}\"\r\n").into_bytes();
        if let Some(word) = why.word().filter(|_| is_gateway) {
            more.extend([Name::Ended.text().as_bytes(), b": ", word, b"\r\n"].concat());
        }
        self.lines(other, call_id, (other.number, "BYE"), &more)
    }

    /// The lines of the ACK to the 2xx by which this end has accepted the INVITE of `other`.
    pub fn ack(&self, other: &DialogEnd, call_id: &[u8]) -> Vec<u8> {
        self.lines(other, call_id, (other.invite, "ACK"), b"")
    }

    /// The lines of a request to this end from `other`, behind the Via; `more` are whole lines.
    fn lines(
        &self,
        other: &DialogEnd,
        call_id: &[u8],
        (number, method): (u32, &str),
        more: &[u8],
    ) -> Vec<u8> {
        let mut lines = b"Max-Forwards: 70\r\n".to_vec();
        let mut add = |name: &str, value: &[u8]| {
            lines.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        };
        for route in self.way.iter().flat_map(|way| &way.routes) {
            add("Route", route);
        }
        add("From", &other.address);
        add("To", &self.address);
        add("Call-ID", call_id);
        add("CSeq", format!("{number} {method}").as_bytes());
        add("Content-Length", b"0");
        lines.extend(more);
        lines.extend(b"\r\n");
        lines
    }
}

/// From or To as it is kept: without its display name and other parameters, if it is long. A dialog is
/// known by the tag, and older agents compare the URI (RFC 3261, 12.2.1.1).
fn kept(address: &[u8]) -> Vec<u8> {
    match Address::parse(address).filter(|_| address.len() > MAX_BYTES / 2) {
        None => address.to_vec(),
        Some(parsed) => {
            let tag = parsed.tag().map(|tag| [b";tag=", tag].concat()).unwrap_or_default();
            [b"<", parsed.uri, b">", &tag].concat()
        }
    }
}

/// URI in the Contact of a message.
fn contact(message: &Message) -> Option<Vec<u8>> {
    let address = Address::parse(message.list(Name::Contact).next()?)?;
    Some(address.uri.to_vec())
}

/// Interval of the session timer that a message agrees on or asks for (RFC 4028).
pub(crate) fn session_interval(message: &Message) -> Option<Duration> {
    let value = message.first(Name::SessionExpires)?;
    let digits = value.split(|b| !b.is_ascii_digit()).next()?;
    let seconds: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.min(86_400)))
}
