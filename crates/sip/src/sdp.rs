//! Session descriptions (RFC 8866) as a media relay needs them: the address of each stream is read
//! and changed in place, and everything else stays byte for byte.

mod edit;

pub use edit::{SdpEdit, rejection};

use crate::lex::number;
use core::net::IpAddr;
use core::ops::Range;

/// Maximum number of lines in a description.
pub const MAX_LINES: usize = 2_000;
/// Maximum number of streams in a description.
pub const MAX_MEDIA: usize = 256;

/// Reasons why a description can't be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// This line has an equals sign that doesn't come after a letter, or bytes that others may take
    /// for the end of a line; or the first line isn't `v=0`.
    #[error("line {0} of the session description is malformed")]
    Line(usize),
    /// On this line, a stream's kind, port, protocol or format is malformed or missing.
    #[error("line {0} of the session description has a malformed stream")]
    Media(usize),
    /// On this line, a network address is malformed, or missing for a stream.
    #[error("line {0} of the session description has no valid address")]
    Connection(usize),
    /// There are more than [`MAX_LINES`] lines.
    #[error("a session description of more than {MAX_LINES} lines")]
    TooLong,
    /// There are more than [`MAX_MEDIA`] streams.
    #[error("a session description of more than {MAX_MEDIA} streams")]
    TooManyMedia,
}

/// Destination host of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// An IP address; unspecified if a caller older than RFC 3264 is on hold.
    Address(IpAddr),
    /// A domain name, as in the description.
    Name(&'a [u8]),
}

/// Transport protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Plain RTP and RTCP: `RTP/AVP`, `RTP/AVPF`.
    Rtp,
    /// Encrypted with keys in the description (RFC 4568) or from elsewhere: `RTP/SAVP`,
    /// `RTP/SAVPF`.
    Srtp,
    /// Encrypted with keys negotiated in the stream (RFC 5764): `UDP/TLS/RTP/SAVP`,
    /// `UDP/TLS/RTP/SAVPF`.
    DtlsSrtp,
    /// Other datagrams, such as those of a fax (T.38): `udptl`, `UDP/…`, `udp`.
    Datagrams,
    /// Anything else, such as `TCP/MSRP`, which a relay of datagrams can't carry.
    Other,
}

impl Transport {
    fn parse(protocol: &[u8]) -> Transport {
        let is = |name: &str| protocol.eq_ignore_ascii_case(name.as_bytes());
        let begins = |name: &str| {
            protocol.get(..name.len()).is_some_and(|p| p.eq_ignore_ascii_case(name.as_bytes()))
        };
        match () {
            () if is("RTP/AVP") || is("RTP/AVPF") => Transport::Rtp,
            () if is("RTP/SAVP") || is("RTP/SAVPF") => Transport::Srtp,
            () if is("UDP/TLS/RTP/SAVP") || is("UDP/TLS/RTP/SAVPF") => Transport::DtlsSrtp,
            () if is("udptl") || is("udp") || begins("UDP/") => Transport::Datagrams,
            () => Transport::Other,
        }
    }
}

/// Direction of a stream (RFC 3264, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both ends send media.
    SendRecv,
    /// Only the describing end sends media.
    SendOnly,
    /// Only the other end sends media.
    RecvOnly,
    /// Neither end sends media.
    Inactive,
}

/// An offered or accepted stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    /// Media type: `audio`, `video`, `image` …
    pub kind: &'a [u8],
    /// Destination port; 0 if the stream is rejected (RFC 3264, 6).
    pub port: u16,
    /// Number of ports: consecutive ones or, with RTCP, every second.
    pub ports: u16,
    /// Transport protocol of the stream.
    pub transport: Transport,
    /// Format list, for RTP the payload types.
    pub formats: &'a [u8],
    /// Destination host of the stream.
    pub host: Host<'a>,
    /// Direction of the stream.
    pub direction: Direction,
    /// Destination of RTCP, by `a=rtcp` or the next port.
    pub rtcp: Rtcp<'a>,
    /// Whether RTCP may also be sent to `port` (RFC 5761).
    pub rtcp_mux: bool,
    /// Why the stream can't be relayed, if its lines are malformed; its other fields are then as
    /// far as they could be read.
    pub fault: Option<SdpError>,
}

/// Destination of a stream's RTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtcp<'a> {
    /// The port after that of RTP, or the same one if multiplexed.
    Next,
    /// A stated port (RFC 3605), at the stream's host or at one of its own.
    At(u16, Option<Host<'a>>),
    /// Nowhere: what is stated can't be read.
    Nowhere,
}

impl Media<'_> {
    /// Whether the stream is on hold by an unspecified address, as before RFC 3264.
    pub fn is_held_by_address(&self) -> bool {
        matches!(self.host, Host::Address(host) if host.is_unspecified())
    }
}

#[derive(Clone, Debug)]
struct Section {
    /// Line numbers; the first line of a stream is its `m=`.
    lines: Range<usize>,
}

