//! A call whose codec rate follows its receiver's reports: RTP over UDP, one packet every 20 ms at
//! any rate, so that only the packets' length adapts.
//!
//! A [`Gateway`] sends the call, a [`Station`] receives it and reports. The round trip is measured
//! as with RTCP (RFC 3550, section 6.4.1): a report echoes the send time of the newest packet and
//! states how long ago that packet arrived. Unlike in RTCP, the packet is one of the call itself
//! instead of a sender report, and times are in nanoseconds instead of units of 15 µs.
//!
//! On request, the redundancy that [`vegas`](trunkline_rate::vegas) adds against channel losses is
//! sent: packets also carry the speech of earlier ones (RFC 2198), or parity packets follow them
//! (RFC 8627), so that a later packet makes up for a lost one.

mod parity;

use super::{Agent, AgentIo, Outgoing, Received};
use core::cell::Cell;
use core::time::Duration;
use std::rc::Rc;
use trunkline_base::Time;
use trunkline_media::red::{self, BLOCK_HEADER, Block, PRIMARY_HEADER};
use trunkline_net::{Endpoint, Protocol};
use trunkline_rate::vegas::{
    CodecRate, Config, Control, Fec, HopBaseRtt, Loss, LossCause, ReceiverReport,
};

/// Duration of the speech in a packet.
pub const PACKET: Duration = Duration::from_millis(20);
/// Length of an RTP header without extensions, in bytes. Here it holds the packet's send time, 8
/// bytes, and its number, 4.
pub const RTP: usize = 12;
/// Additional header of a parity packet, in bytes: the CSRC that names the protected stream (RFC
/// 8627).
const CSRC: usize = 4;
/// Length of a report in bytes: an RTCP receiver report on one source (RFC 3550, section 6.4.2).
pub const REPORT: usize = 32;

/// Maximum number of earlier packets copied into one.
pub const MAX_COPIES: usize = 4;

const SPEECH: usize = CodecRate::Kbps64.payload_bytes(PACKET);
const MAX_PAYLOAD: usize = RTP + PRIMARY_HEADER + SPEECH + MAX_COPIES * (BLOCK_HEADER + SPEECH);
/// Ticks per packet of an 8 kHz timestamp.
const TICKS: u16 = 160;
/// Bit of a packet's number that stands in for the payload type of redundant audio.
const REDUNDANT: u32 = 1 << 31;
/// Bit of a packet's number that marks the parity stream, which is numbered separately.
const PARITY: u32 = 1 << 30;
/// Wake-up for the next packet or report.
const DUE: u64 = 0;
/// Wake-up for the control to check for missing reports.
const SILENCE: u64 = 1;

/// Parameters of a call that both ends share: its packets and their marking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Time of the first packet.
    pub start: Time,
    /// Number of packets in the call.
    pub packets: u32,
    /// The TOS byte of packets and reports.
    pub tos: u8,
}

/// Coding of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coding {
    /// At a fixed rate, whatever is reported.
    Fixed(CodecRate),
    /// Starting at this rate, then following the reports.
    Adaptive(CodecRate, Config),
}

/// Record of a packet that has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Time at which it was sent.
    pub at: Time,
    /// Codec rate of its speech.
    pub rate: CodecRate,
    /// Number of earlier packets copied into it.
    pub copies: u8,
    /// Number of parity packets sent right after it.
    pub parity: u8,
    /// Bytes added by the copies, with all headers of RFC 2198, or by the parity, without the
    /// headers that every packet has.
    pub added: usize,
}

/// Causes to which losses were attributed, counted over reports with losses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Verdicts {
    /// Number of reports with losses attributed to congestion.
    pub congestion: u64,
    /// Number of reports with losses attributed to the channel.
    pub wireless: u64,
}

/// The sending end of a call at a gateway, which may have others ([`Gateway::beside`]). Redundancy
/// requested by [`vegas`](trunkline_rate::vegas) is sent only after [`Gateway::with_fec`].
pub struct Gateway {
    port: u16,
    to: Endpoint,
    call: Call,
    rate: CodecRate,
    control: Option<Control>,
    /// Record that all calls of the gateway share.
    hop: Rc<Cell<HopBaseRtt>>,
    /// Maximum rate of copied speech; `None` if nothing is copied.
    copies: Option<CodecRate>,
    /// Parity generator; `None` if no parity is sent.
    parity: Option<parity::Sender>,
    /// Number of parity packets sent.
    parities: u32,
    sent: Vec<Sent>,
    verdicts: Verdicts,
    refused: u64,
    rtt: Option<Duration>,
    timeout: Time,
}

