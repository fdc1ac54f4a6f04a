//! Mistakes in a scenario, with their position and a suggestion.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Longest name of a host, router, call or stream, in characters.
const MAX_NAME: usize = 64;

/// A mistake in a scenario: its position, and how to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Path of the scenario file.
    pub path: PathBuf,
    /// Line and column, from 1; `None` if it concerns the whole file.
    pub place: Option<(usize, usize)>,
    /// The mistake in words.
    pub what: String,
    /// The name that was probably meant.
    pub suggestion: Option<String>,
}

impl std::error::Error for Mistake {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", printable(&self.path.to_string_lossy()))?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", printable(&self.what))?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean `{}`?", printable(suggestion)),
            None => Ok(()),
        }
    }
}

/// Longest text in a mistake, and longest output quoted from a program, in characters.
const MAX_TEXT: usize = 500;

/// Text that is safe to print on a terminal, truncated if it is too long: errors quote files and
/// programs.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MAX_TEXT));
    for c in text.chars().take(MAX_TEXT) {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    if text.chars().nth(MAX_TEXT).is_some() {
        shown.push('…');
    }
    shown
}

/// A file's text, for locating mistakes in it.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Text<'_> {
    /// The folder to which paths in the file are relative.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Makes a mistake at `span`.
    pub fn mistake(&self, span: Option<Range<usize>>, what: impl Into<String>) -> Mistake {
        let place = span.map(|s| {
            let before = &self.text[..s.start.min(self.text.len())];
            let line = before.rfind('\n').map_or(0, |i| i + 1);
            (before.matches('\n').count() + 1, before[line..].chars().count() + 1)
        });
        Mistake { path: self.path.to_owned(), place, what: what.into(), suggestion: None }
    }

    /// Position of section `[name]`, if `why` begins with it, as in "\[name\] key: …".
    pub fn section(&self, why: &str) -> Option<Range<usize>> {
        let name = why.strip_prefix('[')?.split(']').next()?;
        let header = format!("[{name}]");
        let mut lines = self.text.split_inclusive('\n').scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line))
        });
        let (start, _) = lines.find(|(_, line)| line.trim_start().starts_with(&header))?;
        Some(start..start)
    }

    /// Checks that a figure can show `name`, which is given at `span`.
    pub fn check_name(&self, span: Range<usize>, name: &str) -> Result<(), Mistake> {
        let bad = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
        let length = name.chars().take(MAX_NAME + 1).count();
        if name.contains(bad) || !(1..=MAX_NAME).contains(&length) {
            let start: String = name.chars().take(MAX_NAME).collect();
            let more = if length > MAX_NAME { "…" } else { "" };
            let what = format!(
                "a name has 1 to {MAX_NAME} characters, and no control character among them: \
                 \"{start}{more}\""
            );
            return Err(self.mistake(Some(span), what));
        }
        Ok(())
    }

    /// Converts the parser's error.
    pub fn syntax(&self, error: &toml::de::Error) -> Mistake {
        let what = error.message().replace('\n', " ");
        if what.starts_with("unknown field `ip`") {
            let what = "all packets of a scenario are of one IP version: write `ip = 4` or `ip = 6` \
                        once, at the top of the file";
            return self.mistake(error.span(), what);
        }
        let suggestion = unknown(&what);
        Mistake { suggestion, ..self.mistake(error.span(), what) }
    }

    /// Index of `name` among `known`; errors call it `what`.
    pub fn find<'n>(
        &self,
        span: Range<usize>,
        what: &str,
        name: &str,
        known: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<usize, Mistake> {
        known.clone().position(|k| k == name).ok_or_else(|| {
            let suggestion = nearest(name, known).map(str::to_owned);
            let what = format!("there is no {what} \"{name}\"");
            Mistake { suggestion, ..self.mistake(Some(span), what) }
        })
    }
}

/// The known name closest to the unknown one in serde's message "unknown field `x`, expected one of
/// `a`, `b`".
fn unknown(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown").then(|| quoted.next())??;
    nearest(unknown, quoted).map(str::to_owned)
}

fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(name, other);
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).filter(|n| likeness(n) > 0.7)
}
