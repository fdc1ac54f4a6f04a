//! Reports of mistakes in a configuration file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A mistake in a configuration file, with its location and a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Path of the file.
    pub path: PathBuf,
    /// Line and column, from 1; `None` if the whole file is meant.
    pub place: Option<(usize, usize)>,
    /// Description of the mistake.
    pub what: String,
    /// The line of the file, with a marker below it.
    pub excerpt: String,
    /// Name that was probably meant.
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
        if let Some(suggestion) = &self.suggestion {
            write!(f, "; did you mean `{suggestion}`?")?;
        }
        f.write_str(&self.excerpt)
    }
}

/// Position of a mistake in the text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The description names it as `[section] key`, or at least the section.
    Named,
    /// These bytes of the text.
    Bytes(Range<usize>),
    /// The `index`-th element, from 0, of a list in `[section]`.
    Item { section: &'static str, key: &'static str, index: usize },
    /// A value in `[section]`, or in the `index`-th `[[section]]`, from 0; its heading if it does
    /// not have the key.
    Of { section: &'static str, index: usize, key: &'static str },
}

impl Place {
    fn span(self, text: &str, what: &str) -> Option<Range<usize>> {
        match self {
            Place::Named => named(text, what),
            Place::Bytes(span) => Some(span),
            Place::Item { section, key, index } => {
                let file = toml::de::DeTable::parse(text).ok()?;
                let list = file.get_ref().get(section)?.get_ref().as_table()?.get(key)?;
                Some(list.get_ref().as_array()?.get(index)?.span())
            }
            Place::Of { section, index, key } => {
                let file = toml::de::DeTable::parse(text).ok()?;
                let section = file.get_ref().get(section)?;
                let one = match section.get_ref().as_array() {
                    Some(all) => all.get(index)?,
                    None => section,
                };
                Some(one.get_ref().as_table()?.get(key).map_or(one.span(), |value| value.span()))
            }
        }
    }
}

/// Builds a mistake from its description `what` and `text`, the content of `path`.
pub fn mistake(path: &Path, text: &str, at: Place, what: String) -> Mistake {
    let span = at.span(text, &what);
    let place = span.as_ref().map(|s| place(text, s.start));
    let excerpt = place.map_or(String::new(), |place| excerpt(text, place));
    Mistake { path: path.to_owned(), place, what, excerpt, suggestion: None }
}

/// Line of `key`, from 1, in each `[[section]]` of `text`; of its heading if it does not have the key.
pub fn lines(text: &str, section: &str, key: &str) -> Vec<usize> {
    let Ok(file) = toml::de::DeTable::parse(text) else { return Vec::new() };
    let sections = file.get_ref().get(section).and_then(|all| all.get_ref().as_array());
    let spans = sections.into_iter().flat_map(|all| all.iter()).map(|one| {
        let value = one.get_ref().as_table().and_then(|table| table.get(key));
        value.map_or(one.span(), |value| value.span())
    });
    spans.map(|span| place(text, span.start).0).collect()
}

/// The line at `place`, a line and a column of `text` from 1, with a marker below it: two lines,
/// each after a line break. Of a long line, the part around the column.
pub fn excerpt(text: &str, (line, column): (usize, usize)) -> String {
    const LONGEST: usize = 200;
    const BEFORE: usize = 60;
    let whole = text.lines().nth(line - 1).unwrap_or_default();
    let start = if whole.len() > LONGEST { (column - 1).saturating_sub(BEFORE) } else { 0 };
    let cut = |is_cut| if is_cut { "…" } else { "" };
    let part: String = whole.chars().skip(start).take(LONGEST / 2).collect();
    let (before, source, after) = match whole.len() > LONGEST {
        true => (cut(start > 0), part.as_str(), cut(start + LONGEST / 2 < whole.chars().count())),
        false => ("", whole, ""),
    };
    let marker = line.to_string().len() + 3 + column - start + before.chars().count();
    format!("\n  {line} | {before}{source}{after}\n  {:>marker$}", "^")
}

/// Builds a mistake from an error of serde or the parser.
pub fn syntax_mistake(path: &Path, text: &str, error: &toml::de::Error) -> Mistake {
    let what = match error.message() {
        "invalid socket address syntax" => "not an address: write an IP address and a port, \
                                            \"192.0.2.1:7000\" or \"[2001:db8::1]:7000\" (link-local \
                                            \"[fe80::1%eth0]:7000\", with its interface); \
                                            names are not looked up"
            .into(),
        "missing field `node`" if !text.contains("[node]") => {
            "[node] is missing: it has at least `id`, `listen` and `key`".into()
        }
        _ => described(text, error),
    };
    let suggestion = suggestion(&what);
    // At the end of the file, where there is nothing to show.
    let span = error.span().filter(|span| span.start < text.len() || span.start > 0);
    Mistake { suggestion, ..mistake(path, text, span.map_or(Place::Named, Place::Bytes), what) }
}

