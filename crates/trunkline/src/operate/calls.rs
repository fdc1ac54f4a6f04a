//! The `calls` command: a table of a gateway's calls.

use super::client::Client;
use super::protocol::{Call, CallEnd, CallLeg, Calls, HungUp, Request};
use super::table::{Align, lines, number, percent, span};
use super::{CallsArgs, CallsCommand, Error, HangupArgs, print_json};

/// Runs the `trunkline calls` command.
pub fn calls(args: &CallsArgs) -> Result<(), Error> {
    if let Some(CallsCommand::Hangup(args)) = &args.command {
        return hang_up(args);
    }
    let mut calls = all(&mut args.at.connect()?)?;
    if args.live {
        calls.retain(|call| !call.is_over());
    }
    let none = calls.is_empty();
    calls.truncate(args.limit.unwrap_or(usize::MAX));
    if args.json {
        return print_json(&calls);
    }
    if none {
        outln!("no calls");
        return Ok(());
    }
    let rows: Vec<_> = calls.iter().flat_map(rows).collect();
    lines(&COLUMNS, &rows).into_iter().for_each(|line| outln!("{line}"));
    outln!("{NOTE}");
    Ok(())
}

fn hang_up(args: &HangupArgs) -> Result<(), Error> {
    let (call, all) = (args.call.clone(), args.all);
    let ended: HungUp = args.at.connect()?.ask(&Request::HangUp { call, all })?;
    match args.json {
        true => print_json(&ended)?,
        false => outln!("{} ended", super::table::count(ended.calls as u64, "call")),
    }
    Ok(())
}

/// Fetches all calls of a gateway.
pub fn all(client: &mut Client) -> Result<Vec<Call>, Error> {
    let (mut calls, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let part: Calls = client.ask(&Request::Calls { from })?;
        calls.extend(part.calls);
        next = part.next;
    }
    Ok(calls)
}

/// Sorts ended calls last; the others by worst rating, or else by latest start.
pub fn sort(calls: &mut [Call], worst_first: bool) {
    let least = |call: &Call| {
        let all = call.legs.iter().filter_map(|leg| leg.r_min);
        if worst_first { all.fold(f64::INFINITY, f64::min) } else { 0.0 }
    };
    calls.sort_by(|a, b| {
        let worst = least(a).total_cmp(&least(b));
        a.is_over().cmp(&b.is_over()).then(worst).then(b.began.total_cmp(&a.began))
    });
}

/// Silence in seconds after which a call's silence is shown instead of its rating: packets lost at
/// the end of a stream leave no gap in the sequence numbers.
const SILENT: f64 = 3.0;

/// Explanations below the table of calls.
pub const NOTE: &str = "Each line of a call counts packets from one end to this gateway; the \
                        RTCP columns are that end's own report on the whole path to it. R and MOS: \
                        E-model, as if G.711 with concealment, 100 ms from mouth to ear. --json has \
                        each Call-ID, for `trunkline calls hangup`.";

/// Columns of the table of calls.
pub const COLUMNS: [(&str, Align); 16] = [
    ("from", Align::Left),
    ("to", Align::Left),
    ("state", Align::Left),
    ("for", Align::Left),
    ("heard from", Align::Left),
    ("by", Align::Left),
    ("packets", Align::Right),
    ("lost %", Align::Right),
    ("late %", Align::Right),
    ("recovered %", Align::Right),
    ("jitter ms", Align::Right),
    ("says lost %", Align::Right),
    ("rtt ms", Align::Right),
    ("R now", Align::Right),
    ("least", Align::Right),
    ("MOS", Align::Right),
];

/// Table rows of a call: one for each leg.
pub fn rows(call: &Call) -> Vec<Vec<String>> {
    let head = |first: bool| -> Vec<String> {
        let cells = [short(&call.from), short(&call.to), state(call), span(lasted(call))];
        cells.into_iter().map(|cell| if first { cell } else { String::new() }).collect()
    };
    match &call.legs[..] {
        [] => vec![[head(true), vec![String::new(); 12]].concat()],
        legs => {
            let cells = |leg: &CallLeg| cells(leg, call.is_over());
            legs.iter().enumerate().map(|(n, leg)| [head(n == 0), cells(leg)].concat()).collect()
        }
    }
}

/// State of a call, or how it ended: `up`, `refused 486`.
fn state(call: &Call) -> String {
    match (&call.outcome, call.status) {
        (Some(outcome), Some(status)) => format!("{outcome} {status}"),
        (Some(outcome), None) => outcome.clone(),
        (None, _) => call.state.clone(),
    }
}

/// Duration of a call in seconds: of the conversation or, if it rings, of the ringing.
fn lasted(call: &Call) -> f64 {
    let rings = call.answered.is_none() && !call.is_over();
    if rings { crate::clock::since_epoch() as f64 / 1e9 - call.began } else { call.seconds }
}

fn cells(leg: &CallLeg, is_over: bool) -> Vec<String> {
    let says = |what: fn(&CallEnd) -> Option<f64>| leg.says.as_ref().and_then(what);
    let share = |part: u64| (leg.expected > 0).then(|| part as f64 / leg.expected as f64);
    vec![
        leg.from.clone(),
        if leg.overlay { "overlay" } else { "UDP" }.into(),
        match (leg.packets, leg.other) {
            (packets, 0) => packets.to_string(),
            (0, other) => other.to_string(),
            (packets, other) => format!("{packets} + {other}"),
        },
        percent(share(leg.lost)),
        percent(share(leg.late)),
        percent(share(leg.recovered)),
        number(leg.jitter_ms.filter(|_| leg.packets > 0), 1),
        percent(says(|end| end.lost_share)),
        number(says(|end| end.round_trip_ms), 1),
        match leg.silent_s.filter(|silent| *silent >= SILENT) {
            _ if is_over => number(None, 1),
            Some(silent) => format!("silent {}", span(silent)),
            None => number(leg.r_now, 1),
        },
        number(leg.r_min, 1),
        number(leg.mos, 2),
    ]
}

/// A URI in the form that people use; phones may give themselves any name.
fn short(uri: &str) -> String {
    let uri = uri.strip_prefix("sips:").or(uri.strip_prefix("sip:")).unwrap_or(uri);
    let end = uri.find([';', '?']).unwrap_or(uri.len());
    uri[..end].escape_debug().take(40).collect()
}