impl Gateway {
    /// Sends a call from `port` to the [`Station`] at `to`. Unless it is placed
    /// [beside](Gateway::beside) others, it is the only call of its gateway.
    pub fn new(port: u16, to: Endpoint, call: Call, coding: Coding) -> Gateway {
        let (rate, control) = match coding {
            Coding::Fixed(rate) => (rate, None),
            Coding::Adaptive(rate, config) => (rate, Some(Control::new(config, rate, call.start))),
        };
        Gateway {
            port,
            to,
            call,
            rate,
            control,
            hop: Rc::default(),
            copies: None,
            parity: None,
            parities: 0,
            sent: Vec::with_capacity(call.packets as usize),
            verdicts: Verdicts::default(),
            refused: 0,
            rtt: None,
            timeout: Time::NEVER,
        }
    }

    /// Places the call at the gateway that `hop` belongs to: all calls with the same record share
    /// its BaseRTT, also with calls that have ended before they begin.
    pub fn beside(self, hop: &Rc<Cell<HopBaseRtt>>) -> Gateway {
        Gateway { hop: Rc::clone(hop), ..self }
    }

    /// Sends the redundancy that the control requests: at most [`MAX_COPIES`] copies, at the rate
    /// of the speech itself or at `most`, whichever is lower; or parity, unless it would span more
    /// than [`MAX_SPAN`](trunkline_media::parity::MAX_SPAN) packets.
    pub fn with_fec(self, most: CodecRate) -> Gateway {
        Gateway { copies: Some(most), parity: Some(parity::Sender::new()), ..self }
    }

    /// The packets sent so far, in order.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Causes to which the losses reported so far were attributed.
    pub fn verdicts(&self) -> Verdicts {
        self.verdicts
    }

    /// Number of reports that were unreadable or impossible.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Round-trip time from the newest report that has one.
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Processes a report; `None` if it is unreadable or impossible.
    fn heard(&mut self, now: Time, payload: &[u8]) -> Option<()> {
        let report = parse(now, payload.first_chunk()?)?;
        self.rtt = report.rtt.or(self.rtt);
        let Some(control) = &mut self.control else { return Some(()) };
        let mut hop = self.hop.get();
        let decision = control.report(now, &report, &mut hop).ok()?;
        self.hop.set(hop);
        self.rate = decision.rate;
        match decision.verdict {
            Some(LossCause::Congestion) => self.verdicts.congestion += 1,
            Some(LossCause::Wireless) => self.verdicts.wireless += 1,
            None => {}
        }
        Some(())
    }

