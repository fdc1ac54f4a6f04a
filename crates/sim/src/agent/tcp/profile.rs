//! Differences between TCP implementations.

use super::rtt::RtoRules;
use super::wire;
use core::time::Duration;
use trunkline_net::IpVersion;

/// Unit of the congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    /// Segments, however short (ns-2, Linux).
    Packets,
    /// Bytes of sequence space (RFC 5681, BSD).
    Bytes,
}

impl Counting {
    /// Size of the segment from number `start` to before `end`, in this unit.
    pub fn cost(self, start: u64, end: u64) -> u64 {
        match self {
            Counting::Packets => 1,
            Counting::Bytes => end - start,
        }
    }
}

/// Method of detecting and repairing losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Fast retransmit after three duplicate ACKs, and fast recovery that ends with the first new
    /// ACK (RFC 2581, section 3.2); no SACK.
    Reno,
    /// Scoreboard and pipe of RFC 3517.
    Sack,
    /// Forward acknowledgment: a segment is lost once the third after it, or a later
    /// one, has been SACKed.
    Fack,
    /// RACK-TLP: losses detected by time (RFC 8985).
    Rack,
}

/// Reduction of the congestion window to ssthresh in fast recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// In one step (RFC 5681, RFC 3517).
    AtOnce,
    /// One segment for every second ACK.
    RateHalving,
    /// Proportionally, with the slow start reduction bound (RFC 6937).
    Proportional,
}

/// Treatment of the congestion window after the sender was idle for longer than an RTO, or sent
/// less than the window allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// The window stays as it is.
    Keep,
    /// The window is one segment when sending resumes.
    OneSegment,
    /// The window is the initial window when sending resumes (RFC 5681, section 4.1).
    InitialWindow,
    /// The window is halved for every RTO, down to the initial window. While the application is the
    /// limit, it decays to the amount used (RFC 2861).
    Decay,
}

/// Number of bytes that may be sent at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitialWindow {
    /// A fixed number of segments.
    Segments(u32),
    /// RFC 3390: min(4 MSS, max(2 MSS, 4,380 bytes)).
    Rfc3390,
}

impl InitialWindow {
    /// The window in whole segments of `mss` bytes.
    pub fn segments(self, mss: usize) -> u64 {
        match self {
            InitialWindow::Segments(n) => u64::from(n),
            InitialWindow::Rfc3390 => (4 * mss).min((2 * mss).max(4_380)) as u64 / mss as u64,
        }
    }
}

/// Rules for delaying the ACKs of data that arrived in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayedAck {
    /// Maximum time that an ACK waits for another segment, or for data to be sent along with; zero
    /// acknowledges every segment at once.
    pub wait: Duration,
    /// Number of segments acknowledged at once at the beginning of a connection.
    pub quick: u32,
    /// Whether a second segment is acknowledged at once only if both together exceed one MSS
    /// (Linux), instead of always (BSD).
    pub by_bytes: bool,
}

