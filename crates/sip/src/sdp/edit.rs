//! Changes to a session description.

use super::{MAX_MEDIA, Sdp, Section, Wanted, from, words};
use core::net::IpAddr;
use core::ops::Range;

/// Attributes that a relay removes, as it replaces ICE (RFC 8839, 5): candidates other than itself,
/// and the attributes that announce them.
const ICE: [&str; 9] = [
    "candidate",
    "remote-candidates",
    "ice-lite",
    "ice-mismatch",
    "ice-ufrag",
    "ice-pwd",
    "ice-pacing",
    "ice-options",
    "end-of-candidates",
];

/// Attributes with alternative addresses for a stream (RFC 6947, RFC 5939 and 6871): a relay is the
/// only one.
const ALTERNATIVES: [&str; 3] = ["altc", "alt", "ccap"];

/// Changes to a description, applied by [`SdpEdit::finish`].
#[derive(Debug)]
pub struct SdpEdit<'s, 'a> {
    sdp: &'s Sdp<'a>,
    /// One change per line.
    changes: Vec<Change>,
    /// New destination host per stream; `None` if unchanged.
    hosts: Vec<Option<IpAddr>>,
}

/// The change of a line.
#[derive(Clone, Debug, Default)]
struct Change {
    is_removed: bool,
    /// New text after the letter and the equals sign.
    value: Option<Vec<u8>>,
    /// Lines to add after this one, without line ends.
    after: Vec<Vec<u8>>,
}

impl<'s, 'a> SdpEdit<'s, 'a> {
    /// Starts an edit without changes.
    pub fn new(sdp: &'s Sdp<'a>) -> SdpEdit<'s, 'a> {
        let changes = vec![Change::default(); sdp.lines.len()];
        SdpEdit { sdp, changes, hosts: vec![None; sdp.media.len()] }
    }

    /// Redirects stream `media` to this address and port, and its RTCP to the port after it (to
    /// `port` itself if multiplexed). Alternative addresses for ICE are removed, as are the ports
    /// of further layers (`4000/2`). A stream on hold by an unspecified address stays on hold.
    pub fn redirect(&mut self, media: usize, host: IpAddr, port: u16) {
        let Some(stream) = self.sdp.media.get(media) else { return };
        let Some(section) = self.sdp.section(Some(media)) else { return };
        self.hosts[media] = Some(host);
        self.set_port(media, port);
        for n in section.lines.clone() {
            if self.sdp.attribute(n, "rtcp").is_some() {
                let rtcp = if stream.rtcp_mux { port } else { port.saturating_add(1) };
                self.set_value(n, format!("rtcp:{rtcp}").into_bytes());
            }
        }
        self.remove_ice(Some(media));
        ALTERNATIVES.iter().for_each(|name| self.remove_attribute(Some(media), name));
        for n in section.lines.clone() {
            let capability = self.sdp.attribute(n, "acap").unwrap_or_default();
            // The attribute follows a number: it is one that the peer may use.
            let name = words(capability).nth(1).and_then(|name| name.split(|&b| b == b':').next());
            let names_places = name.is_some_and(|name| name == b"candidate" || name == b"rtcp");
            self.changes[n].is_removed |= names_places;
        }
    }

    /// Rejects stream `media` (RFC 3264, 6).
    pub fn decline(&mut self, media: usize) {
        let Some(first) = self.sdp.section(Some(media)).map(|section| section.lines.start) else {
            return;
        };
        let (_, value) = self.sdp.line(first).unwrap_or_default();
        match Wanted::parse(value) {
            Some(_) => self.set_port(media, 0),
            None => self.set_value(first, rejected(value)),
        }
    }

    fn remove_ice(&mut self, media: Option<usize>) {
        ICE.iter().for_each(|name| self.remove_attribute(media, name));
    }

    /// Removes bundles, as each stream now has its own port: none can share another's (RFC 9143),
    /// and those offered only as sharing a port are rejected.
    fn remove_bundles(&mut self) {
        let Some(session) = self.sdp.section(None) else { return };
        for n in session.lines.clone() {
            let group = self.sdp.attribute(n, "group");
            let is_bundle = |group: &[u8]| {
                words(group).next().is_some_and(|word| word.eq_ignore_ascii_case(b"BUNDLE"))
            };
            self.changes[n].is_removed |= group.is_some_and(is_bundle);
        }
    }

    /// Removes an attribute from stream `media`, or from the session.
    pub fn remove_attribute(&mut self, media: Option<usize>, name: &str) {
        let Some(section) = self.sdp.section(media) else { return };
        for n in section.lines.clone() {
            if self.sdp.attribute(n, name).is_some() {
                self.changes[n].is_removed = true;
            }
        }
    }

    /// Adds an attribute at the end of stream `media`; the value must not contain a line break.
    pub fn add_attribute(&mut self, media: usize, name: &str, value: &str) {
        let Some(section) = self.sdp.section(Some(media)) else { return };
        let last = section.lines.end - 1;
        self.changes[last].after.push(format!("a={name}:{value}").into_bytes());
    }

