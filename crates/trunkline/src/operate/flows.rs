//! The `flows` command: a table of a node's flows.

use super::client::Client;
use super::protocol::{Direction, Flow, FlowQuality, Flows, Request};
use super::table::{Align, NOTHING, lines, number, percent, span};
use super::{Error, FlowsArgs, print_json};

/// Runs the `trunkline flows` command.
pub fn flows(args: &FlowsArgs) -> Result<(), Error> {
    let mut flows = all(&mut args.at.connect()?, args.peer)?;
    sort(&mut flows, args.worst);
    let none = flows.is_empty();
    flows.truncate(args.limit.unwrap_or(usize::MAX));
    if args.json {
        return print_json(&flows);
    }
    if none {
        match args.peer {
            None => outln!("no flows: no application here has sent or received a packet lately"),
            Some(peer) => outln!("no flows from or to node {peer}"),
        }
        return Ok(());
    }
    let rows: Vec<_> = flows.iter().map(flow_row).collect();
    lines(&FLOW_COLUMNS, &rows).into_iter().for_each(|line| outln!("{line}"));
    outln!("{FLOW_NOTE}");
    Ok(())
}

/// Fetches all flows of a node, or only those with `peer`.
pub fn all(client: &mut Client, peer: Option<u32>) -> Result<Vec<Flow>, Error> {
    let (mut flows, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page: Flows = client.ask(&Request::Flows { peer, from })?;
        flows.extend(page.flows);
        next = page.next;
    }
    Ok(flows)
}

/// Sorts flows by nodes and ports, or by quality: the worst first, then those of unknown quality,
/// then those that have ended.
pub fn sort(flows: &mut [Flow], worst: bool) {
    flows.sort_by_key(|f| (f.peer, f.peer_port, f.port, f.direction));
    if worst {
        let mos = |f: &Flow| f.last_10s.and_then(|q| q.mos).unwrap_or(f64::INFINITY);
        flows.sort_by(|a, b| a.ended.cmp(&b.ended).then(mos(a).total_cmp(&mos(b))));
    }
}

/// Explanations below the table of flows.
pub const FLOW_NOTE: &str = "Quality: the last 10 s, then of the whole call. R and MOS: E-model, as \
                             if G.711 with concealment, played out at the deadline.";

/// Columns of the table of flows.
pub const FLOW_COLUMNS: [(&str, Align); 19] = [
    ("flow", Align::Left),
    ("peer", Align::Left),
    ("port", Align::Right),
    ("application", Align::Left),
    ("service", Align::Left),
    ("for", Align::Left),
    ("last", Align::Left),
    ("packets", Align::Right),
    ("refused", Align::Right),
    ("kbit/s", Align::Right),
    ("lost %", Align::Right),
    ("late %", Align::Right),
    ("recovered %", Align::Right),
    ("delay ms", Align::Right),
    ("jitter ms", Align::Right),
    ("R", Align::Right),
    ("MOS", Align::Right),
    ("call: missed %", Align::Right),
    ("MOS", Align::Right),
];

/// A flow's cells for [`FLOW_COLUMNS`].
pub fn flow_row(f: &Flow) -> Vec<String> {
    let of = |part: fn(&FlowQuality) -> u64| {
        let share = |q: FlowQuality| part(&q) as f64 / q.expected as f64;
        percent(f.last_10s.map(share))
    };
    let now = f.last_10s;
    let last = match (f.ended, f.silent_s) {
        (true, silent) => format!("ended {}", span(silent)),
        (false, silent) if silent < 1.0 => "now".into(),
        (false, silent) => format!("silent {}", span(silent)),
    };
    vec![
        if f.direction == Direction::In { "in".into() } else { "out".to_owned() },
        format!("{}:{}", f.peer, f.peer_port),
        f.port.to_string(),
        // A process may give itself any name.
        f.application.as_deref().map_or(NOTHING.into(), |name| name.escape_debug().to_string()),
        f.service.name().replace('-', " "),
        span(f.since_s),
        last,
        f.packets.to_string(),
        f.refused.to_string(),
        number(f.bps.map(|bps| bps / 1e3), 1),
        of(|q| q.lost),
        of(|q| q.late),
        of(|q| q.recovered),
        number(now.and_then(|q| q.delay_ms), 1),
        number(now.and_then(|q| q.jitter_ms), 2),
        number(now.and_then(|q| q.r), 1),
        number(now.and_then(|q| q.mos), 2),
        percent(f.call.map(|q| q.missed_share)),
        number(f.call.and_then(|q| q.mos), 2),
    ]
}
