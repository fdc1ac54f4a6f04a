//! `index.html`: the results of a demo in one self-contained file, with plots and sound.

mod drawing;
mod plots;
mod sound;

use super::chain::{letter, lossy_link};
use super::score::{self, Heard, Result, Run, Wire};
use super::traffic::{Kind, Plan, Traffic};
use super::voices::Set;
use super::{Args, DEADLINE, Error};
use askama::Template;
use std::path::Path;
use std::time::Duration;
use trunkline_media::quality::pesq::SEGMENT;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    style: &'static str,
    script: &'static str,
    version: &'static str,
    command: String,
    args: &'a Args,
    last: char,
    lossy: [char; 2],
    loss: String,
    burst: String,
    deadline_ms: u128,
    /// The chain for wide and for narrow screens; the plots likewise.
    chain: [String; 2],
    delays: [String; 2],
    pesq: [String; 2],
    rows: Vec<Row>,
    segments: usize,
    /// Length of a segment, in seconds.
    piece: u64,
    headline: String,
    result: &'a Result,
    json: &'a str,
    calls: Vec<usize>,
    clips: Vec<sound::Clip>,
    /// The speakers of the recordings, each once, and the attribution that their licences require.
    speakers: String,
    credit: Option<&'static str>,
    excerpt: Option<u32>,
}

/// A row of the table.
struct Row {
    service: &'static str,
    cells: Vec<Cell>,
}

struct Cell {
    label: &'static str,
    text: String,
}

/// Widths of the drawings, in CSS pixels. Text in an SVG scaled down to a phone's screen would be
/// too small to read.
const WIDTHS: [f64; 2] = [860.0, 326.0];

/// Renders the page. `json` is `result` as in result.json.
pub fn page(
    args: &Args,
    plan: &Plan,
    traffic: &Traffic,
    heard: &[Heard],
    result: &Result,
    json: &str,
) -> std::result::Result<String, Error> {
    let middle = lossy_link(args.hops);
    let delays = Kind::ALL.map(|kind| plots::Delays::of(score::packets(kind, plan, traffic)));
    let (calls, clips) = sound::clips(heard, &plan.speakers);
    let page = Page {
        style: include_str!("../../../templates/report.css"),
        script: include_str!("../../../templates/report.js"),
        version: env!("CARGO_PKG_VERSION"),
        command: command(args),
        args,
        last: letter(args.hops),
        lossy: [letter(middle), letter(middle + 1)],
        loss: percent(args.loss.0),
        burst: percent(args.burst.0),
        deadline_ms: DEADLINE.as_millis(),
        chain: WIDTHS.map(|width| drawing::chain(args, width)),
        delays: WIDTHS.map(|width| plots::delays(&delays, &result.runs, width)),
        pesq: WIDTHS.map(|width| plots::pesq(heard, &result.runs, width)),
        rows: Kind::ALL.iter().zip(&result.runs).map(|(kind, run)| row(*kind, run)).collect(),
        segments: result.runs.iter().find_map(|r| r.pesq).map_or(0, |p| p.segments),
        piece: SEGMENT.as_secs().min(args.seconds.into()),
        headline: headline(&result.runs),
        result,
        json,
        excerpt: (args.seconds > sound::LONGEST).then_some(sound::LONGEST),
        calls,
        clips,
        speakers: speakers(&plan.speakers),
        credit: args.speech.is_none().then(|| args.voices.credit()),
    };
    page.render().map_err(|e| Error::Process(format!("the report could not be written: {e}")))
}

/// Name of a service, for use in a sentence.
pub fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Udp => "plain UDP",
        Kind::BestEffort => "best effort",
        Kind::Once => "one request",
        Kind::RealTime => "real time",
        Kind::Trunk => "trunk",
    }
}

/// A share as the number before "%", with only its significant digits.
fn percent(share: f64) -> String {
    format!("{}", (share * 1e8).round() / 1e6)
}

/// A count with a separator between thousands.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let start = digits.len() % 3;
    let groups = digits.as_bytes()[start..].chunks(3).map(String::from_utf8_lossy);
    let first = (start > 0).then(|| digits[..start].into());
    first.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

