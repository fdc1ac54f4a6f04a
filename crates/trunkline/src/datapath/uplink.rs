//! Uplinks: the sockets that a node sends by, each with a buffer that is bounded in time.
//!
//! Packets that a network device doesn't take wait in the socket that they came from, where no
//! scheduler puts voice ahead of data. So a socket gets no more than its device takes in
//! [`BUFFER_TIME`], and the rest stays with the node. A device that takes nothing costs the links of
//! its uplink alone.

use super::mmsg::{self, Egress, TxBatch, TxItem};
use super::send_errors::SendErrors;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::arena::{ENVELOPE_COST, Run, TxArena, UplinkId};

/// Time that a device needs at most for what waits in its socket.
const BUFFER_TIME: Duration = Duration::from_millis(20);
/// Bytes that a socket may hold before anything is known of its device.
const FIRST_LIMIT: usize = 16 << 10;
/// Two packets of the default size: with one, the device would idle while the next is on its way.
const LEAST_LIMIT: usize = 2 * (1_280 + ENVELOPE_COST);
/// The default size of a socket's buffer in Linux.
const MOST_LIMIT: usize = 208 << 10;
/// Time after which a limit is lowered if it was not used.
pub const UNUSED: Duration = Duration::from_secs(1);
/// Time over which the rate of a device is measured.
const MEASURED: Duration = Duration::from_millis(5);

/// Counters of an uplink.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct UplinkStats {
    /// Envelopes that the kernel refused to send.
    pub errors: u64,
    /// Times that the uplink had no room.
    pub blocked: u64,
}

impl UplinkStats {
    /// The sum of both.
    pub fn plus(self, other: UplinkStats) -> UplinkStats {
        UplinkStats { errors: self.errors + other.errors, blocked: self.blocked + other.blocked }
    }
}

/// Memory and counters that all uplinks of a thread share.
pub struct Output {
    /// Memory for the messages of one call.
    pub tx: TxBatch,
    /// How the packets leave.
    pub egress: Egress,
    /// Datagrams that the kernel refused.
    pub errors: SendErrors,
    /// Time of the present transmission.
    pub now: Time,
}

/// A socket to send by.
pub struct Uplink {
    socket: Socket,
    v6: bool,
    gso: bool,
    /// DSCP of what is sent, once it is set.
    dscp: Option<u8>,
    buffer: Buffer,
    /// Bytes below which the socket should be writable, as the kernel was told, and as it is.
    told: usize,
    wake: usize,
    /// Whether the kernel has refused a datagram for want of room since [`Uplink::was_full`].
    full: bool,
    /// Time since the socket was full, if it has not been nearly empty since when looked at.
    busy_since: Option<Time>,
    stats: UplinkStats,
}

impl Uplink {
    /// An uplink that sends by `socket`. `offload`: whether to use segmentation offload.
    pub fn new(socket: Socket, v6: bool, offload: bool, now: Time) -> Uplink {
        Uplink {
            socket,
            v6,
            gso: offload,
            dscp: None,
            buffer: Buffer::new(now),
            told: 0,
            wake: 0,
            full: false,
            busy_since: None,
            stats: UplinkStats::default(),
        }
    }

    /// Lets the socket hold the least at first: what is behind it may be slow.
    pub fn cautious(mut self) -> Uplink {
        self.buffer.limit = LEAST_LIMIT;
        self
    }

    /// Sets whether the kernel says that it drops a datagram at once because a queue is full.
    pub fn report_drops(&self, on: bool) -> io::Result<()> {
        match self.v6 {
            true => setsockopt(&self.socket, sockopt::Ipv6RecvErr, &on)?,
            false => setsockopt(&self.socket, sockopt::Ipv4RecvErr, &on)?,
        }
        Ok(())
    }

    /// Whether the kernel has refused a datagram for want of room since the last call. Handshakes
    /// are sent without regard to room.
    pub fn was_full(&mut self) -> bool {
        std::mem::take(&mut self.full)
    }

    /// Counters of this uplink.
    pub fn stats(&self) -> UplinkStats {
        self.stats
    }

    /// Whether a run leaves as one datagram.
    pub fn offloads(&self) -> bool {
        self.gso
    }

    /// Whether the socket may hold more than it could at first.
    pub fn is_raised(&self) -> bool {
        self.buffer.limit > FIRST_LIMIT
    }

