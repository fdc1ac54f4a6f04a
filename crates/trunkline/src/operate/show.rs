//! The `status`, `links` and `routes` commands.

use super::protocol::{Link, Request, Route, Status, Trunk};
use super::table::{Align, NOTHING, count, lines, number, percent, span};
use super::{Error, LinksArgs, RoutesArgs, StatusArgs, print_json};
use crate::node::expiry::{Owner, Validity};
use serde::Serialize;
use std::collections::BTreeMap;
use trunkline_overlay::wire::NodeId;

/// Runs the `trunkline status` command.
pub fn status(args: &StatusArgs) -> Result<(), Error> {
    let status: Status = args.at.connect()?.ask(&Request::Status {})?;
    if args.json {
        return print_json(&status);
    }
    status_lines(&status).into_iter().for_each(|line| outln!("{line}"));
    Ok(())
}

/// Summary of a node in a few lines.
pub fn status_lines(s: &Status) -> Vec<String> {
    let sealed =
        if s.sealed { "sealed" } else { "NOT SEALED: anyone on the path can read and forge" };
    let draining = match (s.draining, s.gateway) {
        (false, _) => "",
        (true, false) => ", draining: no application can attach",
        (true, true) => ", draining: no application can attach, no call begin",
    };
    let mut lines = vec![
        format!("{} is node {}, up {}{draining}", s.name, s.id, span(s.uptime_s)),
        format!("version   {}, process {}, {}", s.version, s.pid, s.config),
        format!("links     {} of {} up, {sealed}", s.links_up, s.links),
    ];
    if let Some(newest) = s.protocol {
        let links =
            |(version, n): (&u8, &usize)| format!("{version} on {}", count(*n as u64, "link"));
        let links: Vec<_> = s.link_versions.iter().map(links).collect();
        let links = if links.is_empty() { "no link up".into() } else { links.join(", ") };
        lines.push(format!("protocol  version {newest} at most; {links}"));
    }
    if let Some(not_after) = s.certificate_not_after {
        lines.push(certified(not_after, crate::clock::since_epoch() / 1_000_000_000));
    }
    if let Some(not_after) = s.sip_certificate_not_after {
        let validity = Validity::of(not_after, crate::clock::since_epoch() / 1_000_000_000);
        let warning = Some(validity).filter(|validity| *validity != Validity::Holds);
        lines.extend(warning.map(|validity| format!("SIP       {}", Owner::Sip.told(validity))));
    }
    if !s.missing_addresses.is_empty() {
        let all: Vec<_> = s.missing_addresses.iter().map(ToString::to_string).collect();
        lines.push(format!("missing   {}: this machine does not have it yet", all.join(", ")));
    }
    if s.receive_buffer < s.receive_buffer_wanted {
        lines.push(format!(
            "buffer    {} bytes to receive, of {} asked for: raise net.core.rmem_max",
            s.receive_buffer, s.receive_buffer_wanted
        ));
    }
    lines.extend([
        format!("sessions  {}{}", count(s.sessions, "application"), calls(s)),
        format!(
            "packets   {} from and {} to applications, {} forwarded",
            s.from_sessions, s.to_sessions, s.forwarded
        ),
    ]);
    if s.streams > 0 {
        lines.push(format!("streams   {} open here: `trunkline streams`", s.streams));
    }
    let drops = counts(&s.drops).unwrap_or_else(|| "none".into());
    lines.push(format!("drops     {drops}"));
    lines.extend(counts(&s.handshakes_refused).map(|n| format!("refused   handshakes: {n}")));
    lines
        .extend(counts(&unexpected(&s.updates_refused)).map(|n| format!("refused   updates: {n}")));
    lines.extend(unknown(s).map(|why| format!("unknown   {why}")));
    lines.extend(differing(s).map(|nodes| format!("routing   {nodes}")));
    lines.extend(s.trunks.iter().map(|t| format!("trunk     {}", trunk(t))));
    lines.extend(s.trunks_in.iter().filter(|t| t.trunk_packets > 0).map(|t| {
        let dropped = t.unknown + t.no_template;
        let unknown = if dropped > 0 { format!(", {dropped} unknown") } else { String::new() };
        format!(
            "trunk     from node {}: {} packets in {}{unknown}",
            t.from, t.packets, t.trunk_packets
        )
    }));
    lines.extend(denied(s.links_denied).map(|links| format!("denied    {links}")));
    lines
}

