//! The client side of the control socket, used by the commands.

use super::protocol::{Answer, Refused, Request};
use serde::de::DeserializeOwned;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum length of an answer in bytes: the table of a thousand nodes, many times over.
const MAX_ANSWER: u64 = 16 << 20;

/// Timeout that exceeds any processing time of the daemon.
const PATIENCE: Duration = Duration::from_secs(15);

/// Reason why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No node answers at the control socket.
    #[error("no node answers at {path}: {source}; {advice}")]
    NoNode {
        /// Path of the socket.
        path: PathBuf,
        /// Error from the operating system.
        source: io::Error,
        /// Advice to the user.
        advice: &'static str,
    },
    /// The node took the request, and then did nothing.
    #[error(
        "the node at {path} did not answer within {patience:?}: it hangs or is suspended; look at \
         its process, and end it if it must be (kill -9)"
    )]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        /// Time for which the answer was awaited.
        patience: Duration,
    },
    /// The connection broke, or the answer was invalid.
    #[error("the node at {path} broke off: {source}; look at its log")]
    Broken {
        /// Path of the socket.
        path: PathBuf,
        /// Error in the exchange.
        source: io::Error,
    },
    /// The node refused the request.
    #[error("{}", .0.message)]
    Refused(Refused),
    /// The command ended without the desired result.
    #[error("{0}")]
    Failed(String),
    /// Writing to the terminal or standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl Error {
    /// Exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Refused(refused) => refused.code,
            _ => 1,
        }
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

/// A connection to a node's control socket.
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    patience: Duration,
}

impl Client {
    /// Connects to the node with its control socket at `path`.
    pub fn connect(path: &Path) -> Result<Client, Error> {
        Client::connect_within(path, PATIENCE)
    }

    /// Connects with `patience` as the timeout of each operation.
    fn connect_within(path: &Path, patience: Duration) -> Result<Client, Error> {
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_read_timeout(Some(patience))?;
            // Set first, because it also limits the wait for a slot in the accept queue.
            socket.set_write_timeout(Some(patience))?;
            socket.connect(&SockAddr::unix(path)?)?;
            Ok(UnixStream::from(OwnedFd::from(socket)))
        };
        let stream = connect().map_err(|source: io::Error| {
            let advice = match source.kind() {
                ErrorKind::NotFound => {
                    "is it running, with `control` in [node]? --control or TRUNKLINE_CONTROL says \
                     which node is meant"
                }
                ErrorKind::ConnectionRefused if !is_socket(path) => {
                    "that is not a socket: give the path of `control` in [node]"
                }
                ErrorKind::ConnectionRefused => "it has ended: start it again",
                _ if source.raw_os_error() == Some(nix::errno::Errno::EPROTOTYPE as i32) => {
                    "that is the applications' socket: give the path of `control` in [node]"
                }
                ErrorKind::PermissionDenied => {
                    "only its user and group may operate it: use sudo, or join the group"
                }
                ErrorKind::WouldBlock => {
                    "it hangs or is suspended, and other commands are already waiting: look at its \
                     process, and end it if it must be (kill -9)"
                }
                _ => "look at its log",
            };
            Error::NoNode { path: path.to_owned(), source, advice }
        })?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream), patience })
    }

    /// Sends a request and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&mut self, ask: &Request) -> Result<T, Error> {
        let line = self.exchange(ask).map_err(|source| self.broken(source))?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Ok(value)) => Ok(value),
            Ok(Answer::Error(refused)) => Err(Error::Refused(refused)),
            Err(why) => Err(self.broken(io::Error::new(ErrorKind::InvalidData, why))),
        }
    }

    fn broken(&self, source: io::Error) -> Error {
        // The time limit of the socket.
        if source.kind() == ErrorKind::WouldBlock {
            return Error::Silent { path: self.path.clone(), patience: self.patience };
        }
        Error::Broken { path: self.path.clone(), source }
    }

    fn exchange(&mut self, ask: &Request) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        // A node that rejects this connection has already sent the reason.
        let sent = self.stream.get_mut().write_all(&line);
        let mut answer = Vec::new();
        (&mut self.stream).take(MAX_ANSWER).read_until(b'\n', &mut answer)?;
        if answer.pop() != Some(b'\n') {
            sent?;
            let what = "the answer is cut off";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::sessions::bind_unix;

    #[test]
    fn a_node_that_hangs_is_found_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ctl");
        // The listener accepts nothing, and one connection fills its queue.
        let listener = bind_unix(&path, Type::STREAM).expect("bound");
        listener.0.listen(0).expect("listening");
        let mut waits = Client::connect_within(&path, Duration::from_millis(50)).expect("a place");
        let asked = waits.ask::<serde_json::Value>(&Request::Status {}).map_err(|e| e.to_string());
        let text = asked.expect_err("no answer");
        assert!(text.contains("did not answer within 50ms: it hangs or is suspended"), "{text}");
        let Err(error) = Client::connect_within(&path, Duration::from_millis(50)) else {
            panic!("connected to nobody")
        };
        let text = error.to_string();
        assert!(text.contains("hangs or is suspended"), "{text}");
        // A second node sees that the address is in use, without waiting.
        let again = bind_unix(&path, Type::STREAM).map(drop).map_err(|e| e.kind());
        assert_eq!(again, Err(ErrorKind::AddrInUse));
        drop(waits);
    }
}
