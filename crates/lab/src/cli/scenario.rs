//! The command `run` of a scenario.

use super::{Run, cpu, in_time};
use crate::progress::{Bar, Weighed};
use std::io;
use std::path::{Path, PathBuf};
use trunkline_lab::claim::{Verdict, runs_in_words};
use trunkline_lab::run::Progress as _;
use trunkline_lab::scenario::testbed::{Effort, Testbed};
use trunkline_lab::scenario::{self, Results, Scenario};
use trunkline_lab::store::write_json;
use trunkline_lab::table::{Record, Table};
use trunkline_lab::{Error, output};

/// Runs a scenario. Returns whether a testbed kept up and agrees with the simulator.
pub fn run(args: &Run) -> Result<bool, Error> {
    let path = Path::new(&args.what);
    for (option, is_given) in [("quick", args.how.quick), ("shard", args.shard.is_some())] {
        if is_given {
            return Err(Error::ScenarioOption { file: args.what.clone(), option });
        }
    }
    let scenario = scenario::load(path)?;
    let no_testbed = |why| Error::Testbed { what: args.what.clone(), why };
    // Checked first, so that a missing program doesn't cost a simulation.
    let testbed = || Testbed::new(&scenario, args.trunkline.as_deref()).map_err(no_testbed);
    let testbed = args.testbed.then(testbed).transpose()?;
    let (how, folder) = (&args.how, args.out.join("scenario").join(&scenario.name));
    let speech = how.speech.load(scenario.pesq)?;
    let speech = speech.as_ref();
    let mut results = scenario::simulate(&scenario, speech, how.seed)
        .map_err(|why| Error::Point { point: args.what.clone(), why })?;
    // Results of an earlier run must not be mistaken for a part of this one if it fails.
    let mut files = write(&folder, &results)?;
    let mut effort = None;
    if let Some(testbed) = testbed {
        let once = || {
            let bar = Bar::new(testbed.seconds(), "second");
            let progress = Weighed(&bar, testbed.seconds() as f64);
            let run = testbed.run(speech, how.seed, &folder, &|| progress.done(1.0));
            bar.clear();
            run.map_err(no_testbed)
        };
        let (live, took) = match once()? {
            (_, took) if !took.valid => {
                errln!("void: {}; trying once more", took.why_void());
                once()?
            }
            good => good,
        };
        results.calls.rows.extend(live.calls.rows);
        results.streams.rows.extend(live.streams.rows);
        results.transfers.rows.extend(live.transfers.rows);
        files = write_tables(&folder, &results)?;
        let file = folder.join(TESTBED);
        write_json(&file, &took)?;
        files.push(file);
        effort = Some(took);
    }
    let comparison = Comparison::of(&results);
    let good = effort.as_ref().is_none_or(|effort| effort.valid && comparison.agrees());
    if args.json {
        let all = results.json(&scenario, how.seed, effort.as_ref());
        outln!("{}", serde_json::to_string_pretty(&all).expect("plain values are JSON"));
        return Ok(good);
    }
    show(&scenario, &results);
    files.iter().for_each(|file| outln!("{}", file.display()));
    match effort {
        Some(effort) => {
            took(&effort);
            comparison.show();
        }
        None if !scenario.programs.is_empty() => {
            outln!("programs run only with --testbed: the simulator has none");
        }
        None => {}
    }
    Ok(good)
}

const TESTBED: &str = "testbed.json";

/// Writes the results so far in place of earlier ones, and returns the files.
fn write(folder: &Path, results: &Results) -> Result<Vec<PathBuf>, Error> {
    for name in ["streams.csv", "transfers.csv", "links.csv", TESTBED] {
        match std::fs::remove_file(folder.join(name)) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                return Err(Error::file(&folder.join(name))(why));
            }
            _ => {}
        }
    }
    let mut files = write_tables(folder, results)?;
    for (name, figure) in &results.figures {
        files.push(output::write_figure(folder, name, figure)?);
    }
    Ok(files)
}

/// Writes the tables that have rows, and returns the files.
fn write_tables(folder: &Path, results: &Results) -> Result<Vec<PathBuf>, Error> {
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
    Ok(files)
}

