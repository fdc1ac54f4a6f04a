use super::SPACING;
use super::model::{Call, Stream, Transfer};
use crate::claim::{AGREES, Measured, Tolerance, Verdict};
use crate::speech::Speech;
use crate::table::{Cell, Column, Record, Row, print};
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::stats::{Mean, quantile};
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::quality::pesq::PesqError;
use trunkline_sim::voice::{Arrival, CallOutcome};

/// A row has the calls of one `[[call]]`, in the simulator or in the testbed.
pub const COLUMNS: &[Column] = &[
    Column::text("where"),
    Column::text("calls"),
    Column::number("sent", 0),
    Column::number("lost", 0),
    Column::number("late", 0),
    Column::number("recovered", 0),
    Column::number("missed_pct", 4),
    Column::number("missed_low_pct", 4),
    Column::number("missed_high_pct", 4),
    Column::number("delay_p50_ms", 2),
    Column::number("delay_p99_ms", 2),
    Column::number("delay_max_ms", 2),
    Column::number("gap_max_ms", 0),
    Column::number("pesq_mean", 2),
    Column::number("pesq_p5", 2),
    Column::text("valid"),
];

/// The columns of the share of missed packets and its interval.
const MISSED: [&str; 3] = ["missed_pct", "missed_low_pct", "missed_high_pct"];

/// A row has the packets of a `[[stream]]`, from end to end, in the simulator or in the testbed.
pub const STREAM_COLUMNS: &[Column] = &[
    Column::text("where"),
    Column::text("stream"),
    Column::number("sent", 0),
    Column::number("lost", 0),
    Column::number("lost_pct", 4),
    Column::number("marked", 0),
    Column::number("delay_max_ms", 2),
    Column::text("valid"),
];

/// A row has the results of a `[[stream]]` over TCP, in the simulator or in the testbed.
pub const TRANSFER_COLUMNS: &[Column] = &[
    Column::text("where"),
    Column::text("stream"),
    Column::number("goodput_mbit_s", 4),
    Column::number("retransmitted", 0),
    Column::number("rtt_mean_ms", 2),
    Column::text("valid"),
];

/// The row of a transfer: goodput in bit/s, retransmitted segments, mean round trip in ms.
pub(super) fn transfer_row(
    place: &str,
    transfer: &Transfer,
    (goodput_bps, retransmitted, rtt_ms): (f64, f64, f64),
    valid: bool,
) -> Row {
    let cells: Vec<Cell> = vec![
        place.into(),
        transfer.name.as_str().into(),
        (goodput_bps / 1e6).into(),
        retransmitted.into(),
        rtt_ms.into(),
        Cell::yes(valid),
    ];
    print(TRANSFER_COLUMNS, cells)
}

/// Packets of a stream that arrived.
pub(super) struct Received {
    pub packets: u64,
    /// Number of packets that a queue had marked.
    pub marked: u64,
    /// The longest delay of a packet.
    pub longest: Duration,
}

/// The row of a stream, from the number of packets sent and those received.
pub(super) fn stream_row(
    place: &str,
    stream: &Stream,
    (sent, received): (u64, &Received),
    valid: bool,
) -> Row {
    let lost = sent.saturating_sub(received.packets);
    let share = if sent == 0 { f64::NAN } else { lost as f64 / sent as f64 };
    let longest = received.longest.as_nanos() as f64 / 1e6;
    let longest = if received.packets == 0 { f64::NAN } else { longest };
    let cells: Vec<Cell> = vec![
        place.into(),
        stream.name.as_str().into(),
        sent.into(),
        lost.into(),
        (100.0 * share).into(),
        received.marked.into(),
        longest.into(),
        Cell::yes(valid),
    ];
    print(STREAM_COLUMNS, cells)
}

/// A packet of a call: its send time and its arrival, if it arrived.
pub(super) type Packet = (Time, Option<Arrival>);

/// The row of `calls`, each with its packets in order.
pub(super) fn row(
    place: &str,
    call: &Call,
    calls: &[Vec<Packet>],
    speech: Option<&Speech>,
    valid: bool,
) -> Result<Row, PesqError> {
    let outcome = CallOutcome::of_packets(calls.iter().flatten().copied(), 0, call.threshold);
    let scores = match speech {
        Some(speech) => scores(call, calls, speech)?,
        None => Vec::new(),
    };
    let ms = |share| outcome.delay(share).map_or(f64::NAN, |d| d.as_nanos() as f64 / 1e6);
    let missed = outcome.missed;
    let pesq = if scores.is_empty() { f64::NAN } else { Mean::of(&scores).estimate };
    let cells: Vec<Cell> = vec![
        place.into(),
        call.name.as_str().into(),
        outcome.sent.into(),
        outcome.lost.into(),
        outcome.late.into(),
        outcome.recovered.into(),
        (100.0 * missed.estimate).into(),
        (100.0 * missed.interval.0).into(),
        (100.0 * missed.interval.1).into(),
        ms(0.5).into(),
        ms(0.99).into(),
        ms(1.0).into(),
        (gap(call, calls).as_nanos() as f64 / 1e6).into(),
        pesq.into(),
        quantile(&scores, 0.05).unwrap_or(f64::NAN).into(),
        Cell::yes(valid),
    ];
    Ok(print(COLUMNS, cells))
}

