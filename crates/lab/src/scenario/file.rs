use super::units::{Rate, Room, Share, Span};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use trunkline_base::link_model::{Chain, LinkModel, Loss};
use trunkline_overlay::link::realtime::Recovery;
use trunkline_overlay::wire::Service;

/// What a file says, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// How long calls are.
    pub length: Duration,
    /// Whether PESQ is reckoned.
    pub pesq: bool,
    /// In the order of the file.
    pub hosts: Vec<Host>,
    /// In the order of the file.
    pub links: Vec<Link>,
    /// In the order of the file.
    pub calls: Vec<Call>,
}

/// A host with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
}

/// A link between two hosts.
#[derive(Clone, Debug)]
pub struct Link {
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// What happens to packets from the first to the second.
    pub there: LinkModel,
    /// What happens to packets from the second to the first.
    pub back: LinkModel,
    /// What is done about lost packets.
    pub recovery: Recovery,
}

/// Calls of one kind.
#[derive(Clone, Debug)]
pub struct Call {
    /// In tables.
    pub name: String,
    /// Indices of its hosts.
    pub ends: (usize, usize),
    /// How many at once.
    pub count: u32,
    /// Whether over the real-time service; otherwise best effort.
    pub realtime: bool,
    /// The latest useful network latency.
    pub threshold: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    length: Spanned<Span>,
    #[serde(default)]
    pesq: bool,
    host: Vec<Spanned<HostSection>>,
    link: Vec<Spanned<LinkSection>>,
    call: Vec<Spanned<CallSection>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostSection {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkSection {
    between: (String, String),
    delay: Span,
    jitter: Option<Span>,
    loss: Option<Share>,
    burst: Option<Share>,
    spacing: Option<Span>,
    rate: Option<Rate>,
    queue: Option<Room>,
    #[serde(default)]
    loses: Direction,
    #[serde(default, deserialize_with = "recovery")]
    recovery: Recovery,
}

/// Which way a link loses packets.
#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Direction {
    #[default]
    Both,
    There,
    Back,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallSection {
    name: Option<String>,
    from: String,
    to: String,
    count: Option<u32>,
    #[serde(default, deserialize_with = "service")]
    service: Option<Service>,
    threshold: Option<Span>,
}

fn service<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Service>, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map(Some).map_err(|_| D::Error::unknown_variant(&name, &Service::NAMES))
}

fn recovery<'de, D: Deserializer<'de>>(from: D) -> Result<Recovery, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map_err(|_| D::Error::unknown_variant(&name, &Recovery::NAMES))
}

/// A mistake in a scenario, where it is, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub path: PathBuf,
    /// Line and column, from 1; `None` where the whole file is meant.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub what: String,
    /// The name that was probably meant.
    pub suggestion: Option<String>,
}

impl std::error::Error for Mistake {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.what)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean `{suggestion}`?"),
            None => Ok(()),
        }
    }
}

/// Reads and checks the file at `path`.
///
/// # Errors
///
/// The first mistake.
pub fn load(path: &Path) -> Result<Scenario, Mistake> {
    let text = std::fs::read_to_string(path).map_err(|e| Mistake {
        path: path.to_owned(),
        place: None,
        what: format!("cannot be read: {e}"),
        suggestion: None,
    })?;
    parse(path, &text)
}

