//! Messages at regular intervals between hosts of a testbed, each of which carries its due time:
//! their senders and receivers, and the separate programs for the kernel's TCP.

#![expect(
    clippy::disallowed_methods,
    reason = "the programs on a testbed's hosts use sockets and time"
)]

use super::network::MESSAGE;
use crate::scenario::testbed::clock_ns;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::ffi::OsString;
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Timeout of the sending end to reach the other, which may not listen yet.
const PATIENCE: Duration = Duration::from_secs(15);

/// Schedule of the messages. Times are those of the machine's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// Time at which the first message is due.
    pub begin_ns: u64,
    /// Interval between two messages.
    pub spacing_ns: u64,
    /// Number of messages, all of one size.
    pub count: u64,
}

/// Parameters of the program at one end of a TCP connection.
#[derive(Clone, Debug)]
pub struct Part {
    /// The kernel's congestion control at the sending end.
    pub congestion: String,
    /// Address of the receiving end; `None` if this is it.
    pub to: Option<SocketAddr>,
    /// The TCP port of the receiving end, if this is it.
    pub port: u16,
    /// Schedule of the messages.
    pub due: Due,
}

/// Sends or receives over a TCP connection without Nagle's algorithm, which is established before
/// the first message is due. At the receiving end it returns the delay of each message, as
/// [`receive`] does.
///
/// # Errors
///
/// If the connection fails.
pub fn over_tcp(part: &Part) -> io::Result<Vec<u64>> {
    let Some(to) = part.to else {
        let (socket, _) = TcpListener::bind((Ipv4Addr::UNSPECIFIED, part.port))?.accept()?;
        return receive(socket, part.due.count);
    };
    let until = Instant::now() + PATIENCE;
    let mut socket = loop {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(&part.congestion))?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => break socket,
            Err(why) if Instant::now() > until => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    send(&part.due, |message| socket.write_all(message))?;
    socket.shutdown(std::net::Shutdown::Write)?;
    // The other end closes when it has read everything.
    io::copy(&mut socket, &mut io::sink()).map(|_| Vec::new())
}

/// Calls `write` with each message when it is due, or as soon as the previous one is written.
///
/// # Errors
///
/// The first error of `write`.
pub fn send<E>(due: &Due, mut write: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let mut message = [0; MESSAGE];
    (0..due.count).try_for_each(|number| {
        let at = due.begin_ns + number * due.spacing_ns;
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(clock_ns())));
        message[..8].copy_from_slice(&at.to_be_bytes());
        message[8..16].copy_from_slice(&number.to_be_bytes());
        write(&message)
    })
}

/// Number of this message, and its delay until now, in nanoseconds from when it was due; `None` if
/// it is no such message.
pub fn took(message: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| Some(u64::from_be_bytes(*message.get(at..)?.first_chunk()?));
    Some((word(8)?, clock_ns().saturating_sub(word(0)?)))
}

/// Reads up to `count` messages, or until the end, and returns the delay of each, in nanoseconds
/// from when it was due.
///
/// # Errors
///
/// If reading fails, or anything but the next message arrives.
pub fn receive(mut from: impl Read, count: u64) -> io::Result<Vec<u64>> {
    let mut message = [0; MESSAGE];
    let mut all = Vec::new();
    for number in 0..count {
        match from.read_exact(&mut message) {
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        match took(&message) {
            Some((n, took)) if n == number => all.push(took),
            _ => return Err(io::Error::other("another message than the next one has arrived")),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(count: u64) -> Due {
        Due { begin_ns: clock_ns() + 100_000_000, spacing_ns: 1_000_000, count }
    }

    #[test]
    fn messages_over_a_tcp_come_soon_after_they_are_due() {
        let (congestion, port, due) = ("reno".to_owned(), 47_021, due(100));
        let receiver = Part { congestion, to: None, port, due };
        let to = Some((Ipv4Addr::LOCALHOST, port).into());
        let sender = Part { to, ..receiver.clone() };
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| over_tcp(&receiver));
            assert!(over_tcp(&sender).unwrap().is_empty());
            let took = receiver.join().unwrap().unwrap();
            assert_eq!(took.len(), 100);
            assert!(took.iter().all(|&ns| ns < 5_000_000_000));
        });
    }

    #[test]
    fn what_takes_long_to_write_counts_from_when_it_was_due() {
        let (mut written, due) = (Vec::new(), due(3));
        let write = |message: &[u8]| {
            std::thread::sleep(Duration::from_millis(20));
            written.extend_from_slice(message);
            Ok::<_, io::Error>(())
        };
        send(&due, write).unwrap();
        let took = receive(&written[..], 5).unwrap();
        assert_eq!(took.len(), 3);
        // The last message was due after 2 ms, and written after at least 60.
        assert!(took[2] >= 58_000_000, "{took:?}");
        written[8..16].copy_from_slice(&7u64.to_be_bytes());
        assert!(receive(&written[..], 3).is_err());
    }
}
