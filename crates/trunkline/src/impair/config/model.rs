//! What happens to the packets of a link, as it is written.

use super::values::{self, ChainKind, DifferentUnits, Limit, PerDirection, RedText};
use super::{DIRECTIONS, Direction, Problem, Traces};
use crate::units::{Fraction, Rate, Span};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_base::link_model::{Chain, LinkModel, Loss};

/// The usual distance between voice packets.
const DEFAULT_SPACING: Duration = Duration::from_millis(20);

/// The keys that say what happens to the packets of a link, in both directions.
#[derive(Default)]
pub struct ModelText {
    pub delay: PerDirection<Span>,
    pub jitter: PerDirection<Span>,
    pub rate: PerDirection<Rate>,
    pub queue: PerDirection<Limit>,
    pub loss: PerDirection<Fraction>,
    pub burst: PerDirection<Fraction>,
    pub chain: PerDirection<ChainKind>,
    pub spacing: PerDirection<Span>,
    /// Files for [`trunkline_base::link_model::parse_trace`], in place of loss.
    pub trace: PerDirection<PathBuf>,
    pub red: PerDirection<RedText>,
}

/// A section of a file: its own keys and those of a [`ModelText`], which serde can't put
/// together without losing track of unknown keys.
macro_rules! modelled {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$of:meta])* pub $key:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$of])* pub $key: $type,)*
            #[serde(default)]
            pub delay: PerDirection<Span>,
            #[serde(default)]
            pub jitter: PerDirection<Span>,
            #[serde(default)]
            pub rate: PerDirection<Rate>,
            #[serde(default)]
            pub queue: PerDirection<Limit>,
            #[serde(default)]
            pub loss: PerDirection<Fraction>,
            #[serde(default)]
            pub burst: PerDirection<Fraction>,
            #[serde(default)]
            pub chain: PerDirection<ChainKind>,
            #[serde(default)]
            pub spacing: PerDirection<Span>,
            #[serde(default)]
            pub trace: PerDirection<PathBuf>,
            #[serde(default)]
            pub red: PerDirection<RedText>,
        }

        impl $name {
            /// Keeps only the keys about packets.
            pub fn into_model(self) -> ModelText {
                let $name { delay, jitter, rate, queue, loss, burst, chain, spacing, trace, red, .. } =
                    self;
                ModelText { delay, jitter, rate, queue, loss, burst, chain, spacing, trace, red }
            }

            /// Makes relative paths start from `folder`.
            pub fn find_traces(&mut self, folder: &std::path::Path) {
                for trace in self.trace.0.iter_mut().flatten() {
                    *trace = folder.join(&trace);
                }
            }
        }
    };
}
pub(in super::super) use modelled;

impl ModelText {
    /// The models of both directions. Forward has stream `stream`, reverse the next one.
    ///
    /// # Errors
    ///
    /// Some values do not go together.
    pub fn directions(&self, stream: u64, traces: &mut Traces) -> Result<[Direction; 2], Problem> {
        let used = |d: usize| self.red.0[d].is_some() && self.rate.0[d].is_some();
        if self.red.0.iter().any(Option::is_some) && !used(0) && !used(1) {
            return Err(Problem::RedAlone);
        }
        Ok([
            Direction { model: self.model(0, traces)?, stream },
            Direction { model: self.model(1, traces)?, stream: stream | 1 },
        ])
    }

    /// The model of direction `d`.
    fn model(&self, d: usize, traces: &mut Traces) -> Result<LinkModel, Problem> {
        let direction = DIRECTIONS[d];
        let loss = match &self.trace.0[d] {
            None => self.loss(d)?,
            Some(_) if self.loss.0[d].is_some() || self.burst.0[d].is_some() => {
                return Err(Problem::TraceAndLoss { direction });
            }
            Some(path) => match traces.get(path) {
                Ok(lost) => Loss::Trace(lost),
                Err(source) => {
                    return Err(Problem::Trace { direction, path: path.clone(), source });
                }
            },
        };
        let queue = values::queue(self.queue.0[d], self.red.0[d].as_ref())
            .map_err(|DifferentUnits| Problem::RedUnits { direction })?;
        let model = LinkModel {
            delay: self.delay.0[d].unwrap_or_default().0,
            jitter: self.jitter.0[d].unwrap_or_default().0,
            loss,
            rate: self.rate.0[d].map(|r| r.0),
            queue,
        };
        match model.validate() {
            Ok(()) => Ok(model),
            Err(source) => Err(Problem::Model { direction, source }),
        }
    }

    /// The loss process of direction `d`, if it is not a trace.
    fn loss(&self, d: usize) -> Result<Loss, Problem> {
        let direction = DIRECTIONS[d];
        let (chain, spacing) = (self.chain.0[d], self.spacing.0[d]);
        Ok(match (self.loss.0[d], self.burst.0[d]) {
            (None, Some(_)) => return Err(Problem::BurstAlone { direction }),
            (_, None) if chain.is_some() => {
                return Err(Problem::ChainAlone { direction, key: "chain" });
            }
            (_, None) if spacing.is_some() => {
                return Err(Problem::ChainAlone { direction, key: "spacing" });
            }
            (None, None) => Loss::None,
            (Some(p), None) => Loss::Bernoulli { p: p.0 },
            (Some(p), Some(b)) => Loss::Burst {
                p: p.0,
                b: b.0,
                chain: match chain.unwrap_or(ChainKind::PerPacket) {
                    ChainKind::PerPacket => Chain::PerPacket,
                    ChainKind::Continuous => {
                        Chain::Continuous { spacing: spacing.map_or(DEFAULT_SPACING, |s| s.0) }
                    }
                },
            },
        })
    }
}
