//! Figures and claims on the overlay's control traffic.

use super::dead;
use crate::claim::{Bound, Claim, Measured, OWN_TARGET, Verdict, worst_of};
use crate::experiment::Figure;
use crate::plot::{Axis, Chart, Mark, Series, Style, one_panel};
use crate::table::{Record, Table};

pub fn all() -> Vec<Figure> {
    vec![updates(), quiet(), found(), hundreds()]
}

fn rows<'a>(table: &'a Table, what: &'a str) -> impl Iterator<Item = Record<'a>> {
    table.iter().filter(move |r| r.is("what", what))
}

/// The value of a quantity for a setting, at this position.
fn at(table: &Table, what: &str, setting: &str, x: f64) -> Measured {
    let here = |r: &Record<'_>| r.is("setting", setting) && r.number("x") == x;
    let row = rows(table, what).find(here);
    row.map_or(Measured::census(f64::NAN), |r| Measured::of(&r, ["value", "low", "high"]))
}

fn series(table: &Table, what: &str, setting: &str, style: Style) -> Series {
    let here = rows(table, what).filter(|r| r.is("setting", setting));
    let mark = |r: Record<'_>| {
        let interval = Some((r.number("low"), r.number("high")));
        Mark { x: r.number("x"), y: r.number("value"), interval }
    };
    Series { name: setting.to_owned(), style, points: here.map(mark).collect() }
}

const IN_A_PACKET: &str = "updates in a packet";

fn updates() -> Figure {
    Figure {
        name: "control-updates",
        title: "Link updates in an Ethernet packet, by the links of a node",
        section: "III-A",
        caption: "When a node comes up it receives the entire routing table, and many simultaneous \
               events are sent together: an Ethernet packet then carries 60 to 90 distinct \
               updates, depending on the sparsity of the network. Here the records of an overlay \
               of 100 nodes are sent to a node that has none, and then the news that 60 of its \
               links, drawn at random, have begun to lose packets.",
        chart: one_panel(|t| {
            let named = |(n, setting)| series(t, IN_A_PACKET, setting, Style::nth(n));
            Chart {
                title: "Link updates in an Ethernet packet".into(),
                x: Axis::linear("links of a node, on average", (0.0, 14.0), 2.0),
                y: Axis::linear("updates in a packet", (0.0, 100.0), 20.0),
                series: [(0, "transfer"), (1, "events")].map(named).into(),
            }
        }),
        claims: vec![
            told_together(
                "dense",
                "an Ethernet packet of a transfer carries at least 60 updates: 12 links a node",
                &[12.0],
                "transfer",
                Verdict::Holds,
                "A record covers all links of a node: 80 bytes, 64 of them its signature, and 10 \
                 for each link. From eight links a node on, packets are as full as the paper's.",
            ),
            told_together(
                "sparse",
                "the same in an overlay as sparse as those that the paper simulates: 4 links a node",
                &[4.0],
                "transfer",
                Verdict::Fails,
                "Updates are signed here. Without the 64 bytes of each signature, 1,425 bytes \
                 would carry 100 of these.",
            ),
            told_together(
                "events",
                "where 60 links change at once, an Ethernet packet carries at least 60 of the \
                 changes: 4 links a node",
                &[4.0],
                "events",
                Verdict::Fails,
                "A node sends all its links in one record, both changed and unchanged ones: that \
                 takes one signature, and the newest record is always complete.",
            ),
        ],
    }
}

fn told_together(
    id: &'static str,
    says: &'static str,
    at_links: &'static [f64],
    setting: &'static str,
    expected: Verdict,
    why: &'static str,
) -> Claim {
    Claim {
        id,
        statement: says,
        published: Some(
            "a regular Ethernet packet carries between 60 and 90 distinct updates, depending on \
             the sparsity of the network",
        ),
        bound: Bound::at_least(60.0, "as published").better(90.0),
        unit: "updates",
        decimals: 1,
        measure: Box::new(move |t| {
            at_links.first().map_or(Measured::census(f64::NAN), |&x| at(t, IN_A_PACKET, setting, x))
        }),
        at: at_links,
        expected,
        why,
        sabotage: "half-a-packet",
        ..Claim::default()
    }
}

