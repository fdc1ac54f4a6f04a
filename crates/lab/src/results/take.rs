//! Takes over what `run` measured into the stored results.

use super::{ClaimResult, FigureResult, Parameter, Results, SmallTable, figures, id};
use crate::claim::Claim;
use crate::error::Error;
use crate::experiment::{Figure, Size};
use crate::output::{self, judge};
use crate::papers::Papers;
use crate::store::Manifest;
use crate::table::{Column, Table};
use std::path::Path;

/// Maximum number of rows of a table that the page shows; otherwise it names the file with the
/// data.
pub(super) const MAX_ROWS: usize = 20;

/// Maximum number of values of a column that is listed among a figure's parameters.
const MAX_VALUES: usize = 16;

/// Outcome of [`take`] for the figures in an output folder.
#[derive(Debug, Default)]
pub struct Taken {
    /// Number of figures that were taken over.
    pub figures: usize,
    /// Figures that were left as they were, and why.
    pub left: Vec<String>,
}

/// Judges the figures that `run` wrote to `out`, and puts them into `results`. A smaller run
/// doesn't replace a larger one, and a testbed's invalid run replaces nothing.
///
/// # Errors
///
/// If there is no figure in `out`, or a result there is damaged or not of the code's experiment.
pub fn take(papers: &Papers, out: &Path, results: &mut Results) -> Result<Taken, Error> {
    let mut taken = Taken::default();
    for (experiment, figure, _) in figures(papers) {
        let Some((manifest, table)) = output::read(out, experiment, figure)? else { continue };
        let name = id(experiment, figure);
        if table.has_invalid() {
            taken.left.push(format!("{name}: the machine was too late, its rows are not valid"));
            continue;
        }
        if manifest.size() == Size::Tiny {
            taken.left.push(format!("{name}: a tiny run measures nothing"));
            continue;
        }
        match results.figures.get(&name) {
            Some(stored) if stored.size > manifest.size() => {
                let size = stored.size.name();
                taken.left.push(format!("{name}: the stored run is larger ({size})"));
            }
            _ => {
                results.figures.insert(name, figure_result(figure, &manifest, &table));
                taken.figures += 1;
            }
        }
    }
    if taken.figures == 0 && taken.left.is_empty() {
        return Err(Error::NothingToReport(out.to_owned()));
    }
    Ok(taken)
}

fn figure_result(figure: &Figure, manifest: &Manifest, table: &Table) -> FigureResult {
    let claim = |claim: &Claim| {
        let judged = judge(claim, table);
        let note = match judged.numbers.measured {
            Some(_) => (claim.measure)(table).note,
            None => judged.note,
        };
        let result = ClaimResult {
            published: judged.published,
            bound: judged.bound,
            unit: judged.unit,
            measured: judged.measured,
            interval: judged.interval,
            one_run: judged.one_run,
            verdict: judged.verdict,
            note,
        };
        (claim.id.to_owned(), result)
    };
    FigureResult {
        size: manifest.size(),
        seed: manifest.seed(),
        revision: manifest.revision(),
        built: manifest.built().to_owned(),
        speech: manifest.speech().map(str::to_owned),
        parameters: parameters(table),
        constants: constants(table),
        table: small(table),
        claims: figure.claims.iter().map(claim).collect(),
    }
}

/// The values of a column, each once, in the order of the rows.
fn values(table: &Table, column: usize) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for row in &table.rows {
        if !values.contains(&row[column]) {
            values.push(row[column].clone());
        }
    }
    values
}

fn is_small(table: &Table) -> bool {
    table.rows.len() <= MAX_ROWS
}

/// Whether the column is left out of the shown table, since all of its rows have one value.
fn is_constant(table: &Table, column: usize) -> bool {
    table.rows.len() > 1 && values(table, column).len() == 1
}

fn listed<'a>(
    table: &'a Table,
    is_listed: impl Fn(usize, &Column, &[String]) -> bool + 'a,
) -> Vec<Parameter> {
    let all = table.columns.iter().enumerate().map(|(n, column)| (n, column, values(table, n)));
    let kept = all.filter(|(n, column, values)| is_listed(*n, column, values));
    let one = |(_, column, values): (usize, &Column, Vec<String>)| Parameter {
        column: column.name.to_owned(),
        // A row that has no such parameter has an empty cell.
        values: values.into_iter().filter(|value| !value.is_empty()).collect::<Vec<_>>().join(", "),
    };
    kept.map(one).collect()
}

/// The parameters of the measured points. If the table is shown, only those with a single value;
/// otherwise without those that have very many.
fn parameters(table: &Table) -> Vec<Parameter> {
    listed(table, |n, column, values| {
        let is_short = match is_small(table) {
            true => is_constant(table, n),
            false => values.len() <= MAX_VALUES,
        };
        column.is_parameter && is_short && values.iter().any(|value| !value.is_empty())
    })
}

/// The outcomes that are the same in every row of a table that is shown.
fn constants(table: &Table) -> Vec<Parameter> {
    listed(table, |n, column, values| {
        is_small(table) && !column.is_parameter && is_constant(table, n) && !values[0].is_empty()
    })
}

fn small(table: &Table) -> Option<SmallTable> {
    if !is_small(table) {
        return None;
    }
    let shown: Vec<usize> = (0..table.columns.len()).filter(|n| !is_constant(table, *n)).collect();
    let columns = shown.iter().map(|n| table.columns[*n].name.to_owned()).collect();
    let rows = table.rows.iter().map(|row| shown.iter().map(|n| row[*n].clone()).collect());
    Some(SmallTable { columns, rows: rows.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::text("path").parameter(),
        Column::number("hz", 0).parameter(),
        Column::number("runs", 0).parameter(),
        Column::number("lost", 0),
        Column::number("late", 0),
        Column::number("odd", 0),
        Column::number("hours", 0).parameter(),
    ];

    fn table(rows: usize) -> Table {
        let row = |n: usize| {
            let hours = if n < 20 { "" } else { "2" };
            let late = (n % 2).to_string();
            ["a", &n.to_string(), "3", "0", &late, "", hours].map(str::to_owned).into()
        };
        Table { columns: COLUMNS, rows: (0..rows).map(row).collect() }
    }

    fn text(parameters: &[Parameter]) -> String {
        let one = |p: &Parameter| format!("{} {}", p.column, p.values);
        parameters.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// However often its values recur, an outcome is not a parameter.
    #[test]
    fn only_what_was_set_is_a_parameter() {
        let large = table(MAX_ROWS + 1);
        assert_eq!(text(&parameters(&large)), "path a; runs 3; hours 2");
        assert_eq!((text(&constants(&large)), small(&large)), (String::new(), None));
        let shown = table(3);
        assert_eq!(text(&parameters(&shown)), "path a; runs 3");
        assert_eq!(text(&constants(&shown)), "lost 0");
        assert_eq!(small(&shown).unwrap().columns, ["hz", "late"]);
        let single = table(1);
        assert_eq!((parameters(&single), constants(&single)), (vec![], vec![]));
        assert_eq!(small(&single).unwrap().columns.len(), COLUMNS.len());
    }
}
