//! Text tables for people to read.

/// Placeholder for an unknown value.
pub const NOTHING: &str = "–";

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Left-aligned, used for words.
    Left,
    /// Right-aligned, used for numbers.
    Right,
}

/// Lines of a table: its head, then `rows`, which have a cell for each column.
pub fn lines(columns: &[(&str, Align)], rows: &[Vec<String>]) -> Vec<String> {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain([columns[i].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let head: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    std::iter::once(&head)
        .chain(rows)
        .map(|row| {
            let cells: Vec<String> = row
                .iter()
                .zip(columns)
                .zip(&widths)
                .map(|((cell, (_, align)), &width)| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                })
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

/// Formats a number with `decimals`, or [`NOTHING`].
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or(NOTHING.into(), |v| format!("{v:.decimals$}"))
}

/// Formats a share as a percentage, without the sign.
pub fn percent(share: Option<f64>) -> String {
    number(share.map(|s| s * 100.0), 2)
}

/// Formats a duration in the two largest units that it has.
pub fn span(seconds: f64) -> String {
    // No uptime is out of range; the cast of a float saturates.
    let s = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (s / 86_400, s / 3_600 % 24, s / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{s} s"),
        (0, 0, _) => format!("{minutes} min {} s", s % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats a count of `what`, with a plural if needed.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".into(), "1".into()], vec!["–long".into(), "1000".into()]];
        let got = lines(&[("x", Align::Left), ("ms", Align::Right)], &rows);
        assert_eq!(got, ["x        ms", "a         1", "–long  1000"]);
    }

    #[test]
    fn quantities() {
        for (s, text) in
            [(5.9, "5 s"), (61.0, "1 min 1 s"), (7_260.0, "2 h 1 min"), (9e4, "1 d 1 h")]
        {
            assert_eq!(span(s), text);
        }
        assert_eq!((percent(Some(0.0512)), percent(None)), ("5.12".into(), "–".into()));
        assert_eq!((count(1, "link"), count(0, "link")), ("1 link".into(), "0 links".into()));
    }
}