/// Reads and checks `text`, the content of `path`.
///
/// # Errors
///
/// The first mistake.
pub fn parse(path: &Path, text: &str) -> Result<Scenario, Mistake> {
    let reader = Reader { path, text };
    let file: File = toml::from_str(text).map_err(|e| {
        let what = e.message().replace('\n', " ");
        let suggestion = unknown(&what);
        Mistake { suggestion, ..reader.mistake(e.span(), what) }
    })?;
    let length = file.length.get_ref().0;
    if !(Duration::from_secs(1)..=Duration::from_secs(7_200)).contains(&length) {
        return Err(
            reader.mistake(Some(file.length.span()), "length is out of range (1 s to 2 h)".into())
        );
    }
    if file.pesq && length.as_secs() < 12 {
        let what = "PESQ takes segments of 12 s: make the calls at least as long";
        return Err(reader.mistake(Some(file.length.span()), what.into()));
    }
    let mut hosts: Vec<Host> = Vec::new();
    for section in file.host {
        let name = section.get_ref().name.clone();
        if hosts.iter().any(|h| h.name == name) {
            let what = format!("there are two hosts \"{name}\": name them differently");
            return Err(reader.mistake(Some(section.span()), what));
        }
        hosts.push(Host { name });
    }
    let mut links: Vec<Link> = Vec::new();
    for section in &file.link {
        let link = reader.link(section, &hosts)?;
        let same = |l: &&Link| l.ends == link.ends || (l.ends.1, l.ends.0) == link.ends;
        if links.iter().any(|l| same(&l)) {
            let what = "these two hosts have a link already: one is enough".into();
            return Err(reader.mistake(Some(section.span()), what));
        }
        links.push(link);
    }
    let calls: Vec<Call> =
        file.call.iter().map(|c| reader.call(c, &hosts, &links)).collect::<Result<_, _>>()?;
    let total: u32 = calls.iter().map(|c| c.count).sum();
    if total == 0 || total > 1_000 {
        return Err(reader.mistake(None, format!("there are {total} calls: have 1 to 1000")));
    }
    let name = path.file_stem().map_or("scenario".into(), |n| n.to_string_lossy().into_owned());
    Ok(Scenario { name, length, pesq: file.pesq, hosts, links, calls })
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn mistake(&self, span: Option<Range<usize>>, what: String) -> Mistake {
        let place = span.map(|s| {
            let before = &self.text[..s.start.min(self.text.len())];
            let line = before.rfind('\n').map_or(0, |i| i + 1);
            (before.matches('\n').count() + 1, before[line..].chars().count() + 1)
        });
        Mistake { path: self.path.to_owned(), place, what, suggestion: None }
    }

    /// The indices of two different hosts.
    fn ends(
        &self,
        span: Range<usize>,
        hosts: &[Host],
        names: [&str; 2],
    ) -> Result<(usize, usize), Mistake> {
        let find = |name: &str| {
            hosts.iter().position(|h| h.name == name).ok_or_else(|| {
                let names = hosts.iter().map(|h| h.name.as_str());
                let suggestion = nearest(name, names).map(str::to_owned);
                let what = format!("there is no host \"{name}\"");
                Mistake { suggestion, ..self.mistake(Some(span.clone()), what) }
            })
        };
        let (a, b) = (find(names[0])?, find(names[1])?);
        if a == b {
            let what = format!("both ends are host \"{}\": name two", names[0]);
            return Err(self.mistake(Some(span), what));
        }
        Ok((a, b))
    }

    fn link(&self, section: &Spanned<LinkSection>, hosts: &[Host]) -> Result<Link, Mistake> {
        let s = section.get_ref();
        let ends = self.ends(section.span(), hosts, [&s.between.0, &s.between.1])?;
        let p = s.loss.map_or(0.0, |l| l.0);
        let loss = match (p, s.burst, s.spacing) {
            (0.0, ..) => Loss::None,
            (_, None, None) => Loss::Bernoulli { p },
            (_, None, Some(_)) => {
                let what = "spacing says at what distance of packets `burst` holds: give it, too";
                return Err(self.mistake(Some(section.span()), what.into()));
            }
            (_, Some(b), None) => Loss::Burst { p, b: b.0, chain: Chain::PerPacket },
            (_, Some(b), Some(d)) => {
                Loss::Burst { p, b: b.0, chain: Chain::Continuous { spacing: d.0 } }
            }
        };
        let perfect = LinkModel {
            delay: s.delay.0,
            jitter: s.jitter.map_or(Duration::ZERO, |j| j.0),
            rate: s.rate.map(|r| r.0),
            queue: s.queue.map_or_else(Default::default, |q| q.0),
            ..LinkModel::default()
        };
        let lossy = LinkModel { loss, ..perfect.clone() };
        lossy.validate().map_err(|why| self.mistake(Some(section.span()), why.to_string()))?;
        let (there, back) = match s.loses {
            Direction::Both => (lossy.clone(), lossy),
            Direction::There => (lossy, perfect),
            Direction::Back => (perfect, lossy),
        };
        Ok(Link { ends, there, back, recovery: s.recovery })
    }

    fn call(
        &self,
        section: &Spanned<CallSection>,
        hosts: &[Host],
        links: &[Link],
    ) -> Result<Call, Mistake> {
        let s = section.get_ref();
        let ends = self.ends(section.span(), hosts, [&s.from, &s.to])?;
        let out_of_range = |what: &str| self.mistake(Some(section.span()), what.to_owned());
        let count = s.count.unwrap_or(1);
        if !(1..=1_000).contains(&count) {
            return Err(out_of_range("count is out of range (1 to 1000)"));
        }
        let threshold = s.threshold.map_or(crate::chain::DEADLINE, |t| t.0);
        if !(1..=255).contains(&threshold.as_millis()) {
            return Err(out_of_range("threshold is out of range (1 to 255 ms)"));
        }
        if !connected(ends, hosts.len(), links) {
            return Err(out_of_range(&format!(
                "no links lead from \"{}\" to \"{}\": add some",
                s.from, s.to
            )));
        }
        let realtime = s.service.unwrap_or(Service::RealTime) == Service::RealTime;
        let name = s.name.clone().unwrap_or_else(|| format!("{}-{}", s.from, s.to));
        if name.contains([',', '"', '\n']) {
            return Err(out_of_range("a name has a comma, a quote or a line feed: leave it out"));
        }
        Ok(Call { name, ends, count, realtime, threshold })
    }
}

