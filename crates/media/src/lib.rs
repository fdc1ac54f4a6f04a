//! Voice as numbers: everything that a call needs between the microphone's samples and the score
//! that its listener would give.
//!
//! This is pure code: bytes, samples and times go in, values come out. Nothing here opens a socket
//! or a file, reads a clock or starts a thread, and nothing panics on input from outside. It
//! compiles for `wasm32-unknown-unknown`.
//!
//! A call through this crate, without a network:
//!
//! ```
//! use std::time::Duration;
//! use trunkline_media::codec::g711::{Concealing, Law};
//! use trunkline_media::playout::{Config, Fate, Playout};
//! use trunkline_media::quality::emodel::{self, Codec, Parameters};
//! use trunkline_media::quality::pesq;
//! use trunkline_media::rtp::{self, Packetizer, Stream};
//!
//! let speech = vec![1000i16; 1600]; // 0.2 s at 8 kHz
//! let mut packetizer = Packetizer::new(Stream::g711(Law::Mu, 0x1234));
//! let mut playout = Playout::new(Config::default());
//! let (mut payload, mut packet) = (Vec::new(), [0; 200]);
//! for (i, frame) in speech.chunks(160).enumerate() {
//!     payload.clear();
//!     Law::Mu.encode_to(frame, &mut payload);
//!     let len = packetizer.write(&payload, &mut packet)?;
//!     if i == 3 {
//!         continue; // lost in the network
//!     }
//!     let rtp = rtp::parse(&packet[..len])?;
//!     playout.receive(rtp.sequence, Duration::from_millis(40), false, rtp.payload)?;
//! }
//! let heard = playout.finish(Some(10), &mut Concealing::new(Law::Mu));
//! assert_eq!(heard.pcm.len(), speech.len());
//! assert_eq!(heard.fates[3], Fate::Lost);
//!
//! let call = Parameters::default()
//!     .with_codec(Codec::G711_PLC)
//!     .with_delay(Duration::from_millis(120))
//!     .with_loss(heard.missed_share(), emodel::burst_ratio(heard.missed()));
//! assert!(emodel::rate(&call).mos() < 3.5); // one packet in ten is too many
//!
//! // The same by a perceptual model, for which this speech is too short.
//! assert!(matches!(pesq::score(&speech, &heard.pcm), Err(pesq::PesqError::TooShort { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audio;
pub mod codec;
pub mod conceal;
pub mod level;
pub mod parity;
pub mod playout;
pub mod quality;
pub mod red;
pub mod rtcp;
pub mod rtp;
pub mod talk;
pub mod telephone;
