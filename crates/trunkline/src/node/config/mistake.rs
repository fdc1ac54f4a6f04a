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

/// Builds a mistake from its description `what` and `text`, the content of `path`.
pub fn mistake(path: &Path, text: &str, span: Option<Range<usize>>, what: String) -> Mistake {
    let span = span.or_else(|| named(text, &what));
    let place = span.as_ref().map(|s| place(text, s.start));
    let excerpt = place.map_or(String::new(), |(line, column)| {
        let source = text.lines().nth(line - 1).unwrap_or_default();
        format!("\n  {line} | {source}\n  {:>1$}", "^", line.to_string().len() + 3 + column)
    });
    Mistake { path: path.to_owned(), place, what, excerpt, suggestion: None }
}

/// Builds a mistake from an error of serde or the parser.
pub fn syntax_mistake(path: &Path, text: &str, error: &toml::de::Error) -> Mistake {
    let what = match error.message() {
        "invalid socket address syntax" => "not an address: write an IP address and a port, \
                                            \"192.0.2.1:7000\" or \"[2001:db8::1]:7000\" (link-local \
                                            \"[fe80::1%2]:7000\", with the interface's \
                                            number); names are not looked up"
            .into(),
        message => plain(&message.replace('\n', " ")),
    };
    let suggestion = suggestion(&what);
    Mistake { suggestion, ..mistake(path, text, error.span(), what) }
}

/// Position of the value that `what` is about, if it names it as `[section] key`; otherwise that of
/// another key in the named section.
fn named(text: &str, what: &str) -> Option<Range<usize>> {
    let (section, rest) = what.split_once('[')?.1.split_once("] ")?;
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let file = toml::de::DeTable::parse(text).ok()?;
    let section = file.get_ref().get(section)?.get_ref().as_table()?;
    Some(words.find_map(|word| section.get(word))?.span())
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

/// Known name most similar to the unknown one in serde's message "unknown field `x`, expected one
/// of `a`, `b`".
pub fn suggestion(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown").then(|| quoted.next())??;
    let likeness = |name: &str| strsim::jaro_winkler(unknown, name);
    quoted
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|name| likeness(name) > 0.65)
        .map(str::to_owned)
}

fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
