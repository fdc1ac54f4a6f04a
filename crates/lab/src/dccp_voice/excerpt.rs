//! Figure 3: sixteen seconds of a call, at the sender and at the listener.

use super::call::{Call, CallTrace, Codec, Path};
use super::fig1_2::{ALIKE, CLOSE, points as claim};
use super::grid::FIXED;
use super::transport;
use super::{PAPER, SEGMENT_FLOOR};
use crate::claim::{Bound, Claim, Measured, Verdict};
use crate::experiment::{Cells, Experiment, Figure, Inputs, Point, PointError, Sabotage, Size};
use crate::plot::{Axis, Draw, Mark, Panel, Panels, Series, Style};
use crate::table::{Cell, Column, Record, Table};
use std::time::Duration;
use trunkline_media::playout::optimal::PlayoutOutcome;
use trunkline_media::quality::reduced::{Rating, delay_impairment};
use trunkline_sim::agent::tfrc::Sent;

const COLUMNS: &[Column] = &[
    Column::text("transport").parameter(),
    Column::number("time_s", 1).parameter(),
    Column::number("active", 0),
    Column::number("encoded_kbit_s", 1),
    Column::number("waiting_packets", 0),
    Column::number("dropped_by_sender", 0),
    Column::number("lost", 0),
    Column::number("late", 0),
    Column::number("played", 0),
    Column::number("r", 1),
    Column::number("id", 1),
    Column::number("ie", 1),
];

/// The variants that are compared; the last one is this project's.
const SHOWN: [&str; 3] = ["tfrc-sp-fr", "tfrc-sp-fr-md", "tfrc-md-1-segment"];
/// The path of the paper's excerpt (section V).
const PATH: Path = Path { delay_ms: 150, loss: 0.0001, both: true };
/// Bins of time, in tenths of a second: 16 s.
const BINS: usize = 160;
const BIN: Duration = Duration::from_millis(100);
/// Number of bins up to each over which transient R is computed: a second.
const RECENT: usize = 10;
/// Why SP+FR+MD can't carry the call.
const TOO_FEW: &str = "Eight packets in 300 ms are 27 a second, and the codec sends 50.";
/// Most calls tried until one has lost a packet early over each variant.
const TRIES: u64 = 500;

/// The experiment behind figure 3.
pub fn experiment() -> Experiment {
    Experiment {
        paper: PAPER,
        name: "excerpt",
        revision: 3,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(|size, sabotage| vec![point(size, sabotage)]),
        figures: vec![fig3()],
        testbed: None,
    }
}

fn point(size: Size, sabotage: Sabotage) -> Point {
    Point {
        key: "sixteen-seconds".to_owned(),
        x: 0.0,
        figures: vec!["fig3"],
        weight: 1.0,
        measure: Box::new(move |inputs| measure(size, sabotage, inputs)),
    }
}

fn measure(size: Size, sabotage: Sabotage, inputs: &Inputs<'_>) -> Result<Cells, PointError> {
    let tries = size.pick(1, TRIES, TRIES);
    for n in 0..tries {
        let seed = inputs.seed.wrapping_add(n);
        let call = Call::draw(Codec::G729, 100, seed);
        let carry = |name| {
            let transport = transport::named(name, Codec::G729, sabotage);
            Ok(CallTimeline::new(&call, call.carry(&transport, &PATH, seed)?))
        };
        let all: Vec<CallTimeline> =
            SHOWN.into_iter().map(carry).collect::<Result<_, PointError>>()?;
        let lost = all.iter().map(|seen| seen.first_lost).max().flatten();
        let none = all.iter().any(|seen| seen.first_lost.is_none());
        let last = all[0].bins.len().saturating_sub(BINS);
        // Congestion avoidance begins with the first loss; the earlier that is, the more of it the
        // excerpt shows.
        let Some(from) = lost
            .filter(|from| !none && from + 50 < last / 2)
            .or_else(|| (n + 1 == tries).then_some(0))
        else {
            continue;
        };
        let begin = busiest(&all[0].bins, from + 50, last);
        let rows = all.iter().zip(SHOWN).flat_map(|(seen, name)| seen.rows(name, begin));
        return Ok(rows.collect());
    }
    Ok(Cells::new())
}

