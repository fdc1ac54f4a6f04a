//! Messages on a stream with message boundaries: a length of four bytes, in network byte order,
//! precedes each.

use crate::error::Error;
use crate::stream::StreamSocket;
use nix::errno::Errno;
use std::io;
use std::mem::take;
use std::sync::PoisonError;

/// The largest message on a stream, in bytes: 16 MiB.
pub const MAX_STREAM_MESSAGE: usize = 16 << 20;

/// The size of the length in front of a message, in bytes.
const PREFIX: usize = 4;
/// Step in bytes by which a message's buffer grows as it arrives, since a sender can claim any
/// length without sending it.
const STEP: usize = 64 << 10;

/// Number of bytes of the current message written so far, its length prefix included.
#[derive(Default)]
pub(crate) struct Sending(usize);

/// A message that has been received in part.
#[derive(Default)]
pub(crate) struct Incomplete {
    prefix: [u8; PREFIX],
    /// Number of bytes received so far, of the length and the message together.
    have: usize,
    message: Vec<u8>,
}

impl StreamSocket {
    /// Sends one message of at most [`MAX_STREAM_MESSAGE`] bytes, and waits until the node has
    /// accepted all of it. Several threads can send messages on one socket; each waits for its
    /// turn.
    ///
    /// # Errors
    ///
    /// Those of [`write`](StreamSocket::write), [`MessageTooLong`](Error::MessageTooLong), and an
    /// [`Io`](Error::Io) of [`InvalidInput`](io::ErrorKind::InvalidInput) if the stream was not
    /// opened with [`messages`](crate::ConnectOptions::messages). A nonblocking socket may return
    /// [`WouldBlock`](Error::WouldBlock) when part of the message has been sent: call this again
    /// with the same message until it returns anything else.
    pub fn send_message(&self, message: &[u8]) -> Result<(), Error> {
        self.has_messages()?;
        let len = message.len();
        if len > MAX_STREAM_MESSAGE {
            return Err(Error::MessageTooLong { len, max: MAX_STREAM_MESSAGE });
        }
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let prefix = (len as u32).to_be_bytes();
        if sending.0 > PREFIX + len {
            return Err(Error::io("send another message before one is complete", Errno::EINVAL));
        }
        // One write for both, if they fit.
        let short = (len <= STEP).then(|| [&prefix[..], message].concat());
        while sending.0 < PREFIX + len {
            let rest = match &short {
                Some(both) => &both[sending.0..],
                None if sending.0 < PREFIX => &prefix[sending.0..],
                None => &message[sending.0 - PREFIX..],
            };
            sending.0 += self.write(rest)?;
        }
        sending.0 = 0;
        Ok(())
    }

    /// Waits for the next message, and replaces the contents of `message` with it. False at the
    /// end of the stream.
    ///
    /// # Errors
    ///
    /// Those of [`read`](StreamSocket::read);
    /// [`MessageTooLong`](Error::MessageTooLong), after which nothing more can be received;
    /// an [`Io`](Error::Io) of [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the stream
    /// ends within a message, and of [`InvalidInput`](io::ErrorKind::InvalidInput) if it was
    /// not opened with [`messages`](crate::ConnectOptions::messages). After
    /// [`WouldBlock`](Error::WouldBlock) the next call continues where this one stopped.
    pub fn recv_message(&self, message: &mut Vec<u8>) -> Result<bool, Error> {
        self.has_messages()?;
        let mut coming = self.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        let Incomplete { prefix, have, message: body } = &mut *coming;
        while *have < PREFIX {
            match self.read(&mut prefix[*have..])? {
                0 if *have == 0 => return Ok(false),
                0 => return Err(cut_off()),
                n => *have += n,
            }
        }
        let len = u32::from_be_bytes(*prefix) as usize;
        if len > MAX_STREAM_MESSAGE {
            return Err(Error::MessageTooLong { len, max: MAX_STREAM_MESSAGE });
        }
        while *have < PREFIX + len {
            let got = *have - PREFIX;
            if body.len() == got {
                body.resize((got + STEP).min(len), 0);
            }
            match self.read(&mut body[got..])? {
                0 => return Err(cut_off()),
                n => *have += n,
            }
        }
        *have = 0;
        body.truncate(len);
        *message = take(body);
        Ok(true)
    }

    fn has_messages(&self) -> Result<(), Error> {
        if self.messages() {
            return Ok(());
        }
        let what = "exchange messages on a stream that was opened without that option";
        Err(Error::io(what, io::ErrorKind::InvalidInput))
    }
}

fn cut_off() -> Error {
    Error::io("receive the rest of a message", io::ErrorKind::UnexpectedEof)
}
