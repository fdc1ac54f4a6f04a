//! TFMC: a sender and a receiver of a trunk with arbitrary input, on a clock that jumps back and
//! forth.
//!
//! Invariants: no panic; the number of packets in a datagram is within its bounds; the share and
//! all values of a report are numbers; no timeout is infinite; a rejected message changes nothing;
//! parsing inverts emitting.

pub mod seeds;

use crate::script::{micros, steps};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Reader;
use trunkline_rate::tfmc::{
    Config, DATA_BYTES, Data, FEEDBACK_BYTES, Feedback, Receiver, Segment, Sender,
};
use trunkline_rate::tfrc::MAX_BACKOFF;

steps! {
    /// A step of the script.
    Step {
        /// The clock advances by `n` units.
        0 Sleep { unit: u8, n: u8 }
        /// The clock jumps to `n` units after the start, which may be backwards.
        1 Jump { unit: u8, n: u8 }
        /// Datagrams with `packets` packets each are sent, with this total payload.
        2 Send { datagrams: u8, packets: u8, payload: u16 }
        /// The last datagram reaches the receiver, and a report that is due reaches the sender.
        3 Deliver { delay: u8 }
        /// As many datagrams are sent and delivered as a report needs.
        4 Report { delay: u8, packets: u8 }
        /// The receiver gets arbitrary bytes as the header of a datagram.
        5 Data { header: Vec<u8> }
        /// A packet of the observed call arrives.
        6 Flow { sequence: u16 }
        /// The sender gets arbitrary bytes as a report.
        7 Feedback { report: Vec<u8> }
        /// The sender gets a report about the last datagram with an arbitrary loss.
        8 Claim { elapsed: u8, loss: u16 }
        /// The clock advances until the sender's timer expires, if it is set.
        9 Expire {}
        /// The timer is checked now, which may be too early.
        10 ExpireNow {}
    }
}

/// Number of bytes before the steps that choose the parameters.
pub const SETTINGS: usize = 1;

/// Parameters by number: each kind of segment, and bounds at their extremes.
fn config(which: u8) -> Config {
    let segment = |segment| Config { segment, ..Config::default() };
    match which % 6 {
        0 => Config::default(),
        1 => segment(Segment::Nominal(1_460.0)),
        2 => segment(Segment::Chosen),
        3 => Config::paper(),
        4 => Config { remembered: 4, mtu: 1_280, header: 72, per_packet: 4, ..Config::default() },
        _ => Config {
            header: 0,
            per_packet: 0,
            mtu: 0,
            remembered: 0,
            datagrams_per_feedback: 0,
            feedback_interval: Duration::ZERO,
            rtt_keeps: f64::NAN,
            segment: Segment::Nominal(f64::NAN),
            ..Config::default()
        },
    }
}

struct World {
    now: Time,
    /// The latest time so far.
    latest: Time,
    sender: Sender,
    receiver: Receiver,
    last: Option<u32>,
}

/// Runs a script: a byte that chooses the parameters, then steps.
pub fn run(script: &[u8]) {
    let mut r = Reader::new(script);
    let Ok(which) = r.u8() else { return };
    let config = config(which);
    let now = Time::from_millis(1);
    let (sender, receiver) = (Sender::new(config, now), Receiver::new(config));
    let mut world = World { now, latest: now, sender, receiver, last: None };
    while let Some(step) = Step::read(&mut r) {
        world.step(&step);
        world.check();
    }
}

impl World {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Sleep { unit, n } => self.now += Duration::from_micros(micros(unit, n)),
            Step::Jump { unit, n } => {
                self.now = Time::ZERO + Duration::from_micros(micros(unit, n));
            }
            Step::Send { datagrams, packets, payload } => {
                for _ in 0..datagrams {
                    self.last = Some(self.sender.sent(self.now, packets.into(), payload.into()));
                }
            }
            Step::Deliver { delay } => self.deliver(delay),
            Step::Report { delay, packets } => {
                for _ in 0..self.sender.config().datagrams_per_feedback.clamp(1, 8) {
                    let packets = usize::from(packets);
                    self.last = Some(self.sender.sent(self.now, packets, 20 * packets));
                    self.deliver(delay);
                }
            }
            Step::Data { ref header } => {
                self.receive(header);
            }
            Step::Flow { sequence } => self.receiver.receive_of_flow(self.now, sequence),
            Step::Feedback { ref report } => self.hear(report),
            Step::Claim { elapsed, loss } => {
                let Some(number) = self.last else { return };
                let elapsed = Duration::from_millis(elapsed.into());
                let loss = f64::from(loss) / f64::from(u16::MAX);
                self.hear(&Feedback { number, elapsed, loss }.emit());
            }
            Step::Expire {} => {
                if self.sender.next_timeout() < Time::NEVER {
                    self.now = self.now.max(self.sender.next_timeout());
                }
                self.sender.expire(self.now);
            }
            Step::ExpireNow {} => self.sender.expire(self.now),
        }
    }

    fn deliver(&mut self, delay: u8) {
        let Some(number) = self.last else { return };
        let data = Data { number, rtt: self.sender.rtt() };
        self.now += Duration::from_millis(delay.into());
        if let Some(report) = self.receive(&data.emit()) {
            self.now += Duration::from_millis(delay.into());
            self.hear(&report.emit());
        }
    }

    /// Handles bytes as the header of a datagram, and returns the resulting report.
    fn receive(&mut self, header: &[u8]) -> Option<Feedback> {
        let data = Data::parse(header);
        assert_eq!(data.is_ok(), header.len() == DATA_BYTES);
        let data = data.ok()?;
        assert_eq!(data.emit(), header, "what was read is not what was written");
        if let Some(rtt) = data.rtt {
            self.receiver.set_rtt(rtt);
        }
        let due = self.receiver.receive(self.now, data.number).unwrap_or(false);
        let report = self.receiver.report(self.now);
        assert!(report.is_some() || !due, "a report that was due is not there");
        let report = report?;
        assert!((0.0..=1.0).contains(&report.loss), "{report:?}");
        Some(report)
    }

    /// Handles bytes as a report.
    fn hear(&mut self, bytes: &[u8]) {
        let report = Feedback::parse(bytes);
        assert_eq!(report.is_ok(), bytes.len() == FEEDBACK_BYTES);
        let Ok(report) = report else { return };
        assert_eq!(report.emit(), bytes, "what was read is not what was written");
        let before = self.state();
        if self.sender.feedback(self.now, &report).is_err() {
            assert_eq!(self.state(), before, "a refused report changes something");
        }
    }

    /// The entire state of the sender that a driver can observe.
    fn state(&self) -> (usize, bool, Option<f64>, f64, Option<Duration>, Time) {
        let s = &self.sender;
        (s.multiplex(), s.over_share(), s.share(), s.loss(), s.rtt(), s.next_timeout())
    }

    fn check(&mut self) {
        self.latest = self.latest.max(self.now);
        let (sender, config) = (&self.sender, self.sender.config());
        let most = config.packing(0.0).most(config.mtu);
        assert!((1..=most).contains(&sender.multiplex()), "{} packets", sender.multiplex());
        assert!(sender.share().is_none_or(|share| share >= 0.0 && share.is_finite()));
        assert!((0.0..=1.0).contains(&sender.loss()));
        assert!((0.0..=1.0).contains(&self.receiver.loss(self.now)));
        let timer = sender.next_timeout();
        assert!(timer == Time::NEVER || timer <= self.latest + MAX_BACKOFF, "waits for ever");
    }
}
