//! Traffic over the links: calls and streams.

use super::file::Reader;
use super::mistake::Mistake;
use super::model::{Call, Carrier, Program, Stream, Transfer};
use super::options::{named, unknown};
use super::units::{Rate, Size, Span};
use super::ways;
use serde::Deserialize;
use serde::de::Deserializer;
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;
use trunkline_net::Protocol;
use trunkline_overlay::wire::Service;
use trunkline_sim::agent::tcp::Profile;
use trunkline_sim::voice::VOICE_PACKET;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSection {
    name: Option<String>,
    from: String,
    to: String,
    count: Option<u32>,
    service: Option<CarrierName>,
    threshold: Option<Span>,
}

#[derive(Clone, Copy)]
struct CarrierName(Carrier);

impl<'de> Deserialize<'de> for CarrierName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CarrierName, D::Error> {
        let name = String::deserialize(from)?;
        if name == PLAIN {
            return Ok(CarrierName(Carrier::Plain));
        }
        let known = Service::NAMES.into_iter().chain([PLAIN]);
        let service = name.parse().map_err(|_| unknown(&name, known))?;
        Ok(CarrierName(Carrier::Overlay(service)))
    }
}

/// Service name of calls that don't use the overlay.
const PLAIN: &str = "plain";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSection {
    name: Option<String>,
    #[serde(default)]
    kind: StreamKind,
    from: String,
    to: String,
    protocol: Option<ProtocolName>,
    packet: Option<Size>,
    rate: Option<Rate>,
    interval: Option<Span>,
    #[serde(default)]
    dscp: u8,
    #[serde(default)]
    ecn: bool,
    start: Option<Span>,
    stop: Option<Span>,
    congestion: Option<CongestionName>,
    profile: Option<ProfileName>,
}

/// Rate control of a stream.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    /// None: packets are sent at a constant interval.
    #[default]
    Cbr,
    /// Congestion control of TCP, with data always available.
    Tcp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSection {
    host: String,
    command: Vec<String>,
    start: Option<Span>,
}

/// Traffic over the network besides calls.
pub enum Flow {
    /// A stream with a constant rate.
    Stream(Stream),
    /// A transfer over TCP.
    Transfer(Transfer),
}

named!(
    /// Name of a protocol whose headers a stream has.
    ProtocolName(Protocol),
    [("tcp", Protocol::TCP), ("udp", Protocol::UDP)]
);

