//! A received message, and the positions of its elements.

use crate::lex::{self, is_space, is_token, number, trim};
use crate::name::Name;
use crate::value::{Address, CSeq, Uri, Via, scheme};
use core::ops::Range;
use std::borrow::Cow;

/// Maximum size of a message in bytes: what a UDP datagram can carry.
pub const MAX_MESSAGE: usize = 65_535;
/// Maximum number of header fields in a message.
pub const MAX_FIELDS: usize = 256;
/// Maximum number of fields that a proxy adds to a message that it forwards.
const ADDED_FIELDS: usize = 16;

/// Reasons why bytes are not a SIP message; they cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The message is longer than any datagram.
    #[error("a message of more than {MAX_MESSAGE} bytes")]
    TooLong,
    /// The first line is neither a request's nor a response's.
    #[error("the first line is neither a SIP request's nor a response's")]
    FirstLine,
    /// No empty line ends the header fields.
    #[error("no empty line ends the header fields")]
    NoEnd,
    /// In a stream, the header fields are longer than this number of bytes, and those that an answer
    /// needs are missing.
    #[error("header fields of more than {0} bytes")]
    LongHead(usize),
}

impl ParseError {
    /// Whether the message is only too large.
    pub fn is_for_size(self) -> bool {
        matches!(self, ParseError::TooLong | ParseError::LongHead(_))
    }
}

/// A defect of a message that still allows an answer: a request gets a response with this
/// [`code`](Fault::code); a response with a fault is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The protocol version is not 2.0.
    #[error("Version Not Supported")]
    Version,
    /// The request's method is not a token.
    #[error("Bad Method")]
    Method,
    /// The Request-URI is malformed.
    #[error("Bad Request-URI")]
    RequestUri,
    /// A response's code is not three digits from 100 to 699.
    #[error("Bad Status Code")]
    Status,
    /// The text before a header line's colon is no field name.
    #[error("Bad Header Line")]
    Line,
    /// A mandatory field is missing.
    #[error("Missing {} Header", .0.text())]
    Missing(Name),
    /// A field that may occur once occurs more often.
    #[error("More Than One {} Header", .0.text())]
    Repeated(Name),
    /// A field's value is malformed, or out of range.
    #[error("Bad {} Header", .0.text())]
    Value(Name),
    /// CSeq and the first line name different methods.
    #[error("Method Not As In CSeq")]
    Mismatch,
    /// The body is shorter than Content-Length.
    #[error("Body Shorter Than Content-Length")]
    Short,
    /// There are more than [`MAX_FIELDS`] header fields.
    #[error("Message Too Large: More Than {MAX_FIELDS} Header Fields")]
    TooManyFields,
    /// In a stream, the header fields are longer than this number of bytes.
    #[error("Message Too Large: Header Fields Of More Than {0} Bytes")]
    LongHead(usize),
    /// In a stream, the message would be longer than any datagram.
    #[error("Message Too Large: More Than {MAX_MESSAGE} Bytes")]
    TooLong,
}

impl Fault {
    /// The status code of the response to this fault.
    pub fn code(self) -> u16 {
        match self {
            Fault::Version => 505,
            _ if self.is_for_size() => 513,
            _ => 400,
        }
    }

    /// Whether the message is only too large.
    pub fn is_for_size(self) -> bool {
        matches!(self, Fault::TooManyFields | Fault::LongHead(_) | Fault::TooLong)
    }
}

/// The first line of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// A request line, with its method and URI.
    Request {
        /// The method: `INVITE`, `ACK` …; case-sensitive.
        method: &'a [u8],
        /// The Request-URI, the target of the request.
        uri: &'a [u8],
    },
    /// A status line, with its code and reason.
    Response {
        /// Status code, from 100 to 699 if the message has no fault.
        code: u16,
        /// Reason phrase for display, in any encoding.
        reason: &'a [u8],
    },
}

/// One header field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name of the field.
    pub name: Name,
    /// Value without surrounding white space; folded lines are kept as received.
    pub value: &'a [u8],
    /// The whole field, including its last line end.
    pub line: &'a [u8],
}

/// Fields that an answer repeats, and the length of the message, which is needed to find its end.
const ANSWERED: [Name; 6] =
    [Name::Via, Name::From, Name::To, Name::CallId, Name::CSeq, Name::ContentLength];

#[derive(Clone, Debug)]
struct FieldSpan {
    name: Name,
    /// Whether the text before its colon is no field name. A line without a colon is only passed on.
    is_bad: bool,
    value: Range<usize>,
    line: Range<usize>,
}

