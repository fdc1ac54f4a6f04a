//! Tables of an experiment's results, at the precision that its columns state.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, with the unit as a suffix, such as `residual_pct` or `delay_ms`.
    pub name: &'static str,
    /// Format of the cells.
    pub kind: Kind,
    /// Whether it describes what was measured, and not the outcome.
    pub is_parameter: bool,
}

/// Format of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word without commas.
    Text,
    /// A number with this many decimals.
    Decimals(usize),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Text => write!(f, "a word"),
            Kind::Decimals(0) => write!(f, "a whole number"),
            Kind::Decimals(1) => write!(f, "a number with one decimal"),
            Kind::Decimals(d) => write!(f, "a number with {d} decimals"),
        }
    }
}

impl Column {
    /// Makes a column of words.
    pub const fn text(name: &'static str) -> Column {
        Column { name, kind: Kind::Text, is_parameter: false }
    }

    /// Makes a column of numbers with `decimals` digits after the point.
    pub const fn number(name: &'static str, decimals: usize) -> Column {
        Column { name, kind: Kind::Decimals(decimals), is_parameter: false }
    }

    /// The same column, as one that describes what was measured: a setting, or the extent of the
    /// measurement.
    pub const fn parameter(self) -> Column {
        Column { is_parameter: true, ..self }
    }

    /// Whether [`print()`] can have formatted this cell.
    pub fn accepts(&self, cell: &str) -> bool {
        match self.kind {
            Kind::Text => is_word(cell),
            Kind::Decimals(_) if cell.is_empty() => true,
            Kind::Decimals(d) => cell.parse().is_ok_and(|n| fixed(n, d) == cell),
        }
    }
}

/// One value, before it is formatted.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A word without commas.
    Text(String),
    /// A number; NaN becomes an empty cell.
    Number(f64),
}

impl Cell {
    /// A cell that is `yes` or `no`.
    pub fn yes(is_so: bool) -> Cell {
        if is_so { "yes" } else { "no" }.into()
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Number(number)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Cell {
        Cell::Number(number as f64)
    }
}

/// A row as it is stored, with every cell formatted. Figures and claims read their values from it,
/// so that a figure never shows more than its data, and a resumed or merged run can't differ in a
/// last digit.
pub type Row = Vec<String>;

/// Formats a row.
///
/// # Panics
///
/// If `cells` don't fit `columns`, which is a bug in the experiment.
pub fn print(columns: &[Column], cells: Vec<Cell>) -> Row {
    assert_eq!(columns.len(), cells.len(), "a row has as many cells as the table has columns");
    let one = |(column, cell): (&Column, Cell)| match (column.kind, cell) {
        (Kind::Text, Cell::Text(text)) => {
            assert!(is_word(&text), "{text:?} would need quotes in a CSV file");
            text
        }
        (Kind::Decimals(d), Cell::Number(n)) => fixed(n, d),
        (kind, cell) => panic!("column {} is {kind:?} and got {cell:?}", column.name),
    };
    columns.iter().zip(cells).map(one).collect()
}

/// Whether a text can be a cell of a CSV file without quotes.
fn is_word(text: &str) -> bool {
    !text.contains(|c: char| matches!(c, ',' | '"') || c.is_control())
}

/// A number with this many decimals; nothing for NaN.
fn fixed(n: f64, decimals: usize) -> String {
    if n.is_nan() {
        return String::new();
    }
    let text = format!("{n:.decimals$}");
    // A zero has no sign.
    let zero = text.starts_with('-') && !text.contains(|c| matches!(c, '1'..='9'));
    if zero { text[1..].to_owned() } else { text }
}

/// Positions of the columns that have the two ends of an interval, such as `delay_low_ms` and
/// `delay_high_ms`.
fn ends(names: &[&str]) -> Vec<(usize, usize)> {
    let high = |name: &str| {
        let parts = name.split('_').map(|part| if part == "low" { "high" } else { part });
        parts.collect::<Vec<_>>().join("_")
    };
    let pair = |(low, name): (usize, &&str)| {
        let high = high(name);
        let other = names.iter().position(|other| *other == high)?;
        (other != low).then_some((low, other))
    };
    names.iter().enumerate().filter_map(pair).collect()
}

/// Checks that no row is there twice, and that no interval ends before it begins.
///
/// # Errors
///
/// The first fault.
pub(crate) fn plausible(names: &[&str], rows: &[Row]) -> Result<(), String> {
    let mut seen = HashSet::new();
    if let Some(twin) = rows.iter().find(|row| !seen.insert(*row)) {
        return Err(format!("the row {} is there twice", twin.join(",")));
    }
    let number = |row: &Row, n: usize| row[n].parse().unwrap_or(f64::NAN);
    for (low, high) in ends(names) {
        if let Some(row) = rows.iter().find(|row| number(row, low) > number(row, high)) {
            let [a, b] = [names[low], names[high]];
            return Err(format!("{a} {} is above {b} {}", row[low], row[high]));
        }
    }
    Ok(())
}

/// Rows, and the columns that they have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The columns of the table.
    pub columns: &'static [Column],
    /// The rows, in the order of the points.
    pub rows: Vec<Row>,
}