/// The refused updates without those that are normal: an update that two neighbours send, one that
/// arrives before its sender's hello, and one of a new node before its certificate. If the
/// certificate doesn't come, [`unknown`] names the node.
fn unexpected(refused: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let normal = ["duplicate", "older", "link_down", "unknown_origin"];
    let refused = refused.iter().filter(|(why, _)| !normal.contains(&why.as_str()));
    refused.map(|(why, n)| (why.clone(), *n)).collect()
}

/// Explains that only one end advertises `links`; `None` if there are none.
fn denied(links: u64) -> Option<String> {
    let them = if links == 1 { "it" } else { "them" };
    (links > 0).then(|| {
        format!(
            "{}: only one end advertises {them}, and no route uses {them}; normal for half an \
             hour after a node has stopped",
            count(links, "link")
        )
    })
}

/// Summary of a trunk in one line.
fn trunk(t: &Trunk) -> String {
    let to = format!("to node {}", t.to);
    match t.state.as_str() {
        "open" if t.trunk_packets == 0 => format!("{to}: open, {} packets alone", t.alone),
        "open" => format!(
            "{to}: {} packets in {} ({:.1} each), {} with short RTP headers, {} alone{}",
            t.packets,
            t.trunk_packets,
            t.packets as f64 / t.trunk_packets as f64,
            t.compressed,
            t.alone,
            if t.trunk_over_share { "; OVER the share of a TCP" } else { "" },
        ),
        "silent" => format!(
            "{to}: NO ANSWER, packets leave one by one; is there such a node, is there a route to it?"
        ),
        "refused" => format!("{to}: REFUSED there, packets leave one by one"),
        state => format!("{to}: {state}"),
    }
}

/// A gateway's addition to the line about sessions.
fn calls(s: &Status) -> String {
    match s.calls {
        Some(calls) => format!(", {}", count(calls as u64, "call")),
        None if s.gateway => ", GATEWAY DOES NOT ANSWER: look at the node's log".into(),
        None => String::new(),
    }
}

/// Explains why there is no route to nodes with an unknown key in their records.
fn unknown(s: &Status) -> Option<String> {
    let nodes: Vec<_> = s.unknown_nodes.iter().map(u32::to_string).collect();
    let (node, key) = if nodes.len() == 1 { ("node", "a key") } else { ("nodes", "keys") };
    (!nodes.is_empty()).then(|| {
        format!(
            "{node} {}: no route, records signed with {key} that this node doesn't know: \
             add [[known]], or certificates and [overlay] keys",
            nodes.join(", ")
        )
    })
}

/// Names the nodes with cost settings that differ from this node's.
fn differing(s: &Status) -> Option<String> {
    let nodes: Vec<_> = s.routing_differs.iter().copied().map(NodeId).collect();
    crate::datapath::differing::line(&nodes, s.routing_differ_count)
}