/// A SIP message as received.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Vec<u8>,
    /// Excludes the line end.
    first_line: Range<usize>,
    places: Vec<FieldSpan>,
    /// Starts after the empty line and is as long as Content-Length, if that fits.
    body: Range<usize>,
    /// The limit that it exceeds: only the fields that an answer needs are complete then.
    excess: Option<Fault>,
}

impl Message {
    /// Locates the elements of a message in a datagram. A message in which [`Message::fault`] finds
    /// a defect can still be answered.
    ///
    /// # Errors
    ///
    /// Returns [`ParseError`] for bytes that can't be answered.
    pub fn parse(bytes: &[u8]) -> Result<Message, ParseError> {
        Message::parse_within(bytes, MAX_FIELDS)
    }

    /// The same for a message of this proxy, which may have more fields than a received one: those
    /// that the proxy has added.
    pub(crate) fn parse_own(bytes: &[u8]) -> Result<Message, ParseError> {
        Message::parse_within(bytes, MAX_FIELDS + ADDED_FIELDS)
    }

    fn parse_within(bytes: &[u8], most: usize) -> Result<Message, ParseError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(ParseError::TooLong);
        }
        let bytes = &cleaned(bytes)[..];
        let first = line(bytes, 0).ok_or(ParseError::NoEnd)?;
        let first_line = content(bytes, &first);
        // A line that continues the first one would continue a field inserted between the two.
        let goes_on = matches!(bytes.get(first.end), Some(b' ' | b'\t'));
        if goes_on || start(&bytes[first_line.clone()]).is_none() {
            return Err(ParseError::FirstLine);
        }
        let (mut places, mut at) = (Vec::<FieldSpan>::new(), first.end);
        let (mut excess, mut missing) = (None, None);
        let head = loop {
            let mut here = line(bytes, at).ok_or(ParseError::NoEnd)?;
            if content(bytes, &here).is_empty() {
                break here.end;
            }
            // A line that begins with white space continues the previous one.
            while let Some(b' ' | b'\t') = bytes.get(here.end) {
                here.end = line(bytes, here.end).ok_or(ParseError::NoEnd)?.end;
            }
            at = here.end;
            let field = place(bytes, here);
            if places.len() >= most {
                excess = Some(Fault::TooManyFields);
                let missing = missing.get_or_insert_with(|| {
                    let has = |name| places.iter().any(|place| place.name == name);
                    ANSWERED.into_iter().filter(|name| !has(*name)).collect::<Vec<_>>()
                });
                let Some(n) = missing.iter().position(|name| *name == field.name) else { continue };
                missing.swap_remove(n);
            }
            places.push(field);
        };
        let mut message =
            Message { bytes: bytes.to_vec(), first_line, places, body: head..bytes.len(), excess };
        if let Some(Some(length)) = message.content_length() {
            message.body.end = message.body.end.min(head.saturating_add(length));
        }
        message.bytes.truncate(message.body.end);
        Ok(message)
    }

    /// Whether a response to it can be built: the fields that lead back to its sender are there.
    pub fn is_answerable(&self) -> bool {
        let needed = &ANSWERED[..ANSWERED.len() - 1];
        needed.iter().all(|name| self.first(*name).is_some()) && self.via().is_some()
    }

    /// Status code of the response to its fault; `None` if it has none, or can't be answered.
    pub fn refusal(&self) -> Option<u16> {
        let fault = self.fault()?;
        let is_asked = matches!(self.start(), Start::Request { method, .. } if method != b"ACK");
        let has_way = if fault.is_for_size() { self.is_answerable() } else { self.via().is_some() };
        (is_asked && has_way).then(|| fault.code())
    }

    /// The limit that it exceeds, if any.
    pub fn excess(&self) -> Option<Fault> {
        self.excess
    }

    /// The same message, marked as beyond a limit.
    pub(crate) fn beyond(self, limit: Fault) -> Message {
        Message { excess: Some(limit), ..self }
    }

    /// The whole message; bytes after its body in the datagram have been dropped (RFC 3261, 18.3).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The parsed first line.
    pub fn start(&self) -> Start<'_> {
        let line = &self.bytes[self.first_line.clone()];
        start(line).map_or(Start::Response { code: 0, reason: &[] }, |(start, _)| start)
    }

    /// The header fields in order, including unknown ones.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.places.iter().map(|place| Field {
            name: place.name,
            value: &self.bytes[place.value.clone()],
            line: &self.bytes[place.line.clone()],
        })
    }

    /// The values of all fields of this name, one per field.
    pub fn all(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        self.fields().filter(move |field| field.name == name).map(|field| field.value)
    }

    /// The value of the first field of this name.
    pub fn first(&self, name: Name) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all list fields of this name, in order, whether in separate fields or in one
    /// (RFC 3261, 7.3.1).
    pub fn list(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        self.all(name).flat_map(|value| lex::split(value, b','))
    }

    /// The topmost Via: the hop that sent the request, or that the response goes to.
    pub fn via(&self) -> Option<Via<'_>> {
        Via::parse(self.list(Name::Via).next()?)
    }

    /// The CSeq: the request of the dialog that this message is, or answers.
    pub fn cseq(&self) -> Option<CSeq<'_>> {
        CSeq::parse(self.first(Name::CSeq)?)
    }

    /// The From address, the originator of the request.
    pub fn from(&self) -> Option<Address<'_>> {
        Address::parse(self.first(Name::From)?)
    }

    /// The To address, the recipient of the request.
    pub fn to(&self) -> Option<Address<'_>> {
        Address::parse(self.first(Name::To)?)
    }

    /// The Call-ID, which identifies the call.
    pub fn call_id(&self) -> Option<&[u8]> {
        self.first(Name::CallId)
    }

    /// Number of hops that the request may still take; `None` if missing or invalid (RFC 4475,
    /// 3.1.2.4).
    pub fn max_forwards(&self) -> Option<u8> {
        u8::try_from(number(self.first(Name::MaxForwards)?)?).ok()
    }

    /// The bytes after the header fields.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body.clone()]
    }

    /// The Content-Length; `Some(None)` if it is invalid.
    fn content_length(&self) -> Option<Option<usize>> {
        let value = self.first(Name::ContentLength)?;
        Some(number(value).and_then(|n| usize::try_from(n).ok()))
    }

    /// The defect for which a request is rejected or a response dropped, among the elements that a
    /// proxy reads; elements that it only passes on are not checked (RFC 3261, 16.3).
    pub fn fault(&self) -> Option<Fault> {
        self.check().err()
    }

    fn check(&self) -> Result<(), Fault> {
        self.excess.map_or(Ok(()), Err)?;
        match self.check_first_line()? {
            Some(method) if self.once(Name::CSeq)?.method != method => return Err(Fault::Mismatch),
            _ => {}
        }
        if self.places.iter().any(|place| place.is_bad) || self.has_stray_ends() {
            return Err(Fault::Line);
        }
        for name in [Name::From, Name::To] {
            self.single(name)?;
            let value = self.first(name).and_then(Address::parse);
            value.ok_or(Fault::Value(name))?;
        }
        self.single(Name::CallId)?;
        self.once(Name::CSeq)?;
        let mut vias = self.list(Name::Via).peekable();
        vias.peek().ok_or(Fault::Missing(Name::Via))?;
        if !vias.all(|via| Via::parse(via).is_some()) {
            return Err(Fault::Value(Name::Via));
        }
        for name in [Name::Route, Name::RecordRoute] {
            if !self.list(name).all(|value| Address::parse(value).is_some()) {
                return Err(Fault::Value(name));
            }
        }
        self.check_length()
    }

    /// Checks the first line; returns the method of a request.
    fn check_first_line(&self) -> Result<Option<&[u8]>, Fault> {
        let line = &self.bytes[self.first_line.clone()];
        let (start, version) = start(line).ok_or(Fault::Method)?;
        if !version.eq_ignore_ascii_case(b"SIP/2.0") {
            return Err(Fault::Version);
        }
        match start {
            Start::Request { method, .. } if !is_token(method) => Err(Fault::Method),
            Start::Request { method, uri } => {
                let scheme = scheme(uri).ok_or(Fault::RequestUri)?;
                let is_sip = [&b"sip"[..], b"sips"].iter().any(|s| scheme.eq_ignore_ascii_case(s));
                let bad = uri.iter().any(|&b| is_space(b) || b == b'<' || b == b'>')
                    || is_sip && Uri::parse(uri).is_none_or(|uri| uri.headers.is_some());
                if bad { Err(Fault::RequestUri) } else { Ok(Some(method)) }
            }
            Start::Response { code: 100..=699, .. } => Ok(None),
            Start::Response { .. } => Err(Fault::Status),
        }
    }

    /// Whether a line contains a byte that others might take for its end: a carriage return without
    /// a newline, or a zero byte that isn't escaped in a string.
    fn has_stray_ends(&self) -> bool {
        let head = &self.bytes[..self.end_of_fields()];
        head.iter().enumerate().any(|(at, byte)| match byte {
            b'\r' => head.get(at + 1) != Some(&b'\n'),
            0 => at == 0 || head[at - 1] != b'\\',
            _ => false,
        })
    }

    /// Checks that there is exactly one field of this name, and that it isn't empty.
    fn single(&self, name: Name) -> Result<&[u8], Fault> {
        let mut all = self.all(name);
        let value = all.next().ok_or(Fault::Missing(name))?;
        match (all.next(), value) {
            (Some(_), _) => Err(Fault::Repeated(name)),
            (None, []) => Err(Fault::Value(name)),
            (None, _) => Ok(value),
        }
    }

    fn once(&self, name: Name) -> Result<CSeq<'_>, Fault> {
        CSeq::parse(self.single(name)?).ok_or(Fault::Value(name))
    }

    fn check_length(&self) -> Result<(), Fault> {
        let mut lengths = self.all(Name::ContentLength);
        let Some(first) = lengths.next() else { return Ok(()) };
        if lengths.any(|other| other != first) {
            return Err(Fault::Repeated(Name::ContentLength));
        }
        let length = number(first).ok_or(Fault::Value(Name::ContentLength))?;
        if (self.body.len() as u64) < length { Err(Fault::Short) } else { Ok(()) }
    }

    /// Position of `part`, which is a slice of this message's bytes.
    pub(crate) fn place_of(&self, part: &[u8]) -> Range<usize> {
        let start = (part.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        let end = start.saturating_add(part.len());
        assert!(end <= self.bytes.len(), "the part is not of this message");
        start..end
    }

    /// End of the first line and all header fields, before the empty line.
    pub(crate) fn end_of_fields(&self) -> usize {
        self.places.last().map_or(self.end_of_first_line(), |place| place.line.end)
    }

    pub(crate) fn end_of_first_line(&self) -> usize {
        line(&self.bytes, 0).map_or(self.bytes.len(), |line| line.end)
    }
}