impl Table {
    /// The table as comma-separated values (RFC 4180, with line feeds), after one line of column
    /// names.
    pub fn csv(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|c| c.name).collect();
        let mut out = names.join(",") + "\n";
        for row in &self.rows {
            let _ = writeln!(out, "{}", row.join(","));
        }
        out
    }

    /// Parses the output of [`Table::csv`].
    ///
    /// # Errors
    ///
    /// If [`Table::csv`] can't have written the text: it has other columns, a row has another
    /// number of cells, a cell has another format, or the end is missing.
    pub fn parse(columns: &'static [Column], text: &str) -> Result<Table, String> {
        if text.contains('\r') {
            return Err("its lines end in CRLF".to_owned());
        }
        let Some(text) = text.strip_suffix('\n') else {
            return Err("its end is missing: the last line has no line feed".to_owned());
        };
        let mut lines = text.split('\n');
        let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
        let there = lines.next().unwrap_or_default();
        if there != names.join(",") {
            return Err(format!("its columns are {there}, and the code's {}", names.join(",")));
        }
        let row = |(n, line): (usize, &str)| {
            let row: Row = line.split(',').map(str::to_owned).collect();
            if row.len() != columns.len() {
                return Err(format!("line {} should have {} cells", n + 2, columns.len()));
            }
            match columns.iter().zip(&row).find(|(column, cell)| !column.accepts(cell)) {
                Some((column, cell)) => Err(format!(
                    "line {}: \"{}\" in {} is not {}",
                    n + 2,
                    cell.escape_debug(),
                    column.name,
                    column.kind
                )),
                None => Ok(row),
            }
        };
        let rows = lines.enumerate().map(row).collect::<Result<_, _>>()?;
        Ok(Table { columns, rows })
    }

    /// Checks that no row is there twice, and that no interval ends before it begins.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn validate(&self) -> Result<(), String> {
        let names: Vec<&str> = self.columns.iter().map(|c| c.name).collect();
        plausible(&names, &self.rows)
    }

    /// Whether any row was measured on a machine that did not keep up.
    pub fn has_invalid(&self) -> bool {
        self.columns.iter().any(|c| c.name == "valid")
            && self.iter().any(|row| row.is("valid", "no"))
    }

    /// Its rows, whose cells can be accessed by column name.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> + Clone {
        self.rows.iter().map(|row| Record { columns: self.columns, row })
    }
}

/// A row with access to its cells by column name.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    columns: &'static [Column],
    row: &'a Row,
}