/// Description of an error of serde or the parser in `text`, for a user.
pub fn described(text: &str, error: &toml::de::Error) -> String {
    let message = plain(&error.message().replace('\n', ", "));
    let span = error.span().unwrap_or(0..0);
    let there = text.get(span.clone()).unwrap_or_default();
    let is_heading = text.get(..span.start).is_some_and(|before| before.ends_with('['));
    let what = if is_heading { "section" } else { "key" };
    if message == "duplicate key" {
        return format!("duplicate {what} `{there}`: keep one of the two");
    }
    if message.starts_with("string values must be quoted") && there.is_empty() {
        return "a value is missing after the =".into();
    }
    if let Some(rest) = message.strip_prefix("unknown field").filter(|_| is_heading) {
        return format!("unknown section{rest}");
    }
    let missing = message.strip_prefix("missing field `").and_then(|key| key.strip_suffix('`'));
    match missing {
        Some(key) => format!("`{key}` is missing{}", example(key)),
        None => message,
    }
}

/// Advice about a required key, after the text that it is missing.
fn example(key: &str) -> &'static str {
    match key {
        "id" => ": give the node's number, as id = 1",
        "listen" => ": give an address, as listen = [\"0.0.0.0:7000\"]",
        "neighbour" => ": give the other node's number, as neighbour = 2",
        "via" => ": give the neighbour that the route leads through, as via = 2",
        "to" => ": give the destination's number",
        "node" => ": give the number of the node that has the key, as node = 2",
        "key" => ": give what `trunkline pubkey` prints there",
        "name" => ": give a name in quotes",
        _ => ": add it",
    }
}

/// Position of the value that `what` is about, if it names it as `[section] key`; otherwise that of
/// another key in the named section, or of its heading.
fn named(text: &str, what: &str) -> Option<Range<usize>> {
    let file = toml::de::DeTable::parse(text).ok()?;
    let sections = what.match_indices('[').filter_map(|(at, _)| {
        let (name, rest) = what.get(at + 1..)?.split_once(']')?;
        Some((file.get_ref().get(name)?, rest))
    });
    let (section, rest) = sections.into_iter().next()?;
    if let Some(all) = section.get_ref().as_array() {
        return Some(all.first()?.span());
    }
    let table = section.get_ref().as_table()?;
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    Some(words.find_map(|word| table.get(word)).unwrap_or(section).span())
}

/// Rephrases serde's message without Rust's type names.
pub fn plain(message: &str) -> String {
    const WORDS: [(&str, &str); 11] = [
        ("map, expected a sequence", "one section in [ ]: there may be several, write it in [[ ]]"),
        ("expected a sequence", "expected a list in [ ]"),
        ("expected socket address", "expected an address and a port, \"192.0.2.1:7000\""),
        ("wanted string or table", "expected a word in quotes"),
        ("a nonzero u8", "a number from 1 to 255"),
        ("expected f64", "expected a number without quotes, 0.01 for 1 %"),
        ("expected u16", "expected a number from 0 to 65535"),
        ("expected u32", "expected a number from 0 to 4294967295"),
        ("expected u64", "expected a whole number of at least 0"),
        ("expected usize", "expected a whole number of at least 0"),
        ("expected i64", "expected a whole number"),
    ];
    let found = WORDS.iter().find_map(|(rust, words)| Some((message.strip_suffix(rust)?, words)));
    found.map_or_else(|| message.to_owned(), |(start, words)| format!("{start}{words}"))
}

/// Least likeness of a suggestion to the unknown name: half the letters of the longer one may be a
/// coincidence, one slip in a short word or two in a longer one are none.
const LIKENESS: f64 = 0.6;

/// Least length of a name that is taken for the beginning of another.
const SHORTEST: usize = 4;

/// Known name for which the unknown one in serde's message "unknown field `x`, expected one of
/// `a`, `b`" was probably written: by a slip, or as its beginning.
pub fn suggestion(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown").then(|| quoted.next())??;
    let is_beginning = |name: &str| unknown.len() >= SHORTEST && name.starts_with(unknown);
    let likeness = |name: &str| match is_beginning(name) {
        true => 1.0,
        false => strsim::normalized_damerau_levenshtein(unknown, name),
    };
    quoted
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|name| likeness(name) >= LIKENESS)
        .map(str::to_owned)
}

fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
