//! One application on this host: its connection and the messages queued in it.

use super::mmsg;
use super::sessions::Read;
use crate::clock::Stamps;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::Socket;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;
use trunkline_base::Time;

/// Send buffer in bytes of the connection to one application, as the kernel counts it, which
/// doubles this: 27 ms of 100,000 voice packets a second, and more than half a second of a hundred
/// calls. An application that reads nothing holds less, because of [`PATIENCE`].
const SEND_BUFFER: usize = 1 << 20;

/// Time without a read, while messages wait, after which an application is sent nothing more until
/// it reads: no packet is useful for longer.
const PATIENCE: Duration = Duration::from_millis(255);

/// Interval between checks whether the application reads.
const LOOK: Duration = Duration::from_millis(50);

/// Minimum overhead in bytes of a queued message: the kernel's `sk_buff`.
const SK_BUFF: usize = 200;

/// Connection of one application on this host.
pub struct Unix {
    socket: Socket,
    /// Bytes queued at the last check, as the kernel counts them.
    waiting: usize,
    looked: Time,
    /// Minimum growth of the queue since then, in bytes, if nothing was read.
    grown: usize,
    /// Last time at which something had been read, or nothing was queued.
    read: Time,
    /// Buffer for the kernel's receive timestamp.
    control: Vec<u8>,
    /// Arrival time of the last message, since 1970.
    stamp: Option<Duration>,
    /// Last time at which there was nothing to receive.
    empty: Time,
}

impl Unix {
    /// Wraps `socket`, an accepted nonblocking connection.
    pub fn new(socket: Socket) -> Unix {
        let _ = socket.set_send_buffer_size(SEND_BUFFER);
        let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
        let control = cmsg_space!(TimeSpec);
        let (looked, read, empty) = (Time::ZERO, Time::ZERO, Time::ZERO);
        Unix { socket, waiting: 0, looked, grown: 0, read, control, stamp: None, empty }
    }

    /// Sends one message. False if the application does not keep up.
    pub fn send(&mut self, now: Time, head: &[u8], payload: &[u8]) -> bool {
        let parts = [IoSlice::new(head), IoSlice::new(payload)];
        let sent = self.reads(now)
            && self.socket.send_vectored_with_flags(&parts, libc::MSG_NOSIGNAL).is_ok();
        if sent {
            self.grown += head.len() + payload.len() + SK_BUFF;
        }
        sent
    }

    /// Whether the application has read something lately, or had nothing to read.
    fn reads(&mut self, now: Time) -> bool {
        let is_idle = now.since(self.read) > PATIENCE;
        if is_idle || now.since(self.looked) > LOOK {
            let waiting = mmsg::unread(self.socket.as_fd()).unwrap_or(0);
            if waiting == 0 || waiting < self.waiting + self.grown {
                self.read = now;
            }
            (self.waiting, self.grown, self.looked) = (waiting, 0, now);
        }
        now.since(self.read) <= PATIENCE
    }

    /// Reads one message into `buf`; a longer one is cut off.
    pub fn recv(&mut self, buf: &mut [u8], now: Time) -> Read {
        match self.recv_once(buf, now) {
            // Reported once, for an application that left with messages unread; its own messages
            // follow.
            Err(Errno::ECONNRESET) => self.recv_once(buf, now).unwrap_or(Read::Closed),
            // Linux checks for a message first and only then whether the sender has gone. A message
            // sent between the two checks, just before the sender went, is available now. If there
            // is none, this was the end, or an empty message, which also counts as the end.
            Ok(Read::Closed) => match self.recv_once(buf, now) {
                Ok(Read::Message(len)) => Read::Message(len),
                _ => Read::Closed,
            },
            done => done.unwrap_or(Read::Closed),
        }
    }

