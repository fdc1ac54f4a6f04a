//! The keys that determine how a link treats packets: in both directions, or in each.

use super::options::LinkEnd;
use super::units::{Rate, Room, Share, Size, Span};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trunkline_base::link_model::{
    Chain, LinkModel, Loss, MAX_TRACE, Queue, Red, Unit, parse_trace,
};

/// Largest number of packets in all traces of a scenario: four of the longest.
const MAX_TRACES: usize = 4 * MAX_TRACE;

/// Keys for one direction. A direction without keys is as the link's.
#[derive(Deserialize, Clone, PartialEq, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Way {
    pub delay: Option<Span>,
    pub jitter: Option<Span>,
    pub loss: Option<Share>,
    pub burst: Option<Share>,
    pub spacing: Option<Span>,
    pub trace: Option<PathBuf>,
    pub rate: Option<Rate>,
    pub queue: Option<Room>,
    pub red: Option<RedSection>,
    pub overlay: LinkEnd,
}

/// Random early detection in the queue; omitted keys are as in [`Red::default`].
#[derive(Deserialize, Clone, Copy, PartialEq, Default, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct RedSection {
    min: Option<Room>,
    max: Option<Room>,
    max_p: Option<Share>,
    weight: Option<Share>,
    packet: Option<Size>,
    gentle: bool,
    ecn: bool,
}

/// Directions in which a link loses packets.
#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    #[default]
    Both,
    There,
    Back,
}

impl Direction {
    /// Whether it includes the forward and the return direction.
    pub fn ways(self) -> [bool; 2] {
        [self != Direction::Back, self != Direction::There]
    }
}

impl Way {
    /// Whether it sets nothing about a wire.
    pub fn is_empty(&self) -> bool {
        Way { overlay: LinkEnd::default(), ..self.clone() } == Way::default()
    }

    /// These keys, and those of `other` that are missing here. The keys that determine which
    /// packets are lost are taken from only one of the two.
    pub fn or(&self, other: &Way) -> Way {
        let other = match (self.trace.is_some(), self.says_loss()) {
            (true, _) => &other.lossless(),
            (_, true) => &Way { trace: None, ..other.clone() },
            _ => other,
        };
        Way {
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            loss: self.loss.or(other.loss),
            burst: self.burst.or(other.burst),
            spacing: self.spacing.or(other.spacing),
            trace: self.trace.clone().or_else(|| other.trace.clone()),
            rate: self.rate.or(other.rate),
            queue: self.queue.or(other.queue),
            red: self.red.or(other.red),
            overlay: self.overlay,
        }
    }

    fn says_loss(&self) -> bool {
        self.loss.is_some() || self.burst.is_some() || self.spacing.is_some()
    }

    /// The same without the keys that determine which packets are lost.
    pub fn lossless(&self) -> Way {
        Way { loss: None, burst: None, spacing: None, trace: None, ..self.clone() }
    }

    /// Applies the keys to `old`: omitted keys leave their part unchanged, and so do loss and queue
    /// if none of their keys is given.
    pub fn changed(&self, old: &LinkModel, traces: &Traces<'_>) -> Result<LinkModel, String> {
        if self.is_empty() {
            return Err("becomes is empty: give the keys that change".into());
        }
        let (delay, rate) = (Some(Span(old.delay)), old.rate.map(Rate));
        let full = Way { delay: self.delay.or(delay), rate: self.rate.or(rate), ..self.clone() };
        let new = full.model(traces)?;
        let loss = self.says_loss() || self.trace.is_some();
        let queue = self.queue.is_some() || self.red.is_some();
        Ok(LinkModel {
            jitter: if self.jitter.is_some() { new.jitter } else { old.jitter },
            queue: if queue { new.queue } else { old.queue },
            loss: if loss { new.loss } else { old.loss.clone() },
            ..new
        })
    }

    /// The model that these keys describe.
    pub fn model(&self, traces: &Traces<'_>) -> Result<LinkModel, String> {
        let delay = self.delay.ok_or(
            "delay is missing: give the time that a packet takes on the wire (a link of two hosts \
             without any key of a wire goes over routers)",
        )?;
        let model = LinkModel {
            delay: delay.0,
            jitter: self.jitter.map_or_else(Default::default, |j| j.0),
            rate: self.rate.map(|r| r.0),
            queue: self.queue()?,
            loss: self.loss(traces)?,
        };
        model.validate().map_err(|why| why.to_string())?;
        Ok(model)
    }

