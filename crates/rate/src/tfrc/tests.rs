mod hostile;
mod start;
mod steady;
mod variants;

use super::*;
use trunkline_base::Time;

const FLOW: u32 = 7;
/// Round-trip time of [`Path`].
const RTT: Duration = Duration::from_millis(100);

#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-6 * want.abs().max(1e-3), "{got} is not {want}");
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Time {
    Time::from_millis(n)
}

/// A sender with synthetic reports, on a path of [`RTT`].
struct Reports {
    sender: Sender,
    now: Time,
}

impl Reports {
    fn new(config: Config) -> Reports {
        Reports { sender: Sender::new(config, FLOW, Time::ZERO), now: Time::ZERO }
    }

    /// Starts with a first report, of a receive rate of 0 and no loss.
    fn begun(config: Config) -> Reports {
        let mut r = Reports::new(config);
        r.round(0.0, 0.0);
        r
    }

    /// Sends a packet as soon as it is allowed, and no earlier than now.
    fn send(&mut self) -> u16 {
        self.now = self.now.max(self.sender.next_send());
        let bytes = usize::from(self.sender_segment());
        self.sender.send(self.now, bytes).unwrap().number
    }

    fn sender_segment(&self) -> u16 {
        self.sender.config().segment
    }

    /// Sends a packet and, a round trip later, reports on it; returns the rate.
    fn round(&mut self, receive_rate: f64, loss: f64) -> f64 {
        let acknowledged = self.send();
        self.now += RTT;
        self.report(acknowledged, receive_rate, loss)
    }

    fn report(&mut self, acknowledged: u16, receive_rate: f64, loss: f64) -> f64 {
        let elapsed = Duration::ZERO;
        let report = Feedback { flow: FLOW, acknowledged, elapsed, receive_rate, loss };
        self.sender.feedback(self.now, &report).unwrap();
        self.sender.rate()
    }

    /// Sends nothing until the nofeedback timer has expired `expiries` times; returns the rate.
    fn wait(&mut self, expiries: u32) -> f64 {
        for _ in 0..expiries {
            self.now = self.sender.next_timeout();
            self.sender.expire(self.now);
        }
        self.sender.rate()
    }
}

/// Sender and receiver on a path that loses only selected packets.
struct Path {
    sender: Sender,
    receiver: Receiver,
    /// Reports in flight, and their arrival times.
    reports: std::collections::VecDeque<(Time, Feedback)>,
}

impl Path {
    fn new(config: Config) -> Path {
        Path {
            sender: Sender::new(config, FLOW, Time::ZERO),
            receiver: Receiver::new(config, FLOW),
            reports: std::collections::VecDeque::new(),
        }
    }

    /// Processes everything at the sender until `until`: reports and the nofeedback timer.
    fn listen(&mut self, until: Time) {
        loop {
            let report = self.reports.front().map_or(Time::NEVER, |r| r.0);
            let timer = self.sender.next_timeout();
            if report.min(timer) > until {
                return;
            }
            if timer < report {
                self.sender.expire(timer);
            } else if let Some((at, report)) = self.reports.pop_front() {
                self.sender.feedback(at, &report).unwrap();
            }
        }
    }

    /// Sends packets as soon as they are allowed, from `from` until `until`; `lost` selects by
    /// their count those that are lost. Returns the number of packets.
    fn send(&mut self, from: Time, until: Time, mut lost: impl FnMut(u64) -> bool) -> u64 {
        let mut now = from;
        let mut count = 0;
        loop {
            // A report may move the time of the next packet.
            let next = loop {
                let next = self.sender.next_send().max(now);
                let report = self.reports.front().map_or(Time::NEVER, |r| r.0);
                let event = report.min(self.sender.next_timeout());
                if event > next {
                    break next;
                }
                if event > until {
                    return count;
                }
                self.listen(event);
                now = now.max(event);
            };
            now = next;
            if now >= until {
                return count;
            }
            let bytes = usize::from(self.sender.config().segment);
            let data = self.sender.send(now, bytes).unwrap();
            if !lost(count) {
                let there = now + RTT / 2;
                if self.receiver.receive(there, &data, bytes).unwrap() {
                    let report = self.receiver.report(there).unwrap();
                    self.reports.push_back((there + RTT / 2, report));
                }
            }
            count += 1;
        }
    }
}
