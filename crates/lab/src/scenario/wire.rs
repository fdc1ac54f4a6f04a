//! What a link does to packets, as a file says it: both ways alike, or each way.

use super::options::LinkEnd;
use super::units::{Rate, Room, Share, Span};
use serde::Deserialize;
use trunkline_base::link_model::{Chain, LinkModel, Loss};

/// What is said of one way. A way that is not given is as the link says.
#[derive(Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Way {
    pub delay: Option<Span>,
    pub jitter: Option<Span>,
    pub loss: Option<Share>,
    pub burst: Option<Share>,
    pub spacing: Option<Span>,
    pub rate: Option<Rate>,
    pub queue: Option<Room>,
    pub overlay: LinkEnd,
}

/// Which way a link loses packets.
#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    #[default]
    Both,
    There,
    Back,
}

impl Direction {
    /// Whether it is there, and back.
    pub fn ways(self) -> [bool; 2] {
        [self != Direction::Back, self != Direction::There]
    }
}

impl Way {
    /// Whether it says anything about a wire.
    pub fn is_empty(&self) -> bool {
        Way { overlay: LinkEnd::default(), ..*self } == Way::default()
    }

    /// What is said here, and what is said in `other` and not here.
    pub fn or(&self, other: &Way) -> Way {
        Way {
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            loss: self.loss.or(other.loss),
            burst: self.burst.or(other.burst),
            spacing: self.spacing.or(other.spacing),
            rate: self.rate.or(other.rate),
            queue: self.queue.or(other.queue),
            overlay: self.overlay,
        }
    }

    /// Without what says which packets are lost.
    pub fn lossless(&self) -> Way {
        Way { loss: None, burst: None, spacing: None, ..*self }
    }

    /// What becomes of `old`: what isn't said stays, and so does the loss if none of
    /// it is said.
    pub fn changed(&self, old: &LinkModel) -> Result<LinkModel, String> {
        let full = Way { delay: self.delay.or(Some(Span(old.delay))), ..*self };
        let new = full.model()?;
        let says_loss = self.loss.is_some() || self.burst.is_some() || self.spacing.is_some();
        let model = LinkModel {
            delay: new.delay,
            jitter: if self.jitter.is_some() { new.jitter } else { old.jitter },
            rate: if self.rate.is_some() { new.rate } else { old.rate },
            queue: if self.queue.is_some() { new.queue } else { old.queue },
            loss: if says_loss { new.loss } else { old.loss.clone() },
        };
        match self.is_empty() {
            true => Err("becomes says nothing: say what changes".into()),
            false => Ok(model),
        }
    }

    /// What it comes to.
    pub fn model(&self) -> Result<LinkModel, String> {
        let delay = self.delay.ok_or(
            "delay is missing: say how long a packet is on the wire (a link of two hosts that \
             says nothing of a wire goes over routers)",
        )?;
        let p = self.loss.map_or(0.0, |l| l.0);
        let loss = match (p, self.burst, self.spacing) {
            (0.0, ..) => Loss::None,
            (_, None, None) => Loss::Bernoulli { p },
            (_, None, Some(_)) => {
                let what = "spacing says at what distance of packets `burst` holds: give it, too";
                return Err(what.into());
            }
            (_, Some(b), None) => Loss::Burst { p, b: b.0, chain: Chain::PerPacket },
            (_, Some(b), Some(d)) => {
                Loss::Burst { p, b: b.0, chain: Chain::Continuous { spacing: d.0 } }
            }
        };
        let model = LinkModel {
            delay: delay.0,
            jitter: self.jitter.map_or_else(Default::default, |j| j.0),
            rate: self.rate.map(|r| r.0),
            queue: self.queue.map_or_else(Default::default, |q| q.0),
            loss,
        };
        model.validate().map_err(|why| why.to_string())?;
        Ok(model)
    }
}
