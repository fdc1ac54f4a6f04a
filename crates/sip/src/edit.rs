//! Changes to a message; everything that they don't touch stays byte for byte.

use crate::lex::split;
use crate::message::{Message, Start};
use crate::name::Name;
use crate::reply::line;
use core::ops::Range;

/// Changes to a message, applied by [`Edit::finish`].
#[derive(Debug)]
pub struct Edit<'a> {
    message: &'a Message,
    /// Replaced ranges and their new bytes; an insertion replaces an empty range.
    changes: Vec<(Range<usize>, Vec<u8>)>,
}

impl<'a> Edit<'a> {
    /// Starts an edit without changes.
    pub fn new(message: &'a Message) -> Edit<'a> {
        Edit { message, changes: Vec::new() }
    }

    /// The message before the changes.
    pub fn message(&self) -> &'a Message {
        self.message
    }

    /// Replaces `part`, which must be a slice of the message's bytes, such as a field's value.
    pub fn replace(&mut self, part: &[u8], with: &[u8]) {
        let place = self.message.place_of(part);
        self.changes.push((place, with.to_vec()));
    }

    /// Inserts `more` after `part`, which must be a slice of the message's bytes.
    pub fn append(&mut self, part: &[u8], more: &[u8]) {
        let end = self.message.place_of(part).end;
        self.insert(end, more);
    }

    /// Inserts `bytes` at `at`. Of several insertions at the same position, the last comes first.
    fn insert(&mut self, at: usize, bytes: &[u8]) {
        match self.changes.iter_mut().find(|(place, _)| *place == (at..at)) {
            Some((_, already)) => {
                already.splice(0..0, bytes.iter().copied());
            }
            None => self.changes.push((at..at, bytes.to_vec())),
        }
    }

    /// Replaces the Request-URI; does nothing to a response.
    pub fn set_uri(&mut self, uri: &[u8]) {
        if let Start::Request { uri: old, .. } = self.message.start() {
            self.replace(old, uri);
        }
    }

    /// Inserts a field before all others of its name, or before all fields if there are none.
    pub fn push_front(&mut self, name: Name, value: &[u8]) {
        let first = self.message.fields().find(|field| field.name == name);
        let at = match first {
            Some(field) => self.message.place_of(field.line).start,
            None => self.message.end_of_first_line(),
        };
        self.insert(at, &field(name, value));
    }

    /// Removes the first `count` values of a list, with the fields that become empty.
    pub fn pop(&mut self, name: Name, mut count: usize) {
        for field in self.message.fields().filter(|field| field.name == name) {
            let values: Vec<&[u8]> = split(field.value, b',').collect();
            match values.get(count) {
                _ if count == 0 => return,
                None => self.replace(field.line, b""),
                Some(next) => {
                    let (start, end) = (
                        self.message.place_of(field.value).start,
                        self.message.place_of(next).start,
                    );
                    self.changes.push((start..end, Vec::new()));
                }
            }
            count = count.saturating_sub(values.len());
        }
    }

    /// Sets the first field of this name to `value` and removes the others; without one, adds it
    /// after all fields.
    pub fn set(&mut self, name: Name, value: &[u8]) {
        let mut fields = self.message.fields().filter(|field| field.name == name);
        match fields.next() {
            Some(field) => self.replace(field.value, value),
            None => {
                let at = self.message.end_of_fields();
                self.insert(at, &field(name, value));
            }
        }
        for field in fields {
            self.replace(field.line, b"");
        }
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: Name) {
        for field in self.message.fields().filter(|field| field.name == name) {
            self.replace(field.line, b"");
        }
    }

    /// Replaces the body, or a part of it (see [`Message::part`]), and updates Content-Length.
    pub fn set_part(&mut self, part: &[u8], with: &[u8]) {
        self.replace(part, with);
        let length = self.message.body().len() - part.len() + with.len();
        self.set(Name::ContentLength, length.to_string().as_bytes());
    }

    /// Returns the changed message.
    pub fn finish(mut self) -> Vec<u8> {
        let bytes = self.message.bytes();
        // An insertion before a part precedes the part's replacement.
        self.changes.sort_by_key(|(place, _)| (place.start, place.end));
        let mut out = Vec::with_capacity(bytes.len() + 512);
        let mut at = 0;
        for (place, with) in &self.changes {
            debug_assert!(at <= place.start, "two changes of one part");
            if at <= place.start {
                out.extend_from_slice(&bytes[at..place.start]);
                out.extend_from_slice(with);
                at = place.end;
            }
        }
        out.extend_from_slice(&bytes[at..]);
        out
    }
}

