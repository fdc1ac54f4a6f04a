//! What is known of each call: how its legs sound, second by second, and a line of a
//! file when it is over.

use crate::clock;
use crate::datapath::media::LegCounts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_gateway::reception::Counts;
use trunkline_gateway::{CallId, CallView, Gateway};
use trunkline_media::quality::emodel::{self, Codec, Parameters};

/// Calls that have ended and are still shown.
const SHOWN: usize = 50;

/// From mouth to ear, for the rating: a gateway sees neither the phones' buffers nor
/// how far they are.
const DELAY: Duration = Duration::from_millis(100);

/// A call, as it is shown and recorded.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct CallRow {
    /// Its Call-ID.
    pub call: String,
    /// Who calls.
    pub from: String,
    /// Who is called.
    pub to: String,
    /// `ringing`, `up` or `ended`.
    pub state: String,
    /// When its INVITE came, in seconds since 1970.
    pub began: f64,
    /// How long ago it was answered, or how long it was up; 0 if never.
    pub seconds: f64,
    /// Whether its media cross the overlay.
    pub overlay: bool,
    /// What comes from who calls, then what comes from who is called, of each stream.
    pub legs: Vec<LegRow>,
}

/// What comes to a gateway's port.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct LegRow {
    /// `caller` or `callee`: who it comes from.
    pub from: String,
    /// The port that it comes to.
    pub port: u16,
    /// Whether by the overlay.
    pub overlay: bool,
    /// Packets that should have come.
    pub expected: u64,
    /// Packets that came.
    pub packets: u64,
    /// Packets that did not.
    pub lost: u64,
    /// Packets that came too late to be played.
    pub late: u64,
    /// Packets that the overlay lost and got again.
    pub recovered: u64,
    /// Datagrams from elsewhere than signalled.
    pub strangers: u64,
    /// The share of the expected that was lost or late, in the last second.
    pub missed_now: Option<f64>,
    /// RFC 3550's, in milliseconds.
    pub jitter_ms: Option<f64>,
    /// The E-model's rating of the last second, as if it were G.711.
    pub r_now: Option<f64>,
    /// Of the whole call.
    pub r: Option<f64>,
    /// The mean opinion score that this stands for.
    pub mos: Option<f64>,
    /// The lowest of any second.
    pub r_least: Option<f64>,
}

#[derive(Clone, Debug, Default)]
struct Leg {
    counts: Counts,
    now: Option<Counts>,
    jitter: Option<Duration>,
    strangers: u64,
    is_over: bool,
    r_least: Option<f64>,
}

/// A call that has ended, whose last counts are on their way.
#[derive(Debug)]
struct Ending {
    view: CallView,
    at: Time,
    waits: usize,
}

/// See the module.
pub struct Ledger {
    legs: BTreeMap<u16, Leg>,
    ending: Vec<Ending>,
    ended: VecDeque<CallRow>,
    records: Option<File>,
}

impl Ledger {
    /// Records go to the end of the file at `records`.
    pub fn open(records: Option<&Path>) -> io::Result<Ledger> {
        let append = |path| OpenOptions::new().create(true).append(true).open(path);
        let records = records.map(append).transpose()?;
        Ok(Ledger { legs: BTreeMap::new(), ending: Vec::new(), ended: VecDeque::new(), records })
    }

    /// Takes what the packet thread sees; calls in which there were packets.
    pub fn see(&mut self, now: Time, gateway: &Gateway, legs: &[LegCounts]) -> Vec<CallId> {
        let _ = now;
        let mut alive = Vec::new();
        for leg in legs {
            let known = self.legs.entry(leg.port).or_default();
            let second = leg.counts.since(&known.counts);
            if second.packets + second.rtcp + second.other > 0 {
                alive.push(leg.port);
            }
            let rating = rating(&second);
            known.r_least = [known.r_least, rating].into_iter().flatten().reduce(f64::min);
            known.now = Some(second);
            known.take(leg);
        }
        let heard = |call: &CallView| call.ports.iter().flatten().any(|port| alive.contains(port));
        gateway.calls().filter(heard).map(|call| call.id).collect()
    }