/// Counts by reason in one line; `None` if there are none.
fn counts(counts: &BTreeMap<String, u64>) -> Option<String> {
    let counts: Vec<_> = counts.iter().map(|(why, n)| format!("{why} {n}")).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// Remaining validity of the node's certificate, as text.
fn certified(not_after: u64, now: u64) -> String {
    match Validity::of(not_after, now) {
        Validity::Holds => format!("certified for another {}", span((not_after - now) as f64)),
        Validity::EndsSoon(left) => {
            format!("certified ONLY for another {}: renew it, and reload", span(left as f64))
        }
        Validity::Over(since) => {
            format!("certificate EXPIRED {} ago: renew it, and reload", span(since as f64))
        }
    }
}

/// Runs the `trunkline links` command.
pub fn links(args: &LinksArgs) -> Result<(), Error> {
    let links: Vec<Link> = args.at.connect()?.ask(&Request::Links {})?;
    if args.json {
        return print_json(&links);
    }
    if links.is_empty() {
        outln!("no links: the node's configuration has no [[link]]");
        return Ok(());
    }
    let rows: Vec<_> = links.iter().map(link_row).collect();
    lines(&LINK_COLUMNS, &rows).into_iter().for_each(|line| outln!("{line}"));
    Ok(())
}

/// Columns of the table of links.
pub const LINK_COLUMNS: [(&str, Align); 16] = [
    ("link", Align::Left),
    ("address", Align::Left),
    ("state", Align::Left),
    ("rtt ms", Align::Right),
    ("jitter ms", Align::Right),
    ("loss in %", Align::Right),
    ("out %", Align::Right),
    ("burst in", Align::Right),
    ("out", Align::Right),
    ("kbit/s in", Align::Right),
    ("out", Align::Right),
    ("drops", Align::Right),
    ("downs", Align::Right),
    ("penalty", Align::Right),
    ("damping", Align::Right),
    ("version", Align::Right),
];

/// A link's cells for [`LINK_COLUMNS`].
pub fn link_row(l: &Link) -> Vec<String> {
    let state = if l.up { "up" } else { "down" };
    let kbps = |bps: Option<f64>| number(bps.map(|b| b / 1e3), 1);
    vec![
        title(l),
        place(l),
        l.since_s.map_or(state.into(), |s| format!("{state} {}", span(s))) + &refusal(l),
        number(l.rtt_ms, 2),
        number(l.jitter_ms, 2),
        percent(l.loss_in),
        percent(l.loss_out),
        number(l.burst_in, 1),
        number(l.burst_out, 1),
        kbps(l.bps_in),
        kbps(l.bps_out),
        l.drops.to_string(),
        l.downs.to_string(),
        if l.penalty_ms > 0.0 { format!("{} ms", l.penalty_ms) } else { NOTHING.into() },
        damping(l),
        l.version.map_or(NOTHING.into(), |version| version.to_string()),
    ]
}

/// Where the neighbour is, or is to be found.
fn place(l: &Link) -> String {
    match (&l.address, &l.host) {
        (Some(address), _) => address.to_string(),
        (None, Some(host)) => host.clone(),
        (None, None) => NOTHING.into(),
    }
}

/// Time for which an interface that takes nothing is not worth mentioning, in seconds: it is busy.
const BUSY_S: f64 = 1.0;

/// Why packets to the neighbour don't leave as they should at present, if that is so.
fn refusal(l: &Link) -> String {
    let stalls = l.stalled_s.is_some_and(|s| s >= BUSY_S);
    let error = l.send_error.as_ref().filter(|error| error.lasts);
    let why = if let Some(interface) = &l.no_carrier {
        format!("{interface} has no carrier")
    } else if let Some(next_hop) = l.silent_next_hop {
        format!("{next_hop} doesn't answer ARP or neighbour discovery")
    } else if stalls && l.own_queue {
        "the interface takes nothing for this address".into()
    } else if stalls {
        "the interface takes nothing".into()
    } else if let Some(error) = error {
        if error.partial {
            format!("{} for some packets", error.error)
        } else {
            error.error.clone()
        }
    } else if let Some(by) = &l.leaves_by {
        format!("leaves by {by}")
    } else if let Some(own) = &l.arrives_at {
        format!("its packets arrive at {own}")
    } else if let Some(error) = l.lookup_error.as_ref().filter(|_| !l.up) {
        error.clone()
    } else {
        return String::new();
    };
    format!(" ({why})")
}

fn damping(l: &Link) -> String {
    let share = format!("{:.0} %", 100.0 * l.damping);
    match l.damping_left_s {
        Some(left) => format!("{share}, {}", span(left)),
        None => NOTHING.into(),
    }
}

fn title(l: &Link) -> String {
    // The label may come from an unconfigured peer, so terminal escapes in it are quoted.
    let path = l.path.escape_debug().to_string();
    let parts = [Some(l.neighbour.to_string()), l.name.clone(), Some(path)];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|p| !p.is_empty()).collect();
    parts.join(" ")
}