/// The line that begins at `at`, including its end.
fn line(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let length = bytes.get(at..)?.iter().position(|&b| b == b'\n')?;
    Some(at..at + length + 1)
}

/// A line without its end, which may lack the carriage return.
fn content(bytes: &[u8], line: &Range<usize>) -> Range<usize> {
    let end = line.end - 1;
    let has_return = end > line.start && bytes[end - 1] == b'\r';
    line.start..end - usize::from(has_return)
}

fn place(bytes: &[u8], line: Range<usize>) -> FieldSpan {
    let text = &bytes[line.clone()];
    let colon = text.iter().position(|&b| b == b':');
    let name = trim(&text[..colon.unwrap_or(0)]);
    let after = colon.map_or(text.len(), |at| at + 1);
    let rest = &text[after..];
    let before = rest.iter().take_while(|&&b| is_space(b)).count();
    let value = trim(rest);
    // If there is only white space, `before` counts all of it.
    let start = line.start + after + if value.is_empty() { 0 } else { before };
    FieldSpan {
        name: Name::parse(name),
        is_bad: colon.is_some() && !is_token(name),
        value: start..start + value.len(),
        line,
    }
}

/// Bytes without empty lines before the first one (RFC 3261, 7.5), and without white space at the
/// end of that line, which others might take for a part of it. A CR there that ends no line is white
/// space as well: it would be half of a line end once a space after it is gone.
fn cleaned(bytes: &[u8]) -> Cow<'_, [u8]> {
    let begin = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(0);
    let bytes = &bytes[begin..];
    let Some(first) = line(bytes, 0) else { return Cow::Borrowed(bytes) };
    let text = content(bytes, &first);
    let spaces =
        bytes[text.clone()].iter().rev().take_while(|b| matches!(b, b' ' | b'\t' | b'\r')).count();
    match spaces {
        0 => Cow::Borrowed(bytes),
        _ => Cow::Owned([&bytes[..text.end - spaces], &bytes[text.end..]].concat()),
    }
}

/// Parses a first line, and returns the protocol version.
fn start(line: &[u8]) -> Option<(Start<'_>, &[u8])> {
    let is_version = |word: &[u8]| word.len() > 4 && word[..4].eq_ignore_ascii_case(b"SIP/");
    let space = line.iter().position(|&b| b == b' ')?;
    let (first, rest) = (&line[..space], &line[space + 1..]);
    if is_version(first) {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let digits = number(&rest[..end])?;
        let code = if end == 3 { digits as u16 } else { 0 };
        let reason = rest.get(end + 1..).unwrap_or_default();
        return Some((Start::Response { code, reason }, first));
    }
    let space = rest.iter().rposition(|&b| b == b' ')?;
    let (uri, version) = (&rest[..space], &rest[space + 1..]);
    is_version(version).then_some((Start::Request { method: first, uri }, version))
}

#[cfg(test)]
mod tests;
