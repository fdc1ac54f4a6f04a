//! A stream gives the same messages whatever the pieces that it comes in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_sip::{Frame, Framer};

/// All that comes out, and whether the stream is lost then.
fn frames(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut framer, mut out) = (Framer::default(), Vec::new());
    for piece in stream.chunks(piece) {
        framer.push(piece);
        while let Some(Ok(frame)) = framer.poll() {
            out.push(match frame {
                Frame::Message(message) => message.bytes().to_vec(),
                Frame::Ping => Vec::new(),
            });
        }
    }
    (out, framer.is_lost())
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, stream)) = input.split_first() else { return };
    assert_eq!(frames(stream, usize::from(piece).max(1)), frames(stream, stream.len().max(1)));
});
