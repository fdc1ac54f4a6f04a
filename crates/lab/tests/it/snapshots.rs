//! The tables of every experiment at its smallest size: a change that alters a number alters one of
//! these, and gets reviewed.
//!
//! `INSTA_UPDATE=always cargo test -p trunkline-lab` accepts the new ones.

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
        // Every tenth row of a distribution is enough.
        let every = if table.rows.len() > 100 { 10 } else { 1 };
        let rows: Vec<&str> =
            csv.lines().take(1).chain(csv.lines().skip(1).step_by(every)).collect();
        insta::with_settings!({ prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(experiment.id().replace('/', "-"), rows.join("\n"));
        });
    }
}

/// Without measurements, no claim holds.
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

/// `check --sabotage` shows that each claim can fail; this test only checks that each has a unique
/// name.
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