const HELLO: &str = "hello (bytes)";
const A_SECOND: &str = "hellos a second from an end";
const ON_A_LINK: &str = "bytes a second on a link";
const NEWS: &str = "updates a node and hour";
const NO_HELLOS: &str = "bytes that are no hellos (%)";

fn quiet() -> Figure {
    Figure {
        name: "control-quiet",
        title: "Traffic while nothing happens",
        section: "III-A",
        caption: "Each end of a link sends one hello of 32 bytes a second, and a link update is sent \
               only if something has changed. Here an idle link, and an overlay of 15 nodes and 30 \
               links in which nothing happens for an hour, with the paper's hellos.",
        chart: one_panel(|t| {
            let marks = [
                (HELLO, "unsealed", 0.0),
                (HELLO, "sealed", 1.0),
                (NEWS, "said once", 2.0),
                (NEWS, "renewed", 3.0),
            ];
            let named = |(n, (what, setting, _)): (usize, (&str, &str, f64))| Series {
                name: format!("{what}, {setting}"),
                ..series(t, what, setting, Style::nth(n))
            };
            Chart {
                title: "While nothing happens".into(),
                x: Axis::linear(
                    "a link: 0 unsealed, 1 sealed; an overlay: 2 sent once, 3 renewed",
                    (-1.0, 4.0),
                    1.0,
                ),
                y: Axis::linear("bytes of a hello, updates a node and hour", (0.0, 60.0), 10.0),
                series: marks.into_iter().enumerate().map(named).collect(),
            }
        }),
        claims: quiet_claims(),
    }
}

fn quiet_claims() -> Vec<Claim> {
    let hello = Claim {
        id: "a-hello",
        statement: "a hello is no more than 32 bytes of UDP payload",
        published: Some("a hello has 32 bytes"),
        bound: Bound::at_most(32.0, "as published, whatever the 32 bytes consist of"),
        unit: "bytes",
        decimals: 1,
        measure: Box::new(|t| at(t, HELLO, "sealed", 1.0)),
        at: &[1.0],
        expected: Verdict::Fails,
        why: "The hello itself has 22 bytes; its envelope, which authenticates it, another 24.",
        sabotage: "headers-counted",
        ..Claim::default()
    };
    let a_second = Claim {
        id: "one-a-second",
        statement: "each end sends a hello a second",
        published: Some("one hello is sent every second by each end of a link"),
        bound: Bound::within(0.95, 1.05, "1, to a twentieth of it"),
        unit: "a second",
        decimals: 3,
        measure: Box::new(|t| at(t, A_SECOND, "sealed", 1.0)),
        at: &[1.0],
        sabotage: "a-tenth-more-hellos",
        ..Claim::default()
    };
    let cost = Claim {
        id: "a-link",
        statement: "an idle sealed link costs at most 100 bytes a second of UDP payload, both \
               directions together",
        published: None,
        bound: Bound::at_most(100.0, OWN_TARGET),
        unit: "bytes/s",
        decimals: 1,
        measure: Box::new(|t| {
            let unsealed = at(t, ON_A_LINK, "unsealed", 0.0).estimate;
            at(t, ON_A_LINK, "sealed", 1.0).noting(format!("Unsealed: {unsealed:.1} bytes/s."))
        }),
        at: &[0.0, 1.0],
        why: "The paper's two hellos are 64 bytes/s; these are 92, and the rest renews keys.",
        sabotage: "a-tenth-more-hellos",
        ..Claim::default()
    };
    let news = Claim {
        id: "only-changes",
        statement: "in an hour in which nothing changes no node sends an update",
        published: Some("a link update is propagated only in case of a network change"),
        bound: Bound::at_most(0.0, "as published"),
        unit: "updates a node and hour",
        measure: Box::new(|t| {
            let bytes = at(t, NO_HELLOS, "renewed", 3.0).estimate;
            let never = at(t, NEWS, "said once", 2.0).estimate;
            let note = format!(
                "That is {bytes:.1} % of all bytes. If records were never renewed, it would be \
                 {never:.2} updates.",
            );
            at(t, NEWS, "renewed", 3.0).noting(note)
        }),
        at: &[2.0, 3.0],
        expected: Verdict::Fails,
        why: "A node signs its records again every 10 minutes, so that records of a node that no \
              longer exists expire.",
        sabotage: "renewed-ten-times-as-often",
        ..Claim::default()
    };
    vec![hello, a_second, cost, news]
}

