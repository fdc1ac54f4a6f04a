//! Loss traces as text.

use std::sync::Arc;

/// Maximum length of a trace, in packets: fifteen days of a call.
pub const MAX_TRACE: usize = 1 << 26;

/// Text that is not a loss trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTrace {
    /// A character other than 0, 1, white space and comments.
    #[error(
        "line {line}, column {column}: {found:?} is neither 0 (received) nor 1 (lost); \
         a comment is a line that begins with #"
    )]
    Character {
        /// Line number, from 1.
        line: usize,
        /// Byte position in the line, from 1.
        column: usize,
        /// The character found there.
        found: char,
    },
    /// The text contains no packets.
    #[error("no packets: write a 0 for each that was received and a 1 for each that was lost")]
    Empty,
    /// The trace is longer than [`MAX_TRACE`] packets.
    #[error("more than {MAX_TRACE} packets: cut it into pieces")]
    TooLong,
}

/// Reads a trace for [`Loss::Trace`](super::Loss::Trace): for each packet, in sending order, 0 if
/// it was received and 1 if it was lost. White space anywhere is skipped, as are lines that begin
/// with #.
///
/// ```
/// # use trunkline_base::link_model::parse_trace;
/// let lost = parse_trace(b"# two bursts\n0011 0000\n0100\n")?;
/// assert_eq!(lost.iter().filter(|&&l| l).count(), 3);
/// # Ok::<(), trunkline_base::link_model::BadTrace>(())
/// ```
///
/// # Errors
///
/// Fails at the first unexpected character, if there are no packets, or if there are more than
/// [`MAX_TRACE`].
pub fn parse_trace(text: &[u8]) -> Result<Arc<[bool]>, BadTrace> {
    let mut lost = Vec::new();
    for (line, number) in text.split(|&b| b == b'\n').zip(1..) {
        if line.first() == Some(&b'#') {
            continue;
        }
        for (&byte, column) in line.iter().zip(1..) {
            match byte {
                b'0' | b'1' => lost.push(byte == b'1'),
                b if b.is_ascii_whitespace() => {}
                other => {
                    let found = char::from(other);
                    return Err(BadTrace::Character { line: number, column, found });
                }
            }
        }
        if lost.len() > MAX_TRACE {
            return Err(BadTrace::TooLong);
        }
    }
    if lost.is_empty() { Err(BadTrace::Empty) } else { Ok(lost.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mistakes_are_found_where_they_are() {
        assert_eq!(
            parse_trace(b"01 1\r\n# 2, a comment\n\t0").unwrap()[..],
            [false, true, true, false]
        );
        let at = |line, column, found| Err(BadTrace::Character { line, column, found });
        assert_eq!(parse_trace(b"01\n#\n0x1"), at(3, 2, 'x'));
        assert_eq!(parse_trace(b"0 # not at the beginning"), at(1, 3, '#'));
        assert_eq!(parse_trace(b""), Err(BadTrace::Empty));
        assert_eq!(parse_trace(b"# 0\n \n"), Err(BadTrace::Empty));
        assert_eq!(
            parse_trace(b"\xff").unwrap_err().to_string(),
            "line 1, column 1: 'ÿ' is neither 0 (received) nor 1 (lost); \
             a comment is a line that begins with #"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(lost in prop::collection::vec(any::<bool>(), 1..200), width in 1usize..50) {
            let digits: Vec<u8> = lost.iter().map(|&l| if l { b'1' } else { b'0' }).collect();
            let text = digits.chunks(width).collect::<Vec<_>>().join(&b"\n# 1\n"[..]);
            prop_assert_eq!(&parse_trace(&text).unwrap()[..], &lost[..]);
        }

        #[test]
        fn no_text_is_too_strange(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_trace(&text);
        }
    }
}