/// Prints the results of the calls and streams, and of links with a name.
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
        let rtt = if rtt.is_empty() { String::new() } else { format!(", round trip {rtt} ms") };
        outln!("{name}, {place}: {goodput} Mbit/s, {again} segments retransmitted{rtt}");
    }
    let named = |name: &str| scenario.links.iter().any(|l| l.named && l.name == name);
    let rows: Vec<_> = results.links.iter().filter(|r| named(r.text("link"))).collect();
    if !rows.is_empty() {
        let shown = results.links.columns.iter().map(|c| c.name);
        let shown: Vec<_> = shown.filter(|name| !name.ends_with("_bytes")).collect();
        outln!("links with a name, in the simulator:");
        outln!("{}", aligned(shown.iter().copied()));
        for row in rows {
            outln!("{}", aligned(shown.iter().map(|name| row.text(name))));
        }
    }
}

/// Aligns names to the left and numbers to the right.
fn aligned<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cell = |(n, cell): (usize, &str)| match n {
        0 => format!("{cell:<16}"),
        1 | 2 => format!(" {cell:<8}"),
        _ => format!(" {cell:>13}"),
    };
    cells.enumerate().map(cell).collect()
}

/// Simulator and testbed in comparison.
struct Comparison<'a> {
    calls: Vec<Pair<'a>>,
    streams: Vec<Pair<'a>>,
    transfers: Vec<Pair<'a>>,
}

/// The row of the simulator, and that of the testbed.
type Pair<'a> = [Record<'a>; 2];

impl<'a> Comparison<'a> {
    /// The comparison for a run with a testbed.
    fn of(results: &'a Results) -> Comparison<'a> {
        let pairs = |table: &'a Table| {
            let rows: Vec<_> = table.iter().collect();
            let (simulator, testbed) = rows.split_at(rows.len() / 2);
            simulator.iter().zip(testbed).map(|(&a, &b)| [a, b]).collect()
        };
        let Results { calls, streams, transfers, .. } = results;
        let [calls, streams, transfers] = [calls, streams, transfers].map(pairs);
        Comparison { calls, streams, transfers }
    }

    /// Whether no call's missed packets in the testbed are surely others than in the simulator.
    fn agrees(&self) -> bool {
        self.calls.iter().all(|&[a, b]| scenario::agree(a, b).0 != Verdict::Fails)
    }

    /// Prints the quantities that are judged, and then those for which a single run of each is too
    /// little.
    fn show(&self) {
        for &[a, b] in &self.calls {
            let calls = a.text("calls");
            let (verdict, runs) = scenario::agree(a, b);
            let word = match verdict {
                Verdict::Holds | Verdict::Exceeds => "agree",
                Verdict::Fails => "DISAGREE",
                Verdict::Undecided => "undecided",
            };
            let runs = runs.map_or(String::new(), |n| format!("; {}", runs_in_words(n)));
            let [sim, live] = [a, b].map(|r| {
                ["missed_low_pct", "missed_high_pct"].map(|column| r.text(column)).join(" to ")
            });
            outln!(
                "{word}: {calls}: missed in the simulator {sim} %, in the testbed {live} %{runs}"
            );
            beside(calls, ["delay_p50_ms", "median delay", "ms"], [a, b]);
            beside(calls, ["delay_p99_ms", "p99 of delays", "ms"], [a, b]);
        }
        for pair in &self.streams {
            beside(pair[0].text("stream"), ["lost_pct", "lost", "%"], *pair);
        }
        for pair in &self.transfers {
            beside(pair[0].text("stream"), ["goodput_mbit_s", "goodput", "Mbit/s"], *pair);
        }
    }
}

/// Prints a column's value in simulator and testbed.
fn beside(name: &str, [column, what, unit]: [&str; 3], pair: Pair<'_>) {
    let [sim, live] = pair.map(|r| r.number(column));
    if !(sim.is_finite() && live.is_finite()) {
        return;
    }
    let apart = 100.0 * (live / sim - 1.0);
    let apart = if apart.is_finite() { format!(" ({apart:+.0} %)") } else { String::new() };
    let [sim, live] = pair.map(|r| r.text(column));
    outln!("not judged: {name}: {what} {sim} {unit}, in the testbed {live} {unit}{apart}");
}

/// Prints the effort of a testbed, and whether its results are valid.
fn took(effort: &Effort) {
    cpu(&effort.cpu);
    in_time(&effort.line(), effort.valid);
    if effort.refused > 0 {
        outln!(
            "{} packets were not accepted by the first daemon or kernel, and are lost",
            effort.refused
        );
    }
}
