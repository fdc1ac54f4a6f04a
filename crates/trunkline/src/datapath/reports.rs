//! Reception reports of a call's ends (RTCP, RFC 3550 §6.4), read as they pass.

use std::time::Duration;
use trunkline_base::Time;
use trunkline_media::rtcp::Control;

/// A longer round trip is an error or a false report.
const LONGEST: Duration = Duration::from_secs(10);
/// Tolerance for an end that counts in milliseconds and may overstate its delay.
const COARSE: Duration = Duration::from_millis(5);

/// Last reception report of an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    /// Cumulative number of packets lost (RFC 3550); negative if duplicates exceed losses.
    pub lost: i32,
    /// Number of packets expected at its end when it reported.
    pub of: u64,
    /// Share of packets lost between its previous report and this one.
    pub lost_now: f64,
    /// Interarrival jitter at the end, in units of the payload's clock.
    pub jitter: u32,
    /// Round-trip time to the end, measured with the last sender's report that it received.
    pub round_trip: Option<Duration>,
}

/// Reports that pass one leg, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reports {
    /// The last sender's reports sent to the end, by timestamp: the newest may cross with a
    /// reception report about the previous one.
    sent: [Option<(u32, Time)>; 4],
    said: Option<Said>,
}

impl Reports {
    /// Last reception report of the end, if there is one.
    pub fn said(&self) -> Option<Said> {
        self.said
    }

    /// Processes an RTCP packet sent to the end.
    pub fn goes(&mut self, now: Time, control: &Control) {
        if let Some(report) = control.report {
            self.sent.rotate_right(1);
            self.sent[0] = Some((report.stamp(), now));
        }
    }

    /// Processes an RTCP packet from the end, to which `of` packets of its stream have been sent so
    /// far.
    pub fn comes(&mut self, now: Time, control: &Control, of: u64) {
        let Some(heard) = control.reception else { return };
        let before = self.said.and_then(|said| said.round_trip);
        let mut sent = self.sent.iter().flatten();
        let known = sent.find(|(stamp, _)| heard.report == *stamp && *stamp != 0);
        let round_trip = known.and_then(|(_, at)| {
            let held = Duration::from_secs_f64(f64::from(heard.since) / 65_536.0);
            let trip = (now.since(*at) + COARSE).checked_sub(held)?;
            Some(trip.saturating_sub(COARSE)).filter(|trip| *trip < LONGEST)
        });
        self.said = Some(Said {
            lost: heard.lost,
            of,
            lost_now: f64::from(heard.fraction_lost) / 256.0,
            jitter: heard.jitter,
            round_trip: round_trip.or(before),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_media::rtcp::{Reception, SenderInfo};

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// A sender's report with this NTP timestamp.
    fn sender(ntp: u64) -> Control {
        let report = SenderInfo { ssrc: 1, ntp, timestamp: 0, packets: 9, octets: 9 };
        Control { ssrc: 1, report: Some(report), reception: None, bye: false }
    }

    /// A reception report about it, half a second later.
    fn receiver(report: u32) -> Control {
        let reception = Reception {
            source: 1,
            fraction_lost: 64,
            lost: -3,
            highest: 9,
            jitter: 80,
            report,
            since: 32_768,
        };
        Control { ssrc: 2, report: None, reception: Some(reception), bye: false }
    }

    #[test]
    fn the_way_and_back_is_without_what_the_end_waited() {
        let mut reports = Reports::default();
        reports.comes(at(100), &receiver(0), 9);
        assert_eq!(
            reports.said(),
            Some(Said { lost: -3, of: 9, lost_now: 0.25, jitter: 80, round_trip: None })
        );
        reports.goes(at(1_000), &sender(7 << 16));
        // A report about another stamp, one too soon, and one too late.
        for (stamp, when) in [(8, 1_540), (7, 1_400), (7, 60_000)] {
            reports.comes(at(when), &receiver(stamp), 9);
            assert_eq!(reports.said().unwrap().round_trip, None);
        }
        reports.comes(at(1_540), &receiver(7), 9);
        let trip = |reports: &Reports| reports.said().unwrap().round_trip;
        assert_eq!(trip(&reports), Some(Duration::from_millis(40)));
        reports.comes(at(1_497), &receiver(7), 9);
        assert_eq!(trip(&reports), Some(Duration::ZERO));
        reports.comes(at(1_540), &receiver(7), 9);
        // The value survives a report without a stamp; and the newest sender's report may still be
        // in transit.
        reports.comes(at(1_600), &receiver(0), 9);
        assert_eq!(trip(&reports), Some(Duration::from_millis(40)));
        reports.goes(at(2_000), &sender(9 << 16));
        reports.goes(at(2_530), &sender(11 << 16));
        reports.comes(at(2_550), &receiver(9), 9);
        assert_eq!(trip(&reports), Some(Duration::from_millis(50)));
    }
}
