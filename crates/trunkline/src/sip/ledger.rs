//! State of each call: how its legs sound, second by second, and a line in a file when it has
//! ended.

use super::records::Records;
use crate::clock;
use crate::datapath::media::LegCounts;
use crate::datapath::reports::Said;
use crate::operate::protocol::{Call, CallEnd, CallLeg};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_gateway::reception::Counts;
use trunkline_gateway::{CallOutcome, CallView, Gateway};
use trunkline_media::quality::emodel::{self, Codec, Parameters};

/// Number of ended calls that are still shown.
const SHOWN: usize = 50;

/// Assumed mouth-to-ear delay for the rating, however long a phone waits for slow packets: a gateway
/// can't see the phones' buffers or their distance.
const DELAY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Default)]
struct Leg {
    counts: Counts,
    now: Option<Counts>,
    jitter: Option<Duration>,
    clock_rate: Option<u32>,
    said: Option<Said>,
    unexpected_source: u64,
    too_large: u64,
    /// Whether it was said of this leg's call that packets are too large.
    is_told: bool,
    is_over: bool,
    r_min: Option<f64>,
    /// Time at which media were last seen to arrive.
    last: Option<Time>,
}

/// News in counts of the packet thread.
#[derive(Debug, Default)]
pub struct Seen {
    /// Ports at which packets have arrived.
    pub alive: Vec<u16>,
    /// Ports at which packets were too large for the overlay, for the first time in a call.
    pub too_large: Vec<u16>,
}

/// Time that the last counts of a call may take to arrive before it is recorded with the previous
/// ones.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// A call that has ended but lacks its final counts.
#[derive(Debug)]
struct Ending {
    view: CallView,
    outcome: CallOutcome,
    at: Time,
    waits: usize,
}

/// The legs of calls, the calls that have ended, and the file of their records.
pub struct Ledger {
    legs: BTreeMap<u16, Leg>,
    ending: Vec<Ending>,
    ended: VecDeque<Call>,
    /// Number of ended calls by outcome.
    outcomes: BTreeMap<&'static str, u64>,
    records: Option<Records>,
}

impl Ledger {
    /// Opens a ledger that appends records to the file at `records`, if one is given.
    pub fn open(records: Option<&Path>) -> io::Result<Ledger> {
        let records = records.map(Records::open).transpose()?;
        let (legs, ending, ended) = (BTreeMap::new(), Vec::new(), VecDeque::new());
        let outcomes = OUTCOMES.iter().map(|outcome| (*outcome, 0)).collect();
        Ok(Ledger { legs, ending, ended, outcomes, records })
    }

    /// Processes the packet thread's counts.
    pub fn see(&mut self, legs: &[LegCounts]) -> Seen {
        let now = clock::now();
        while let Some(n) = self.ending.iter().position(|e| now.since(e.at) > PATIENCE) {
            let ending = self.ending.remove(n);
            self.record(&ending);
        }
        let mut seen = Seen::default();
        for leg in legs {
            let known = self.legs.entry(leg.port).or_default();
            let second = leg.counts.since(&known.counts);
            if second.packets + second.rtcp + second.other > 0 {
                seen.alive.push(leg.port);
            }
            if leg.too_large > 0 && !known.is_told {
                seen.too_large.push(leg.port);
            }
            // A phone that holds a call continues to send RTCP.
            if second.packets + second.other > 0 {
                known.last = Some(now);
            }
            let rating = rating(&second);
            known.r_min = [known.r_min, rating].into_iter().flatten().reduce(f64::min);
            known.now = Some(second);
            known.take(leg);
        }
        seen
    }

    /// Notes that packets of the call with these ports are said to be too large; false if that was
    /// said before.
    pub fn tell(&mut self, ports: &[[u16; 2]]) -> bool {
        let mut is_new = false;
        for port in ports.iter().flatten() {
            let leg = self.legs.entry(*port).or_default();
            is_new |= !std::mem::replace(&mut leg.is_told, true);
        }
        is_new
    }

    /// Processes the final counts of a leg that has ended.
    pub fn leg_ended(&mut self, last: &LegCounts) {
        self.legs.entry(last.port).or_default().take(last);
        let has = |ending: &Ending| ending.view.ports.iter().flatten().any(|p| *p == last.port);
        let Some(n) = self.ending.iter().position(has) else {
            // The stream was refused, or ended before its call.
            self.legs.remove(&last.port);
            return;
        };
        self.ending[n].waits -= 1;
        if self.ending[n].waits == 0 {
            let ending = self.ending.remove(n);
            self.record(&ending);
        }
    }