    /// A leg is over, and this is all.
    pub fn leg_ended(&mut self, last: &LegCounts) {
        self.legs.entry(last.port).or_default().take(last);
        let has = |ending: &Ending| ending.view.ports.iter().flatten().any(|p| *p == last.port);
        let Some(n) = self.ending.iter().position(has) else {
            // Of a stream that was refused, or is over before its call.
            self.legs.remove(&last.port);
            return;
        };
        self.ending[n].waits -= 1;
        if self.ending[n].waits == 0 {
            let ending = self.ending.remove(n);
            self.record(&ending.view, ending.at);
        }
    }

    /// A call is over.
    pub fn ended(&mut self, view: &CallView) {
        let (at, waits) = (clock::now(), view.ports.len() * 2);
        match waits {
            0 => self.record(view, at),
            _ => self.ending.push(Ending { view: view.clone(), at, waits }),
        }
    }

    fn record(&mut self, view: &CallView, at: Time) {
        let row = self.row(view, at, "ended");
        for port in view.ports.iter().flatten() {
            self.legs.remove(port);
        }
        if let Some(file) = &mut self.records
            && let Ok(mut line) = serde_json::to_vec(&row)
        {
            line.push(b'\n');
            if let Err(error) = file.write_all(&line) {
                tracing::warn!(%error, "a call's record could not be written");
            }
        }
        if self.ended.len() == SHOWN {
            self.ended.pop_front();
        }
        self.ended.push_back(row);
    }

    /// The calls there are, then those that ended last, latest first.
    pub fn rows(&self, now: Time, gateway: &Gateway) -> Vec<CallRow> {
        let state = |call: &CallView| if call.answered.is_some() { "up" } else { "ringing" };
        let live = gateway.calls().map(|call| self.row(&call, now, state(&call)));
        live.chain(self.ended.iter().rev().cloned()).collect()
    }

    fn row(&self, view: &CallView, at: Time, state: &str) -> CallRow {
        let ago = clock::now().since(view.since).as_secs_f64();
        let legs = view.ports.iter().flat_map(|ports| ports.iter().zip(["caller", "callee"]));
        CallRow {
            call: view.name.clone(),
            from: view.from.clone(),
            to: view.to.clone(),
            state: state.into(),
            began: clock::since_epoch() as f64 / 1e9 - ago,
            seconds: view.answered.map_or(0.0, |answered| at.since(answered).as_secs_f64()),
            overlay: view.is_over,
            legs: legs
                .map(|(port, from)| {
                    let leg = self.legs.get(port).cloned().unwrap_or_default();
                    leg.row(*port, from)
                })
                .collect(),
        }
    }
}

impl Leg {
    fn take(&mut self, from: &LegCounts) {
        (self.counts, self.jitter) = (from.counts, from.jitter);
        (self.strangers, self.is_over) = (from.strangers, from.is_over);
    }

    fn row(&self, port: u16, from: &str) -> LegRow {
        let Counts { expected, packets, late, recovered, .. } = self.counts;
        let r = rating(&self.counts);
        LegRow {
            from: from.into(),
            port,
            overlay: self.is_over,
            expected,
            packets,
            lost: self.counts.lost(),
            late,
            recovered,
            strangers: self.strangers,
            missed_now: self.now.as_ref().and_then(missed),
            jitter_ms: self.jitter.map(|jitter| jitter.as_secs_f64() * 1e3),
            r_now: self.now.as_ref().and_then(rating),
            r,
            mos: r.map(emodel::mos),
            r_least: self.r_least,
        }
    }
}

/// The share of what should have come that was lost or late; `None` of nothing.
fn missed(counts: &Counts) -> Option<f64> {
    let missed = counts.lost() + counts.late;
    (counts.expected > 0).then(|| (missed as f64 / counts.expected as f64).min(1.0))
}

/// How it sounds, by the E-model.
fn rating(counts: &Counts) -> Option<f64> {
    let share = missed(counts)?;
    let lost = counts.lost();
    let burst = emodel::burst_ratio_of(counts.expected, lost, counts.gaps.min(lost));
    let parameters = Parameters::default()
        .with_codec(Codec::G711_PLC)
        .with_delay(DELAY)
        .with_loss(share, burst.max(1.0));
    Some(emodel::rate(&parameters).r)
}
