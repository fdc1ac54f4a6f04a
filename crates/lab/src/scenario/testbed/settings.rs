//! Writes a node's settings for a daemon's configuration file, except defaults.

use super::super::model::NOBODY;
use super::super::options::loss_name;
use std::time::Duration;
use trunkline_overlay::link::Config;
use trunkline_overlay::node::Routing;
use trunkline_overlay::trunk::{self, Multiplex};

/// A key of the configuration file, and a function that writes its value.
type Key<T> = (&'static str, fn(&T) -> Option<String>);

const LINK: &[Key<Config>] = &[
    ("path", |c| Some(format!("\"{}\"", c.path))),
    ("mtu", |c| Some(c.mtu.to_string())),
    ("dscp", |c| Some(c.dscp.to_string())),
    ("rate", |c| c.rate.map(|r| format!("\"{} bit/s\"", r.as_bps()))),
    ("penalty", |c| span(c.penalty)),
];
const REALTIME: &[Key<Config>] = &[
    ("recovery", |c| Some(format!("\"{}\"", c.realtime.recovery.name()))),
    ("reorder", |c| Some(c.realtime.reorder.to_string())),
    ("repeat_share", |c| Some(c.realtime.repeat_share.to_string())),
    ("repeat_burst", |c| Some(c.realtime.repeat_burst.to_string())),
    ("extra_share", |c| Some(c.realtime.extra_share.to_string())),
    ("max_wait", |c| span(c.realtime.max_wait)),
    ("memory", |c| Some(format!("\"{} B\"", c.realtime.bytes))),
];
const BEST_EFFORT: &[Key<Config>] = &[
    ("max_wait", |c| span(c.best_effort.max_wait)),
    ("memory", |c| Some(format!("\"{} B\"", c.best_effort.bytes))),
];
const HELLO: &[Key<Config>] = &[
    ("interval", |c| span(c.liveness.interval)),
    ("dead_after", |c| span(c.liveness.dead_after)),
    ("probes", |c| Some(c.liveness.probes.to_string())),
    ("piggyback", |c| Some(c.liveness.piggyback.to_string())),
    ("loss", |c| Some(format!("\"{}\"", loss_name(c.liveness.loss)))),
];
const ROUTING: &[Key<Routing>] = &[
    ("metric", |r| Some(format!("\"{}\"", r.metric))),
    ("formula", |r| Some(format!("\"{}\"", r.cost.formula.name()))),
    ("deadline", |r| span(r.cost.deadline)),
    ("detection", |r| span(r.cost.detection)),
    ("max_nodes", |r| Some(r.limits.max_nodes.to_string())),
];

fn span(span: Duration) -> Option<String> {
    Some(format!("\"{}ns\"", span.as_nanos()))
}

/// A line for each key whose value differs between `value` and `default`.
fn keys<T>(keys: &[Key<T>], value: &T, default: &T) -> String {
    let line = |&(key, text): &Key<T>| match (text(value), text(default)) {
        (Some(value), default) if Some(&value) != default.as_ref() => {
            Some(format!("{key} = {value}\n"))
        }
        _ => None,
    };
    keys.iter().filter_map(line).collect()
}

/// The lines of a `[[trunk]]` section for a trunk's settings.
pub fn of_trunk(trunk: &trunk::Config) -> String {
    let multiplex = match trunk.multiplex {
        Multiplex::Fill => "fill",
        Multiplex::Tfmc => "tfmc",
        Multiplex::Off => "off",
    };
    let admit = if trunk.admit_share { "share" } else { "all" };
    let (to, wait) = (trunk.to, trunk.wait.as_nanos());
    format!(
        "[[trunk]]\nto = {to}\nwait = \"{wait}ns\"\nmultiplex = \"{multiplex}\"\nadmit = \"{admit}\"\n"
    )
}

/// The lines of a `[[link]]` section for the settings of `link`.
pub fn of_link(link: &Config) -> String {
    keys(LINK, link, &Config::new(NOBODY))
}

/// The sections of a daemon's file that apply to the whole node, all of whose links have the
/// settings of `link`.
pub fn of_node(link: &Config, routing: Option<&Routing>) -> String {
    let default = Config::new(NOBODY);
    let sections = [("realtime", REALTIME), ("best_effort", BEST_EFFORT), ("hello", HELLO)];
    let mut text = String::new();
    for (name, known) in sections {
        let lines = keys(known, link, &default);
        if !lines.is_empty() {
            text += &format!("[{name}]\n{lines}");
        }
    }
    let mut lines = routing.map_or_else(String::new, |r| keys(ROUTING, r, &Routing::default()));
    if link.damping != default.damping {
        lines += &format!("damping = \"{}ns\"\n", link.damping.as_nanos());
    }
    if !lines.is_empty() {
        text += &format!("[routing]\n{lines}");
    }
    text
}