    /// Number of ended calls by outcome, in the words of the records.
    pub fn ended_by_outcome(&self) -> Vec<(&'static str, u64)> {
        self.outcomes.iter().map(|(outcome, n)| (*outcome, *n)).collect()
    }

    /// Whether all ended calls have been recorded.
    pub fn is_settled(&self) -> bool {
        self.ending.is_empty()
    }

    /// Records a call that has ended, once its final counts are in.
    pub fn ended(&mut self, view: CallView, outcome: CallOutcome) {
        *self.outcomes.entry(told(outcome).0).or_default() += 1;
        let (at, waits) = (clock::now(), view.ports.len() * 2);
        let ending = Ending { view, outcome, at, waits };
        match waits {
            0 => self.record(&ending),
            _ => self.ending.push(ending),
        }
    }

    fn record(&mut self, Ending { view, outcome, at, .. }: &Ending) {
        let mut row = self.row(view, *at, "ended");
        let (said, status) = told(*outcome);
        (row.outcome, row.status) = (Some(said.into()), status);
        row.ended = Some(row.began + at.since(view.since).as_secs_f64());
        for port in view.ports.iter().flatten() {
            self.legs.remove(port);
        }
        if let Some(records) = &mut self.records {
            records.add(&row);
        }
        if self.ended.len() == SHOWN {
            self.ended.pop_front();
        }
        self.ended.push_back(row);
    }

    /// Current calls, then the calls that ended last, latest first: `count` of them from number
    /// `from` on, and whether there are more.
    pub fn rows(&self, gateway: &Gateway, from: usize, count: usize) -> (Vec<Call>, bool) {
        let (now, live) = (clock::now(), gateway.stats().live);
        let state = |call: &CallView| if call.answered.is_some() { "up" } else { "ringing" };
        let up = by_start(gateway).into_iter().skip(from);
        let up = up.map(|call| self.row(&call, now, state(&call)));
        let over = self.ended.iter().rev().skip(from.saturating_sub(live)).cloned();
        let is_more = live + self.ended.len() > from.saturating_add(count);
        (up.chain(over).take(count).collect(), is_more)
    }

    fn row(&self, view: &CallView, at: Time, state: &str) -> Call {
        let ago = clock::now().since(view.since).as_secs_f64();
        let began = clock::since_epoch() as f64 / 1e9 - ago;
        let leg = |port: &u16| self.legs.get(port).cloned().unwrap_or_default();
        let silent = |leg: &Leg| {
            let since = leg.last.max(view.answered).filter(|_| view.answered.is_some());
            since.map(|since| at.since(since).as_secs_f64())
        };
        let legs = |[caller, callee]: &[u16; 2]| {
            let (a, b) = (leg(caller), leg(callee));
            let mut rows = [a.row(*caller, "caller", &b), b.row(*callee, "callee", &a)];
            (rows[0].silent_s, rows[1].silent_s) = (silent(&a), silent(&b));
            rows
        };
        Call {
            call: view.name.clone(),
            from: view.from.clone(),
            to: view.to.clone(),
            state: state.into(),
            began,
            answered: view.answered.map(|at| began + at.since(view.since).as_secs_f64()),
            ended: None,
            outcome: None,
            status: None,
            seconds: view.answered.map_or(0.0, |answered| at.since(answered).as_secs_f64()),
            overlay: view.is_over,
            local: view.is_local,
            legs: view.ports.iter().flat_map(legs).collect(),
        }
    }
}

/// All current calls, the one that began first being the first.
pub fn by_start(gateway: &Gateway) -> Vec<CallView> {
    let mut calls: Vec<CallView> = gateway.calls().collect();
    // Calls that began at the same moment keep their order from one page to the next.
    calls.sort_by_key(|call| (call.since, call.id));
    calls
}

/// All outcomes of calls, in the words of the records.
const OUTCOMES: [&str; 9] = [
    "caller-hung-up",
    "callee-hung-up",
    "cancelled",
    "unanswered",
    "refused",
    "idle",
    "stopped",
    "operator-hung-up",
    "refused-by-trunk",
];

