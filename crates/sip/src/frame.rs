//! Extracts messages from a stream, such as TCP or TLS, where only Content-Length marks the end of
//! one (RFC 3261, 18.3).

use crate::lex::number;
use crate::message::{Fault, MAX_MESSAGE, Message, ParseError};
use crate::name::Name;

/// Maximum number of bytes before the empty line of a message in a stream.
pub const MAX_HEAD: usize = 32 << 10;

/// Maximum length of a line that an answer to an oversized head repeats.
const MAX_LINE: usize = 4 << 10;

/// The next element of a stream.
#[derive(Debug)]
pub enum Frame {
    /// A message. If its Content-Length is bad or missing, or its head is too long, the start of the
    /// next message is unknown, and [`Framer::is_lost`] returns true.
    Message(Message),
    /// Two empty lines, to be answered by one (RFC 5626, 3.5.1).
    Ping,
}

/// Splits a stream into messages. It never holds more than one message of maximum length.
#[derive(Debug, Default)]
pub struct Framer {
    bytes: Vec<u8>,
    /// Number of bytes already searched for the end of the header fields.
    looked: usize,
    /// End of the current message, once its header fields are complete.
    end: Option<usize>,
    /// Whether the current message is longer than any datagram, by its Content-Length.
    is_too_long: bool,
    is_lost: bool,
}

impl Framer {
    /// Number of bytes that can be pushed now.
    pub fn room(&self) -> usize {
        (MAX_HEAD + MAX_MESSAGE).saturating_sub(self.bytes.len())
    }

    /// Appends bytes read from the stream, as far as there is [`room`](Framer::room); returns the
    /// number taken.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Whether the stream can no longer be parsed and must be closed.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the next element, if it is complete.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a message; the stream is then lost.
    pub fn poll(&mut self) -> Option<Result<Frame, ParseError>> {
        if self.is_lost {
            return None;
        }
        let next = self.cut();
        self.is_lost |= matches!(next, Some(Err(_)));
        next
    }

    fn cut(&mut self) -> Option<Result<Frame, ParseError>> {
        // Empty lines before a message are ignored (RFC 3261, 7.5), except for two at once.
        let mut empty = 0;
        loop {
            match &self.bytes[empty..] {
                [b'\r', b'\n', b'\r', b'\n', ..] => {
                    self.drop_front(empty + 4);
                    return Some(Ok(Frame::Ping));
                }
                // Needs more bytes to decide.
                [] | [b'\r'] | [b'\r', b'\n'] | [b'\r', b'\n', b'\r'] => {
                    self.drop_front(empty);
                    return None;
                }
                [b'\n', ..] => empty += 1,
                [b'\r', b'\n', ..] => empty += 2,
                _ => break,
            }
        }
        if empty > 0 {
            self.drop_front(empty);
        }
        if self.end.is_none() {
            let head = self.end_of_head();
            if head.unwrap_or(self.bytes.len()) > MAX_HEAD {
                self.is_lost = true;
                return Some(self.shortened().map(Frame::Message));
            }
            let head = head?;
            match Message::parse(&self.bytes[..head]) {
                Ok(message) => self.end = Some(self.end_of_message(head, &message)),
                Err(error) => return Some(Err(error)),
            }
        }
        let end = self.end.filter(|&end| end <= self.bytes.len())?;
        let message = Message::parse(&self.bytes[..end]);
        self.drop_front(end);
        let excess = self.is_too_long.then_some(Fault::TooLong);
        let marked = |message: Message| match excess {
            Some(limit) => message.beyond(limit),
            None => message,
        };
        Some(message.map(marked).map(Frame::Message))
    }

    /// A message whose head is too long, without its longest lines, so that it can be answered.
    fn shortened(&self) -> Result<Message, ParseError> {
        let (mut head, mut is_kept) = (Vec::new(), false);
        for line in self.bytes.split_inclusive(|b| *b == b'\n') {
            match line {
                [b'\n'] | [b'\r', b'\n'] => break,
                // It continues the line before it.
                [b' ' | b'\t', ..] => {}
                _ => is_kept = line.len() <= MAX_LINE,
            }
            is_kept &= line.ends_with(b"\n") && head.len() + line.len() <= MAX_HEAD;
            if is_kept {
                head.extend_from_slice(line);
            }
        }
        head.extend_from_slice(b"\r\n");
        let message = Message::parse(&head).ok().filter(Message::is_answerable);
        let message = message.map(|message| message.beyond(Fault::LongHead(MAX_HEAD)));
        message.ok_or(ParseError::LongHead(MAX_HEAD))
    }

    fn end_of_message(&mut self, head: usize, message: &Message) -> usize {
        // If two lengths differ, other hops may use the other one.
        let mut all = message.list(Name::ContentLength);
        let first = all.next().filter(|first| all.all(|other| number(other) == number(first)));
        let length = first.and_then(number);
        let end = length.and_then(|n| head.checked_add(usize::try_from(n).ok()?));
        self.is_too_long = end.is_some_and(|end| end > MAX_MESSAGE);
        let end = end.filter(|&end| end <= MAX_MESSAGE);
        self.is_lost |= end.is_none();
        end.unwrap_or(head)
    }