/// A session description as received.
#[derive(Clone, Debug)]
pub struct Sdp<'a> {
    text: &'a [u8],
    /// Each line includes its end.
    lines: Vec<Range<usize>>,
    /// The session's own section, then one per stream.
    sections: Vec<Section>,
    media: Vec<Media<'a>>,
}

impl<'a> Sdp<'a> {
    /// Locates the elements of a description.
    ///
    /// # Errors
    ///
    /// Returns [`SdpError`] with the line, counted from 1. Elements that a relay doesn't need are
    /// not checked, and a mistake in one stream is that stream's alone ([`Media::fault`]). Lines
    /// without an equals sign stay as they are. Blank lines and NUL at the end, which some phones
    /// write, are not part of the description.
    pub fn parse(text: &'a [u8]) -> Result<Sdp<'a>, SdpError> {
        let text = without_blank_end(text);
        let mut sdp = Sdp { text, lines: Vec::new(), sections: Vec::new(), media: Vec::new() };
        let (mut at, mut is_begun) = (0, false);
        while at < text.len() {
            let rest = &text[at..];
            let end = at + rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |n| n + 1);
            if sdp.lines.len() == MAX_LINES {
                return Err(SdpError::TooLong);
            }
            sdp.lines.push(at..end);
            at = end;
            let number = sdp.lines.len();
            let line = sdp.line(number - 1);
            if line.is_none() && !sdp.is_comment(number - 1) {
                return Err(SdpError::Line(number));
            }
            let is_blank = text[sdp.lines[number - 1].clone()].trim_ascii().is_empty();
            let is_version =
                line.is_some_and(|(kind, v)| kind == b'v' && v.trim_ascii_end() == b"0");
            if !is_begun && !is_blank && !is_version {
                return Err(SdpError::Line(number));
            }
            is_begun |= is_version;
            if number == 1 || line.is_some_and(|(kind, _)| kind == b'm') {
                sdp.sections.push(Section { lines: number - 1..number });
            }
            let last = sdp.sections.last_mut().ok_or(SdpError::Line(number))?;
            last.lines.end = number;
        }
        if !is_begun {
            return Err(SdpError::Line(1));
        }
        if sdp.sections.len() > MAX_MEDIA + 1 {
            return Err(SdpError::TooManyMedia);
        }
        let streams = sdp.sections.get(1..).ok_or(SdpError::Line(1))?;
        sdp.media = streams.iter().map(|s| sdp.read(s)).collect();
        Ok(sdp)
    }

    /// The streams in order, including rejected ones.
    pub fn media(&self) -> &[Media<'a>] {
        &self.media
    }

    /// The values of an attribute of stream `media`, or of the session; empty for an attribute
    /// without a value.
    pub fn attributes(&self, media: Option<usize>, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let lines = self.section(media).map_or(0..0, |section| section.lines.clone());
        lines.filter_map(move |n| self.attribute(n, name))
    }

    /// The session's section, or that of stream `media`.
    fn section(&self, media: Option<usize>) -> Option<&Section> {
        self.sections.get(media.map_or(0, |n| n.saturating_add(1)))
    }

    /// Letter and value of line `n`, from 0.
    fn line(&self, n: usize) -> Option<(u8, &'a [u8])> {
        let line = &self.text[self.lines.get(n)?.clone()];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            // No line contains bytes that others might take for its end (RFC 8866, 9).
            [_, _, value @ ..] if value.contains(&b'\r') || value.contains(&0) => None,
            [kind, b'=', value @ ..] if kind.is_ascii_lowercase() => Some((*kind, value)),
            _ => None,
        }
    }

    /// Whether line `n` can't be taken for one with a meaning: it has no equals sign.
    fn is_comment(&self, n: usize) -> bool {
        let line = self.lines.get(n).map_or(&[][..], |line| &self.text[line.clone()]);
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        !line.iter().any(|b| b"=\r\0".contains(b))
    }

    /// The value of attribute `name`, if line `n` has it.
    fn attribute(&self, n: usize, name: &str) -> Option<&'a [u8]> {
        let (b'a', value) = self.line(n)? else { return None };
        match value.trim_ascii_end().strip_prefix(name.as_bytes())? {
            [] => Some(&[]),
            [b':', value @ ..] => Some(value),
            _ => None,
        }
    }

    /// Number of the section's `c=` line.
    fn connection(&self, section: &Section) -> Option<usize> {
        section.lines.clone().find(|&n| matches!(self.line(n), Some((b'c', _))))
    }

    fn read(&self, section: &Section) -> Media<'a> {
        let first = section.lines.start;
        let wanted = self.line(first).and_then(|(_, value)| Wanted::parse(value));
        let mut fault = wanted.is_none().then_some(SdpError::Media(first + 1));
        let wanted = wanted.unwrap_or_default();
        let host = self.host(section).unwrap_or_else(|n| {
            // A rejected stream needs no address.
            let needed = wanted.port != 0;
            fault = fault.or(needed.then_some(SdpError::Connection(n + 1)));
            Host::Name(&[])
        });
        let here = |name| section.lines.clone().find_map(|n| self.attribute(n, name));
        Media {
            kind: wanted.kind,
            port: wanted.port,
            ports: wanted.ports,
            transport: Transport::parse(wanted.protocol),
            formats: wanted.formats,
            host,
            direction: self.direction(section),
            rtcp: here("rtcp").map_or(Rtcp::Next, rtcp),
            rtcp_mux: here("rtcp-mux").is_some(),
            fault,
        }
    }

    /// The host that a section names, or the session for it. The error is the number of the line
    /// that should.
    fn host(&self, section: &Section) -> Result<Host<'a>, usize> {
        let line = self.connection(section).or_else(|| self.connection(&self.sections[0]));
        let n = line.ok_or(section.lines.start)?;
        self.line(n).and_then(|(_, value)| host(value)).ok_or(n)
    }

    /// The direction of a stream, by default that of the session.
    fn direction(&self, section: &Section) -> Direction {
        let of = |section: &Section| {
            section.lines.clone().find_map(|n| match self.line(n)? {
                (b'a', value) => match value.trim_ascii_end() {
                    b"sendrecv" => Some(Direction::SendRecv),
                    b"sendonly" => Some(Direction::SendOnly),
                    b"recvonly" => Some(Direction::RecvOnly),
                    b"inactive" => Some(Direction::Inactive),
                    _ => None,
                },
                _ => None,
            })
        };
        of(section).or_else(|| of(&self.sections[0])).unwrap_or(Direction::SendRecv)
    }
}

