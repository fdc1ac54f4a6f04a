//! Tables of an experiment's results, at the precision that its columns state.

use std::fmt::Write as _;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, with the unit as a suffix, such as `residual_pct` or `delay_ms`.
    pub name: &'static str,
    /// Format of the cells.
    pub kind: Kind,
}

/// Format of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word without commas.
    Text,
    /// A number with this many decimals.
    Decimals(usize),
}

impl Column {
    /// Makes a column of words.
    pub const fn text(name: &'static str) -> Column {
        Column { name, kind: Kind::Text }
    }

    /// Makes a column of numbers with `decimals` digits after the point.
    pub const fn number(name: &'static str, decimals: usize) -> Column {
        Column { name, kind: Kind::Decimals(decimals) }
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
            assert!(!text.contains([',', '"', '\n']), "{text:?} would need quotes in a CSV file");
            text
        }
        (Kind::Decimals(_), Cell::Number(n)) if n.is_nan() => String::new(),
        (Kind::Decimals(d), Cell::Number(n)) => {
            let text = format!("{n:.d$}");
            // A zero has no sign.
            let zero = text.starts_with('-') && !text.contains(|c| matches!(c, '1'..='9'));
            if zero { text[1..].to_owned() } else { text }
        }
        (kind, cell) => panic!("column {} is {kind:?} and got {cell:?}", column.name),
    };
    columns.iter().zip(cells).map(one).collect()
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
    /// If the text has other columns, or a row has another number of cells.
    pub fn parse(columns: &'static [Column], text: &str) -> Result<Table, String> {
        let mut lines = text.lines();
        let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
        let there = lines.next().unwrap_or_default();
        if there != names.join(",") {
            return Err(format!("its columns are {there}, and the code's {}", names.join(",")));
        }
        let rows: Vec<Row> =
            lines.map(|line| line.split(',').map(str::to_owned).collect()).collect();
        match rows.iter().position(|row| row.len() != columns.len()) {
            Some(n) => Err(format!("line {} should have {} cells", n + 2, columns.len())),
            None => Ok(Table { columns, rows }),
        }
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
        for damaged in ["", "burst,loss,sent\n", "burst,loss_pct,sent\n50,7\n"] {
            assert!(Table::parse(COLUMNS, damaged).is_err(), "{damaged:?}");
        }
        let first = table.iter().next().unwrap();
        assert_eq!((first.text("burst"), first.number("loss_pct")), ("50", 0.2));
        assert!(table.iter().nth(2).unwrap().number("loss_pct").is_nan());
    }
}
