//! TFRC: a sender and a receiver with arbitrary input, on a clock that jumps back and forth.
//!
//! Invariants: no panic; the allowed rate is a number within its bounds, and so are all values of a
//! report; no timeout is infinite; a rejected message changes nothing; parsing inverts emitting.

pub mod seeds;

use crate::script::{micros, steps};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Reader;
use trunkline_rate::tfrc::{
    Config, DATA_BYTES, Data, FEEDBACK_BYTES, Feedback, MAX_BACKOFF, Measure, Receiver, Sender, fr,
    md,
};

steps! {
    /// A step of the script.
    Step {
        /// The clock advances by `n` units.
        0 Sleep { unit: u8, n: u8 }
        /// The clock jumps to `n` units after the start, which may be backwards.
        1 Jump { unit: u8, n: u8 }
        /// The sender waits until it may send, and sends `bytes`.
        2 Send { bytes: u16 }
        /// The sender is polled now, which may be too early.
        3 SendNow { bytes: u16 }
        /// The last packet reaches the receiver, and its report reaches the sender.
        4 Deliver { delay: u8, bytes: u16 }
        /// The receiver gets arbitrary bytes as the header of a packet.
        5 Data { header: Vec<u8>, bytes: u16 }
        /// The sender gets arbitrary bytes as a report.
        6 Feedback { report: Vec<u8> }
        /// The sender gets a report about the last packet with an arbitrary rate and loss.
        7 Claim { elapsed: u8, rate: u16, loss: u16 }
        /// The clock advances until the sender's timer expires.
        8 Expire {}
        /// The timer is checked now, which may be too early.
        9 ExpireNow {}
    }
}

/// Number of bytes before the steps that choose the variant.
pub const SETTINGS: usize = 1;

const FLOW: u32 = 7;

/// Parameters by number: each variant, and each option that no variant uses.
fn config(which: u8) -> Config {
    let doubles = md::Minimum { doubles: true, ..md::Minimum::PAPER };
    let draft = Some(fr::Restart::DRAFT);
    match which % 9 {
        0 => Config::basic(1_400),
        1 => Config { remembered: 4, damped: false, ..Config::basic(0) },
        2 => Config::small_packets(160),
        3 => Config::faster_restart(20),
        4 => Config { restart: draft, ..Config::faster_restart(160) },
        5 => Config::minimum_delay(160),
        6 => Config { minimum: Some(doubles), ..Config::minimum_delay(160) },
        7 => Config::rfc5348(1_460),
        _ => Config {
            granularity: Duration::from_millis(10),
            measure: Measure::WithoutIdle,
            max_rate: 50_000.0,
            ..Config::basic(9_000)
        },
    }
}

struct World {
    now: Time,
    /// The latest time so far.
    latest: Time,
    sender: Sender,
    receiver: Receiver,
    last: Option<Data>,
}

/// Runs a script: a byte that chooses the variant, then steps.
pub fn run(script: &[u8]) {
    let mut r = Reader::new(script);
    let Ok(which) = r.u8() else { return };
    let config = config(which);
    let now = Time::from_millis(1);
    let (sender, receiver) = (Sender::new(config, FLOW, now), Receiver::new(config, FLOW));
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
            Step::Send { bytes } => {
                self.now = self.now.max(self.sender.next_send());
                self.send(bytes);
            }
            Step::SendNow { bytes } => self.send(bytes),
            Step::Deliver { delay, bytes } => {
                let Some(data) = self.last else { return };
                self.now += Duration::from_millis(delay.into());
                if let Some(report) = self.receive(&data.emit(), bytes) {
                    self.now += Duration::from_millis(delay.into());
                    self.hear(&report.emit());
                }
            }
            Step::Data { ref header, bytes } => {
                self.receive(header, bytes);
            }
            Step::Feedback { ref report } => self.hear(report),
            Step::Claim { elapsed, rate, loss } => {
                let Some(data) = self.last else { return };
                let claim = Feedback {
                    flow: FLOW,
                    acknowledged: data.number,
                    elapsed: Duration::from_millis(elapsed.into()),
                    receive_rate: f64::from(rate) * f64::from(rate),
                    loss: f64::from(loss) / f64::from(u16::MAX),
                };
                self.hear(&claim.emit());
            }
            Step::Expire {} => {
                self.now = self.now.max(self.sender.next_timeout());
                self.sender.expire(self.now);
            }
            Step::ExpireNow {} => self.sender.expire(self.now),
        }
    }

    fn send(&mut self, bytes: u16) {
        let may = self.sender.next_send() <= self.now;
        let sent = self.sender.send(self.now, bytes.into());
        assert_eq!(sent.is_ok(), may, "next_send says otherwise");
        self.last = sent.ok().or(self.last);
    }

    /// Handles bytes as the header of a packet, and returns the resulting report.
    fn receive(&mut self, header: &[u8], bytes: u16) -> Option<Feedback> {
        let data = Data::parse(header);
        assert_eq!(data.is_ok(), header.len() == DATA_BYTES);
        let data = data.ok()?;
        assert_eq!(data.emit(), header, "what was read is not what was written");
        let due = self.receiver.receive(self.now, &data, bytes.into()).unwrap_or(false);
        let report = self.receiver.report(self.now);
        assert!(report.is_some() || !due, "a report that was due is not there");
        let report = report?;
        assert!((0.0..=1.0).contains(&report.loss), "{report:?}");
        assert!(report.receive_rate >= 0.0 && report.receive_rate.is_finite(), "{report:?}");
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
    fn state(&self) -> ([f64; 3], Option<Duration>, [Time; 2]) {
        let s = &self.sender;
        ([s.rate(), s.calculated(), s.loss()], s.rtt(), [s.next_send(), s.next_timeout()])
    }

    fn check(&mut self) {
        self.latest = self.latest.max(self.now);
        let (sender, config) = (&self.sender, self.sender.config());
        let segment = f64::from(config.segment.max(1));
        let (rate, most) = (sender.rate(), config.max_rate);
        let least = segment / MAX_BACKOFF.as_secs_f64();
        assert!((least.min(most)..=most).contains(&rate), "{rate} is not {least} to {most}");
        assert!(sender.calculated() > 0.0 && (0.0..=1.0).contains(&sender.loss()));
        assert!((0.0..=1.0).contains(&self.receiver.loss(self.now)));
        // The longest wait is that of a packet at the lowest rate to send, and four of the longest
        // round trips for a report.
        let longest = MAX_BACKOFF.as_secs_f64() * f64::from(u16::MAX) / segment;
        let longest = Duration::from_secs_f64(longest) + Duration::from_millis(10);
        assert!(sender.next_send() <= self.latest + longest, "waits for ever to send");
        assert!(sender.next_timeout() <= self.latest + 4 * MAX_BACKOFF, "waits for ever");
    }
}