    /// Writes the next packet, records it as sent, and returns its length.
    fn write(&mut self, now: Time, payload: &mut [u8; MAX_PAYLOAD]) -> usize {
        // The content of the speech doesn't matter, only its length.
        const SAID: [u8; SPEECH] = [0; SPEECH];
        let speech = |rate: CodecRate| &SAID[..rate.payload_bytes(PACKET)];
        let number = self.sent.len() as u32;
        let count = match self.control.as_ref().map(Control::fec) {
            Some(Fec::Copies { count }) if self.copies.is_some() => {
                usize::from(count).min(MAX_COPIES).min(self.sent.len())
            }
            _ => 0,
        };
        payload[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
        let mark = if count > 0 { number | REDUNDANT } else { number };
        payload[8..RTP].copy_from_slice(&mark.to_be_bytes());
        let (rate, payload_type) = (self.rate, 96);
        let own = Block { payload_type, offset: 0, data: speech(rate) };
        let plain = own.data.len();
        let mut bytes = plain;
        if count > 0 {
            let mut earlier = [own; MAX_COPIES];
            let before = self.sent[number as usize - count..].iter();
            let ages = (1..=count as u16).rev();
            for ((block, sent), age) in earlier.iter_mut().zip(before).zip(ages) {
                let rate = self.copies.map_or(sent.rate, |most| sent.rate.min(most));
                *block = Block { payload_type, offset: age * TICKS, data: speech(rate) };
            }
            bytes = red::emit(&earlier[..count], &own, &mut payload[RTP..])
                .expect("the buffer is of the longest, and every block is young and short");
        }
        let added = bytes - plain;
        self.sent.push(Sent { at: now, rate, copies: count as u8, parity: 0, added });
        RTP + bytes
    }

    /// Writes a parity packet, records it with the packet before, and returns its length.
    fn write_parity(
        &mut self,
        now: Time,
        (block, first): (&parity::Block, u32),
        payload: &mut [u8; MAX_PAYLOAD],
    ) -> Option<usize> {
        let bytes = self.parity.as_ref()?.write(block, first, &mut payload[RTP + CSRC..]).ok()?;
        let bytes = CSRC + bytes;
        payload[RTP..RTP + CSRC].fill(0);
        payload[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
        payload[8..RTP].copy_from_slice(&(self.parities & (PARITY - 1) | PARITY).to_be_bytes());
        self.parities += 1;
        let behind = self.sent.last_mut()?;
        behind.parity += 1;
        behind.added += bytes;
        Some(RTP + bytes)
    }

    fn send(&self, payload: &[u8], io: &mut AgentIo<'_>) {
        let (port, to, tos) = (self.port, self.to, self.call.tos);
        io.send(&Outgoing { port, to, protocol: Protocol::UDP, tos, payload });
    }

    /// Schedules a wake-up for when reports are missing.
    fn watch(&mut self, io: &mut AgentIo<'_>) {
        let timeout = self.control.as_ref().map_or(Time::NEVER, Control::next_timeout);
        if timeout != self.timeout && self.sent.len() < self.call.packets as usize {
            self.timeout = timeout;
            io.wake_at(timeout, SILENCE);
        }
    }
}

impl Agent for Gateway {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        if self.call.packets > 0 {
            io.wake_at(self.call.start, DUE);
        }
        self.watch(io);
    }

    fn receive(&mut self, datagram: Received<'_>, io: &mut AgentIo<'_>) {
        self.refused += u64::from(self.heard(datagram.at, datagram.payload).is_none());
        self.watch(io);
    }

    fn wake(&mut self, token: u64, io: &mut AgentIo<'_>) {
        let now = io.now();
        if token == SILENCE {
            if let Some(control) = self.control.as_mut() {
                control.expire(now);
                self.rate = control.rate();
            }
            return self.watch(io);
        }
        let mut payload = [0; MAX_PAYLOAD];
        let (number, bytes) = (self.sent.len() as u32, self.write(now, &mut payload));
        self.send(&payload[..bytes], io);
        let fec = self.control.as_ref().map_or(Fec::Off, Control::fec);
        let complete = self.parity.as_mut().and_then(|p| p.sent(number, &payload[RTP..bytes], fec));
        for (block, first) in complete.iter().flat_map(|b| b.columns().map(move |first| (b, first)))
        {
            if let Some(bytes) = self.write_parity(now, (block, first), &mut payload) {
                self.send(&payload[..bytes], io);
            }
        }
        if number + 1 < self.call.packets {
            io.wake_at(now + PACKET, DUE);
        }
    }
}

/// The receiving end of a call, which reports at regular intervals. A report has a round trip only
/// if a packet arrived since the previous one. It covers the losses before the newest packet.
pub struct Station {
    port: u16,
    gateway: Endpoint,
    call: Call,
    interval: Duration,
    offset: Duration,
    arrived: Vec<Option<Time>>,
    repaired: Vec<Option<Time>>,
    parity: parity::Receiver,
    /// Send and arrival time of the newest packet, until a report has included it.
    newest: Option<(Time, Time)>,
    /// Number after the highest that arrived.
    next: u32,
    loss: Loss,
}

impl Station {
    /// Receives a call at `port` and reports to `gateway` every `interval`, which is at least 1 ms.
    /// The first report is sent `offset` after the first interval, because a report sent at the
    /// same time as a packet contends with it.
    pub fn new(
        port: u16,
        gateway: Endpoint,
        call: Call,
        interval: Duration,
        offset: Duration,
    ) -> Station {
        Station {
            port,
            gateway,
            call,
            interval: interval.max(Duration::from_millis(1)),
            offset,
            arrived: vec![None; call.packets as usize],
            repaired: vec![None; call.packets as usize],
            parity: parity::Receiver::new(),
            newest: None,
            next: 0,
            loss: Loss::default(),
        }
    }

    /// Arrival time of each packet of the call; `None` if it did not arrive.
    pub fn arrived(&self) -> &[Option<Time>] {
        &self.arrived
    }

    /// Time at which each missing packet was repaired, by a copy or by parity; `None` if it was
    /// not, or had already arrived.
    pub fn repaired(&self) -> &[Option<Time>] {
        &self.repaired
    }

