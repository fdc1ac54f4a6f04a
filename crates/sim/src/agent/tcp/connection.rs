//! A sans-IO connection: handshake, both halves, and the end.

use super::ack::Ack;
use super::profile::Profile;
use super::receiver::Receiver;
use super::sender::{Chunk, Sender, Stats};
use super::wire::{Flags, MAX_SACK, Options, Segment, TIMESTAMPS};
use trunkline_base::Time;
use trunkline_net::IpVersion;

/// Clock of the timestamps (RFC 7323, section 4.1), in milliseconds.
pub(super) fn timestamp(now: Time) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// MSS assumed without an MSS option.
const DEFAULT_MSS: usize = 536;
const MIN_MSS: usize = 64;
const MAX_SCALE: u8 = 14;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The SYN has been sent, or is about to be.
    SynSent,
    /// A SYN arrived and is answered with another.
    SynReceived,
    /// Data flow, until both FINs are acknowledged.
    Established,
    /// The peer reset the connection.
    Reset,
}

/// One end of a TCP connection, sans-IO. It takes the time and the segments that arrive, and
/// returns segments to send from [`transmit`](Self::transmit) until there are no more. It must be
/// called again at [`deadline`](Self::deadline).
///
/// Internal numbers are 64 bits wide and count the stream from the SYN, which is number 0. Numbers
/// on the wire wrap (RFC 9293, section 3.4).
#[derive(Clone, Debug)]
pub struct Connection {
    /// Local port and remote port.
    ports: (u16, u16),
    state: State,
    /// Initial sequence numbers: local and remote.
    iss: u32,
    irs: u32,
    ip: IpVersion,
    sender: Sender,
    receiver: Receiver,
    /// Options that both ends agreed on.
    timestamps: bool,
    sack: bool,
    own_scale: u8,
    peer_scale: u8,
    /// The timestamp to echo, and the number that the last ACK acknowledged (RFC 7323, section
    /// 4.3).
    recent: u32,
    last_ack: u64,
}

impl Connection {
    /// Opens a connection from port `ports.0` to port `ports.1`, with `iss` as the initial sequence
    /// number, over IPv6 unless [`Connection::over`] says otherwise. With `nodelay`, short segments are sent without waiting for earlier ones to be
    /// acknowledged.
    pub fn connect(profile: Profile, ports: (u16, u16), iss: u32, nodelay: bool) -> Connection {
        let ip = IpVersion::V6;
        let scale = (0..MAX_SCALE).find(|&s| profile.receive_buffer >> s <= 0xffff);
        Connection {
            ports,
            state: State::SynSent,
            iss,
            irs: 0,
            ip,
            receiver: Receiver::new(&profile, ip),
            timestamps: profile.timestamps,
            sack: profile.sack(),
            own_scale: scale.unwrap_or(MAX_SCALE),
            peer_scale: 0,
            recent: 0,
            last_ack: 1,
            sender: Sender::new(profile, ip, nodelay),
        }
    }

    /// Sets the IP version, on which the length of segments depends. Nothing has been sent yet.
    pub fn over(&mut self, ip: IpVersion) {
        self.ip = ip;
        self.receiver = Receiver::new(&self.sender.profile, ip);
        self.sender = Sender::new(self.sender.profile.clone(), ip, self.sender.nodelay);
    }

    /// Accepts the connection that the segment `syn` requests; `None` if it doesn't request one.
    pub fn accept(
        profile: Profile,
        ip: IpVersion,
        iss: u32,
        syn: &Segment<'_>,
    ) -> Option<Connection> {
        if !syn.flags.has(Flags::SYN) || syn.flags.has(Flags::ACK) || syn.flags.has(Flags::RST) {
            return None;
        }
        let mut connection = Connection::connect(profile, (syn.to, syn.from), iss, false);
        connection.over(ip);
        // The timeout of a SYN-ACK is doubled from the beginning.
        connection.sender.profile.linear_syns = 0;
        connection.agree(syn);
        connection.state = State::SynReceived;
        Some(connection)
    }

    /// Adopts the options of the peer's SYN.
    fn agree(&mut self, syn: &Segment<'_>) {
        let Options { mss, window_scale, sack_permitted, timestamps, .. } = syn.options;
        self.irs = syn.seq;
        self.timestamps &= timestamps.is_some();
        self.recent = timestamps.map_or(0, |t| t.0);
        self.sack &= sack_permitted;
        self.receiver.use_sack(self.sack);
        self.peer_scale = window_scale.map_or(0, |scale| scale.min(MAX_SCALE));
        if window_scale.is_none() {
            self.own_scale = 0;
        }
        let peers = mss.map_or(DEFAULT_MSS, usize::from).max(MIN_MSS);
        let options = if self.timestamps { TIMESTAMPS } else { 0 };
        let mss = peers.min(self.sender.profile.mss(self.ip)) - options;
        // The window in a SYN is not scaled (RFC 7323, section 2.2).
        self.sender.establish(mss, self.sack, 1 + u64::from(syn.window));
    }