/// How a call has ended, in the words of the records, and its status code.
fn told(outcome: CallOutcome) -> (&'static str, Option<u16>) {
    match outcome {
        CallOutcome::CallerHungUp => ("caller-hung-up", None),
        CallOutcome::CalleeHungUp => ("callee-hung-up", None),
        CallOutcome::Refused(487) => ("cancelled", Some(487)),
        CallOutcome::Refused(408) => ("unanswered", Some(408)),
        CallOutcome::Refused(code) => ("refused", Some(code)),
        CallOutcome::Unanswered => ("unanswered", Some(408)),
        CallOutcome::Idle => ("idle", None),
        CallOutcome::Stopped => ("stopped", None),
        CallOutcome::Operator => ("operator-hung-up", None),
        CallOutcome::Trunk => ("refused-by-trunk", Some(503)),
    }
}

impl Leg {
    fn take(&mut self, from: &LegCounts) {
        (self.counts, self.jitter) = (from.counts, from.jitter);
        (self.clock_rate, self.said) = (from.clock_rate, from.said);
        (self.unexpected_source, self.is_over) = (from.unexpected_source, from.is_over);
        self.too_large = from.too_large;
    }

    /// Row of this leg as shown; the reception report of its end comes from `other`.
    fn row(&self, port: u16, from: &str, other: &Leg) -> CallLeg {
        let Counts { expected, packets, late, recovered, .. } = self.counts;
        let r = rating(&self.counts);
        CallLeg {
            from: from.into(),
            port,
            overlay: self.is_over,
            expected,
            packets,
            other: self.counts.other,
            lost: self.counts.lost(),
            late,
            recovered,
            silent_s: None,
            unexpected_source: self.unexpected_source,
            // They were to leave at the other leg.
            too_large: other.too_large,
            missed_now: self.now.as_ref().and_then(missed),
            jitter_ms: self.jitter.map(|jitter| jitter.as_secs_f64() * 1e3),
            extra_delay_ms: (self.counts.timed > 0)
                .then(|| self.counts.extra_delay().as_secs_f64() * 1e3),
            r_now: self.now.as_ref().and_then(rating),
            r,
            mos: r.map(emodel::mos),
            r_min: self.r_min,
            says: self.said.map(|said| said.row(other)),
        }
    }
}

impl Said {
    /// Row of this report as shown; it describes reception of the packets counted in `heard`.
    fn row(&self, heard: &Leg) -> CallEnd {
        let millis = |of: Duration| of.as_secs_f64() * 1e3;
        CallEnd {
            lost: self.lost.into(),
            lost_share: (self.of > 0)
                .then(|| (f64::from(self.lost.max(0)) / self.of as f64).min(1.0)),
            lost_now: self.lost_now,
            jitter_ms: heard.clock_rate.map(|rate| f64::from(self.jitter) / f64::from(rate) * 1e3),
            round_trip_ms: self.round_trip.map(millis),
        }
    }
}

/// Share of the expected packets that were lost or late; `None` if none were expected.
fn missed(counts: &Counts) -> Option<f64> {
    let missed = counts.lost() + counts.late;
    (counts.expected > 0).then(|| (missed as f64 / counts.expected as f64).min(1.0))
}

/// E-model rating of a leg with these counts.
fn rating(counts: &Counts) -> Option<f64> {
    let share = missed(counts)?;
    let lost = counts.lost();
    let burst = emodel::burst_ratio_of(counts.expected, lost, counts.gaps.min(lost));
    let parameters = Parameters::default()
        .with_codec(Codec::G711_PLC)
        .with_delay(DELAY)
        .with_loss(share, burst.max(1.0));
    // Below 0 the rating has no meaning either.
    Some(emodel::rate(&parameters).r.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rating_pays_for_what_is_missed_alone() {
        let good = Counts { expected: 50, packets: 50, timed: 50, ..Counts::default() };
        let waits = |ms: u64| Counts { wait: 50 * ms * 1_000_000, ..good };
        let usual = rating(&good).unwrap();
        assert!((90.0..91.0).contains(&usual), "{usual}");
        assert_eq!(rating(&waits(300)), Some(usual), "the delay is shown beside it");
        let late = rating(&Counts { late: 5, ..good }).unwrap();
        assert!((60.0..68.0).contains(&late), "{late}");
    }
}