fn field(name: Name, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    line(&mut out, name, value);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"INVITE sip:b@h SIP/2.0\r\n\
        v: SIP/2.0/UDP a;branch=z9hG4bK1 ,\r\n SIP/2.0/UDP z;branch=z9hG4bK0\r\n\
        X-Odd : \xe9;;,,\r\n\
        Route: <sip:r1;lr>, <sip:r2;lr>\r\n\
        Route: <sip:r3;lr>\r\n\
        From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\n\
        L: 3\r\n\r\nabc and more";

    fn edited(change: impl FnOnce(&mut Edit<'_>, &Message)) -> String {
        let message = Message::parse(REQUEST).unwrap();
        assert_eq!(message.fault(), None);
        let mut edit = Edit::new(&message);
        change(&mut edit, &message);
        let bytes = edit.finish();
        assert_eq!(Message::parse(&bytes).unwrap().fault(), None);
        bytes.iter().map(|&b| char::from(b)).collect()
    }

    /// The request with `from` replaced by `to`, once.
    fn with(from: &str, to: &str) -> String {
        let text: String = REQUEST[..REQUEST.len() - 9].iter().map(|&b| char::from(b)).collect();
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    }

    #[test]
    fn nothing_changed_is_nothing_lost() {
        assert_eq!(edited(|_, _| ()), with("", ""));
    }

    #[test]
    fn what_is_in_front_goes_and_comes() {
        let vias = |edit: &mut Edit<'_>, _: &Message| edit.pop(Name::Via, 1);
        assert_eq!(edited(vias), with("SIP/2.0/UDP a;branch=z9hG4bK1 ,\r\n ", ""));
        let three = |edit: &mut Edit<'_>, _: &Message| edit.pop(Name::Route, 3);
        let one_line = with("Route: <sip:r1;lr>, <sip:r2;lr>\r\nRoute: <sip:r3;lr>\r\n", "");
        assert_eq!(edited(three), one_line);
        assert_eq!(edited(|edit, _| edit.pop(Name::Route, 9)), one_line);
        assert_eq!(
            edited(|edit, _| edit.pop(Name::Route, 2)),
            with("Route: <sip:r1;lr>, <sip:r2;lr>\r\n", "")
        );
        let both = |edit: &mut Edit<'_>, _: &Message| {
            edit.push_front(Name::Via, b" SIP/2.0/UDP c\r\n ;x ");
            edit.push_front(Name::Via, b"SIP/2.0/UDP d");
            edit.push_front(Name::RecordRoute, b"<sip:me;lr>");
        };
        let vias =
            "Record-Route: <sip:me;lr>\r\nVia: SIP/2.0/UDP d\r\nVia: SIP/2.0/UDP c   ;x\r\nv: ";
        // Both insertions are at the end of the first line: the later one comes first.
        assert_eq!(edited(both), with("v: ", vias));
    }

    #[test]
    fn values_and_bodies_change() {
        let change = |edit: &mut Edit<'_>, message: &Message| {
            edit.set_uri(b"sip:c@i");
            edit.set(Name::MaxForwards, b"69");
            edit.set(Name::Route, b"<sip:only;lr>");
            edit.append(message.list(Name::Via).next().unwrap(), b";received=10.0.0.1");
            edit.set_part(message.body(), b"four");
        };
        let text = edited(change);
        let message = Message::parse(&text.bytes().collect::<Vec<_>>()).unwrap();
        assert!(matches!(message.start(), Start::Request { uri: b"sip:c@i", .. }));
        assert_eq!(message.list(Name::Route).collect::<Vec<_>>(), [b"<sip:only;lr>"]);
        assert_eq!(message.via().unwrap().param("received"), Some(Some(&b"10.0.0.1"[..])));
        assert_eq!((message.max_forwards(), message.body()), (Some(69), &b"four"[..]));
        assert!(text.contains("L: 4\r\nMax-Forwards: 69\r\n\r\nfour"), "{text}");
        assert!(!edited(|edit, _| edit.remove(Name::Route)).contains("Route"));
    }
}