    /// Time since the socket was full, if it has not been nearly empty since when looked at: its
    /// device is slower than what is sent, or hangs.
    pub fn busy_since(&mut self) -> Option<Time> {
        let queued = self.queued();
        self.busy_since = self.busy_since.filter(|_| queued * 4 > self.buffer.limit);
        self.busy_since
    }

    /// Bytes that the uplink accepts after it was given `given` bytes; 0 means that it waits to
    /// become writable.
    pub fn room(&mut self, now: Time, given: usize) -> usize {
        let queued = self.queued();
        self.buffer.given(now, given, queued);
        let room = self.rest(now, queued);
        self.stats.blocked += u64::from(room == 0);
        room
    }

    /// Bytes that the uplink accepts now that it is writable; 0 means that it waits again.
    pub fn writable(&mut self, now: Time) -> usize {
        let queued = self.queued();
        self.buffer.drained(now, queued);
        self.rest(now, queued)
    }

    /// Bytes that wait in the socket, in the kernel's count.
    pub fn queued(&self) -> usize {
        mmsg::unread(self.socket.as_fd()).unwrap_or(0)
    }

    /// Whether nothing waits in the socket. The kernel counts one byte more for a moment.
    pub fn is_empty(&self) -> bool {
        self.queued() <= 1
    }

    /// Room beside `queued` bytes, unless the kernel would say that the socket is not writable.
    fn rest(&mut self, now: Time, queued: usize) -> usize {
        self.tell();
        if queued + 1 >= self.wake {
            self.busy_since.get_or_insert(now);
            return 0;
        }
        self.busy_since = self.busy_since.filter(|_| queued * 4 > self.buffer.limit);
        self.buffer.limit.saturating_sub(queued).max(1)
    }

    /// Makes the socket writable while less than three quarters of the limit wait in it. The kernel
    /// doubles the size that it is told, up to a maximum, and wakes at half of that.
    fn tell(&mut self) {
        let wake = self.buffer.limit / 4 * 3;
        if wake.abs_diff(self.told) > self.told / 8 {
            self.told = wake;
            let done = setsockopt(&self.socket, sockopt::SndBuf, &wake);
            let size = done.and_then(|()| getsockopt(&self.socket, sockopt::SndBuf));
            self.wake = size.map_or(wake, |size| size / 2);
        }
    }

    /// Sends `runs` of `arena` as `output.egress` says. What the kernel refuses is dropped, counted,
    /// and noted in `output`.
    pub fn send(&mut self, output: &mut Output, arena: &TxArena, mut runs: &[Run]) {
        while let Some(first) = runs.first() {
            let same = runs.iter().take_while(|run| run.dscp == first.dscp).count();
            let (part, rest) = runs.split_at(same);
            self.mark(first.dscp);
            if self.gso {
                self.send_runs(output, arena, part);
            } else {
                self.send_each(output, arena, part);
            }
            runs = rest;
        }
    }

    /// Sets the DSCP of what is sent from now on: once for many packets, since the option costs a
    /// tenth of the time of a packet that states its own.
    fn mark(&mut self, dscp: u8) {
        if self.dscp == Some(dscp) {
            return;
        }
        let tos = i32::from(dscp) << 2;
        let done = match self.v6 {
            true => setsockopt(&self.socket, sockopt::Ipv6TClass, &tos),
            false => setsockopt(&self.socket, sockopt::Ipv4Tos, &tos),
        };
        self.dscp = done.is_ok().then_some(dscp);
    }

    /// Sends with segmentation offload: each run is one item.
    fn send_runs(&mut self, output: &mut Output, arena: &TxArena, mut runs: &[Run]) {
        while let Some(first) = runs.first() {
            let egress = output.egress;
            let items = runs.iter().map(|run| TxItem {
                segment: (run.count > 1).then_some(run.segment as u16),
                egress,
                ..TxItem::new(run.to, &arena.bytes()[run.range()])
            });
            let done = match output.tx.send(self.socket.as_fd(), items) {
                Ok(n) => {
                    output.errors.sent(
                        output.now,
                        first.uplink,
                        runs[..n].iter().map(|run| run.to),
                    );
                    n
                }
                Err(e) if first.count > 1 && refuses_offload(&e) => {
                    // A device that cannot segment is never tried again. EINVAL may concern this
                    // run alone.
                    self.gso = e.raw_os_error() == Some(libc::EINVAL);
                    let done = if self.gso { 1 } else { runs.len() };
                    self.send_each(output, arena, &runs[..done]);
                    done
                }
                Err(error) => {
                    let refused = first.count as u64;
                    self.stats.errors += refused;
                    self.refused(output, (first.uplink, first.to), &error, refused);
                    1
                }
            };
            runs = &runs[done..];
        }
    }