/// First bin of the excerpt in which SP+FR drops most packets, from `from` to `last`.
fn busiest(bins: &[Bin], from: usize, last: usize) -> usize {
    let dropped =
        |begin: &usize| bins[*begin..].iter().take(BINS).map(|bin| bin.dropped).sum::<usize>();
    (from..=last.max(from)).rev().max_by_key(dropped).unwrap_or(from)
}

/// Counters of a tenth of a second.
#[derive(Clone, Copy, Default)]
struct Bin {
    packets: usize,
    waiting: usize,
    dropped: usize,
    lost: usize,
    late: usize,
    played: usize,
    /// Sum of Id over the packets that were played.
    id: f64,
}

/// The fate of a call's packets over time.
struct CallTimeline {
    bins: Vec<Bin>,
    /// The bin in which the network first lost a packet.
    first_lost: Option<usize>,
}

impl CallTimeline {
    fn new(call: &Call, carried: CallTrace) -> CallTimeline {
        let best = call.best(&carried, FIXED).expect("a call has packets");
        let due: Vec<Duration> = call.due().collect();
        let place = |due: Duration| (due.as_nanos() / BIN.as_nanos()) as usize;
        let mut bins = vec![Bin::default(); due.last().map_or(0, |last| place(*last) + 1)];
        let mut first_lost = None;
        for (n, packet) in call.packets(&carried).enumerate() {
            let bin = &mut bins[place(due[n])];
            bin.packets += 1;
            bin.waiting = bin.waiting.max(waiting(call, &carried, n));
            let delay = delay_of(&best, packet.talkspurt);
            match (carried.sent[n], packet.delay, delay) {
                (Sent::At(_), None, _) => {
                    bin.lost += 1;
                    first_lost = first_lost.or(Some(place(due[n])));
                }
                (_, None, _) => bin.dropped += 1,
                (_, Some(taken), Some(delay)) if taken <= delay => {
                    bin.played += 1;
                    bin.id += delay_impairment(delay + FIXED);
                }
                _ => bin.late += 1,
            }
        }
        CallTimeline { bins, first_lost }
    }

