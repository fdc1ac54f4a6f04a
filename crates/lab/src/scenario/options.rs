//! The settings of a node and its links in a scenario, with the same sections and keys as in a
//! node's configuration file (docs/configuration.md).

use super::model::NOBODY;
use super::units::{Rate, Share, Size, Span};
use serde::Deserialize;
use serde::de::Deserializer;
use std::time::Duration;
use trunkline_overlay::link::realtime::{self, Recovery};
use trunkline_overlay::link::{self, best_effort};
use trunkline_overlay::monitor::{Liveness, LossMode};
use trunkline_overlay::node::Routing;
use trunkline_overlay::route::{Formula, Limits};
use trunkline_overlay::wire::Metric;

const LOSS: [(&str, LossMode); 2] =
    [("changes", LossMode::Changes), ("intervals", LossMode::Paper)];

/// Name of a loss measurement mode in a node's configuration file.
pub fn loss_name(mode: LossMode) -> &'static str {
    LOSS.iter().find(|(_, known)| *known == mode).map_or("changes", |(name, _)| name)
}

/// An "unknown variant" error with serde's wording for an enum, in which suggestions are searched.
pub fn unknown<E: serde::de::Error>(name: &str, known: impl Iterator<Item = &'static str>) -> E {
    let known: Vec<String> = known.map(|k| format!("`{k}`")).collect();
    E::custom(format!("unknown variant `{name}`, expected one of {}", known.join(", ")))
}

/// A type that is written in a file as one of a list of names.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident($type:ty), $known:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $name(pub $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                let name = String::deserialize(from)?;
                let known = $known;
                let found = known.iter().find(|(known, _)| *known == name);
                found.map(|&(_, value)| $name(value)).ok_or_else(|| {
                    unknown(&name, known.into_iter().map(|(known, _)| known))
                })
            }
        }

        impl From<$name> for $type {
            fn from(name: $name) -> $type {
                name.0
            }
        }
    };
}
pub(super) use named;

named!(
    /// Name of a loss measurement mode of a link.
    LossName(LossMode),
    LOSS
);
named!(
    /// Name of a routing metric.
    MetricName(Metric),
    Metric::ALL.map(|metric| (metric.name(), metric))
);
named!(
    /// Name of a formula for the expected latency.
    FormulaName(Formula),
    Formula::ALL.map(|formula| (formula.name(), formula))
);
named!(
    /// Name of a recovery policy.
    RecoveryName(Recovery),
    Recovery::all().map(|policy| (policy.name(), policy)).collect::<Vec<_>>()
);

/// A section whose keys are settings of `$to`; omitted keys leave their setting unchanged.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident => $to:ty { $($key:ident: $type:ty => $($field:ident).+,)+ }) => {
        $(#[$doc])*
        #[derive(Deserialize, Clone, Copy, PartialEq, Default, Debug)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $($key: Option<$type>,)+
        }

        impl $name {
            /// Applies the keys that the section has.
            pub fn apply(&self, to: &mut $to) {
                $(if let Some(value) = self.$key {
                    to.$($field).+ = value.into();
                })+
            }
        }
    };
}

section!(
    /// Section `[realtime]`: the recovery of real-time packets.
    Realtime => realtime::Config {
        recovery: RecoveryName => recovery,
        reorder: u16 => reorder,
        repeat_share: Share => repeat_share,
        repeat_burst: u32 => repeat_burst,
        extra_share: Share => extra_share,
        max_wait: Span => max_wait,
        memory: Size => bytes,
    }
);
section!(
    /// Section `[best_effort]`: the best-effort service.
    BestEffort => best_effort::Config {
        max_wait: Span => max_wait,
        memory: Size => bytes,
    }
);
section!(
    /// Section `[hello]`: the liveness of links.
    Hello => Liveness {
        interval: Span => interval,
        dead_after: Span => dead_after,
        probes: bool => probes,
        piggyback: bool => piggyback,
        loss: LossName => loss,
    }
);
section!(
    /// Keys of a `[[link]]` in a node's configuration file that concern one end.
    LinkEnd => link::Config {
        mtu: u16 => mtu,
        dscp: u8 => dscp,
        rate: Rate => rate,
        penalty: Span => penalty,
    }
);
section!(
    /// Section `[routing]`: link-state routing.
    RoutingSection => RoutingSettings {
        enabled: bool => enabled,
        metric: MetricName => routing.metric,
        formula: FormulaName => routing.cost.formula,
        deadline: Span => routing.cost.deadline,
        detection: Span => routing.cost.detection,
        max_nodes: u16 => max_nodes,
        damping: Span => damping,
    }
);

/// Settings of the section `[routing]`.
#[derive(Clone, Debug)]
pub struct RoutingSettings {
    enabled: bool,
    routing: Routing,
    max_nodes: u16,
    damping: Duration,
}

/// The sections that concern a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeSections {
    pub realtime: Realtime,
    pub best_effort: BestEffort,
    pub hello: Hello,
    pub routing: Option<RoutingSection>,
}

/// The settings of a node from its sections.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Settings of each of its links, except those specific to a link.
    pub link: link::Config,
    /// Link-state routing, if the node uses it.
    pub routing: Option<Routing>,
}

/// Applies `sections` in order, so that later ones take precedence.
///
/// # Errors
///
/// The first value that is out of range.
pub fn settings(sections: &[&NodeSections]) -> Result<NodeSettings, &'static str> {
    let mut link = link::Config::new(NOBODY);
    let mut routing = RoutingSettings {
        enabled: false,
        routing: Routing::default(),
        max_nodes: u16::try_from(Limits::default().max_nodes).unwrap_or(u16::MAX),
        damping: link.damping,
    };
    for section in sections {
        section.realtime.apply(&mut link.realtime);
        section.best_effort.apply(&mut link.best_effort);
        section.hello.apply(&mut link.liveness);
        if let Some(own) = &section.routing {
            routing.enabled = true;
            own.apply(&mut routing);
        }
    }
    link.damping = routing.damping;
    link.check()?;
    if !(2..=10_000).contains(&routing.max_nodes) {
        return Err("[routing] max_nodes: 2 to 10000");
    }
    routing.routing.cost.check()?;
    routing.routing.limits.max_nodes = routing.max_nodes.into();
    Ok(NodeSettings { link, routing: routing.enabled.then_some(routing.routing) })
}