    /// Sends without segmentation offload: each envelope is one item.
    fn send_each(&mut self, output: &mut Output, arena: &TxArena, runs: &[Run]) {
        let egress = output.egress;
        let Some(uplink) = runs.first().map(|run| run.uplink) else { return };
        let all = runs.iter().map(|run| run.count).sum();
        let mut done = 0;
        while done < all {
            let envelopes = || {
                runs.iter().flat_map(|run| {
                    arena
                        .envelopes(run)
                        .map(|bytes| TxItem { egress, ..TxItem::new(run.to, bytes) })
                })
            };
            let mut left = envelopes().skip(done).peekable();
            let to = left.peek().and_then(|item| item.to);
            done += match (output.tx.send(self.socket.as_fd(), left), to) {
                (Ok(sent), _) => {
                    let taken = envelopes().skip(done).take(sent).filter_map(|item| item.to);
                    output.errors.sent(output.now, uplink, taken);
                    sent
                }
                (Err(error), Some(to)) => {
                    self.stats.errors += 1;
                    self.refused(output, (uplink, to), &error, 1);
                    1
                }
                (Err(_), None) => return,
            };
        }
    }
}

impl Uplink {
    /// Notes that the kernel refused `count` datagrams. Want of room is no error of a destination.
    fn refused(
        &mut self,
        output: &mut Output,
        to: (UplinkId, SocketAddr),
        error: &io::Error,
        count: u64,
    ) {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.full = true,
            _ => output.errors.note(output.now, to, error, count),
        }
    }
}

impl AsFd for Uplink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn refuses_offload(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP))
}

/// How many bytes may wait in a socket, in the kernel's count (SIOCOUTQ).
#[derive(Debug)]
struct Buffer {
    limit: usize,
    /// Time and bytes waiting when the queue was looked at last.
    seen: (Time, usize),
    /// Bytes that left while the socket had no room, and the time that they took.
    left: usize,
    took: Duration,
    /// The most bytes that waited since a time.
    most: usize,
    most_since: Time,
}

impl Buffer {
    fn new(now: Time) -> Buffer {
        Buffer {
            limit: FIRST_LIMIT,
            seen: (now, 0),
            left: 0,
            took: Duration::ZERO,
            most: 0,
            most_since: now,
        }
    }

    /// Adjusts the limit when `queued` bytes wait after `given` bytes. The queue may have been empty
    /// for a part of the time, so the rate is at least what left in it. A limit that was not used is
    /// lowered: a device may since have become slower, or hang.
    fn given(&mut self, now: Time, given: usize, queued: usize) {
        let (at, before) = self.seen;
        let (waited, took) = (before.saturating_add(given), now.since(at));
        // Bytes that were given over a longer time did not wait all at once.
        let at_once = if took > BUFFER_TIME { bytes_in_time(waited, took) } else { waited };
        self.most = self.most.max(at_once);
        if now.since(self.most_since) >= UNUSED {
            self.limit = self.limit.min(self.most.saturating_mul(2).max(FIRST_LIMIT));
            (self.most, self.most_since) = (0, now);
        }
        let left = waited.saturating_sub(queued);
        self.raise(left, took);
        self.seen = (now, queued);
    }

    /// Raises the limit if `left` bytes have left in `took`. A slow device may take a few packets at
    /// once, after which its rate remains to be seen.
    fn raise(&mut self, left: usize, took: Duration) {
        self.limit = self.limit.max(bytes_in_time(left, took.max(MEASURED)));
    }

    /// Adjusts the limit when `queued` bytes wait in a socket that had no room.
    fn drained(&mut self, now: Time, queued: usize) {
        let (at, before) = self.seen;
        let (left, took) = (before.saturating_sub(queued), now.since(at));
        self.seen = (now, queued);
        if queued == 0 {
            self.raise(left, took);
            return;
        }
        self.left += left;
        self.took += took;
        if self.took >= MEASURED {
            self.limit = bytes_in_time(self.left, self.took);
            (self.left, self.took) = (0, Duration::ZERO);
        }
    }
}

