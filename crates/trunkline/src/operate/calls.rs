//! `calls`.

use super::client::Client;
use super::protocol::{Call, CallEnd, CallLeg, Calls, Request};
use super::table::{Align, lines, number, percent, span};
use super::{CallsArgs, Error, print_json};

/// Runs `trunkline calls`.
pub fn calls(args: &CallsArgs) -> Result<(), Error> {
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

/// All calls of a gateway.
pub fn all(client: &mut Client) -> Result<Vec<Call>, Error> {
    let (mut calls, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let part: Calls = client.ask(&Request::Calls { from })?;
        calls.extend(part.calls);
        next = part.next;
    }
    Ok(calls)
}

/// Puts those that have ended last; of the others first those that sounded worst, or
/// else those that began last.
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

/// How many seconds without a packet are told in place of how they sound: what is lost
/// at the end of a stream has no numbers to be seen by.
const SILENT: f64 = 3.0;

/// What the table's columns leave unsaid.
pub const NOTE: &str = "Each line of a call is what comes to this gateway from one end; what it \
                        says, by RTCP, is of what it hears, on the whole way. R and MOS: \
                        E-model, as if G.711 with concealment, 100 ms from mouth to ear.";

/// The columns of a table of calls.
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

/// A call's lines: one for each leg.
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

/// How it stands with a call, or how it has ended: `up`, `refused 486`.
fn state(call: &Call) -> String {
    match (&call.outcome, call.status) {
        (Some(outcome), Some(status)) => format!("{outcome} {status}"),
        (Some(outcome), None) => outcome.clone(),
        (None, _) => call.state.clone(),
    }
}

/// How long it was up or is; if it rings, how long it has rung.
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
        leg.packets.to_string(),
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

/// A URI as people say it; phones may call themselves anything.
fn short(uri: &str) -> String {
    let uri = uri.strip_prefix("sips:").or(uri.strip_prefix("sip:")).unwrap_or(uri);
    let end = uri.find([';', '?']).unwrap_or(uri.len());
    uri[..end].escape_debug().take(40).collect()
}