    fn loss(&self, traces: &Traces<'_>) -> Result<Loss, String> {
        if let Some(trace) = &self.trace {
            if self.says_loss() {
                return Err("trace and loss both determine which packets are lost: leave one of \
                            them out"
                    .into());
            }
            return traces.get(trace).map(Loss::Trace);
        }
        let p = self.loss.map_or(0.0, |l| l.0);
        match (p, self.burst, self.spacing) {
            (0.0, ..) => Ok(Loss::None),
            (_, None, None) => Ok(Loss::Bernoulli { p }),
            (_, None, Some(_)) => {
                Err("spacing is the packet interval for which `burst` holds: give it, too".into())
            }
            (_, Some(b), None) => Ok(Loss::Burst { p, b: b.0, chain: Chain::PerPacket }),
            (_, Some(b), Some(d)) => {
                Ok(Loss::Burst { p, b: b.0, chain: Chain::Continuous { spacing: d.0 } })
            }
        }
    }

    fn queue(&self) -> Result<Queue, String> {
        let queue = self.queue.map_or_else(Queue::default, |q| q.0);
        let Some(red) = self.red else { return Ok(queue) };
        if self.rate.is_none() {
            return Err("red is for a queue, and without a rate there is none: give a rate".into());
        }
        let default = Red::default();
        let Some((limit, unit)) = counted(queue) else { return Ok(queue) };
        let threshold = |room: Option<Room>, otherwise: f64| match room.and_then(|r| counted(r.0)) {
            None if unit == default.unit => Ok(otherwise),
            Some((most, of)) if of == unit => Ok(most as f64),
            _ => Err("queue, red.min and red.max must all count packets or all be sizes; the \
                      default queue is 100 packets"),
        };
        Ok(Queue::Red(Red {
            unit,
            limit,
            min: threshold(red.min, default.min)?,
            max: threshold(red.max, default.max)?,
            max_p: red.max_p.map_or(default.max_p, |p| p.0),
            weight: red.weight.map_or(default.weight, |w| w.0),
            packet: red.packet.map_or(default.packet, |p| p.0),
            gentle: red.gentle,
            ecn: red.ecn,
        }))
    }
}

/// Capacity of a queue and its unit.
fn counted(queue: Queue) -> Option<(usize, Unit)> {
    match queue {
        Queue::Packets(n) => Some((n, Unit::Packets)),
        Queue::Bytes(n) => Some((n, Unit::Bytes)),
        Queue::Red(_) => None,
    }
}

/// The traces of one scenario, each read once.
pub struct Traces<'a> {
    /// Folder to which their paths are relative.
    folder: &'a Path,
    read: RefCell<BTreeMap<PathBuf, Arc<[bool]>>>,
}

impl Traces<'_> {
    /// No traces yet, with paths relative to `folder`.
    pub fn new(folder: &Path) -> Traces<'_> {
        Traces { folder, read: RefCell::default() }
    }

    fn get(&self, path: &Path) -> Result<Arc<[bool]>, String> {
        let path = self.folder.join(path);
        let mut read = self.read.borrow_mut();
        if let Some(trace) = read.get(&path) {
            return Ok(trace.clone());
        }
        let trace = read_trace(&path)?;
        let all: usize = trace.len() + read.values().map(|trace| trace.len()).sum::<usize>();
        if all > MAX_TRACES {
            return Err(format!(
                "the traces have {all} packets in total, but at most {MAX_TRACES} \
                                are allowed"
            ));
        }
        read.insert(path, trace.clone());
        Ok(trace)
    }
}

fn read_trace(path: &Path) -> Result<Arc<[bool]>, String> {
    let wrong = |why: String| format!("the trace {}: {why}", path.display());
    // The longest trace, with as much white space again.
    let text = read_file(path, 2 * MAX_TRACE as u64).map_err(wrong)?;
    parse_trace(&text).map_err(|why| wrong(why.to_string()))
}

/// Reads a file of at most `limit` bytes. A path that is no regular file, such as a device, may
/// have no end.
pub fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let about = std::fs::metadata(path).map_err(|why| why.to_string())?;
    if !about.is_file() || about.len() > limit {
        return Err(format!("is not a file of at most {limit} bytes"));
    }
    std::fs::read(path).map_err(|why| why.to_string())
}