    fn rows(&self, name: &'static str, begin: usize) -> impl Iterator<Item = Vec<Cell>> + '_ {
        let end = (begin + BINS).min(self.bins.len());
        (begin..end).map(move |n| {
            let bin = &self.bins[n];
            let recent = &self.bins[n.saturating_sub(RECENT - 1)..=n];
            let bits = 8 * bin.packets * Codec::G729.framing().payload();
            let counts = [bin.waiting, bin.dropped, bin.lost, bin.late, bin.played];
            let mut row: Vec<Cell> = vec![name.into(), (n as f64 / 10.0).into()];
            row.push(u64::from(bin.packets > 0).into());
            row.push((bits as f64 / 1e3 / BIN.as_secs_f64()).into());
            row.extend(counts.map(|count| Cell::from(count as u64)));
            let Rating { r, id, ie } = transient(recent);
            row.extend([r, id, ie].map(Cell::from));
            row
        })
    }
}

/// Rating of these bins alone: NaN during silence, and without Id if nothing is played.
fn transient(bins: &[Bin]) -> Rating {
    let of = |f: fn(&Bin) -> usize| bins.iter().map(f).sum::<usize>() as f64;
    let (packets, played) = (of(|b| b.packets), of(|b| b.played));
    if packets == 0.0 {
        return Rating::of(f64::NAN, f64::NAN);
    }
    let id = bins.iter().map(|b| b.id).sum::<f64>() / played.max(1.0);
    Rating::of(id, Codec::G729.coefficients().impairment(1.0 - played / packets))
}

/// Number of packets queued at the sender when the `n`th has become due.
fn waiting(call: &Call, carried: &CallTrace, n: usize) -> usize {
    let at = call.at(n);
    // A bounded queue has no packets from long ago, and those after `n` aren't due yet.
    let before = carried.sent[..=n].iter().rev().take(400);
    before
        .filter(|sent| match sent {
            Sent::At(left) => *left > at,
            Sent::Waits => true,
            Sent::Dropped => false,
        })
        .count()
}

fn delay_of(best: &PlayoutOutcome, talkspurt: u32) -> Option<Duration> {
    best.talkspurts.iter().find(|played| played.talkspurt == talkspurt)?.delay
}

fn of<'a>(table: &'a Table, name: &'static str) -> impl Iterator<Item = Record<'a>> + Clone {
    table.iter().filter(move |r| r.is("transport", name))
}

/// The sum of these columns over all rows of a variant.
fn total(table: &Table, name: &'static str, columns: &[&str]) -> f64 {
    let mut rows = of(table, name).peekable();
    if rows.peek().is_none() {
        return f64::NAN;
    }
    rows.map(|r| columns.iter().map(|c| r.number(c)).sum::<f64>()).sum()
}

/// Share of the packets that aren't played, in percent.
fn missed(table: &Table, name: &'static str) -> Measured {
    let missed = total(table, name, &["dropped_by_sender", "lost", "late"]);
    Measured::of_one_run(100.0 * missed / (missed + total(table, name, &["played"])))
}

/// Rating of a call whose packets meet nothing but the path's delay.
fn unimpaired() -> Rating {
    let delay = Duration::from_millis(PATH.delay_ms.into()) + FIXED;
    Rating::of(delay_impairment(delay), Codec::G729.coefficients().gamma1)
}

/// The largest value of a column over all rows of a variant outside of silence, less `than`.
fn most_above(table: &Table, name: &'static str, column: &str, than: f64) -> Measured {
    let values = of(table, name).map(|r| r.number(column)).filter(|value| value.is_finite());
    Measured::of_one_run(values.map(|value| value - than).fold(f64::NAN, f64::max))
}

/// The claims on what the paper sees over SP+FR: a full queue, delay, and loss.
fn unmodified() -> [Claim; 3] {
    [
        Claim {
            published: Some("the send buffer fills up, with five packets queued"),
            unit: "packets",
            measure: Box::new(|t| most_above(t, SHOWN[0], "waiting_packets", 0.0)),
            sabotage: "restart-with-such-a-floor",
            ..claim(
                "sp-fr-fills",
                "over SP+FR, five packets are queued at some time",
                Bound::within(5.0, 5.0, "the paper's five"),
            )
        },
        Claim {
            published: Some("additional queuing delays become evident in the increase of Id"),
            measure: Box::new(|t| most_above(t, SHOWN[0], "id", unimpaired().id)),
            sabotage: "restart-with-such-a-floor",
            ..claim(
                "sp-fr-delays",
                "over SP+FR, Id rises by more than what the path's delay makes it",
                Bound::above(3.0, ALIKE),
            )
        },
        Claim {
            published: Some("when the send buffer is full, Ie starts increasing"),
            measure: Box::new(|t| most_above(t, SHOWN[0], "ie", unimpaired().ie)),
            sabotage: "restart-with-such-a-floor",
            ..claim(
                "sp-fr-loses",
                "over SP+FR, Ie rises above the codec's λ1 by more than 10 (by the paper's formula up \
                 to 140.8, where nothing is played)",
                Bound::above(10.0, CLOSE),
            )
        },
    ]
}

/// The claim that nothing impairs a call over a variant with a minimum.
fn unimpaired_over(id: &'static str, name: &'static str) -> Claim {
    let ours = name == SHOWN[2];
    Claim {
        published: Some("there is no voice quality impairment"),
        reading: if ours { SEGMENT_FLOOR } else { "" },
        measure: Box::new(move |t| {
            let best = unimpaired().r;
            let less = of(t, name).map(|r| best - r.number("r")).filter(|less| less.is_finite());
            Measured::of_one_run(less.fold(f64::NAN, f64::max))
        }),
        expected: if ours { Verdict::Holds } else { Verdict::Fails },
        why: if ours { "" } else { TOO_FEW },
        sabotage: "no-floor",
        ..claim(
            id,
            if ours {
                "with a floor of one segment, R over any second is what the path's delay makes it"
            } else {
                "over SP+FR+MD, R over any second is what the path's delay makes it"
            },
            Bound::at_most(3.0, ALIKE),
        )
    }
}

fn missed_packets() -> Vec<Claim> {
    vec![
        Claim {
            published: Some("after the send buffer is full, further packets are dropped"),
            unit: "%",
            measure: Box::new(|t| missed(t, SHOWN[0])),
            sabotage: "idle-excluded",
            ..claim(
                "sp-fr-drops",
                "SP+FR misses more than a tenth of the packets",
                Bound::above(10.0, "the paper shows it, without a number"),
            )
        },
        Claim {
            published: Some("transmission occurs without losses or delays"),
            unit: "%",
            measure: Box::new(|t| missed(t, SHOWN[1])),
            expected: Verdict::Fails,
            why: TOO_FEW,
            sabotage: "no-floor",
            ..claim(
                "md-does-not",
                "SP+FR+MD misses at most 1 %",
                Bound::at_most(1.0, "the paper's zero, and a packet that the path loses"),
            )
        },
        Claim {
            published: Some("transmission occurs without losses or delays"),
            reading: SEGMENT_FLOOR,
            unit: "%",
            measure: Box::new(|t| missed(t, SHOWN[2])),
            why: "4,867 B/s is nearly five times the codec's rate.",
            sabotage: "no-floor",
            ..claim(
                "one-segment-does-not",
                "with a floor of one segment of 1,460 bytes per round trip, at most 1 % is missed",
                Bound::at_most(1.0, "as for the paper's own floor"),
            )
        },
    ]
}

fn fig3() -> Figure {
    let mut claims = missed_packets();
    claims.extend(unmodified());
    claims.push(unimpaired_over("md-unimpaired", SHOWN[1]));
    claims.push(unimpaired_over("one-segment-unimpaired", SHOWN[2]));

    Figure {
        name: "fig3",
        title: "Sixteen seconds of a call over TFRC, with and without the paper's changes",
        section: "V",
        caption: "G.729 over a path of 150 ms that loses 0.01 %, after the first loss: activity of \
               the talker, output of the codec, packets queued and dropped at the sender, and R \
               over the last second. The excerpt is where SP+FR drops most. One call: no value \
               has an interval.",
        chart: draw(),
        claims,
    }
}

fn draw() -> Draw {
    Box::new(|table| {
        let lines = |column: &'static str| {
            let line = |(n, name): (usize, &&'static str)| Series {
                name: (*name).to_owned(),
                style: Style::nth(n).stepped(),
                points: of(table, name)
                    .map(|r| Mark { x: r.number("time_s"), y: r.number(column), interval: None })
                    .collect(),
            };
            SHOWN.iter().enumerate().map(line).collect::<Vec<_>>()
        };
        let times = || table.iter().map(|r| r.number("time_s"));
        let from = times().fold(f64::INFINITY, f64::min);
        let from = if from.is_finite() { from } else { 0.0 };
        let panel = |label: &str, range, step, column| {
            Panel::new(Axis::linear(label, range, step), lines(column))
        };
        Panels {
            title: "G.729, 150 ms, 0.01 % lost".to_owned(),
            x: Axis::linear("time (s)", (from, from + BINS as f64 / 10.0), 2.0),
            panels: vec![
                panel("active", (0.0, 1.5), 1.0, "active"),
                panel("kbit/s", (0.0, 12.0), 4.0, "encoded_kbit_s"),
                panel("waiting", (0.0, 6.0), 2.0, "waiting_packets"),
                panel("dropped", (0.0, 6.0), 2.0, "dropped_by_sender"),
                panel("R", (-60.0, 100.0), 40.0, "r"),
            ],
            guides: Vec::new(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_on_loss_says_how_far_the_formula_goes() {
        let g729 = Codec::G729.coefficients();
        let most = format!("up to {:.1},", g729.impairment(1.0) - g729.gamma1);
        assert!(unmodified().iter().any(|claim| claim.statement.contains(&most)), "{most}");
    }
}