    /// Processes a packet; `None` if it is not of the call, is parity, or was overtaken.
    fn take(&mut self, at: Time, payload: &[u8]) -> Option<()> {
        let (stamp, rest) = payload.split_first_chunk::<8>()?;
        let (mark, speech) = rest.split_first_chunk::<4>()?;
        let mark = u32::from_be_bytes(*mark);
        if mark & PARITY != 0 {
            self.parity.parity(self.next, speech.get(CSRC..)?)?;
            self.put_together(at);
            return None;
        }
        let number = mark & !REDUNDANT;
        self.arrived.get_mut(number as usize)?.get_or_insert(at);
        if mark != number {
            // A damaged payload repairs nothing.
            let _ = self.repair(at, number, speech);
        } else {
            self.parity.packet(number, speech);
            self.put_together(at);
        }
        let missing = number.checked_sub(self.next)?;
        self.loss.expected += missing + 1;
        self.loss.lost += missing;
        self.loss.runs += u32::from(missing > 0);
        self.next = number + 1;
        self.newest = Some((Time::from_nanos(u64::from_be_bytes(*stamp)), at));
        Some(())
    }

    /// Extracts the speech of packets before `number` from a payload; `None` if it is damaged.
    fn repair(&mut self, at: Time, number: u32, payload: &[u8]) -> Option<()> {
        for block in red::parse(payload).ok()?.filter(|block| block.offset > 0) {
            let earlier = number.checked_sub(u32::from(block.offset / TICKS))? as usize;
            if self.arrived.get(earlier)?.is_none() {
                self.repaired[earlier].get_or_insert(at);
            }
        }
        Some(())
    }

    /// Records the packets that parity can restore now.
    fn put_together(&mut self, at: Time) {
        while let Some((number, _)) = self.parity.recovered() {
            let number = number as usize;
            if let (Some(None), Some(repaired)) =
                (self.arrived.get(number), self.repaired.get_mut(number))
            {
                repaired.get_or_insert(at);
            }
        }
    }
}

impl Agent for Station {
    fn start(&mut self, io: &mut AgentIo<'_>) {
        io.wake_at(self.call.start + self.interval + self.offset, DUE);
    }

    fn receive(&mut self, datagram: Received<'_>, _io: &mut AgentIo<'_>) {
        let _ = self.take(datagram.at, datagram.payload);
    }

    fn wake(&mut self, _token: u64, io: &mut AgentIo<'_>) {
        let now = io.now();
        let payload = emit(now, self.newest.take(), core::mem::take(&mut self.loss));
        let (port, to, tos) = (self.port, self.gateway, self.call.tos);
        io.send(&Outgoing { port, to, protocol: Protocol::UDP, tos, payload: &payload });
        if now < self.call.start + self.call.packets * PACKET {
            io.wake_at(now + self.interval, DUE);
        }
    }
}

/// Writes a report: the send time of the newest packet and the time since its arrival (both zero if
/// there is none), and the numbers of packets expected and lost, and of runs of losses.
fn emit(now: Time, newest: Option<(Time, Time)>, loss: Loss) -> [u8; REPORT] {
    let (echo, held) =
        newest.map_or((0, 0), |(sent, came)| (sent.as_nanos(), now.since(came).as_nanos() as u64));
    let mut bytes = [0; REPORT];
    bytes[..8].copy_from_slice(&echo.to_be_bytes());
    bytes[8..16].copy_from_slice(&held.to_be_bytes());
    for (n, count) in [loss.expected, loss.lost, loss.runs].into_iter().enumerate() {
        bytes[16 + 4 * n..20 + 4 * n].copy_from_slice(&count.to_be_bytes());
    }
    bytes
}

/// Parses a report; `None` if its times are impossible.
fn parse(now: Time, bytes: &[u8; REPORT]) -> Option<ReceiverReport> {
    let long = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
    let count = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u32::from_be_bytes(*b));
    let rtt = match (long(0), long(8)) {
        (0, _) => None,
        // Impossible unless the echoed time and the time held add up to no more than the present.
        (echo, held) => {
            let nanos = now.as_nanos().checked_sub(echo)?.checked_sub(held)?;
            Some(Duration::from_nanos(nanos))
        }
    };
    let loss = Loss { expected: count(16), lost: count(20), runs: count(24) };
    Some(ReceiverReport { rtt, loss })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_it_was_told() {
        let [sent, came, now, heard] = [100, 130, 180, 195].map(Time::from_millis);
        let loss = Loss { expected: 5, lost: 2, runs: 1 };
        let bytes = emit(now, Some((sent, came)), loss);
        // 30 ms out and 15 ms back.
        let report = ReceiverReport { rtt: Some(Duration::from_millis(45)), loss };
        assert_eq!(parse(heard, &bytes), Some(report));
        assert_eq!(parse(heard, &emit(now, None, loss)), Some(ReceiverReport { rtt: None, loss }));
    }