/// Longest time without a packet that was sent and arrived in time, over all calls.
fn gap(call: &Call, calls: &[Vec<Packet>]) -> Duration {
    let mut longest = 0;
    for packets in calls {
        let mut now = 0;
        for (_, arrival) in packets {
            let in_time = arrival.is_some_and(|a| a.delay <= call.threshold);
            now = if in_time { 0 } else { now + 1 };
            longest = longest.max(now);
        }
    }
    SPACING * longest
}

/// The PESQ scores of a call's segments, in ascending order.
fn scores(call: &Call, calls: &[Vec<Packet>], speech: &Speech) -> Result<Vec<f64>, PesqError> {
    let mut scores = Vec::new();
    for (k, packets) in calls.iter().enumerate() {
        let is_missed = |arrival: Option<Arrival>| arrival.is_none_or(|a| a.delay > call.threshold);
        let missed: Vec<bool> = packets.iter().map(|&(_, arrival)| is_missed(arrival)).collect();
        let start = k * speech.len() / calls.len();
        let heard = speech.listen(&missed, start, &mut Concealing::new(Law::Mu))?;
        scores.extend(heard.into_iter().flatten().map(|s| s.raw));
    }
    scores.sort_by(f64::total_cmp);
    Ok(scores)
}

/// Whether the missed packets of a call in the testbed are those in the simulator, by rows of each,
/// and how many times as many runs would decide that if these don't.
pub fn agree(simulator: Record<'_>, testbed: Record<'_>) -> (Verdict, Option<f64>) {
    let [a, b] = [simulator, testbed].map(|row| Measured::of(&row, MISSED));
    let apart = Tolerance::MISSED_PCT.apart(&a, &b);
    (AGREES.judge(apart.interval), AGREES.runs_to_decide(&apart))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Kind, Table};

    /// The verdict on these shares of missed packets in percent, each with its interval.
    fn verdict(simulator: [f64; 3], testbed: [f64; 3]) -> (Verdict, Option<f64>) {
        let row = |[missed, low, high]: [f64; 3]| {
            let cell = |column: &Column| match (column.kind, column.name) {
                (Kind::Text, _) => "yes".into(),
                (_, "missed_pct") => missed.into(),
                (_, "missed_low_pct") => low.into(),
                (_, "missed_high_pct") => high.into(),
                _ => Cell::Number(0.0),
            };
            print(COLUMNS, COLUMNS.iter().map(cell).collect())
        };
        let table = Table { columns: COLUMNS, rows: vec![row(simulator), row(testbed)] };
        let mut rows = table.iter();
        agree(rows.next().unwrap(), rows.next().unwrap())
    }

    #[test]
    fn rare_losses_agree_only_where_enough_were_seen() {
        // A quarter of 10 % is more than allowed, a twentieth is not.
        let of = |missed: f64| [missed, missed - 0.4, missed + 0.4];
        assert_eq!(verdict(of(10.0), of(10.5)), (Verdict::Holds, None));
        assert_eq!(verdict(of(10.0), of(12.5)), (Verdict::Fails, None));
        // An overlap of long intervals says nothing: each may be the other's tenfold.
        let (undecided, runs) = verdict([0.3, 0.0, 3.0], [0.31, 0.0, 3.0]);
        assert_eq!(undecided, Verdict::Undecided);
        assert!(runs.unwrap() > 100.0, "{runs:?}");
        // No loss in either, but few packets.
        assert_eq!(verdict([0.0, 0.0, 0.3], [0.0, 0.0, 0.3]).0, Verdict::Undecided);
        assert_eq!(verdict([0.0, 0.0, 0.03], [0.0, 0.0, 0.06]), (Verdict::Holds, None));
        // Differences without importance, however sure.
        assert_eq!(verdict([0.1, 0.09, 0.11], [0.15, 0.14, 0.16]), (Verdict::Holds, None));
    }
}
