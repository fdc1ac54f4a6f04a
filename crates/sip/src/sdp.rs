//! Session descriptions (RFC 8866) as a media relay needs them: where each stream is
//! wanted is read and changed in place, all else stays byte for byte.

mod edit;

pub use edit::SdpEdit;

use crate::lex::number;
use core::net::IpAddr;
use core::ops::Range;

/// The most lines of a description.
pub const MAX_LINES: usize = 2_000;
/// The most streams of a description.
pub const MAX_MEDIA: usize = 32;

/// Why a description can't be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// A line isn't a letter, an equals sign and a value; or the first isn't `v=0`.
    #[error("line {0} of the session description is malformed")]
    Line(usize),
    /// A stream's kind, port, protocol or format is malformed or missing.
    #[error("line {0} of the session description has no stream that can be understood")]
    Media(usize),
    /// A network address is malformed, or there is none for a stream.
    #[error("line {0} of the session description has no address that can be understood")]
    Connection(usize),
    /// More lines than a description has.
    #[error("a session description of more than {MAX_LINES} lines")]
    TooLong,
    /// More streams than a description has.
    #[error("a session description of more than {MAX_MEDIA} streams")]
    TooManyMedia,
}

/// Where a stream is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// An address; unspecified while a caller of before RFC 3264 is on hold.
    Address(IpAddr),
    /// A name.
    Name(&'a [u8]),
}

/// How a stream's packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RTP and RTCP as they are: `RTP/AVP`, `RTP/AVPF`.
    Rtp,
    /// Encrypted by keys in the description (RFC 4568), or elsewhere: `RTP/SAVP`,
    /// `RTP/SAVPF`.
    Srtp,
    /// Encrypted by keys agreed on in the stream (RFC 5764): `UDP/TLS/RTP/SAVP`,
    /// `UDP/TLS/RTP/SAVPF`.
    DtlsSrtp,
    /// Other datagrams, such as those of a fax (T.38): `udptl`, `UDP/…`, `udp`.
    Datagrams,
    /// Anything else, such as `TCP/MSRP`: no relay of datagrams can take it.
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

/// Who sends (RFC 3264, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both ends.
    SendRecv,
    /// Who says so.
    SendOnly,
    /// The other end.
    RecvOnly,
    /// Nobody.
    Inactive,
}

/// One stream that is offered or accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    /// `audio`, `video`, `image` …
    pub kind: &'a [u8],
    /// Where it is wanted; 0 if it isn't (RFC 3264, 6).
    pub port: u16,
    /// How many ports it has, one after the other or, with RTCP, every second.
    pub ports: u16,
    /// How it travels.
    pub transport: Transport,
    /// What it consists of, as payload types of RTP.
    pub formats: &'a [u8],
    /// Where it is wanted.
    pub host: Host<'a>,
    /// Who sends.
    pub direction: Direction,
    /// Where RTCP is wanted, if that is said (RFC 3605) and isn't the port after `port`.
    pub rtcp: Option<(u16, Option<Host<'a>>)>,
    /// Whether RTCP may come to `port`, too (RFC 5761).
    pub rtcp_mux: bool,
}

impl Media<'_> {
    /// Whether it is on hold as before RFC 3264: wanted at no address.
    pub fn is_held_by_address(&self) -> bool {
        matches!(self.host, Host::Address(host) if host.is_unspecified())
    }
}

#[derive(Clone, Debug)]
struct Section {
    /// Lines, by their number; the first of a stream is its `m=`.
    lines: Range<usize>,
}

/// A session description as it came.
#[derive(Clone, Debug)]
pub struct Sdp<'a> {
    text: &'a [u8],
    /// With their ends.
    lines: Vec<Range<usize>>,
    /// The session's own lines, then those of each stream.
    sections: Vec<Section>,
    media: Vec<Media<'a>>,
}

