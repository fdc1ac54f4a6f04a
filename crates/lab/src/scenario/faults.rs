//! Faults of the network while calls last.

use super::file::Reader;
use super::mistake::Mistake;
use super::model::{Fault, FaultKind};
use super::options::{LinkEnd, named, unknown};
use super::units::Span;
use super::wire::{Direction, Way};
use serde::Deserialize;
use serde::de::Deserializer;
use std::ops::Range;
use toml::Spanned;
use trunkline_base::link_model::{LinkModel, Loss};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSection {
    at: Span,
    lasts: Option<Span>,
    what: WhatName,
    link: Option<String>,
    host: Option<String>,
    #[serde(default)]
    way: Direction,
    becomes: Option<Way>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Cut,
    Change,
    Mend,
    Crash,
    Stop,
    Restart,
    Stall,
}

named!(
    /// Name of a kind of fault.
    WhatName(What),
    [
        ("cut", What::Cut),
        ("change", What::Change),
        ("mend", What::Mend),
        ("crash", What::Crash),
        ("stop", What::Stop),
        ("restart", What::Restart),
        ("stall", What::Stall),
    ]
);

impl What {
    fn is_of_link(self) -> bool {
        matches!(self, What::Cut | What::Change | What::Mend)
    }
}

impl Reader<'_> {
    pub fn fault(&self, section: &Spanned<FaultSection>) -> Result<Fault, Mistake> {
        let (s, span) = (section.get_ref(), section.span());
        let wrong = |what: &str| Err(self.mistake(span.clone(), what));
        let what = s.what.0;
        if s.at.0 > self.length {
            return wrong("`at` is after the end of the calls: choose an earlier time");
        }
        match s.lasts {
            Some(_) if matches!(what, What::Mend | What::Restart) => {
                return wrong("mend and restart are for good: leave `lasts` out");
            }
            Some(lasts) if lasts.0.is_zero() => return wrong("lasts is 0: make it longer"),
            None if what == What::Stall => {
                return wrong("say how long the host stalls, with `lasts`");
            }
            _ => {}
        }
        if s.becomes.is_some() != (what == What::Change) {
            return wrong(
                "becomes describes the link after a \"change\": give it with \"change\", \
                          and only there",
            );
        }
        if s.way != Direction::Both && !matches!(what, What::Cut | What::Change) {
            return wrong("way is only for \"cut\" and \"change\": leave it out");
        }
        let what = match (&s.link, &s.host) {
            (Some(link), None) if what.is_of_link() => self.link_fault(&span, s, link)?,
            (None, Some(host)) if !what.is_of_link() => {
                let hosts = self.hosts.iter().map(|h| h.name.as_str());
                let host = self.text.find(span, "host", host, hosts)?;
                match what {
                    What::Crash => FaultKind::Crash(host),
                    What::Stop => FaultKind::Stop(host),
                    What::Restart => FaultKind::Restart(host),
                    _ => FaultKind::Stall(host),
                }
            }
            _ => {
                return wrong(
                    "name what it happens to: the `link` that is cut, mended or changed, or the \
                     `host` that crashes, stops, restarts or stalls",
                );
            }
        };
        Ok(Fault { at: s.at.0, until: s.lasts.map(|lasts| s.at.0 + lasts.0), what })
    }

    fn link_fault(
        &self,
        span: &Range<usize>,
        s: &FaultSection,
        name: &str,
    ) -> Result<FaultKind, Mistake> {
        let wrong = |what: String| self.mistake(span.clone(), what);
        let names = self.links.iter().filter(|l| l.named).map(|l| l.name.as_str());
        self.text.find(span.clone(), "link with the name", name, names)?;
        let link = self.links.iter().position(|l| l.name == name).unwrap_or_default();
        let Some(wire) = &self.links[link].wire else {
            return Err(wrong(format!(
                "link \"{name}\" has no wire of its own: name a link that it goes over"
            )));
        };
        if s.what.0 == What::Mend {
            return Ok(FaultKind::Mend(link));
        }
        let becomes = |old: &LinkModel| match &s.becomes {
            None => Ok(LinkModel { loss: Loss::EVERYTHING, ..old.clone() }),
            Some(way) if way.overlay != LinkEnd::default() => {
                Err("only a wire can change, not the overlay: leave `overlay` out".to_owned())
            }
            Some(way) => way.changed(old, &self.traces),
        };
        let mut models = [None, None];
        for ((model, old), affected) in models.iter_mut().zip(wire).zip(s.way.ways()) {
            if affected {
                *model = Some(becomes(old).map_err(wrong)?);
            }
        }
        Ok(FaultKind::Link(link, Box::new(models)))
    }
}