    /// Queues as much of `bytes` as there is room for, and returns how much.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.sender.write(bytes)
    }

    /// Number of bytes that [`Connection::write`] would accept.
    pub fn room(&self) -> usize {
        self.sender.room()
    }

    /// Number of bytes written but not sent yet.
    pub fn unsent(&self) -> usize {
        self.sender.unsent()
    }

    /// Ends writing. Data already written are still sent, followed by a FIN.
    pub fn close(&mut self) {
        self.sender.close();
    }

    /// Hands over the data that arrived in order since the last call, if any.
    pub fn read(&mut self, with: impl FnOnce(&[u8])) {
        self.receiver.read(with);
    }

    /// Whether everything up to the peer's FIN has arrived.
    pub fn is_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Whether the handshake is complete and the connection was not reset.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Whether the connection was reset by the peer.
    pub fn is_reset(&self) -> bool {
        self.state == State::Reset
    }

    /// Whether both directions have ended and were acknowledged, or the connection was reset.
    pub fn is_closed(&self) -> bool {
        self.is_reset() || self.sender.is_finished() && self.receiver.is_finished()
    }

    /// Statistics of the sending half.
    pub fn stats(&self) -> Stats {
        self.sender.stats()
    }

    /// Number of data bytes in a full segment, as negotiated.
    pub fn full_segment(&self) -> usize {
        self.sender.mss
    }

    /// Turns Nagle's algorithm off or on.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.sender.nodelay = nodelay;
    }

    /// Asserts that the scoreboard's sums match its segments.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.sender.board.sums(), self.sender.board.recount());
    }

    fn seq(&self, number: u64) -> u32 {
        self.iss.wrapping_add(number as u32)
    }

    /// Converts `seq` to the peer's stream number.
    fn peers(&self, seq: u32) -> Option<u64> {
        nearest(self.receiver.next(), self.irs, seq)
    }

    /// Processes a segment for this connection's ports.
    pub fn receive(&mut self, now: Time, segment: &Segment<'_>) {
        match self.state {
            State::Reset => {}
            State::SynSent => self.receive_syn(now, segment),
            State::SynReceived | State::Established => self.receive_later(now, segment),
        }
    }

    fn receive_syn(&mut self, now: Time, segment: &Segment<'_>) {
        let answers = segment.flags.has(Flags::ACK) && segment.ack == self.seq(1);
        if !answers {
            return;
        }
        if segment.flags.has(Flags::RST) {
            self.state = State::Reset;
        } else if segment.flags.has(Flags::SYN) {
            let window_end = 1 + u64::from(segment.window);
            let echo = self.echo(segment);
            let ack = Ack { number: 1, window_end, blocks: &[], echo, bare: false };
            self.sender.acknowledge(now, &ack);
            self.agree(segment);
            self.state = State::Established;
            self.receiver.ack_at_once();
        }
    }

    /// Answers the peer's SYN again: it was repeated, so the answer may be lost.
    fn receive_syn_again(&mut self, segment: &Segment<'_>) {
        if segment.seq != self.irs || segment.flags.has(Flags::ACK) {
            return;
        }
        if let Some((value, _)) = segment.options.timestamps
            && self.sender.profile.echo_last_syn
        {
            self.recent = value;
        }
        self.sender.repeat_syn();
    }

    fn echo(&self, segment: &Segment<'_>) -> Option<u32> {
        segment.options.timestamps.filter(|_| self.timestamps).map(|(_, echo)| echo)
    }

    fn receive_later(&mut self, now: Time, segment: &Segment<'_>) {
        let start = self.peers(segment.seq).filter(|&start| start > 0);
        if segment.flags.has(Flags::RST) {
            // A reset must have exactly the expected number (RFC 5961, section 3.2).
            if start == Some(self.receiver.next()) {
                self.state = State::Reset;
            }
            return;
        }
        if self.state == State::SynReceived && segment.flags.has(Flags::SYN) {
            self.receive_syn_again(segment);
            return;
        }
        let Some(start) = start.filter(|_| !segment.flags.has(Flags::SYN)) else {
            // A SYN, or a segment from before it, is answered with an ACK (RFC 5961, section 4.2).
            self.receiver.ack_at_once();
            return;
        };
        let una = self.sender.una;
        let number = nearest(una, self.iss, segment.ack);
        let Some(number) = number.filter(|_| segment.flags.has(Flags::ACK)) else { return };
        if let Some((value, _)) = segment.options.timestamps.filter(|_| self.timestamps)
            && start <= self.last_ack
        {
            let newer = value.wrapping_sub(self.recent) < 1 << 31;
            self.recent = if newer { value } else { self.recent };
        }
        if self.state == State::SynReceived && number >= 1 && number <= self.sender.nxt {
            self.state = State::Established;
        }
        let (mut blocks, mut count) = ([(0, 0); MAX_SACK], 0);
        for &(left, right) in segment.options.sack.as_slice() {
            let edges = (nearest(una, self.iss, left), nearest(una, self.iss, right));
            if let (Some(left), Some(right)) = edges {
                blocks[count] = (left, right);
                count += 1;
            }
        }
        let fin = segment.flags.has(Flags::FIN);
        let ack = Ack {
            number,
            window_end: number.saturating_add(u64::from(segment.window) << self.peer_scale),
            blocks: &blocks[..if self.sack { count } else { 0 }],
            echo: self.echo(segment),
            bare: segment.data.is_empty() && !fin,
        };
        self.sender.acknowledge(now, &ack);
        self.receiver.take(now, start, segment.data, fin);
    }

    /// Replaces the contents of `out` with the next segment to send now; false if there is none.
    pub fn transmit(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if self.state == State::Reset {
            return false;
        }
        let chunk = self.sender.poll(now);
        let synchronized = self.state != State::SynSent;
        if chunk.is_none() && !(synchronized && self.receiver.ack_is_due(now)) {
            return false;
        }
        let mut flags = Flags::default();
        if synchronized {
            flags = flags.with(Flags::ACK);
        }
        let nothing = Chunk { start: self.sender.nxt, end: self.sender.nxt };
        let chunk = chunk.unwrap_or(nothing);
        let is_syn = chunk.start == 0;
        if is_syn {
            flags = flags.with(Flags::SYN);
        }
        if self.sender.has_fin(chunk) && chunk.start < chunk.end {
            flags = flags.with(Flags::FIN);
        }
        out.clear();
        self.header(now, chunk.start, flags, is_syn).emit_header(out);
        self.sender.fill(chunk, out);
        true
    }

    fn header(&mut self, now: Time, start: u64, flags: Flags, is_syn: bool) -> Segment<'static> {
        let (irs, next) = (self.irs, self.receiver.next());
        let has_ack = flags.has(Flags::ACK);
        let mut options = Options::default();
        if self.timestamps {
            options.timestamps = Some((timestamp(now), if has_ack { self.recent } else { 0 }));
        }
        let scale = if is_syn { 0 } else { self.own_scale };
        if is_syn {
            options.mss = Some(self.sender.profile.mss(self.ip) as u16);
            options.sack_permitted = self.sack;
            options.window_scale = (self.own_scale > 0).then_some(self.own_scale);
        } else {
            let most = if self.timestamps { MAX_SACK - 1 } else { MAX_SACK };
            options.sack = self.receiver.acknowledged(most, |n| irs.wrapping_add(n as u32));
            self.last_ack = next;
        }
        Segment {
            from: self.ports.0,
            to: self.ports.1,
            seq: self.seq(start),
            ack: if has_ack { irs.wrapping_add(next as u32) } else { 0 },
            flags,
            window: (self.receiver.window() >> scale).min(0xffff) as u16,
            options,
            data: &[],
        }
    }

    /// Time of the next calls to [`Connection::expire`] and [`Connection::transmit`], unless a
    /// segment arrives earlier.
    pub fn deadline(&self) -> Time {
        match self.state {
            State::Reset => Time::NEVER,
            _ => self.sender.deadline().min(self.receiver.ack_deadline()),
        }
    }

    /// Handles the deadlines that have passed at `now`.
    pub fn expire(&mut self, now: Time) {
        if self.state != State::Reset {
            self.sender.expire(now);
        }
    }
}

/// The reset that answers a segment without a connection (RFC 9293, section 3.10.7.1); `None` for a
/// reset.
pub fn reset(segment: &Segment<'_>) -> Option<Segment<'static>> {
    if segment.flags.has(Flags::RST) {
        return None;
    }
    let answer = Segment { from: segment.to, to: segment.from, ..Segment::default() };
    Some(if segment.flags.has(Flags::ACK) {
        Segment { seq: segment.ack, flags: Flags::RST, ..answer }
    } else {
        let syn = u32::from(segment.flags.has(Flags::SYN));
        let fin = u32::from(segment.flags.has(Flags::FIN));
        let length = segment.data.len() as u32 + syn + fin;
        let ack = segment.seq.wrapping_add(length);
        Segment { ack, flags: Flags::RST.with(Flags::ACK), ..answer }
    })
}

/// The number nearest to `near` that appears as `seq` on the wire, where number 0 appears as
/// `first`.
fn nearest(near: u64, first: u32, seq: u32) -> Option<u64> {
    let distance = seq.wrapping_sub(first).wrapping_sub(near as u32) as i32;
    near.checked_add_signed(i64::from(distance))
}