    /// Returns the changed description.
    pub fn finish(mut self) -> Vec<u8> {
        if self.hosts.iter().any(Option::is_some) {
            self.remove_ice(None);
            self.remove_bundles();
            self.connect();
        }
        let new_line = if self.text_of(0).1 == b"\n" { &b"\n"[..] } else { b"\r\n" };
        let mut out = Vec::with_capacity(self.sdp.text.len() + 256);
        for (n, change) in self.changes.iter().enumerate() {
            let (text, end) = self.text_of(n);
            if !change.is_removed {
                match &change.value {
                    Some(value) => out.extend([&text[..2], value].concat()),
                    None => out.extend(text),
                }
                out.extend(end);
            }
            for line in &change.after {
                // The very last line may lack its end, or half of it.
                match out.last() {
                    Some(b'\n') | None => {}
                    Some(b'\r') => out.push(b'\n'),
                    Some(_) => out.extend(new_line),
                }
                out.extend([line, new_line].concat());
            }
        }
        out
    }

    /// The text of a line, and its end.
    fn text_of(&self, n: usize) -> (&'a [u8], &'a [u8]) {
        let line = self.sdp.lines.get(n).map_or(&[][..], |line| &self.sdp.text[line.clone()]);
        let length = self.sdp.line(n).map_or(0, |(_, value)| 2 + value.len());
        line.split_at(length)
    }

    /// Writes the new addresses of the streams. The session's own line is changed if all streams
    /// that use it agree, since some agents read no other.
    fn connect(&mut self) {
        let mut by_session = Vec::new();
        for (media, (section, stream)) in
            self.sdp.sections[1..].iter().zip(&self.sdp.media).enumerate()
        {
            let host = self.hosts[media].filter(|_| !stream.is_held_by_address());
            match (self.sdp.connection(section), host) {
                (None, _) if stream.port == 0 => {}
                (None, host) => by_session.push((section.lines.clone(), host)),
                (Some(n), Some(host)) => self.set_connection(section, n, host),
                (Some(_), None) => {}
            }
        }
        let Some(&(_, first)) = by_session.first() else { return };
        let all = &self.sdp.sections[0];
        match (self.sdp.connection(all), first) {
            (Some(n), Some(host)) if by_session.iter().all(|(_, host)| *host == first) => {
                self.set_connection(all, n, host);
            }
            _ => {
                for (lines, host) in by_session {
                    host.inspect(|&host| self.insert_connection(lines, &connection(host)));
                }
            }
        }
    }

    /// Makes line `n` the only `c=` of a section; a stream of several layers has more.
    fn set_connection(&mut self, section: &Section, n: usize, host: IpAddr) {
        self.set_value(n, connection(host));
        for other in n + 1..section.lines.end {
            self.changes[other].is_removed |= matches!(self.sdp.line(other), Some((b'c', _)));
        }
    }

    fn set_port(&mut self, media: usize, port: u16) {
        let Some(section) = self.sdp.section(Some(media)) else { return };
        let first = section.lines.start;
        let Some((_, value)) = self.sdp.line(first) else { return };
        let Some(old) = words(value).nth(1) else { return };
        let length = old.len();
        let start = value.len() - from(value, old);
        let port = port.to_string();
        let value = [&value[..start], port.as_bytes(), &value[start + length..]].concat();
        self.set_value(first, value);
    }

    /// Replaces the value of line `n`; its letter and its end stay.
    fn set_value(&mut self, n: usize, value: Vec<u8>) {
        self.changes[n].value = Some(value);
    }

    /// Inserts a `c=` line after `m=` and `i=`, before everything else (RFC 8866, 5).
    fn insert_connection(&mut self, lines: Range<usize>, value: &[u8]) {
        let title = lines.start + 1;
        let has_title = lines.contains(&title) && matches!(self.sdp.line(title), Some((b'i', _)));
        let before = lines.start + usize::from(has_title);
        self.changes[before].after.insert(0, [b"c=", value].concat());
    }
}

/// A description that rejects every stream of `text`, of which nothing else can be used: an answer
/// has as many streams as its offer (RFC 3264, 6).
pub fn rejection(text: &[u8]) -> Vec<u8> {
    let mut out = b"v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=-\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n".to_vec();
    let lines = text.split(|b| b"\r\n\0".contains(b));
    for value in lines.filter_map(|line| line.strip_prefix(b"m=")).take(MAX_MEDIA) {
        out.extend([b"m=", &rejected(value)[..], b"\r\n"].concat());
    }
    out
}

/// The value of an `m=` line that rejects the stream of this malformed one, as far as it says which.
fn rejected(value: &[u8]) -> Vec<u8> {
    let is_token = |word: &&[u8]| word.iter().all(u8::is_ascii_graphic);
    let mut all = words(value);
    let kind = all.next().filter(is_token).unwrap_or(b"audio");
    let protocol = all.nth(1).filter(is_token).unwrap_or(b"RTP/AVP");
    let format = all.next().filter(is_token).unwrap_or(b"0");
    [kind, b" 0 ", protocol, b" ", format].concat()
}

fn connection(host: IpAddr) -> Vec<u8> {
    let version = if host.is_ipv4() { 4 } else { 6 };
    format!("IN IP{version} {host}").into_bytes()
}