    fn drop_front(&mut self, count: usize) {
        self.bytes.drain(..count);
        (self.looked, self.end) = (0, None);
    }

    /// Finds the position after the empty line. Bytes are searched only once, or many small pieces
    /// of a long message would take quadratic time.
    fn end_of_head(&mut self) -> Option<usize> {
        let from = self.looked.saturating_sub(3);
        let rest = &self.bytes[from..];
        let end = (0..rest.len()).find_map(|i| match &rest[i..] {
            [b'\n', b'\n', ..] => Some(from + i + 2),
            [b'\n', b'\r', b'\n', ..] => Some(from + i + 3),
            _ => None,
        });
        self.looked = self.bytes.len();
        if let Some(end) = end {
            self.looked = end;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = b"OPTIONS sip:h SIP/2.0\r\nVia: SIP/2.0/TCP a;branch=z9hG4bK1\r\n\
        From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\n\
        Content-Length: 5\r\n\r\na\r\nbc";

    /// Feeds `bytes` in pieces of `size`; returns the lengths of the messages, and 0 for pings.
    fn frames(bytes: &[u8], size: usize) -> Result<Vec<usize>, ParseError> {
        let (mut framer, mut out) = (Framer::default(), Vec::new());
        for piece in bytes.chunks(size) {
            assert_eq!(framer.push(piece), piece.len());
            while let Some(frame) = framer.poll() {
                match frame? {
                    Frame::Message(message) => {
                        assert_eq!(message.fault(), None);
                        out.push(message.bytes().len());
                    }
                    Frame::Ping => out.push(0),
                }
            }
        }
        Ok(out)
    }

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let stream = [b"\r\n", ONE, b"\n", ONE, b"\n\r\n\r\n", ONE].concat();
        for size in [1, 2, 3, 7, 100, 10_000] {
            let want = [ONE.len(), ONE.len(), 0, ONE.len()];
            assert_eq!(frames(&stream, size), Ok(want.to_vec()), "{size}");
        }
    }

    #[test]
    fn what_has_no_end_is_the_end() {
        let twice = "h: 5\r\nContent-Length: 4";
        for (from, to) in [
            ("Content-Length: 5\r\n", ""),
            ("h: 5", "h: -1"),
            ("h: 5", "h: 99999"),
            ("h: 5", twice),
        ] {
            let text = String::from_utf8_lossy(ONE).replacen(from, to, 1);
            let mut framer = Framer::default();
            framer.push(text.as_bytes());
            let Some(Ok(Frame::Message(message))) = framer.poll() else { panic!("{to}") };
            let excess = (to == "h: 99999").then_some(Fault::TooLong);
            assert!(message.body().is_empty() && message.excess() == excess, "{to}");
            assert!(framer.is_lost() && framer.poll().is_none(), "{to}");
        }
        assert_eq!(frames(&[b'x'; MAX_HEAD + 1], 1_000), Err(ParseError::LongHead(MAX_HEAD)));
        assert_eq!(frames(b"HTTP/1.1\r\n\r\n", 5), Err(ParseError::FirstLine));
    }

    #[test]
    fn a_head_that_is_too_long_can_be_answered() {
        let text = String::from_utf8_lossy(ONE).into_owned();
        let long = format!("X: {}\r\n", "y".repeat(MAX_HEAD));
        let folded = format!("X: z\r\n{}", " y\r\n".repeat(MAX_HEAD / 4));
        let short = "X: y\r\n".repeat(MAX_HEAD / 6 + 9);
        for lines in [&long, &folded, &short] {
            for before in ["Via:", "From:", "Content-Length:"] {
                let text = text.replacen(before, &format!("{lines}{before}"), 1);
                for size in [1_460, 16 << 10] {
                    let mut framer = Framer::default();
                    let mut pieces = text.as_bytes().chunks(size);
                    let found = loop {
                        match framer.poll() {
                            Some(found) => break found,
                            None => framer.push(pieces.next().unwrap()),
                        };
                    };
                    // Otherwise it depends on what has been read when the limit is exceeded.
                    let has_all = before == "Content-Length:";
                    assert!(framer.is_lost());
                    match found {
                        Ok(Frame::Message(message)) => {
                            assert_eq!(message.fault(), Some(Fault::LongHead(MAX_HEAD)));
                            assert!(
                                message.is_answerable() && message.bytes().len() <= MAX_HEAD + 2
                            );
                        }
                        other => assert!(!has_all, "{before} {size} {other:?}"),
                    }
                }
            }
        }
        // The whole message is there at once.
        let text = text.replacen("Via:", &format!("{long}Via:"), 1);
        let mut framer = Framer::default();
        framer.push(text.as_bytes());
        assert!(matches!(framer.poll(), Some(Ok(Frame::Message(m))) if m.is_answerable()));
    }

    #[test]
    fn it_holds_one_message_at_most() {
        let mut framer = Framer::default();
        assert_eq!(framer.push(&vec![b'x'; 1 << 20]), MAX_HEAD + MAX_MESSAGE);
        assert!(framer.poll().is_some_and(|frame| frame.is_err()) && framer.is_lost());
    }
}