    /// Two packets are lost before a packet with a copy of each. The copies are at the codec's rate
    /// in the first case, and at a lower one in the second.
    #[test]
    fn what_a_packet_carries_of_others_repairs_them() {
        let to = Endpoint { vertex: trunkline_net::VertexId(1), port: 9 };
        let call = Call { start: Time::ZERO, packets: 9, tos: 0 };
        for (most, added) in [(CodecRate::Kbps64, 9 + 2 * 160), (CodecRate::Kbps16, 9 + 2 * 40)] {
            let coding = Coding::Adaptive(CodecRate::Kbps64, Config::default());
            let mut gateway = Gateway::new(1, to, call, coding).with_fec(most);
            let mut buffer = [0; MAX_PAYLOAD];
            for millis in [0, 20, 40] {
                assert_eq!(gateway.write(Time::from_millis(millis), &mut buffer), RTP + 160);
            }
            let loss = Loss { expected: 50, lost: 2, runs: 1 };
            let report = emit(
                Time::from_millis(50),
                Some((Time::from_millis(40), Time::from_millis(41))),
                loss,
            );
            assert!(gateway.heard(Time::from_millis(51), &report).is_some());
            let bytes = gateway.write(Time::from_millis(60), &mut buffer);
            assert_eq!((bytes, gateway.sent()[3].copies), (RTP + 160 + added, 2));

            let mut station = Station::new(9, to, call, PACKET, Duration::ZERO);
            let now = Time::from_millis(61);
            assert_eq!(station.take(now, &buffer[..bytes]), Some(()));
            let mut repaired = [None; 9];
            repaired[1..3].fill(Some(now));
            assert_eq!(station.repaired(), repaired);
            assert_eq!(station.arrived().iter().position(Option::is_some), Some(3));
            // A payload without redundant audio repairs nothing, nor do copies of packets before
            // the first.
            assert_eq!(station.repair(now, 0, &buffer[RTP..bytes]), None);
            assert_eq!(station.repair(now, 3, &buffer[RTP..RTP + 20]), None);
        }
    }

    /// The second of three packets is lost. Parity restores it, and counts neither as an arrived
    /// packet nor as a lost one.
    #[test]
    fn parity_repairs_and_is_no_packet_of_the_call() {
        let to = Endpoint { vertex: trunkline_net::VertexId(1), port: 9 };
        let call = Call { start: Time::ZERO, packets: 9, tos: 0 };
        let coding = Coding::Fixed(CodecRate::Kbps24);
        let mut gateway = Gateway::new(1, to, call, coding).with_fec(CodecRate::Kbps64);
        let mut station = Station::new(9, to, call, PACKET, Duration::ZERO);
        let (mut buffer, fec) = ([0; MAX_PAYLOAD], Fec::Parity { window: 3, depth: 1 });
        let mut complete = None;
        for number in 0..3 {
            let now = Time::from_millis(20 * u64::from(number));
            let bytes = gateway.write(now, &mut buffer);
            let parity = gateway.parity.as_mut().unwrap();
            complete = parity.sent(number, &buffer[RTP..bytes], fec);
            if number != 1 {
                assert_eq!(station.take(now, &buffer[..bytes]), Some(()));
            }
        }
        let (block, now) = (complete.unwrap(), Time::from_millis(41));
        let bytes = gateway.write_parity(now, (&block, 0), &mut buffer).unwrap();
        assert_eq!((bytes, gateway.sent()[2].parity, gateway.sent()[2].added), (88, 1, 76));
        let heard = (station.loss, station.newest);
        assert_eq!(station.take(now, &buffer[..bytes]), None);
        assert_eq!((station.loss, station.newest), heard);
        assert_eq!(station.loss, Loss { expected: 3, lost: 1, runs: 1 });
        assert_eq!(station.repaired()[..3], [None, Some(now), None]);
        assert_eq!(station.arrived().iter().flatten().count(), 2);
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        let [sent, came, now] = [100, 130, 180].map(Time::from_millis);
        let bytes = emit(now, Some((sent, came)), Loss::default());
        // First received before it was sent, then held for longer than it was on its way.
        assert_eq!(parse(Time::from_millis(99), &bytes), None);
        assert_eq!(parse(Time::from_millis(140), &bytes), None);
        assert_eq!(parse(now, &[0xff; REPORT]), None);
    }
}
