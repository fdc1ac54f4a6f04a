//! The tables of every experiment at its smallest size: whatever changes a
//! number changes one of these, and is looked at.
//!
//! `INSTA_UPDATE=always cargo test -p trunkline-lab` takes the new ones over.

use crate::common;
use trunkline_lab::claim::Verdict;
use trunkline_lab::experiment::{Sabotage, Size};
use trunkline_lab::speech::{Speech, Variant};
use trunkline_lab::table::Table;
use trunkline_lab::{output, papers, plot, run};

#[test]
fn every_experiment() {
    let speech = Speech::load(&common::speech(), Variant::default()).unwrap();
    for experiment in papers().0 {
        let points = (experiment.points)(Size::Tiny, Sabotage::NONE);
        let table = run::table(&experiment, &points, 1, Some(&speech)).unwrap();
        let csv = table.csv();
        // Of a distribution every tenth row says enough.
        let every = if table.rows.len() > 100 { 10 } else { 1 };
        let rows: Vec<&str> =
            csv.lines().take(1).chain(csv.lines().skip(1).step_by(every)).collect();
        insta::with_settings!({ prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(experiment.id().replace('/', "-"), rows.join("\n"));
        });
    }
}

/// Nothing measured, nothing shown.
#[test]
fn no_claim_holds_of_an_empty_table() {
    let papers = papers();
    let beside = papers.testbeds().map(|(experiment, testbed)| (experiment, &testbed.figure));
    for (experiment, figure) in papers.figures().chain(beside) {
        let table = Table { columns: experiment.columns, rows: Vec::new() };
        for claim in &figure.claims {
            let judged = output::judge(claim, &table);
            assert_eq!(judged.verdict, Verdict::Fails, "{} {}: {judged:?}", figure.name, claim.id);
        }
        let _ = plot::panels_svg(&(figure.chart)(&table));
    }
}

/// `check --sabotage` shows that each fails; here only that each can be named.
#[test]
fn claims_have_names_of_their_own() {
    let papers = papers();
    let beside = papers.testbeds().map(|(_, testbed)| &testbed.figure);
    for figure in papers.figures().map(|(_, figure)| figure).chain(beside) {
        let mut ids: Vec<_> = figure.claims.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), figure.claims.len(), "{}", figure.name);
    }
}
