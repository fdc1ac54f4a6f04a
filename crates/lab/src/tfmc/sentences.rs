//! The sentences of section 5.4 as claims, each in every reading that concerns it.

use super::competition::{ALL, SINGLY, TFMC, measures, shown};
use super::readings::{CARRIED, OF_SIMULATION, READINGS, concerns_tfmc_alone};
use super::verdicts::published;
use crate::claim::{Bound, Claim, Measured};
use crate::table::{Record, Table};

/// Columns of a quantity: its median and both ends of the interval.
pub type Columns = [&'static str; 3];

pub const KEPT: Columns = ["kept_pct", "kept_low_pct", "kept_high_pct"];
pub const TCP: Columns = ["tcp_mbit_s", "tcp_low_mbit_s", "tcp_high_mbit_s"];
const LOWEST: Columns = ["tcp_lowest_pct", "tcp_lowest_low_pct", "tcp_lowest_high_pct"];
const LEAD: Columns = ["lead_mbit_s", "lead_low_mbit_s", "lead_high_mbit_s"];
const LESS_OFFERED: Columns =
    ["less_offered_mbit_s", "less_offered_low_mbit_s", "less_offered_high_mbit_s"];
const LESS_CARRIED: Columns =
    ["less_carried_mbit_s", "less_carried_low_mbit_s", "less_carried_high_mbit_s"];
const SMOOTHER: Columns = ["smoother_pct", "smoother_low_pct", "smoother_high_pct"];
const FASTER: Columns = ["faster_ms", "faster_low_ms", "faster_high_ms"];
const FASTEST: Columns = ["fastest_ms", "fastest_low_ms", "fastest_high_ms"];
const FEWER: Columns = ["fewer_packets_s", "fewer_packets_low_s", "fewer_packets_high_s"];

/// Names of a claim in the declared reading and in all others, in the order of [`READINGS`].
macro_rules! ids {
    ($id:literal) => {
        [
            $id,
            concat!($id, "@next-size"),
            concat!($id, "@60-bytes"),
            concat!($id, "@1000-bytes"),
            concat!($id, "@on-arrival"),
            concat!($id, "@trunk-numbers"),
            concat!($id, "@trunk-next-size"),
            concat!($id, "@trunk-60-bytes"),
            concat!($id, "@trunk-1000-bytes"),
            concat!($id, "@spread-0"),
            concat!($id, "@spread-5"),
            concat!($id, "@spread-10"),
            concat!($id, "@spread-20"),
            concat!($id, "@no-window"),
            concat!($id, "@access-100-50"),
            concat!($id, "@access-30-50"),
            concat!($id, "@access-30-1000"),
            concat!($id, "@access-10-50"),
            concat!($id, "@access-10-1000"),
            concat!($id, "@carried"),
        ]
    };
}

/// A sentence of the paper, and how it is judged in any reading.
struct Sentence {
    ids: [&'static str; OF_SIMULATION + 1],
    statement: &'static str,
    published: &'static str,
    bound: Bound,
    unit: &'static str,
    decimals: usize,
    /// Transport of the packets and columns of the quantity that are judged.
    carried: &'static str,
    columns: Columns,
    sabotage: &'static str,
}

impl Sentence {
    /// A claim for each reading that concerns the sentence, the declared one first.
    fn claims(&self) -> Vec<Claim> {
        let others = READINGS[..OF_SIMULATION].iter().map(|reading| reading.name);
        let readings = std::iter::once("").chain(others).zip(self.ids);
        let concerned = readings.filter(|(reading, _)| {
            let is_without_tfmc = self.carried == SINGLY && concerns_tfmc_alone(reading);
            let is_of_quantity = *reading != CARRIED || self.columns == LESS_OFFERED;
            !is_without_tfmc && is_of_quantity
        });
        concerned.map(|(reading, id)| self.claim(reading, id)).collect()
    }

    fn claim(&self, reading: &'static str, id: &'static str) -> Claim {
        let (set_up, columns) = match reading {
            CARRIED => ("", LESS_CARRIED),
            reading => (reading, self.columns),
        };
        let (carried, reads) = (self.carried, measures(set_up));
        let (expected, why) = published(id);
        Claim {
            id,
            statement: self.statement,
            published: Some(self.published),
            reading,
            bound: self.bound,
            unit: self.unit,
            decimals: self.decimals,
            measure: Box::new(move |table| value(table, set_up, carried, columns)),
            reads: Box::new(reads),
            expected,
            why,
            sabotage: self.sabotage,
            ..Claim::default()
        }
    }
}

/// The row over all runs of a reading, which is empty if declared.
pub fn row<'a>(table: &'a Table, reading: &'static str, carried: &str) -> Option<Record<'a>> {
    let reading = shown(reading);
    table.iter().find(|r| r.is("row", ALL) && r.is("carried", carried) && r.is("reading", reading))
}

/// A quantity in a reading.
pub fn value(table: &Table, reading: &'static str, carried: &str, columns: Columns) -> Measured {
    let Some(row) = row(table, reading, carried) else { return Measured::census(f64::NAN) };
    let measured = Measured::of(&row, columns);
    if columns == FASTEST {
        where_queues_allow(measured, row.number("longest_wait_ms"))
    } else {
        measured
    }
}

/// Delay that some packets save in the paper, in milliseconds.
const SAVED_MS: f64 = 20.0;

/// A difference of delays, undecided where no packet can wait for as long as the paper's difference:
/// such a set-up can't show it, whatever TFMC does.
fn where_queues_allow(measured: Measured, longest_wait_ms: f64) -> Measured {
    if longest_wait_ms >= SAVED_MS {
        return measured;
    }
    let note = format!(
        "Excluded by the set-up: no packet can wait for more than {longest_wait_ms:.1} ms in its \
         queues, {:.1} to {:.1} ms were measured.",
        measured.interval.0, measured.interval.1
    );
    Measured::new(measured.estimate, (f64::NEG_INFINITY, f64::INFINITY)).noting(note)
}

/// The claims of figure 6.
pub fn of_fig6() -> Vec<Claim> {
    let falls = Sentence {
        ids: ids!("tcp-falls"),
        statement: "without multiplexing, the TCP keeps at most half of its throughput when the calls \
                    begin",
        published: "TCP throughput was dramatically decreased: the calls cause starvation",
        bound: Bound::at_most(50.0, "a dramatic decrease is interpreted as half or more"),
        unit: "% of its earlier throughput",
        decimals: 1,
        carried: SINGLY,
        columns: KEPT,
        sabotage: "tcps-instead",
    };
    falls.claims()
}

/// A sentence on throughput with TFMC.
fn rate(
    statement: &'static str,
    published: &'static str,
    bound: Bound,
    columns: Columns,
) -> Sentence {
    Sentence {
        ids: ids!(""),
        statement,
        published,
        bound,
        unit: "Mbit/s",
        decimals: 2,
        carried: TFMC,
        columns,
        sabotage: "no-tcp",
    }
}

/// The claims of figure 7.
pub fn of_fig7() -> Vec<Claim> {
    let over_5 = rate(
        "with TFMC the TCP has more than 5 Mbit/s",
        "TCP maintained a sending rate of more than 5 Mbit/s",
        Bound::above(5.0, "the paper's number"),
        TCP,
    );
    let steady = rate(
        "with TFMC no half second of the TCP has less than two thirds of its mean",
        "TCP maintained a steady sending rate",
        Bound::at_least(
            200.0 / 3.0,
            "a TCP that halves its window at each loss has 1/2 as its lowest rate and 3/4 on \
             average: what falls lower isn't steady",
        ),
        LOWEST,
    );
    let below = rate(
        "with TFMC the calls get less than the TCP",
        "voice flows get less bandwidth than the TCP flow",
        Bound::above(0.0, "the TCP's throughput minus the calls'"),
        LEAD,
    );
    let smoother = rate(
        "from one half second to the next the calls' throughput varies less with TFMC than without",
        "the TFMC flow is smoother than non-multiplexed voice flows",
        Bound::above(0.0, "the coefficient of variation without TFMC minus that with it"),
        SMOOTHER,
    );
    let requires = rate(
        "the calls need less bandwidth with TFMC than without",
        "it requires less network bandwidth, because of header overhead reduction",
        Bound::above(0.0, "without TFMC minus with, on the gateway's link: what is required"),
        LESS_OFFERED,
    );
    let sentences = [
        Sentence { ids: ids!("tcp-over-5"), ..over_5 },
        Sentence {
            ids: ids!("tcp-steady"),
            unit: "% of its mean",
            decimals: 1,
            sabotage: "outage",
            ..steady
        },
        Sentence { ids: ids!("voice-below-tcp"), sabotage: "more-calls", ..below },
        Sentence { ids: ids!("smoother"), unit: "points", sabotage: "outage", ..smoother },
        Sentence { ids: ids!("less-bandwidth"), sabotage: "long-headers", ..requires },
    ];
    sentences.iter().flat_map(Sentence::claims).collect()
}

/// The claims of figure 8.
pub fn of_fig8() -> Vec<Claim> {
    let lower = rate(
        "a call's packets take less time with TFMC than without, on average",
        "TFMC, globally, achieves better delay than non-multiplexed flows",
        Bound::above(0.0, "the mean delay without TFMC minus that with it"),
        FASTER,
    );
    let by_20 = rate(
        "some packet takes at least 20 ms less with TFMC than the same one without",
        "delay reduced by 20 ms for some packets",
        Bound::at_least(SAVED_MS, "the paper's number; the largest difference in a run"),
        FASTEST,
    );
    let fewer = rate(
        "the first router forwards fewer packets per second with TFMC than without, of calls and TCP \
         together",
        "multiplexing decreases header traffic load and the number of packets at routers",
        Bound::above(0.0, "packets per second without TFMC minus those with it"),
        FEWER,
    );
    let sentences = [
        Sentence { ids: ids!("lower"), unit: "ms", sabotage: "longer-path", ..lower },
        Sentence { ids: ids!("by-20-ms"), unit: "ms", sabotage: "longer-path", ..by_20 },
        Sentence {
            ids: ids!("fewer-packets"),
            unit: "packets/s",
            decimals: 0,
            sabotage: "more-calls",
            ..fewer
        },
    ];
    sentences.iter().flat_map(Sentence::claims).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    /// Each claim is named after the reading that it is judged in.
    #[test]
    fn names_follow_the_readings() {
        let claims: Vec<Claim> = [of_fig6(), of_fig7(), of_fig8()].into_iter().flatten().collect();
        for claim in &claims {
            let named = claim.id.split_once('@').map_or("", |(_, reading)| reading);
            assert_eq!(named, claim.reading, "{}", claim.id);
        }
        let declared = claims.iter().filter(|claim| claim.reading.is_empty()).count();
        assert_eq!(declared, 9, "sentences of section 5.4");
    }

    /// A window of 20 packets leaves no queue of 20 ms: what isn't possible isn't refuted.
    #[test]
    fn a_difference_that_no_queue_allows_is_undecided() {
        let bound = Bound::at_least(SAVED_MS, "");
        let judge = |interval, longest| {
            bound.judge(where_queues_allow(Measured::new(1.0, interval), longest).interval)
        };
        assert_eq!(judge((-3.0, 1.0), 19.0), Verdict::Undecided);
        assert_eq!(judge((-3.0, 1.0), 42.6), Verdict::Fails);
        assert_eq!(judge((21.0, 25.0), 42.6), Verdict::Holds);
        let note = where_queues_allow(Measured::new(1.0, (-3.0, 1.0)), 19.04).note;
        assert!(
            note.starts_with("Excluded by the set-up: no packet can wait for more than 19.0 ms")
        );
    }
}