impl<'a> Sdp<'a> {
    /// Finds out what is where.
    ///
    /// # Errors
    ///
    /// [`SdpError`], with the line, counted from 1. What a relay doesn't need to
    /// understand is not looked at. Blank lines at the end, which some telephones write,
    /// don't belong to the description.
    pub fn parse(text: &'a [u8]) -> Result<Sdp<'a>, SdpError> {
        let text = without_blank_end(text);
        let mut sdp = Sdp { text, lines: Vec::new(), sections: Vec::new(), media: Vec::new() };
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let end = at + rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |n| n + 1);
            if sdp.lines.len() == MAX_LINES {
                return Err(SdpError::TooLong);
            }
            sdp.lines.push(at..end);
            at = end;
            let number = sdp.lines.len();
            let (kind, value) = sdp.line(number - 1).ok_or(SdpError::Line(number))?;
            if number == 1 && (kind, value) != (b'v', b"0") {
                return Err(SdpError::Line(number));
            }
            if number == 1 || kind == b'm' {
                sdp.sections.push(Section { lines: number - 1..number });
            }
            let last = sdp.sections.last_mut().ok_or(SdpError::Line(number))?;
            last.lines.end = number;
        }
        if sdp.sections.len() > MAX_MEDIA + 1 {
            return Err(SdpError::TooManyMedia);
        }
        let streams = sdp.sections.get(1..).ok_or(SdpError::Line(1))?;
        sdp.media = streams.iter().map(|s| sdp.read(s)).collect::<Result<_, _>>()?;
        Ok(sdp)
    }

    /// The streams, in their order, those that are refused among them.
    pub fn media(&self) -> &[Media<'a>] {
        &self.media
    }

    /// The values of an attribute of stream `media`, or of the session: empty if it is
    /// a mere name.
    pub fn attributes(&self, media: Option<usize>, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let lines = self.section(media).map_or(0..0, |section| section.lines.clone());
        lines.filter_map(move |n| self.attribute(n, name))
    }

    /// The session's section, or that of stream `media`.
    fn section(&self, media: Option<usize>) -> Option<&Section> {
        self.sections.get(media.map_or(0, |n| n.saturating_add(1)))
    }

    /// Line `n`, from 0: its letter and its value.
    fn line(&self, n: usize) -> Option<(u8, &'a [u8])> {
        let line = &self.text[self.lines.get(n)?.clone()];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line {
            // What others might take for the end of a line is in none (RFC 8866, 9).
            [_, _, value @ ..] if value.contains(&b'\r') || value.contains(&0) => None,
            [kind, b'=', value @ ..] if kind.is_ascii_lowercase() => Some((*kind, value)),
            _ => None,
        }
    }

    /// The value of attribute `name`, if line `n` is one.
    fn attribute(&self, n: usize, name: &str) -> Option<&'a [u8]> {
        let (b'a', value) = self.line(n)? else { return None };
        match value.strip_prefix(name.as_bytes())? {
            [] => Some(&[]),
            [b':', value @ ..] => Some(value),
            _ => None,
        }
    }

    /// The number of the section's `c=` line.
    fn connection(&self, section: &Section) -> Option<usize> {
        section.lines.clone().find(|&n| matches!(self.line(n), Some((b'c', _))))
    }

    fn read(&self, section: &Section) -> Result<Media<'a>, SdpError> {
        let first = section.lines.start;
        let (_, value) = self.line(first).ok_or(SdpError::Line(first + 1))?;
        let wanted = Wanted::parse(value).ok_or(SdpError::Media(first + 1))?;
        let host = match self.connection(section).or_else(|| self.connection(&self.sections[0])) {
            Some(n) => {
                self.line(n).and_then(|(_, v)| host(v)).ok_or(SdpError::Connection(n + 1))?
            }
            // What isn't wanted is wanted nowhere.
            None if wanted.port == 0 => Host::Name(&[]),
            None => return Err(SdpError::Connection(first + 1)),
        };
        let here = |name| section.lines.clone().find_map(|n| self.attribute(n, name));
        let rtcp = match here("rtcp").map(rtcp) {
            Some(None) => return Err(SdpError::Media(first + 1)),
            said => said.flatten(),
        };
        Ok(Media {
            kind: wanted.kind,
            port: wanted.port,
            ports: wanted.ports,
            transport: Transport::parse(wanted.protocol),
            formats: wanted.formats,
            host,
            direction: self.direction(section),
            rtcp,
            rtcp_mux: here("rtcp-mux").is_some(),
        })
    }

    /// As the stream says, or else the session.
    fn direction(&self, section: &Section) -> Direction {
        let of = |section: &Section| {
            section.lines.clone().find_map(|n| match self.line(n)? {
                (b'a', b"sendrecv") => Some(Direction::SendRecv),
                (b'a', b"sendonly") => Some(Direction::SendOnly),
                (b'a', b"recvonly") => Some(Direction::RecvOnly),
                (b'a', b"inactive") => Some(Direction::Inactive),
                _ => None,
            })
        };
        of(section).or_else(|| of(&self.sections[0])).unwrap_or(Direction::SendRecv)
    }
}

/// The text up to the end of its last line that isn't blank.
fn without_blank_end(text: &[u8]) -> &[u8] {
    let Some(last) = text.iter().rposition(|b| !b"\r\n".contains(b)) else { return text };
    let end = text[last..].iter().position(|&b| b == b'\n').map_or(text.len(), |n| last + n + 1);
    &text[..end]
}

/// The words between spaces.
fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&b| b == b' ').filter(|word| !word.is_empty())
}

fn port(bytes: &[u8]) -> Option<u16> {
    u16::try_from(number(bytes)?).ok()
}

/// What an `m=` line has.
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
        let formats = &value[value.len() - from(value, all.next()?)..];
        Some(Wanted { kind, port, ports, protocol, formats })
    }
}

/// How many bytes of `all` there are from `part` of it on.
fn from(all: &[u8], part: &[u8]) -> usize {
    all.len() - (part.as_ptr() as usize - all.as_ptr() as usize)
}

/// What a `c=` line has, without how far multicast reaches.
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

/// What `a=rtcp` has: `None` if it isn't understood.
fn rtcp(value: &[u8]) -> Option<(u16, Option<Host<'_>>)> {
    let end = value.iter().position(|&b| b == b' ').unwrap_or(value.len());
    let port = port(&value[..end])?;
    match &value[end..] {
        [] => Some((port, None)),
        place => Some((port, Some(host(place)?))),
    }
}

#[cfg(test)]
mod tests;