fn found() -> Figure {
    Figure {
        name: "control-dead",
        title: "Time until a dead link is detected and left",
        section: "III-A",
        caption: "Failures are detected through hellos in under 10 seconds; a shorter detection \
               interval makes routes more likely to be unstable. Here one of two links of the \
               shorter of two paths is cut, or loses everything in one direction, or their relay \
               dies, at a random time between two hellos, with a call on them or without: until \
               one end declares a link dead, and until both ends of the call use the other path.",
        chart: one_panel(|t| {
            let mut series: Vec<Series> = Vec::new();
            for (n, setting) in dead::names().enumerate() {
                series.push(self::series(t, "left (s)", setting, Style::nth(n)));
            }
            Chart {
                title: "Until both ends have left a dead link".into(),
                x: Axis::linear("share of failures (%)", (0.0, 100.0), 20.0),
                y: Axis::linear("seconds after the failure", (7.0, 11.0), 1.0),
                series,
            }
        }),
        claims: vec![left()],
    }
}

fn left() -> Claim {
    Claim {
        id: "under-ten",
        statement: "with the paper's hellos a link that dies under a call is detected and left in both \
               directions in under 10 s, in the worst of all runs",
        published: Some("network failures are detected through hellos in under 10 seconds"),
        bound: Bound::below(10.0, "as published"),
        unit: "s",
        decimals: 3,
        measure: Box::new(|t| {
            let worst = |what, setting| at(t, what, setting, 100.0).estimate;
            let (nine, ten) = ("9 s with a call", "10 s with a call");
            let note = format!(
                "Detected after {:.3} s at most. After ten seconds of silence: {:.3} s, and left \
                 after {:.3}; without a call {:.3} to {:.3} s. {}",
                worst("found (s)", nine),
                worst("found (s)", ten),
                worst("left (s)", ten),
                at(t, "left (s)", "10 s idle", 0.0).estimate,
                worst("left (s)", "10 s idle"),
                worst_of(rows(t, "left (s)").next().map_or(f64::NAN, |r| r.number("of"))),
            );
            Measured::census(worst("left (s)", nine)).noting(note)
        }),
        why: "A call's packets are signs of life until the cut, so silence begins there and not \
              with the last hello, up to a second before; the news of it then has to travel. If \
              nine hellos in a row are missed, all nodes learn of it in time; with ten they don't.",
        sabotage: "a-second-more-patience",
        ..Claim::default()
    }
}

const KNOWN: &str = "nodes with a way from each";
const AGREED: &str = "agreed after (s)";

fn hundreds() -> Figure {
    Figure {
        name: "control-nodes",
        title: "Overlays of hundreds of nodes",
        section: "III-A",
        caption: "Several hundred overlay nodes, and up to a thousand clients of each. Here overlays \
               with four links a node, whose nodes all start at once with the paper's hellos: the \
               time until all agree on the overlay's state, and the traffic until then.",
        chart: one_panel(|t| {
            let tops = rows(t, AGREED).map(|r| r.number("high")).collect::<Vec<_>>();
            let line = series(t, AGREED, "paper", Style::nth(0));
            Chart {
                title: "Until all nodes agree on the overlay's state".into(),
                x: Axis::linear("nodes", (0.0, 500.0), 100.0),
                y: Axis::fitting("seconds after the start", 0.0, tops.into_iter()),
                series: vec![Series { name: "paper's hellos".into(), ..line }],
            }
        }),
        claims: vec![scales()],
    }
}

fn scales() -> Claim {
    Claim {
        id: "several-hundred",
        statement: "in an overlay of 300 every node has a route to every other",
        published: Some("up to several hundred overlay nodes"),
        bound: Bound::at_least(300.0, "300 are several hundred; a node counts itself"),
        unit: "nodes",
        decimals: 0,
        measure: Box::new(|t| {
            let of = |what| at(t, what, "paper", 300.0);
            let note = format!(
                "All had routes to all {:.1} s after the start; a node had sent {:.0} kB of \
                 updates by then.",
                of(AGREED).estimate,
                of("flooded by a node (kB)").estimate,
            );
            of(KNOWN).noting(note)
        }),
        at: &[300.0],
        why: "A thousand clients of a node are covered by a test of the daemon, not by a figure.",
        sabotage: "room-for-all-but-one",
        ..Claim::default()
    }
}