/// The text up to the end of its last line that has more than white space and NUL.
fn without_blank_end(text: &[u8]) -> &[u8] {
    let Some(last) = text.iter().rposition(|b| !b"\r\n\t \0".contains(b)) else { return text };
    let end = text[last..].iter().position(|&b| b == b'\n').map_or(text.len(), |n| last + n + 1);
    // The last line may end with NUL, and without a line end.
    let nul = text[last..end].iter().position(|&b| b == 0).map_or(end, |n| last + n);
    &text[..nul]
}

/// The words separated by spaces or tabs.
fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| b" \t".contains(b)).filter(|word| !word.is_empty())
}

fn port(bytes: &[u8]) -> Option<u16> {
    u16::try_from(number(bytes)?).ok()
}

/// The contents of an `m=` line.
#[derive(Default)]
struct Wanted<'a> {
    kind: &'a [u8],
    port: u16,
    ports: u16,
    protocol: &'a [u8],
    formats: &'a [u8],
}

impl<'a> Wanted<'a> {
    fn parse(value: &'a [u8]) -> Option<Wanted<'a>> {
        let mut all = words(value);
        let (kind, place, protocol) = (all.next()?, all.next()?, all.next()?);
        let (port, ports) = match place.iter().position(|&b| b == b'/') {
            Some(at) => (port(&place[..at])?, port(&place[at + 1..]).filter(|&n| n > 0)?),
            None => (port(place)?, 1),
        };
        // A rejected stream needs no format.
        let formats = match all.next() {
            Some(first) => &value[value.len() - from(value, first)..],
            None if port == 0 => &[],
            None => return None,
        };
        Some(Wanted { kind, port, ports, protocol, formats })
    }
}

/// Number of bytes of `all` from its slice `part` on.
fn from(all: &[u8], part: &[u8]) -> usize {
    all.len() - (part.as_ptr() as usize - all.as_ptr() as usize)
}

/// Parses a `c=` line, ignoring the multicast scope.
fn host(value: &[u8]) -> Option<Host<'_>> {
    let mut all = words(value);
    let (b"IN", version, host) = (all.next()?, all.next()?, all.next()?) else { return None };
    let host = host.split(|&b| b == b'/').next()?;
    let text = core::str::from_utf8(host).ok()?;
    Some(match (version, text.parse::<IpAddr>()) {
        (b"IP4", Ok(address @ IpAddr::V4(_))) | (b"IP6", Ok(address @ IpAddr::V6(_))) => {
            Host::Address(address)
        }
        (b"IP4" | b"IP6", Err(_)) if text.bytes().any(|b| b.is_ascii_alphabetic()) => {
            Host::Name(host)
        }
        _ => return None,
    })
}

/// Parses `a=rtcp` (RFC 3605): a port, and an address if it is another one.
fn rtcp(value: &[u8]) -> Rtcp<'_> {
    let parse = || {
        let first = words(value).next()?;
        let place = value[value.len() - from(value, first) + first.len()..].trim_ascii();
        let stated = if place.is_empty() { None } else { Some(host(place)?) };
        Some(Rtcp::At(port(first)?, stated))
    };
    parse().unwrap_or(Rtcp::Nowhere)
}

#[cfg(test)]
mod tests;