/// Parameters of a TCP implementation. The functions return those of known ones, and every field
/// may be changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The profile's name in tables.
    pub name: &'static str,
    /// Length of a full segment on the wire in bytes, with its IP header, TCP header and timestamps.
    pub mtu: usize,
    /// Whether every segment has timestamps (RFC 7323).
    pub timestamps: bool,
    /// Unit of the congestion window.
    pub counting: Counting,
    /// Congestion window at the start.
    pub initial_window: InitialWindow,
    /// Maximum number of packets in flight, whatever the congestion window is.
    pub window_limit: Option<u64>,
    /// Whether the window grows by the data that an ACK acknowledges (RFC 3465, without its limit),
    /// instead of by one step per ACK.
    pub count_acked: bool,
    /// Whether the ACK that ends a recovery lets the window grow.
    pub grow_at_end: bool,
    /// Whether the window grows only while it limits the sender.
    pub grow_if_limited: bool,
    /// Method of detecting and repairing losses.
    pub recovery: Recovery,
    /// Method of reducing the window in fast recovery.
    pub reduction: Reduction,
    /// Whether the first two duplicate ACKs release new data (RFC 3042).
    pub limited_transmit: bool,
    /// Whether ssthresh is lowered only once per window of data: an RTO in fast recovery leaves it
    /// as it is, and so does one that follows another without a new ACK in between (Linux's
    /// `tcp_enter_loss`; RFC 5681, section 3.1, has the second). Otherwise every RTO lowers it.
    pub reduce_once: bool,
    /// Whether a reduction is undone if timestamps (RFC 3522), DSACKs (RFC 3708) or ACKs of
    /// segments sent only once (RFC 5682) show that it was unnecessary.
    pub undo: bool,
    /// Whether short segments are merged when they are retransmitted.
    pub coalesce: bool,
    /// Rules for the retransmission timeout.
    pub rto: RtoRules,
    /// Effect of a pause on the window.
    pub idle: Idle,
    /// Delay of the ACKs that the receiving half sends.
    pub delayed_ack: DelayedAck,
    /// Whether a FIN that arrives before earlier data is SACKed.
    pub sack_fin: bool,
    /// Number of SYNs that may be repeated before the initial window shrinks to one segment; RFC
    /// 5681, section 3.1, allows none. A repetition that timestamps show to be unnecessary doesn't
    /// count if [`undo`](Self::undo) is set.
    pub spare_syns: u32,
    /// Number of repeated SYNs after which the RTO has not been doubled yet.
    pub linear_syns: u32,
    /// Whether a listener echoes the timestamp of the last SYN instead of that of the first.
    pub echo_last_syn: bool,
    /// Receive window, in bytes.
    pub receive_buffer: usize,
    /// Maximum number of bytes that the sender buffers, sent and unsent.
    pub send_buffer: usize,
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl Profile {
    /// ns-2's one-way TCP/Reno: packets of 1,000 bytes with 40 bytes of headers, a window of 20
    /// packets unless [`window_limit`](Self::window_limit) is changed, a clock of 100 ms, an
    /// initial window of one packet, no delayed ACKs. The window is in whole packets, but grows
    /// like ns-2's, which is a real number.
    pub fn ns2_reno() -> Profile {
        Profile {
            name: "ns2-reno",
            mtu: 1_040,
            timestamps: false,
            counting: Counting::Packets,
            initial_window: InitialWindow::Segments(1),
            window_limit: Some(20),
            count_acked: false,
            grow_at_end: false,
            grow_if_limited: false,
            recovery: Recovery::Reno,
            reduction: Reduction::AtOnce,
            limited_transmit: false,
            reduce_once: false,
            undo: false,
            coalesce: false,
            rto: RtoRules {
                tick: ms(100),
                initial: ms(3_000),
                slop: Duration::ZERO,
                // Two ticks of the clock.
                min: ms(200),
                min_is_of_variance: false,
                max: ms(100_000),
            },
            idle: Idle::Keep,
            delayed_ack: DelayedAck { wait: Duration::ZERO, quick: 0, by_bytes: false },
            sack_fin: false,
            spare_syns: u32::MAX,
            linear_syns: 0,
            echo_last_syn: false,
            receive_buffer: 16 << 20,
            send_buffer: 4 << 20,
        }
    }

    /// FreeBSD 5.4 (2005): SACK, limited transmit, RFC 3390's initial window, a window in bytes
    /// that drops to one segment after a pause of an RTO ([`idle`](Self::idle)), ACKs delayed by at
    /// most 100 ms. Undoing an RTO if its ACK arrives within half a round trip is not modelled.
    pub fn freebsd_5_4() -> Profile {
        Profile {
            name: "freebsd-5.4",
            mtu: 1_500,
            timestamps: true,
            counting: Counting::Bytes,
            initial_window: InitialWindow::Rfc3390,
            window_limit: None,
            count_acked: false,
            grow_at_end: false,
            grow_if_limited: false,
            recovery: Recovery::Sack,
            reduction: Reduction::AtOnce,
            limited_transmit: true,
            reduce_once: false,
            undo: false,
            coalesce: true,
            rto: RtoRules {
                // The kernel's clock runs at 100 Hz unless configured otherwise.
                tick: ms(10),
                initial: ms(3_000),
                // The allowance for delayed ACKs (tcp_rexmit_slop), and the minimum timeout, which
                // is shorter.
                slop: ms(200),
                min: ms(30),
                min_is_of_variance: false,
                max: ms(64_000),
            },
            idle: Idle::OneSegment,
            delayed_ack: DelayedAck { wait: ms(100), quick: 0, by_bytes: false },
            // SACK blocks cover data only.
            sack_fin: false,
            // Only a listener's window shrinks.
            spare_syns: u32::MAX,
            linear_syns: 0,
            // The syncache keeps the timestamp of each SYN that it answers.
            echo_last_syn: true,
            receive_buffer: 6 << 20,
            send_buffer: 4 << 20,
        }
    }

    /// Linux 2.4: SACK with forward acknowledgment, rate halving, congestion window validation (RFC
    /// 2861), ACKs delayed by 40 ms except at the beginning.
    pub fn linux_2_4() -> Profile {
        Profile {
            name: "linux-2.4",
            mtu: 1_500,
            timestamps: true,
            counting: Counting::Packets,
            initial_window: InitialWindow::Rfc3390,
            window_limit: None,
            count_acked: false,
            grow_at_end: false,
            grow_if_limited: true,
            recovery: Recovery::Fack,
            reduction: Reduction::RateHalving,
            limited_transmit: true,
            reduce_once: true,
            undo: true,
            coalesce: true,
            rto: RtoRules {
                tick: ms(10),
                initial: ms(3_000),
                slop: Duration::ZERO,
                min: ms(200),
                min_is_of_variance: true,
                max: ms(120_000),
            },
            idle: Idle::Decay,
            delayed_ack: DelayedAck { wait: ms(40), quick: 16, by_bytes: true },
            sack_fin: true,
            spare_syns: u32::MAX,
            linear_syns: 0,
            echo_last_syn: false,
            receive_buffer: 6 << 20,
            send_buffer: 4 << 20,
        }
    }

    /// Linux 6 with `reno` as congestion control: RACK-TLP, proportional rate reduction, an initial
    /// window of ten segments (RFC 6928), neither pacing nor segmentation offload.
    pub fn linux_6() -> Profile {
        Profile {
            name: "linux-6",
            initial_window: InitialWindow::Segments(10),
            count_acked: true,
            grow_at_end: true,
            recovery: Recovery::Rack,
            reduction: Reduction::Proportional,
            rto: RtoRules {
                tick: Duration::from_micros(1),
                initial: ms(1_000),
                slop: Duration::ZERO,
                min: ms(200),
                min_is_of_variance: true,
                max: ms(120_000),
            },
            spare_syns: 1,
            linear_syns: 4,
            ..Profile::linux_2_4()
        }
    }

    /// All four predefined profiles.
    pub fn all() -> [Profile; 4] {
        [Self::ns2_reno(), Self::freebsd_5_4(), Self::linux_2_4(), Self::linux_6()]
    }

    /// Whether SACK is used.
    pub fn sack(&self) -> bool {
        self.recovery != Recovery::Reno
    }

    /// Announced MSS (RFC 9293, section 3.7.1) over this IP version, in bytes.
    pub fn mss(&self, ip: IpVersion) -> usize {
        self.mtu.saturating_sub(ip.header() + wire::HEADER).clamp(64, 65_000)
    }

    /// Number of data bytes in a full segment over this IP version.
    pub fn full_segment(&self, ip: IpVersion) -> usize {
        self.mss(ip) - if self.timestamps { wire::TIMESTAMPS } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_the_size_of_the_wire() {
        let of = |ip| Profile::all().map(|p| p.full_segment(ip));
        assert_eq!(of(IpVersion::V4), [1_000, 1_448, 1_448, 1_448]);
        assert_eq!(of(IpVersion::V6), [980, 1_428, 1_428, 1_428]);
        assert_eq!(Profile::all().map(|p| p.mtu), [1_040, 1_500, 1_500, 1_500]);
        assert_eq!(
            [536, 1_428, 1_460, 2_190].map(|m| InitialWindow::Rfc3390.segments(m)),
            [4, 3, 3, 2]
        );
    }
}