/// Whether `links` lead from one to the other.
fn connected((from, to): (usize, usize), hosts: usize, links: &[Link]) -> bool {
    let mut reached = vec![false; hosts];
    let mut queue = vec![from];
    while let Some(here) = queue.pop() {
        if std::mem::replace(&mut reached[here], true) {
            continue;
        }
        queue.extend(links.iter().filter_map(|l| match l.ends {
            (a, b) if a == here => Some(b),
            (a, b) if b == here => Some(a),
            _ => None,
        }));
    }
    reached[to]
}

/// The known name that is most like the unknown one in serde's message
/// "unknown field `x`, expected one of `a`, `b`".
fn unknown(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown").then(|| quoted.next())??;
    nearest(unknown, quoted).map(str::to_owned)
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(name, other);
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|n| likeness(n) > 0.65)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../scenarios/three-sites.toml");

    fn mistake(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        parse(Path::new("x.toml"), &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn the_example_is_good() {
        let s = parse(Path::new("three-sites.toml"), GOOD).unwrap();
        assert_eq!((s.name.as_str(), s.hosts.len(), s.links.len()), ("three-sites", 3, 2));
        assert!(s.calls.iter().any(|c| !c.realtime));
        assert!(matches!(s.links[0].there.loss, Loss::Burst { .. }));
        assert_eq!(s.links[0].there.loss, s.links[0].back.loss);
    }

    #[test]
    fn mistakes_have_a_place_and_a_way_out() {
        let typo = mistake("jitter =", "jiter =");
        assert!(typo.starts_with("x.toml:") && typo.ends_with("did you mean `jitter`?"), "{typo}");
        for (from, to, says) in [
            ("\"5%\"", "\"500%\"", "a share from 0 to 1"),
            ("\"5%\"", "\"95%\"", "loss 0.95 is more than burst 0.5 allows"),
            ("to = \"lyon\"", "to = \"lion\"", "there is no host \"lion\"; did you mean `lyon`?"),
            ("to = \"lyon\"", "to = \"paris\"", "both ends are host \"paris\""),
            ("count = 10", "count = 0", "1 to 1000"),
            ("length = \"1 min\"", "length = \"5 s\"", "segments of 12 s"),
            ("length = \"1 min\"", "length = \"3 h\"", "a length of time"),
            ("\"real-time\"", "\"realtime\"", "did you mean `real-time`?"),
            ("threshold = \"100ms\"", "threshold = \"1 s\"", "1 to 255 ms"),
            (
                "\"until-deadline\"",
                "\"one-strike\"",
                "`twice`, `until-deadline`; did you mean `once`?",
            ),
            ("\"until-deadline\"", "\"untildeadline\"", "did you mean `until-deadline`?"),
            ("\"until-deadline\"", "false", "invalid type: boolean"),
            ("burst = \"50%\"", "spacing = \"2ms\"", "give it, too"),
        ] {
            let error = mistake(from, to);
            assert!(error.contains(says), "{from} → {to}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let apart =
            GOOD.replacen("between = [\"dijon\", \"lyon\"]", "between = [\"dijon\", \"paris\"]", 1);
        let error = parse(Path::new("x.toml"), &apart).unwrap_err().to_string();
        assert!(error.contains("a link already"), "{error}");
    }
}
