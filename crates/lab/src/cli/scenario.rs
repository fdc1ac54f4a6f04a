//! `run` of a scenario.

use super::{Run, cpu, in_time};
use crate::progress::{Bar, Weighed};
use std::path::{Path, PathBuf};
use trunkline_lab::run::Progress as _;
use trunkline_lab::scenario::testbed::{Effort, Testbed};
use trunkline_lab::scenario::{self, Results, Scenario};
use trunkline_lab::store::write_json;
use trunkline_lab::table::Record;
use trunkline_lab::{Error, output};

/// Runs a scenario; whether a testbed kept up and agrees.
pub fn run(args: &Run) -> Result<bool, Error> {
    let path = Path::new(&args.what);
    let scenario = scenario::load(path)?;
    let no_testbed = |why| Error::Testbed { what: args.what.clone(), why };
    // Known now, a missing program costs no simulation.
    let testbed = || Testbed::new(&scenario, args.trunkline.as_deref()).map_err(no_testbed);
    let testbed = args.testbed.then(testbed).transpose()?;
    let (how, folder) = (&args.how, args.out.join("scenario").join(&scenario.name));
    let speech = how.speech.load(scenario.pesq)?;
    let speech = speech.as_ref();
    let mut results = scenario::simulate(&scenario, speech, how.seed)
        .map_err(|why| Error::Point { point: args.what.clone(), why })?;
    let mut effort = None;
    if let Some(testbed) = testbed {
        let once = || {
            let bar = Bar::new(testbed.seconds(), "seconds");
            let progress = Weighed(&bar, testbed.seconds() as f64);
            let run = testbed.run(speech, how.seed, &folder, &|| progress.done(1.0));
            bar.clear();
            run.map_err(no_testbed)
        };
        let (live, took) = match once()? {
            (_, took) if !took.valid => {
                errln!("void: {}; once more", took.why_void());
                once()?
            }
            good => good,
        };
        results.calls.rows.extend(live.calls.rows);
        results.streams.rows.extend(live.streams.rows);
        results.transfers.rows.extend(live.transfers.rows);
        write_json(&folder.join("testbed.json"), &took)?;
        effort = Some(took);
    }
    let files = write(&folder, &results)?;
    let rows: Vec<_> = results.calls.iter().collect();
    if args.json {
        let all = results.json(&scenario, how.seed, effort.as_ref());
        outln!("{}", serde_json::to_string_pretty(&all).expect("plain values are JSON"));
        let good = |effort: &Effort| effort.valid && disagreements(&rows).is_empty();
        return Ok(effort.as_ref().is_none_or(good));
    }
    show(&scenario, &results);
    for file in files {
        outln!("{}", file.display());
    }
    Ok(effort.is_none_or(|effort| verdict(&rows, &effort)))
}

/// Writes what there is; the files.
fn write(folder: &Path, results: &Results) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for (name, table) in [
        ("data.csv", &results.calls),
        ("streams.csv", &results.streams),
        ("transfers.csv", &results.transfers),
        ("links.csv", &results.links),
    ] {
        if !table.rows.is_empty() || name == "data.csv" {
            files.push(folder.join(name));
            output::write_table(&folder.join(name), table)?;
        }
    }
    for (name, figure) in &results.figures {
        files.push(output::write_figure(folder, name, figure)?);
    }
    Ok(files)
}

/// Says what came of the calls and streams, and of links with a name.
fn show(scenario: &Scenario, results: &Results) {
    let rows: Vec<_> = results.calls.iter().collect();
    for k in 0..scenario.calls.len() {
        // The simulator's row, and the testbed's.
        let both: Vec<_> = rows.iter().skip(k).step_by(scenario.calls.len()).collect();
        outln!("{}:", both[0].text("calls"));
        for column in results.calls.columns.iter().filter(|c| c.name != "calls") {
            let shown = both.iter().map(|r| Some(r.text(column.name)).filter(|t| !t.is_empty()));
            let shown: String = shown.map(|t| format!(" {:<11}", t.unwrap_or("-"))).collect();
            outln!("    {:<16}{}", column.name, shown.trim_end());
        }
    }
    for row in results.streams.iter() {
        let [place, name, sent, lost, share] =
            ["where", "stream", "sent", "lost", "lost_pct"].map(|c| row.text(c));
        outln!("{name}, {place}: {sent} sent, {lost} lost ({share} %)");
    }
    for row in results.transfers.iter() {
        let [place, name, goodput, again, rtt] =
            ["where", "stream", "goodput_mbit_s", "retransmitted", "rtt_mean_ms"]
                .map(|c| row.text(c));
        outln!(
            "{name}, {place}: {goodput} Mbit/s, {again} segments sent again, round trip {rtt} ms"
        );
    }
    let named = |name: &str| scenario.links.iter().any(|l| l.named && l.name == name);
    let rows: Vec<_> = results.links.iter().filter(|r| named(r.text("link"))).collect();
    if !rows.is_empty() {
        let shown = results.links.columns.iter().map(|c| c.name);
        let shown: Vec<_> = shown.filter(|name| !name.ends_with("_bytes")).collect();
        outln!("{}", aligned(shown.iter().copied()));
        for row in rows {
            outln!("{}", aligned(shown.iter().map(|name| row.text(name))));
        }
    }
}

/// Names to the left, numbers to the right.
fn aligned<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cell = |(n, cell): (usize, &str)| match n {
        0 => format!("{cell:<16}"),
        1 | 2 => format!(" {cell:<8}"),
        _ => format!(" {cell:>13}"),
    };
    cells.enumerate().map(cell).collect()
}

/// Where the intervals of the simulator and the testbed have nothing in common.
fn disagreements<'a>(rows: &[Record<'a>]) -> Vec<(Record<'a>, Record<'a>)> {
    let (simulator, testbed) = rows.split_at(rows.len() / 2);
    let both = simulator.iter().copied().zip(testbed.iter().copied());
    both.filter(|&(a, b)| !scenario::agree(a, b)).collect()
}

/// Says what a testbed took, and whether it counts and agrees.
fn verdict(rows: &[Record<'_>], effort: &Effort) -> bool {
    cpu(&effort.cpu);
    let mut good = in_time(effort.lateness_p999_us(), effort.valid);
    if effort.callers_late_pct > 0.0 {
        let share = effort.callers_late_pct;
        outln!("{share:.2} % of the packets of calls and streams left more than 1 ms late");
    }
    if effort.refused > 0 {
        outln!(
            "{} packets were not taken by the first daemon or kernel, and are lost",
            effort.refused
        );
    }
    for (a, b) in disagreements(rows) {
        let calls = a.text("calls");
        let [a, b] =
            [a, b].map(|r| ["missed_low_pct", "missed_high_pct"].map(|c| r.text(c)).join(" to "));
        outln!("DISAGREE: {calls}: missed in the simulator {a} %, in the testbed {b} %");
        good = false;
    }
    good
}
