//! The commands' end of the control socket.

use super::protocol::{Answer, Refused, Request};
use serde::de::DeserializeOwned;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the longest answer that is taken: the table of a thousand nodes,
/// many times over.
const MAX_ANSWER: u64 = 16 << 20;

/// Longer than the daemon takes for anything.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answers there.
    #[error("no node answers at {path}: {source}; {advice}")]
    NoNode {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The connection broke, or what came makes no sense.
    #[error("the node at {path} broke off: {source}; look at its log")]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The node said no.
    #[error("{}", .0.message)]
    Refused(Refused),
    /// The command ended without what was wanted.
    #[error("{0}")]
    Failed(String),
    /// The terminal, or what standard output goes to, does not take it.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl Error {
    /// The process's exit code.
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

/// A connection to a node.
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the node whose control socket is at `path`.
    pub fn connect(path: &Path) -> Result<Client, Error> {
        Client::connect_within(path, PATIENCE)
    }

    /// The same, where everything takes at most `patience`.
    fn connect_within(path: &Path, patience: Duration) -> Result<Client, Error> {
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_read_timeout(Some(patience))?;
            // Set first, it bounds the wait for a place in the queue, too.
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
                    "that is no socket: give the path that `control` in [node] says"
                }
                ErrorKind::ConnectionRefused => "it has ended: start it again",
                _ if source.raw_os_error() == Some(nix::errno::Errno::EPROTOTYPE as i32) => {
                    "that is the applications' socket: give the path that `control` in [node] says"
                }
                ErrorKind::PermissionDenied => {
                    "only its user and group may operate it: use sudo, or join the group"
                }
                ErrorKind::WouldBlock => {
                    "it hangs or is suspended, and others wait for it already: look at its \
                     process, and end it if it must be (kill -9)"
                }
                _ => "look at its log",
            };
            Error::NoNode { path: path.to_owned(), source, advice }
        })?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&mut self, ask: &Request) -> Result<T, Error> {
        let line = self.exchange(ask).map_err(|source| self.broken(source))?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Ok(value)) => Ok(value),
            Ok(Answer::Error(refused)) => Err(Error::Refused(refused)),
            Err(why) => Err(self.broken(io::Error::new(ErrorKind::InvalidData, why))),
        }
    }

    fn broken(&self, source: io::Error) -> Error {
        Error::Broken { path: self.path.clone(), source }
    }

    fn exchange(&mut self, ask: &Request) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        // A node that turns this connection away has said why before.
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
        // Nobody accepts, and one fills its queue.
        let listener = bind_unix(&path, Type::STREAM).expect("bound");
        listener.0.listen(0).expect("listening");
        let waits = UnixStream::connect(&path).expect("a place");
        let Err(error) = Client::connect_within(&path, Duration::from_millis(50)) else {
            panic!("connected to nobody")
        };
        let text = error.to_string();
        assert!(text.contains("hangs or is suspended"), "{text}");
        // A second node sees that the place is taken, without waiting.
        let again = bind_unix(&path, Type::STREAM).map(drop).map_err(|e| e.kind());
        assert_eq!(again, Err(ErrorKind::AddrInUse));
        drop(waits);
    }
}