impl<'a> Record<'a> {
    /// The word in this column.
    ///
    /// # Panics
    ///
    /// If there is no such column, which is a bug in the experiment.
    pub fn text(&self, column: &str) -> &'a str {
        let at = self.columns.iter().position(|c| c.name == column);
        let at = at.unwrap_or_else(|| panic!("the table has no column {column}"));
        &self.row[at]
    }

    /// The number in this column; NaN if the cell is empty.
    ///
    /// # Panics
    ///
    /// As [`Record::text`].
    pub fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap_or(f64::NAN)
    }

    /// Whether the cell of this column is exactly `value`.
    pub fn is(&self, column: &str, value: &str) -> bool {
        self.text(column) == value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] =
        &[Column::text("burst"), Column::number("loss_pct", 1), Column::number("sent", 0)];

    #[test]
    fn numbers_have_the_stated_precision() {
        let row = |loss: f64| print(COLUMNS, vec!["50".into(), loss.into(), 7u64.into()]);
        let table = Table { columns: COLUMNS, rows: vec![row(0.25), row(-0.01), row(f64::NAN)] };
        assert_eq!(table.csv(), "burst,loss_pct,sent\n50,0.2,7\n50,0.0,7\n50,,7\n");
        assert_eq!(Table::parse(COLUMNS, &table.csv()), Ok(table.clone()));
        let first = table.iter().next().unwrap();
        assert_eq!((first.text("burst"), first.number("loss_pct")), ("50", 0.2));
        assert!(table.iter().nth(2).unwrap().number("loss_pct").is_nan());
    }

    #[test]
    fn only_what_was_written_is_read() {
        for (damaged, why) in [
            ("", "its end is missing"),
            ("burst,loss,sent\n", "its columns are burst,loss,sent"),
            ("burst,loss_pct,sent\n50,7\n", "line 2 should have 3 cells"),
            ("burst,loss_pct,sent\n50,0.2,7\n\n", "line 3 should have 3 cells"),
            ("burst,loss_pct,sent\n50,0.2,7", "its end is missing"),
            ("burst,loss_pct,sent\r\n50,0.2,7\r\n", "CRLF"),
            (
                "burst,loss_pct,sent\n50,0.,7\n",
                "line 2: \"0.\" in loss_pct is not a number with one",
            ),
            ("burst,loss_pct,sent\n50,0.25,7\n", "\"0.25\" in loss_pct"),
            ("burst,loss_pct,sent\n50,-0.0,7\n", "\"-0.0\" in loss_pct"),
            ("burst,loss_pct,sent\n50,NaN,7\n", "\"NaN\" in loss_pct"),
            ("burst,loss_pct,sent\n50,0.2,many\n", "\"many\" in sent is not a whole number"),
            ("burst,loss_pct,sent\n\u{7},0.2,7\n", "\"\\u{7}\" in burst is not a word"),
        ] {
            let said = Table::parse(COLUMNS, damaged).unwrap_err();
            assert!(said.contains(why), "{damaged:?}: {said}");
        }
    }

    #[test]
    fn what_no_run_gives_is_found() {
        const INTERVAL: &[Column] =
            &[Column::number("r", 0), Column::number("r_low", 0), Column::number("r_high", 0)];
        let fault = |rows: &[[&str; 3]]| {
            let rows = rows.iter().map(|row| row.map(str::to_owned).into()).collect();
            Table { columns: INTERVAL, rows }.validate()
        };
        assert_eq!(fault(&[["2", "1", "3"], ["2", "2", "2"], ["", "", ""]]), Ok(()));
        assert_eq!(fault(&[]), Ok(()));
        let twice = fault(&[["2", "1", "3"], ["2", "1", "3"]]);
        assert_eq!(twice, Err("the row 2,1,3 is there twice".into()));
        assert_eq!(fault(&[["2", "3", "1"]]), Err("r_low 3 is above r_high 1".into()));
        assert_eq!(ends(&["low", "x_low_ms", "x_high_ms", "high"]), [(0, 3), (1, 2)]);
    }
}
