//! The scenario file: hosts, routers and links. The modules `flows` and `faults` read the traffic
//! and the faults.

use super::MAX_LENGTH;
use super::build;
use super::faults::FaultSection;
use super::flows::{CallSection, Flow, ProgramSection, StreamSection};
use super::mistake::{Mistake, Text};
use super::model::{Carrier, Host, Link, Scenario, Vertex};
use super::options::{
    BestEffort, Hello, LinkEnd, NodeSections, NodeSettings, Realtime, RecoveryName, RoutingSection,
    settings,
};
use super::units::{Ip, Rate, Room, Share, Span};
use super::ways;
use super::wire::{Direction, DirectionSection, RedSection, Traces, read_file};
use serde::Deserialize;
use serde::de::Deserializer;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use trunkline_base::link_model::LinkModel;
use trunkline_net::IpVersion;
use trunkline_overlay::link;
use trunkline_overlay::node::Config;

/// Largest number of hosts, of routers and of links: finding routes takes time that grows with all
/// of them.
const MAX_ENTRIES: usize = 1_000;
/// Largest number of streams, and of faults.
const MAX_STREAMS: usize = 100;

/// Largest file, in bytes.
const MAX_FILE: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sections {
    length: Spanned<Span>,
    ip: Option<Ip>,
    #[serde(default)]
    pesq: bool,
    #[serde(default)]
    sealed: bool,
    host: Vec<Spanned<HostSection>>,
    #[serde(default)]
    router: Vec<Spanned<RouterSection>>,
    #[serde(default)]
    link: Vec<Spanned<LinkSection>>,
    #[serde(default)]
    call: Vec<Spanned<CallSection>>,
    #[serde(default)]
    stream: Vec<Spanned<StreamSection>>,
    #[serde(default)]
    program: Vec<Spanned<ProgramSection>>,
    #[serde(default)]
    fault: Vec<Spanned<FaultSection>>,
    #[serde(default)]
    realtime: Realtime,
    #[serde(default)]
    best_effort: BestEffort,
    #[serde(default)]
    hello: Hello,
    routing: Option<RoutingSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostSection {
    name: String,
    max_sessions: Option<u16>,
    #[serde(default)]
    sysctl: BTreeMap<String, String>,
    #[serde(default)]
    realtime: Realtime,
    #[serde(default)]
    best_effort: BestEffort,
    #[serde(default)]
    hello: Hello,
    routing: Option<RoutingSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterSection {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkSection {
    name: Option<String>,
    #[serde(deserialize_with = "two")]
    between: (String, String),
    delay: Option<Span>,
    jitter: Option<Span>,
    loss: Option<Share>,
    burst: Option<Share>,
    spacing: Option<Span>,
    trace: Option<PathBuf>,
    rate: Option<Rate>,
    queue: Option<Room>,
    red: Option<RedSection>,
    #[serde(default)]
    there: DirectionSection,
    #[serde(default)]
    back: DirectionSection,
    #[serde(default)]
    loses: Direction,
    #[serde(default)]
    plain: bool,
    path: Option<String>,
    recovery: Option<RecoveryName>,
    #[serde(default)]
    overlay: LinkEnd,
}

/// Deserializes exactly two names.
fn two<'de, D: Deserializer<'de>>(from: D) -> Result<(String, String), D::Error> {
    let names: [String; 2] = Vec::deserialize(from)?.try_into().map_err(|names: Vec<String>| {
        serde::de::Error::custom(format!("a link is between two, not {}", names.len()))
    })?;
    Ok(names.into())
}

impl LinkSection {
    /// The keys for both directions, combined with those for each.
    fn ways(&self) -> [DirectionSection; 2] {
        let &LinkSection { delay, jitter, loss, burst, spacing, rate, queue, red, .. } = self;
        let (trace, overlay) = (self.trace.clone(), self.overlay);
        let both = DirectionSection {
            delay,
            jitter,
            loss,
            burst,
            spacing,
            trace,
            rate,
            queue,
            red,
            overlay,
        };
        let loses = self.loses.ways();
        let [there, back] = loses.map(|l| if l { both.clone() } else { both.lossless() });
        [self.there.or(&there), self.back.or(&back)]
    }
}

/// Reads and checks the file at `path`.
///
/// # Errors
///
/// The first mistake in the file.
pub fn load(path: &Path) -> Result<Scenario, Mistake> {
    let bytes = read_file(path, MAX_FILE)
        .map_err(|e| Text { path, text: "" }.mistake(None, format!("cannot be read: {e}")))?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(path, text),
        Err(e) => {
            let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
            let end = good.len()..good.len();
            Err(Text { path, text: good }.mistake(Some(end), "the text from here on is not UTF-8"))
        }
    }
}

/// Reads and checks `text`, the content of `path`.
///
/// # Errors
///
/// The first mistake in the text.
pub fn parse(path: &Path, text: &str) -> Result<Scenario, Mistake> {
    let text = Text { path, text };
    let file: Sections = toml::from_str(text.text).map_err(|e| text.syntax(&e))?;
    let length = file.length.get_ref().0;
    let at_length = |what: &str| Err(text.mistake(Some(file.length.span()), what));
    if !(Duration::from_secs(1)..=MAX_LENGTH).contains(&length) {
        return at_length("length is out of range (1 s to 2 h)");
    }
    if file.pesq && length.as_secs() < 12 {
        return at_length("PESQ scores segments of 12 s: make the calls at least as long");
    }
    check_sizes(&text, &file)?;
    let ip = file.ip.as_ref().map_or(IpVersion::V6, |ip| ip.0);
    let mut reader = Reader {
        text,
        length,
        ip,
        traces: Traces::new(text.folder()),
        hosts: Vec::new(),
        routers: Vec::new(),
        links: Vec::new(),
    };
    let settings = reader.places(&file)?;
    for section in &file.link {
        reader.link(section, &settings)?;
    }
    reader.route_links(&file.link)?;
    let calls: Vec<_> = file.call.iter().map(|c| reader.call(c)).collect::<Result<_, _>>()?;
    let total: u32 = calls.iter().map(|c| c.count).sum();
    if total > 1_000 || (total == 0 && file.stream.is_empty()) {
        let last = file.call.last().map(Spanned::span);
        return Err(
            text.mistake(last, format!("there are {total} calls, but 1 to 1000 are allowed"))
        );
    }
    let (mut streams, mut transfers) = (Vec::new(), Vec::new());
    for section in &file.stream {
        match reader.flow(section)? {
            Flow::Stream(stream) => streams.push(stream),
            Flow::Transfer(transfer) => transfers.push(transfer),
        }
    }
    let programs = file.program.iter().map(|p| reader.program(p)).collect::<Result<_, _>>()?;
    let faults = file.fault.iter().map(|f| reader.fault(f)).collect::<Result<_, _>>()?;
    let name = path.file_stem().map_or("scenario".into(), |n| n.to_string_lossy().into_owned());
    // The name of "...toml" would be the parent of the output folder.
    let name = if name == "." || name == ".." { "scenario".into() } else { name };
    let Reader { hosts, routers, links, .. } = reader;
    let Sections { pesq, sealed, .. } = file;
    let scenario = Scenario {
        name,
        length,
        ip,
        pesq,
        sealed,
        hosts,
        routers,
        links,
        calls,
        streams,
        transfers,
        programs,
        faults,
    };
    check_hosts(&scenario).map_err(|(n, what)| text.mistake(Some(file.host[n].span()), what))?;
    Ok(scenario)
}

/// Checks that the file has no more entries of a kind than are allowed.
fn check_sizes(text: &Text<'_>, file: &Sections) -> Result<(), Mistake> {
    let entries = [
        ("hosts", file.host.len(), MAX_ENTRIES),
        ("routers", file.router.len(), MAX_ENTRIES),
        ("links", file.link.len(), MAX_ENTRIES),
        ("streams", file.stream.len(), MAX_STREAMS),
        ("programs", file.program.len(), MAX_STREAMS),
        ("faults", file.fault.len(), MAX_STREAMS),
    ];
    match entries.into_iter().find(|(_, n, max)| n > max) {
        None => Ok(()),
        Some((what, n, max)) => {
            let why = format!("there are {n} {what}, but at most {max} are allowed");
            Err(text.mistake(None, why))
        }
    }
}

/// Checks that each host can run the links and calls that it has; otherwise returns the host and
/// the reason.
fn check_hosts(scenario: &Scenario) -> Result<(), (usize, String)> {
    let mut topology = build::configured(scenario);
    let mut sessions = vec![0; scenario.hosts.len()];
    for call in &scenario.calls {
        if let Carrier::Overlay(_) = call.carrier {
            sessions[call.ends.0] += call.count as usize;
            sessions[call.ends.1] += call.count as usize;
        }
    }
    for ((n, host), sessions) in scenario.hosts.iter().enumerate().zip(sessions) {
        let (name, most) = (&host.name, host.max_sessions);
        topology
            .config_mut(build::host(n))
            .validate()
            .map_err(|why| (n, format!("host \"{name}\": {why}")))?;
        if sessions > most {
            let what = format!(
                "host \"{name}\" is an end of {sessions} calls, but has max_sessions = {most}: \
                 raise it"
            );
            return Err((n, what));
        }
    }
    Ok(())
}

/// The scenario as far as it has been read.
pub struct Reader<'a> {
    pub text: Text<'a>,
    pub length: Duration,
    pub ip: IpVersion,
    pub traces: Traces<'a>,
    pub hosts: Vec<Host>,
    pub routers: Vec<String>,
    pub links: Vec<Link>,
}

impl Reader<'_> {
    pub fn mistake(&self, span: Range<usize>, what: impl Into<String>) -> Mistake {
        self.text.mistake(Some(span), what)
    }

    /// Reads hosts and routers; returns the settings of each host's links.
    fn places(&mut self, file: &Sections) -> Result<Vec<link::Config>, Mistake> {
        let Sections { realtime, best_effort, hello, routing, .. } = *file;
        let all = NodeSections { realtime, best_effort, hello, routing };
        let out_of_range = |why| format!("out of range ({why})");
        settings(&[&all])
            .map_err(|why| self.text.mistake(self.text.section(why), out_of_range(why)))?;
        let mut links = Vec::new();
        for section in &file.host {
            let HostSection { name, sysctl, .. } = section.get_ref();
            let &HostSection { max_sessions, realtime, best_effort, hello, routing, .. } =
                section.get_ref();
            self.check_name(section.span(), name)?;
            let is_word = |word: &str| {
                !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            if let Some((key, _)) = sysctl.iter().find(|(_, v)| v.contains(char::is_control)) {
                let what = format!("the value of sysctl \"{key}\" contains a control character");
                return Err(self.mistake(section.span(), what));
            }
            let is_key = |key: &&String| key.starts_with("net.") && key.split('.').all(is_word);
            if let Some(key) = sysctl.keys().find(|key| !is_key(key)) {
                let what = format!(
                    "sysctl \"{key}\" is not a network setting: use one that begins with \"net.\""
                );
                return Err(self.mistake(section.span(), what));
            }
            if routing.is_some() && file.routing.is_none() {
                let what = "all nodes must use the same kind of routing: write a [routing] for \
                            all, which may be empty";
                return Err(self.mistake(section.span(), what));
            }
            let own = NodeSections { realtime, best_effort, hello, routing };
            let NodeSettings { link, routing } = settings(&[&all, &own])
                .map_err(|why| self.mistake(section.span(), out_of_range(why)))?;
            links.push(link);
            let max_sessions = max_sessions.map_or(Config::MAX_SESSIONS, usize::from);
            let (name, sysctl) = (name.clone(), sysctl.clone());
            self.hosts.push(Host { name, max_sessions, routing, trunks: Vec::new(), sysctl });
        }
        for section in &file.router {
            self.check_name(section.span(), &section.get_ref().name)?;
            self.routers.push(section.get_ref().name.clone());
        }
        Ok(links)
    }

    /// Checks that `name` is valid and not the name of another host or router.
    fn check_name(&self, span: Range<usize>, name: &str) -> Result<(), Mistake> {
        self.text.check_name(span.clone(), name)?;
        if self.hosts.iter().map(|h| &h.name).chain(&self.routers).any(|known| known == name) {
            let what = if self.routers.is_empty() { "hosts" } else { "hosts or routers" };
            let what = format!("there are two {what} \"{name}\": name them differently");
            return Err(self.mistake(span, what));
        }
        Ok(())
    }

    /// The indices of two different hosts.
    pub fn ends(&self, span: Range<usize>, names: [&str; 2]) -> Result<(usize, usize), Mistake> {
        let hosts = self.hosts.iter().map(|h| h.name.as_str());
        let [a, b] = names.map(|name| self.text.find(span.clone(), "host", name, hosts.clone()));
        let (a, b) = (a?, b?);
        if a == b {
            let what = format!("both ends are host \"{}\": name two", names[0]);
            return Err(self.mistake(span, what));
        }
        Ok((a, b))
    }

    /// The places of two different hosts or routers.
    fn spots(
        &self,
        span: Range<usize>,
        (a, b): &(String, String),
    ) -> Result<(Vertex, Vertex), Mistake> {
        let names = self.hosts.iter().map(|h| &h.name).chain(&self.routers).map(String::as_str);
        let what = if self.routers.is_empty() { "host" } else { "host or router" };
        let find = |name: &str| {
            let n = self.text.find(span.clone(), what, name, names.clone())?;
            let router = n.checked_sub(self.hosts.len());
            Ok(router.map_or(Vertex::Host(n), Vertex::Router))
        };
        let (first, second) = (find(a)?, find(b)?);
        if first == second {
            let what = match first {
                Vertex::Host(_) => "host",
                Vertex::Router(_) => "router",
            };
            let what = format!("both ends are {what} \"{a}\": name two");
            return Err(self.mistake(span, what));
        }
        Ok((first, second))
    }

    /// Reads a link; `settings` are those of each host's links.
    fn link(
        &mut self,
        section: &Spanned<LinkSection>,
        settings: &[link::Config],
    ) -> Result<(), Mistake> {
        let (s, span) = (section.get_ref(), section.span());
        let name = self.link_name(&span, s.name.as_deref())?;
        let ends = self.spots(span.clone(), &s.between)?;
        let ways = s.ways();
        let hosts = match ends {
            (Vertex::Host(a), Vertex::Host(b)) if !s.plain => Some([a, b]),
            _ => None,
        };
        let wire = match (hosts, ways.iter().all(DirectionSection::is_empty)) {
            (Some(_), true) => None,
            _ => Some(self.wire(&span, &ways)?),
        };
        let overlay = match hosts {
            Some(hosts) => {
                let each = [(hosts[0], s.there.overlay), (hosts[1], s.back.overlay)];
                let [there, back] = each.map(|(host, end)| overlay(s, &end, &settings[host]));
                let wrong = |why| self.mistake(span.clone(), format!("out of range ({why})"));
                Some(Box::new([there.map_err(wrong)?, back.map_err(wrong)?]))
            }
            None => {
                let ends = [s.overlay, s.there.overlay, s.back.overlay];
                if s.path.is_some() || s.recovery.is_some() || ends != [LinkEnd::default(); 3] {
                    let what = "path, recovery and overlay are only for links of the overlay, and \
                                this link is plain or ends at a router";
                    return Err(self.mistake(span, what));
                }
                None
            }
        };
        let named = s.name.is_some();
        let link = Link { name, named, ends, wire, overlay, routed: None };
        if self.links.iter().any(|l| same(l, &link)) {
            let what = "these two hosts have a link already: remove one, or give each a `path`";
            return Err(self.mistake(span, what));
        }
        self.links.push(link);
        Ok(())
    }

    /// Models of a wire's two directions.
    fn wire(
        &self,
        span: &Range<usize>,
        ways: &[DirectionSection; 2],
    ) -> Result<[LinkModel; 2], Mistake> {
        let [there, back] = ways.each_ref().map(|way| way.model(&self.traces));
        let wrong = |why: String| self.mistake(span.clone(), why);
        Ok([there.map_err(wrong)?, back.map_err(wrong)?])
    }

    /// Checks a link's name, which may become a part of a file's name.
    fn link_name(&self, span: &Range<usize>, name: Option<&str>) -> Result<String, Mistake> {
        let Some(name) = name else { return Ok(format!("link {}", self.links.len() + 1)) };
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let good = name.chars().all(known) && !name.starts_with('.') && !name.is_empty();
        if !good || name.len() > 64 {
            let what = format!(
                "a link's name has up to 64 letters, digits, \"-\", \"_\" and \".\", not {name:?}"
            );
            return Err(self.mistake(span.clone(), what));
        }
        if self.links.iter().any(|l| l.name == name) {
            let what = format!("there are two links \"{name}\": name them differently");
            return Err(self.mistake(span.clone(), what));
        }
        Ok(name.to_owned())
    }

    /// Computes the delays of overlay links that have no private wire.
    fn route_links(&mut self, sections: &[Spanned<LinkSection>]) -> Result<(), Mistake> {
        for (n, section) in sections.iter().enumerate() {
            let (None, Some((a, b))) = (&self.links[n].wire, self.links[n].hosts()) else {
                continue;
            };
            let (Some(there), Some(back)) = (self.routed((a, b)), self.routed((b, a))) else {
                let (a, b) = &section.get_ref().between;
                let what = format!(
                    "no routers lead from \"{a}\" to \"{b}\": give this link a wire (`delay`), or \
                     add links to routers"
                );
                return Err(self.mistake(section.span(), what));
            };
            self.links[n].routed = Some([there, back]);
        }
        Ok(())
    }

    /// The smallest delay between two hosts over routers.
    pub fn routed(&self, ends: (usize, usize)) -> Option<Duration> {
        ways::routed(ends, (self.hosts.len(), self.routers.len()), &self.links)
    }
}

/// Whether two links are indistinguishable, or one of them would never be used.
fn same(a: &Link, b: &Link) -> bool {
    let path = |l: &Link| l.overlay.as_ref().map(|ends| ends[0].path.clone());
    (a.ends == b.ends || (a.ends.1, a.ends.0) == b.ends) && path(a) == path(b)
}

/// The settings of one end of an overlay link.
fn overlay(
    section: &LinkSection,
    end: &LinkEnd,
    node: &link::Config,
) -> Result<link::Config, String> {
    let mut config =
        link::Config { path: section.path.clone().unwrap_or_default(), ..node.clone() };
    section.overlay.apply(&mut config);
    end.apply(&mut config);
    if let Some(recovery) = section.recovery {
        config.realtime.recovery = recovery.into();
    }
    config.check()?;
    Ok(config)
}