/// A time with a space before its unit.
fn span(time: Duration) -> String {
    let text = format!("{time:?}");
    let unit = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// The command line that reproduces this demo.
fn command(args: &Args) -> String {
    let mut text = format!(
        "trunkline demo --loss {}% --burst {}% --delay {} --hops {} --calls {} --seconds {} --seed {}",
        percent(args.loss.0),
        percent(args.burst.0),
        span(args.delay.0).replace(' ', ""),
        args.hops,
        args.calls,
        args.seconds,
        args.seed
    );
    if args.voices != Set::Librispeech {
        text += &format!(" --voices {}", args.voices.name());
    }
    if let Some(path) = &args.speech {
        text += &format!(" --speech {}", quoted(path));
    }
    if let Some(node) = args.restart {
        text += &format!(" --restart {node}");
    }
    text
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Formats the speakers of calls: "a in call 1, b in calls 2 and 4".
fn speakers(of_calls: &[String]) -> String {
    let mut once: Vec<&String> = Vec::new();
    for name in of_calls {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    let one = |name: &&String| {
        let calls = (1..).zip(of_calls).filter(|(_, n)| n == name).map(|(call, _)| call);
        let calls: Vec<String> = calls.map(|call: usize| call.to_string()).collect();
        match &calls[..] {
            [call] => format!("{name} in call {call}"),
            [first @ .., last] => format!("{name} in calls {} and {last}", first.join(", ")),
            [] => unreachable!("every name is that of a call"),
        }
    };
    once.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Summary of the result in a sentence or two.
fn headline(runs: &[Run]) -> String {
    let [udp, best_effort, once, real_time, trunk] = runs else { return String::new() };
    let mut text = format!(
        "Of {} packets each, listeners missed {:.2}\u{a0}% over plain UDP, {:.2}\u{a0}% over the overlay's \
         best-effort service, {:.2}\u{a0}% where a lost packet was asked for once, and {:.2}\u{a0}% \
         over its real-time service",
        count(real_time.sent),
        udp.missed_percent,
        best_effort.missed_percent,
        once.missed_percent,
        real_time.missed_percent
    );
    text += &match real_time.recovered {
        0 => ".".into(),
        n => format!(
            ", which repeats its requests for lost packets on the link that lost them while there \
             is time, and recovered {}.",
            count(n)
        ),
    };
    if let (Some(alone), Some(together)) = (&real_time.wire, &trunk.wire) {
        text += &format!(
            " In a trunk they missed {:.2}\u{a0}%. The trunk sent {:.0} packets/s with {:.0} bytes for \
             each call packet; without it, {:.0} and {:.0}.",
            trunk.missed_percent,
            together.packets_per_second,
            together.bytes_per_voice_packet,
            alone.packets_per_second,
            alone.bytes_per_voice_packet
        );
    }
    text
}

fn row(kind: Kind, run: &Run) -> Row {
    let none = || "–".to_owned();
    let pesq = |of: fn(&crate::score::Pesq) -> f64| {
        run.pesq.as_ref().map_or_else(none, |p| format!("{:.2}", of(p)))
    };
    let wire =
        |of: fn(&Wire) -> f64| run.wire.as_ref().map_or_else(none, |w| format!("{:.0}", of(w)));
    let cells = [
        ("sent", count(run.sent)),
        ("lost", count(run.lost)),
        ("late", count(run.late)),
        ("recovered", count(run.recovered)),
        ("missed %", format!("{:.3}", run.missed_percent)),
        ("95 % interval", format!("{:.3} – {:.3}", run.missed_interval[0], run.missed_interval[1])),
        ("delay p50, ms", format!("{:.1}", run.delay_ms.p50)),
        ("p99, ms", format!("{:.1}", run.delay_ms.p99)),
        ("max, ms", format!("{:.1}", run.delay_ms.max)),
        ("R", format!("{:.1}", run.r)),
        ("MOS", format!("{:.2}", run.mos)),
        ("PESQ mean", pesq(|p| p.mean)),
        ("PESQ 5 %", pesq(|p| p.p5)),
        ("overhead", run.overhead_percent.map_or_else(none, |p| format!("{p:.1} %"))),
        ("pkt/s", wire(|w| w.packets_per_second)),
        ("B/voice", wire(|w| w.bytes_per_voice_packet)),
    ];
    let cells = cells.into_iter().map(|(label, text)| Cell { label, text }).collect();
    Row { service: title(kind), cells }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1_000, 30_000, 1_234_567].map(count).join(" "),
            "0 999 1,000 30,000 1,234,567"
        );
        assert_eq!([0.05, 0.07, 0.001_25, 1.0].map(percent).join(" "), "5 7 0.125 100");
    }

    #[test]
    fn everyone_is_named_once() {
        let names = ["a", "b", "c", "a", "b", "a"].map(String::from);
        assert_eq!(speakers(&names), "a in calls 1, 4 and 6; b in calls 2 and 5; c in call 3");
    }

    #[test]
    fn a_shell_takes_the_path_as_it_was() {
        assert_eq!(quoted(Path::new("a/b-1.wav")), "a/b-1.wav");
        assert_eq!(quoted(Path::new("it's <b>")), r"'it'\''s <b>'");
        assert_eq!(quoted(Path::new("$(x)")), "'$(x)'");
    }
}
