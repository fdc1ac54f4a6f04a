//! Keys of a link's model, as written in the file.

use super::values::{self, ChainKind, DifferentUnits, Limit, PerDirection, RedText};
use super::{DIRECTIONS, Direction, Problem, Traces};
use crate::units::{Fraction, Rate, Span};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_base::link_model::{Chain, InvalidModel, LinkModel, Loss};

/// The usual interval between voice packets.
const DEFAULT_SPACING: Duration = Duration::from_millis(20);

/// Keys that describe the treatment of a link's packets, in both directions.
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
    /// Files for [`trunkline_base::link_model::parse_trace`], instead of loss.
    pub trace: PerDirection<PathBuf>,
    pub red: PerDirection<RedText>,
}

/// A section of a file: its own keys and those of a [`ModelText`]. Serde cannot combine them
/// without losing track of unknown keys.
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
            /// Keeps only the keys of the model.
            pub fn into_model(self) -> ModelText {
                let $name { delay, jitter, rate, queue, loss, burst, chain, spacing, trace, red, .. } =
                    self;
                ModelText { delay, jitter, rate, queue, loss, burst, chain, spacing, trace, red }
            }

            /// Resolves relative paths against `folder`.
            pub fn find_traces(&mut self, folder: &std::path::Path) {
                for trace in self.trace.of.iter_mut().flatten() {
                    *trace = folder.join(&trace);
                }
            }
        }
    };
}
pub(in super::super) use modelled;

impl ModelText {
    /// Builds the models of both directions. Forward has stream `stream`, reverse the next one.
    ///
    /// # Errors
    ///
    /// Values that contradict each other, with the position of one of them.
    pub fn directions(
        &self,
        stream: u64,
        traces: &mut Traces,
    ) -> Result<[Direction; 2], (usize, Problem)> {
        // A single value for both directions applies to those that have a queue.
        let (red, rate) = (&self.red, &self.rate);
        let is_unused = |d: usize| red.of[d].is_some() && rate.of[d].is_none();
        if let Some(d) = (0..2).find(|&d| is_unused(d))
            && (red.is_named || is_unused(1 - d))
        {
            let direction = red.is_named.then_some(DIRECTIONS[d]);
            return Err((red.at[d], Problem::RedAlone { direction }));
        }
        Ok([
            Direction { model: self.model(0, traces)?, stream },
            Direction { model: self.model(1, traces)?, stream: stream | 1 },
        ])
    }

    /// Builds the model of direction `d`.
    fn model(&self, d: usize, traces: &mut Traces) -> Result<LinkModel, (usize, Problem)> {
        let direction = DIRECTIONS[d];
        let loss = match &self.trace.of[d] {
            None => self.loss(d)?,
            Some(_) if self.loss.of[d].is_some() || self.burst.of[d].is_some() => {
                return Err((self.trace.at[d], Problem::TraceAndLoss { direction }));
            }
            Some(path) => match traces.get(path) {
                Ok(lost) => Loss::Trace(lost),
                Err(source) => {
                    let path = path.clone();
                    return Err((self.trace.at[d], Problem::Trace { direction, path, source }));
                }
            },
        };
        let queue = values::queue(self.queue.of[d], self.red.of[d].as_ref())
            .map_err(|DifferentUnits| (self.red.at[d], Problem::RedUnits { direction }))?;
        let model = LinkModel {
            delay: self.delay.of[d].unwrap_or_default().0,
            jitter: self.jitter.of[d].unwrap_or_default().0,
            loss,
            rate: self.rate.of[d].map(|r| r.0),
            queue,
        };
        match model.validate() {
            Ok(()) => Ok(model),
            Err(source) => Err((self.place(&source, d), Problem::Model { direction, source })),
        }
    }

    /// Position of the value that makes the model of direction `d` invalid.
    fn place(&self, why: &InvalidModel, d: usize) -> usize {
        match why {
            InvalidModel::Loss(_) | InvalidModel::LossTooHigh { .. } => self.loss.at[d],
            InvalidModel::Burst(_) | InvalidModel::BurstBelowLoss { .. } => self.burst.at[d],
            InvalidModel::Spacing(_) => self.spacing.at[d],
            InvalidModel::Rate => self.rate.at[d],
            InvalidModel::EmptyTrace => self.trace.at[d],
            InvalidModel::RedThresholds { .. }
            | InvalidModel::RedShare(_)
            | InvalidModel::RedWeight(_)
            | InvalidModel::RedPacket => self.red.at[d],
        }
    }

    /// Builds the loss process of direction `d`, unless it is a trace.
    fn loss(&self, d: usize) -> Result<Loss, (usize, Problem)> {
        let direction = DIRECTIONS[d];
        let (chain, spacing) = (self.chain.of[d], self.spacing.of[d]);
        let alone = |at: usize, key| Err((at, Problem::ChainAlone { direction, key }));
        Ok(match (self.loss.of[d], self.burst.of[d]) {
            (None, Some(_)) => return Err((self.burst.at[d], Problem::BurstAlone { direction })),
            (_, None) if chain.is_some() => return alone(self.chain.at[d], "chain"),
            (_, None) if spacing.is_some() => return alone(self.spacing.at[d], "spacing"),
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