/// Linux's names of all congestion controls; each kernel has some of them.
const CONGESTION: [&str; 16] = [
    "reno",
    "cubic",
    "bbr",
    "bic",
    "cdg",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

named!(
    /// Name of a kernel's congestion control.
    CongestionName(&'static str),
    CONGESTION.map(|name| (name, name))
);

/// Constructor of a simulated TCP's profile.
type MakeProfile = fn() -> Profile;
const PROFILES: [(&str, MakeProfile); 4] = [
    ("ns2-reno", Profile::ns2_reno),
    ("freebsd-5.4", Profile::freebsd_5_4),
    ("linux-2.4", Profile::linux_2_4),
    ("linux-6", Profile::linux_6),
];

/// Name of a simulated TCP.
#[derive(Clone, Copy)]
struct ProfileName(MakeProfile);

impl<'de> Deserialize<'de> for ProfileName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ProfileName, D::Error> {
        let name = String::deserialize(from)?;
        let found = PROFILES.iter().find(|(known, _)| *known == name);
        let known = || PROFILES.into_iter().map(|(known, _)| known);
        found.map(|&(_, make)| ProfileName(make)).ok_or_else(|| unknown(&name, known()))
    }
}

/// Largest payload of an Ethernet frame, in bytes.
const MAX_PACKET: usize = 1_500;
/// Smallest payload of a packet, in bytes: its send time.
const STAMP: usize = 8;
/// Longest word of a command, in bytes: less than Linux accepts as an argument, since names of
/// hosts are replaced by addresses.
const MAX_WORD: usize = 65_536;
/// Shortest interval between two packets of a stream.
const MIN_INTERVAL: Duration = Duration::from_micros(1);

impl Reader<'_> {
    /// Checks the name of calls or streams in a table, or makes one.
    fn flow_name(
        &self,
        span: &Range<usize>,
        name: Option<&str>,
        (from, to): (&str, &str),
    ) -> Result<String, Mistake> {
        if let Some(name) = name {
            self.text.check_name(span.clone(), name)?;
        }
        let name = name.map_or_else(|| format!("{from}-{to}"), str::to_owned);
        if name.contains([',', '"']) {
            let what = "the name contains a comma or a quote: leave it out, or give another name";
            return Err(self.mistake(span.clone(), what));
        }
        Ok(name)
    }

    pub fn call(&self, section: &Spanned<CallSection>) -> Result<Call, Mistake> {
        let (s, span) = (section.get_ref(), section.span());
        let ends = self.ends(span.clone(), [&s.from, &s.to])?;
        let out_of_range = |what: &str| Err(self.mistake(span.clone(), what));
        let count = s.count.unwrap_or(1);
        if !(1..=1_000).contains(&count) {
            return out_of_range("count is out of range (1 to 1000)");
        }
        let threshold = s.threshold.map_or(crate::chain::DEADLINE, |t| t.0);
        if !(1..=255).contains(&threshold.as_millis()) {
            return out_of_range("threshold is out of range (1 to 255 ms)");
        }
        let carrier = s.service.map_or(Carrier::Overlay(Service::RealTime), |c| c.0);
        match carrier {
            Carrier::Plain => self.check_routed(&span, ends, (&s.from, &s.to))?,
            Carrier::Overlay(_) if !ways::connected(ends, self.hosts.len(), &self.links) => {
                let (from, to) = (&s.from, &s.to);
                let what = format!("no links lead from \"{from}\" to \"{to}\": add some");
                return out_of_range(&what);
            }
            Carrier::Overlay(_) => {}
        }
        let name = self.flow_name(&span, s.name.as_deref(), (&s.from, &s.to))?;
        Ok(Call { name, ends, count, carrier, bytes: VOICE_PACKET, threshold })
    }

    /// Checks that routers connect two hosts, for traffic outside of the overlay.
    fn check_routed(
        &self,
        span: &Range<usize>,
        ends: (usize, usize),
        (from, to): (&str, &str),
    ) -> Result<(), Mistake> {
        if self.routed(ends).is_some() {
            return Ok(());
        }
        let what = format!(
            "no path leads from \"{from}\" to \"{to}\" outside of the overlay: add links to \
             routers, or one with plain = true"
        );
        Err(self.mistake(span.clone(), what))
    }

    pub fn flow(&self, section: &Spanned<StreamSection>) -> Result<Flow, Mistake> {
        match section.get_ref().kind {
            StreamKind::Cbr => self.stream(section).map(Flow::Stream),
            StreamKind::Tcp => self.transfer(section).map(Flow::Transfer),
        }
    }

    fn transfer(&self, section: &Spanned<StreamSection>) -> Result<Transfer, Mistake> {
        let (s, span) = (section.get_ref(), section.span());
        let wrong = |what: &str| Err(self.mistake(span.clone(), what));
        let ends = self.ends(span.clone(), [&s.from, &s.to])?;
        self.check_routed(&span, ends, (&s.from, &s.to))?;
        self.check_routed(&span, (ends.1, ends.0), (&s.to, &s.from))?;
        let name = self.flow_name(&span, s.name.as_deref(), (&s.from, &s.to))?;
        let paced = s.protocol.is_some() || s.packet.is_some() || s.rate.is_some();
        if paced || s.interval.is_some() || s.dscp != 0 || s.ecn {
            return wrong(
                "TCP itself decides how much it sends, and how: leave protocol, packet, rate, \
                 interval, dscp and ecn out, or kind = \"tcp\"",
            );
        }
        let congestion = s.congestion.map_or("reno", |c| c.0);
        let (from, until) = self.times(s, &span)?;
        let profile = s.profile.map_or_else(Profile::linux_6, |profile| profile.0());
        Ok(Transfer { name, ends, from, until, congestion, profile })
    }

    /// Begin and end of a stream.
    fn times(
        &self,
        s: &StreamSection,
        span: &Range<usize>,
    ) -> Result<(Duration, Duration), Mistake> {
        let start = s.start.map_or(Duration::ZERO, |s| s.0);
        let stop = s.stop.map_or(self.length, |s| s.0);
        if start < stop && stop <= self.length {
            return Ok((start, stop));
        }
        let length = self.length;
        let what = format!(
            "a stream must start before it stops, and stop within the {length:?} of the calls"
        );
        Err(self.mistake(span.clone(), what))
    }

    pub fn program(&self, section: &Spanned<ProgramSection>) -> Result<Program, Mistake> {
        let (s, span) = (section.get_ref(), section.span());
        let hosts = || self.hosts.iter().map(|h| h.name.as_str());
        let host = self.text.find(span.clone(), "host", &s.host, hosts())?;
        let start = s.start.map_or(Duration::ZERO, |s| s.0);
        if s.command.first().is_none_or(String::is_empty) {
            return Err(self.mistake(span, "a program needs a command of one word or more"));
        }
        if start >= self.length {
            return Err(self.mistake(span, "a program must start before the end of the calls"));
        }
        if s.command.iter().any(|word| word.contains('\0') || word.len() > MAX_WORD) {
            let what = format!("a word of a command has up to {MAX_WORD} bytes, and no NUL in it");
            return Err(self.mistake(span, what));
        }
        // A word that resembles the name of a host is probably a mistyped one.
        for word in s.command.iter().flat_map(|word| word.split('{').skip(1)) {
            let Some((name, _)) = word.split_once('}') else { continue };
            if let Err(mistake) = self.text.find(span.clone(), "host", name, hosts())
                && mistake.suggestion.is_some()
            {
                return Err(mistake);
            }
        }
        Ok(Program { host, command: s.command.clone(), start })
    }

    fn stream(&self, section: &Spanned<StreamSection>) -> Result<Stream, Mistake> {
        let (s, span) = (section.get_ref(), section.span());
        let wrong = |what: String| self.mistake(span.clone(), what);
        let ends = self.ends(span.clone(), [&s.from, &s.to])?;
        self.check_routed(&span, ends, (&s.from, &s.to))?;
        let name = self.flow_name(&span, s.name.as_deref(), (&s.from, &s.to))?;
        let protocol = s.protocol.map_or(Protocol::TCP, |p| p.0);
        let (packet, headers) = (s.packet.map_or(MAX_PACKET, |p| p.0), protocol.headers(self.ip));
        if !(headers + STAMP..=MAX_PACKET).contains(&packet) {
            let least = headers + STAMP;
            return Err(wrong(format!(
                "packet is out of range ({least} to {MAX_PACKET} B with headers, of IP and \
                 {protocol} {headers})"
            )));
        }
        let interval = match (s.rate, s.interval) {
            (None, Some(interval)) => interval.0,
            (Some(rate), None) => {
                let seconds = 8.0 * packet as f64 / rate.0.as_bps() as f64;
                Duration::from_nanos((seconds * 1e9).round() as u64)
            }
            _ => return Err(wrong("give a stream a rate or an interval, and not both".into())),
        };
        if interval < MIN_INTERVAL {
            return Err(wrong("a stream sends at most once in 1 µs: lower its rate".into()));
        }
        if s.dscp > 63 {
            return Err(wrong("dscp is out of range (0 to 63)".into()));
        }
        if s.congestion.is_some() || s.profile.is_some() {
            return Err(wrong(
                "congestion and profile are only for kind = \"tcp\": leave them out".into(),
            ));
        }
        let (start, stop) = self.times(s, &span)?;
        // The last packet is sent before the end.
        let count = (stop - start).as_nanos().div_ceil(interval.as_nanos());
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let payload = packet - headers;
        let &StreamSection { dscp, ecn, .. } = s;
        Ok(Stream { name, ends, protocol, payload, interval, dscp, ecn, start, count })
    }
}