    fn recv_once(&mut self, buf: &mut [u8], now: Time) -> Result<Read, Errno> {
        let mut parts = [IoSliceMut::new(buf)];
        let control = Some(&mut self.control[..]);
        let message =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, control, MsgFlags::empty());
        Ok(match message {
            Ok(message) if message.bytes == 0 => Read::Closed,
            Ok(message) => {
                let stamp = message.cmsgs().ok().into_iter().flatten().find_map(|c| match c {
                    ControlMessageOwned::ScmTimestampns(t) => Some(Duration::from(t)),
                    _ => None,
                });
                let n = message.bytes;
                self.stamp = stamp;
                Read::Message(n)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {
                self.empty = now;
                Read::Empty
            }
            Err(error) => return Err(error),
        })
    }

    /// Time at which the application sent the last message read.
    pub fn sent_at(&self, stamps: &Stamps, now: Time) -> Time {
        self.stamp.map_or(now, |stamp| stamps.place(stamp, self.empty, now))
    }
}

impl AsFd for Unix {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::io::{Read as _, Write as _};

    fn pair() -> (Unix, Socket) {
        let (node, application) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        for socket in [&node, &application] {
            socket.set_nonblocking(true).unwrap();
        }
        (Unix::new(node), application)
    }

    #[test]
    fn one_who_goes_with_messages_unread_is_heard_to_the_end() {
        let at = Time::from_millis(1_000);
        let (mut unix, mut application) = pair();
        assert!(unix.send(at, &[1], &[2]), "which it doesn't read");
        for n in 0..3 {
            application.write_all(&[n; 5]).unwrap();
        }
        drop(application);
        let mut buf = [0; 9];
        for n in 0..3 {
            assert!(matches!(unix.recv(&mut buf, at), Read::Message(5)));
            assert_eq!(buf[..5], [n; 5]);
        }
        assert!(matches!(unix.recv(&mut buf, at), Read::Closed));
    }

    // Without the second check the last message is missed about once in ten thousand times on a
    // busy machine, which makes one run in four fail.
    #[test]
    fn the_last_message_of_one_who_goes_is_not_missed() {
        let (to_sender, pairs) = std::sync::mpsc::channel::<Socket>();
        let sender = std::thread::spawn(move || {
            for mut application in pairs {
                application.write_all(&[1; 5]).unwrap();
            }
        });
        let mut buf = [0; 9];
        for round in 0..30_000 {
            let (mut unix, application) = pair();
            to_sender.send(application).unwrap();
            let first = loop {
                match unix.recv(&mut buf, Time::ZERO) {
                    Read::Empty => {}
                    other => break other,
                }
            };
            assert!(matches!(first, Read::Message(5)), "missed in round {round}");
        }
        drop(to_sender);
        sender.join().unwrap();
    }

    #[test]
    fn an_empty_message_is_the_end() {
        let (mut unix, mut application) = pair();
        assert_eq!(application.write(&[]).unwrap(), 0);
        assert!(matches!(unix.recv(&mut [0; 9], Time::ZERO), Read::Closed));
    }

    #[test]
    fn what_waits_for_one_who_does_not_read_is_bounded_in_bytes_and_in_time() {
        let at = Time::from_millis;
        let (mut unix, mut application) = pair();
        let taken = (0..100_000).take_while(|_| unix.send(at(1_000), &[1; 11], &[2; 172])).count();
        assert!((500..4_000).contains(&taken), "{taken} at once");
        assert!(mmsg::unread(unix.as_fd()).unwrap() <= 2 * SEND_BUFFER + 4_096);

        let (mut unix, mut again) = pair();
        let taken = (0..500).filter(|k| unix.send(at(1_000 + 10 * k), &[1; 11], &[2; 172])).count();
        assert!((26..=32).contains(&taken), "{taken} at 100 a second");
        // The application reads again.
        assert_eq!(again.read(&mut [0; 200]).unwrap(), 183);
        assert!(unix.send(at(6_010), &[1; 11], &[2; 172]));
        drop(application.read(&mut [0]));
    }

    #[test]
    fn one_who_reads_what_it_can_is_sent_to_all_the_time() {
        let (mut unix, mut application) = pair();
        // It stays 200 packets behind.
        for k in 0..2_000 {
            assert!(unix.send(Time::from_millis(1_000 + k), &[1; 11], &[2; 172]), "{k}");
            if k >= 200 {
                assert_eq!(application.read(&mut [0; 200]).unwrap(), 183);
            }
        }
    }
}