/// Bytes that leave in [`BUFFER_TIME`] if `left` leave in `took`, within the limits.
fn bytes_in_time(left: usize, took: Duration) -> usize {
    let nanos = took.as_nanos().max(1);
    let bytes = left as u128 * BUFFER_TIME.as_nanos() / nanos;
    usize::try_from(bytes).unwrap_or(MOST_LIMIT).clamp(LEAST_LIMIT, MOST_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drains a socket at `rate` bytes/s for a second, filled whenever it has room. Returns the
    /// longest time, in milliseconds, that a byte waited in the last half, and the share of the time
    /// in which the device was busy.
    fn fill(buffer: &mut Buffer, rate: u64, start: Time) -> (f64, f64) {
        let step = Duration::from_micros(100);
        let per_step = rate as f64 * step.as_secs_f64();
        let (mut queued, mut waits) = (0.0f64, false);
        let (mut longest, mut busy) = (0.0f64, 0);
        for n in 1..=10_000u32 {
            let now = start + n * step;
            busy += u32::from(queued >= per_step);
            queued = (queued - per_step).max(0.0);
            if queued < (buffer.limit / 4 * 3) as f64 {
                if waits {
                    buffer.drained(now, queued as usize);
                }
                let room = buffer.limit.saturating_sub(queued as usize);
                queued += room as f64;
                buffer.given(now, room, queued as usize);
                waits = true;
            }
            longest = longest.max(if n > 5_000 { queued / rate as f64 * 1e3 } else { 0.0 });
        }
        (longest, f64::from(busy) / 10_000.0)
    }

    #[test]
    fn a_socket_holds_what_its_device_takes_in_20_ms() {
        for rate in [125_000, 250_000, 1_250_000, 5_000_000] {
            let mut buffer = Buffer::new(Time::ZERO);
            let bound = |rate: u64| 22.0f64.max(1.1e3 * LEAST_LIMIT as f64 / rate as f64);
            let (longest, busy) = fill(&mut buffer, rate, Time::ZERO);
            assert!(longest <= bound(rate), "{longest} ms at {rate} bytes/s");
            assert!(busy > 0.95, "the device idled at {rate} bytes/s: {busy}");
            // The device becomes ten times slower, and then as fast as it was.
            let (longest, _) = fill(&mut buffer, rate / 10, Time::from_millis(2_000));
            assert!(longest <= bound(rate / 10), "{longest} ms at {rate} / 10 bytes/s");
            let (_, busy) = fill(&mut buffer, rate, Time::from_millis(4_000));
            assert!(busy > 0.9, "the device idled at {rate} bytes/s again: {busy}");
        }
    }

    /// A token bucket (tbf) lets two packets through at once.
    #[test]
    fn a_burst_does_not_make_a_slow_device_fast() {
        let (mut buffer, now) = (Buffer::new(Time::ZERO), Time::from_millis);
        buffer.limit = LEAST_LIMIT;
        buffer.given(now(1_000), 0, 0);
        buffer.given(now(1_000) + Duration::from_micros(50), LEAST_LIMIT, 0);
        assert!(buffer.limit <= 4 * LEAST_LIMIT, "{}", buffer.limit);
        buffer.drained(now(1_001), 0);
        assert!(buffer.limit <= 4 * LEAST_LIMIT, "{}", buffer.limit);
    }

    /// A transfer fills a fast device, and only calls remain, of 40 kB/s.
    #[test]
    fn a_limit_that_calls_do_not_need_is_lowered() {
        let mut buffer = Buffer::new(Time::ZERO);
        fill(&mut buffer, 12_500_000, Time::ZERO);
        assert_eq!(buffer.limit, MOST_LIMIT);
        let end = Time::from_millis(1_000);
        for second in 1..=2 {
            buffer.given(end + second * UNUSED, 40_000, 0);
        }
        assert_eq!(buffer.limit, FIRST_LIMIT);
        // The next transfer may use the device again.
        let (_, busy) = fill(&mut buffer, 12_500_000, Time::from_millis(5_000));
        assert!(busy > 0.9, "the device idled: {busy}");
    }

    #[test]
    fn a_device_that_takes_nothing_gets_nothing_more() {
        let mut buffer = Buffer::new(Time::ZERO);
        buffer.given(Time::from_millis(1_000), FIRST_LIMIT, FIRST_LIMIT);
        assert_eq!(buffer.limit, FIRST_LIMIT);
        buffer.drained(Time::from_millis(13_000), FIRST_LIMIT);
        assert_eq!(buffer.limit, LEAST_LIMIT);
    }
}