/// One entry in the output of `routes --json`.
#[derive(Serialize)]
struct Entry<'a> {
    destination: Option<u32>,
    next_hop: Option<u32>,
    path: Option<&'a str>,
    up: bool,
    cost: Option<f64>,
    last_resort: Option<bool>,
    onward_ms: Option<f64>,
    /// Reason why there is no route; `null` if there is one.
    reason: Option<&'static str>,
}

/// The routes, followed by the known nodes without a route.
fn with_missing<'a>(routes: &'a [Route], status: &'a Status) -> Vec<Entry<'a>> {
    let there = routes.iter().map(|r| Entry {
        destination: r.destination,
        next_hop: Some(r.next_hop),
        path: Some(&r.path),
        up: r.up,
        cost: r.cost,
        last_resort: Some(r.last_resort),
        onward_ms: Some(r.onward_ms),
        reason: None,
    });
    let missing = status.unknown_nodes.iter().map(|node| Entry {
        destination: Some(*node),
        next_hop: None,
        path: None,
        up: false,
        cost: None,
        last_resort: None,
        onward_ms: None,
        reason: Some("unknown_key"),
    });
    there.chain(missing).collect()
}

/// Runs the `trunkline routes` command.
pub fn routes(args: &RoutesArgs) -> Result<(), Error> {
    let mut node = args.at.connect()?;
    let routes: Vec<Route> = node.ask(&Request::Routes { metric: args.metric })?;
    if args.json {
        let status: Status = node.ask(&Request::Status {})?;
        return print_json(&with_missing(&routes, &status));
    }
    if routes.is_empty() {
        outln!("no routes: the node has no links");
        return Ok(());
    }
    let columns = [
        ("to", Align::Left),
        ("next hop", Align::Right),
        ("path", Align::Left),
        ("state", Align::Left),
        ("cost", Align::Right),
        ("onward ms", Align::Right),
    ];
    let row = |r: &Route| {
        vec![
            r.destination.map_or("*".into(), |n| n.to_string()),
            r.next_hop.to_string(),
            if r.path.is_empty() { NOTHING.into() } else { r.path.clone() },
            match (r.up, r.last_resort) {
                (true, false) => "up".into(),
                (true, true) => "last resort".into(),
                (false, _) => "down".to_owned(),
            },
            number(r.cost, 2),
            number(Some(r.onward_ms), 1),
        ]
    };
    let rows: Vec<_> = routes.iter().map(row).collect();
    lines(&columns, &rows).into_iter().for_each(|line| outln!("{line}"));
    if routes.iter().any(|r| r.up && r.last_resort) {
        outln!("last resort: every route leads through a node that is draining or not open to all");
    }
    let status: Status = node.ask(&Request::Status {})?;
    unknown(&status).into_iter().for_each(|line| outln!("{line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_normal_is_no_accusation() {
        assert_eq!(denied(0), None);
        let texts = [1, 2].map(|links| denied(links).unwrap());
        assert!(texts[0].starts_with("1 link: only one end advertises it, and no route uses it;"));
        assert!(
            texts[1].starts_with("2 links: only one end advertises them, and no route uses them;")
        );
        assert!(
            texts.iter().all(|t| t.ends_with("normal for half an hour after a node has stopped"))
        );

        let normal = ["duplicate", "older", "link_down", "unknown_origin"];
        let refused = normal.into_iter().chain(["bad_signature"]).map(|why| (why.to_owned(), 3));
        assert_eq!(counts(&unexpected(&refused.collect())).unwrap(), "bad_signature 3");
    }
}
