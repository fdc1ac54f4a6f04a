use super::check::{Problem, check};
use super::*;
use crate::claim::{Bound, Claim, Measured};
use crate::experiment::Sabotage;
use crate::papers::{PAPERS, papers};
use crate::store::{Manifest, Store};
use crate::table::{Column, Table, print};

const COLUMNS: &[Column] = &[
    Column::text("path").parameter(),
    Column::number("loss_pct", 1).parameter(),
    Column::number("missed_pct", 2),
    Column::number("missed_low_pct", 2),
    Column::number("missed_high_pct", 2),
];

pub(super) const NAME: &str = "voip-overlay/fig4";

/// A claim of the paper, which holds, and one of our own, which fails.
pub(super) fn claims() -> Vec<Claim> {
    let missed = |table: &Table| {
        let row = table.iter().last();
        let columns = ["missed_pct", "missed_low_pct", "missed_high_pct"];
        row.map_or(Measured::census(f64::NAN), |row| Measured::of(&row, columns))
    };
    let holds = Claim {
        unit: "%",
        measure: Box::new(missed),
        why: "As often as a repair is lost.",
        ..Claim::holding(
            "half",
            "half of it is left",
            Some("about 0.5 %"),
            Bound::within(0.4, 0.6, ""),
            "",
        )
    };
    let fails = Claim {
        expected: Verdict::Fails,
        measure: Box::new(move |table| missed(table).noting("At 5 % loss.")),
        ..Claim::holding("none", "nothing is left", None, Bound::at_most(0.1, "our target"), "")
    };
    vec![holds, fails]
}

pub(super) fn with(claims: Vec<Claim>, revision: u32) -> Papers {
    let figure = Figure {
        name: "fig4",
        title: "What is left",
        section: "IV-A",
        caption: "Hardly anything is left.",
        chart: Box::new(|_| unreachable!("nothing is drawn here")),
        claims,
    };
    Papers(vec![Experiment {
        paper: "voip-overlay",
        name: "loss",
        revision,
        columns: COLUMNS,
        needs_speech: false,
        points: Box::new(|_: Size, _: Sabotage| Vec::new()),
        figures: vec![figure],
        testbed: None,
    }])
}

/// Writes the experiment's results as `run` does.
pub(super) fn run(out: &Path, papers: &Papers, size: Size, missed: [f64; 3]) {
    let experiment = &papers.0[0];
    Store::open(out, experiment, &Manifest::new(experiment, size, 1, None)).unwrap();
    let row = |loss: f64, missed: [f64; 3]| {
        let [a, b, c] = missed.map(Into::into);
        print(COLUMNS, vec!["overlay".into(), loss.into(), a, b, c])
    };
    let table = Table { columns: COLUMNS, rows: vec![row(1.0, [0.0; 3]), row(5.0, missed)] };
    write_file(&out.join(NAME).join("data.csv"), table.csv().as_bytes()).unwrap();
}

/// A source tree with results of a full run.
pub(super) fn tree() -> (tempfile::TempDir, Papers) {
    let tree = tempfile::tempdir().unwrap();
    let markers =
        ["gains", "papers"].map(|n| format!("<!-- generated: {n} -->\n<!-- end: {n} -->\n"));
    fs::write(tree.path().join("README.md"), format!("# It\n\n{}\nLast.\n", markers.concat()))
        .unwrap();
    let papers = with(claims(), 1);
    let out = tree.path().join("lab-out");
    run(&out, &papers, Size::Full, [0.49, 0.45, 0.52]);
    let mut results = Results::empty();
    assert_eq!(take(&papers, &out, &mut results).unwrap().figures, 1);
    write(&papers, tree.path(), &results).unwrap();
    (tree, papers)
}

pub(super) fn problems(papers: &Papers, tree: &tempfile::TempDir) -> Vec<Problem> {
    check(papers, tree.path()).unwrap()
}

/// The problems after this edit of one of the tree's files, which is then undone.
pub(super) fn after(
    tree: &tempfile::TempDir,
    papers: &Papers,
    file: &str,
    edit: [&str; 2],
) -> Vec<String> {
    let path = tree.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(edit[0]), "{file} has {}: {text}", edit[0]);
    fs::write(&path, text.replacen(edit[0], edit[1], 1)).unwrap();
    let problems = problems(papers, tree);
    fs::write(&path, text).unwrap();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn pages_have_claims_numbers_and_the_command() {
    let (tree, papers) = tree();
    assert_eq!(problems(&papers, &tree), []);
    let page = fs::read_to_string(tree.path().join("docs/results/voip-overlay.md")).unwrap();
    for line in [
        "trunkline-lab run voip-overlay/fig4 --seed 1",
        &format!("Run: full, seed 1, revision 1; {}.", crate::store::BUILT),
        "Parameters: `path` overlay.",
        "| `half` half of it is left | about 0.5 % | 0.40 to 0.60 % | 0.49 (0.45 – 0.52) % | holds |",
        "| `none` nothing is left | – | at most 0.10 (our target) | 0.49 (0.45 – 0.52) | **fails** |",
        "- `half`: As often as a repair is lost.",
        "- `none`: At 5 % loss.",
        "| `loss_pct` | `missed_pct` |",
        "| 5.0 | 0.49 (0.45 – 0.52) |",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
    let readme = fs::read_to_string(tree.path().join("README.md")).unwrap();
    let row = format!(
        "| [{}](docs/results/voip-overlay.md) | 1 of 1 hold | 0 of 1 hold, 1 fail |",
        PAPERS[0].short
    );
    assert!(readme.contains(&row) && readme.ends_with("\nLast.\n"), "{readme}");
    // Writing the same results again yields the same bytes.
    let results = Results::load(tree.path()).unwrap();
    assert_eq!(write(&papers, tree.path(), &results).unwrap(), Vec::<PathBuf>::new());
}

#[test]
fn a_tampered_number_or_verdict_is_found_with_its_line() {
    let (tree, papers) = tree();
    let after = |file, edit| after(&tree, &papers, file, edit);
    for (edit, wanted) in [
        (
            ["\"verdict\": \"holds\"", "\"verdict\": \"fails\""],
            "half: \"fails\" does not follow from 0.45 to 0.52",
        ),
        (["\"0.45\"", "\"0.35\""], "half: \"holds\" does not follow from 0.35 to 0.52"),
        (["\"about 0.5 %\"", "\"0.9 %\""], "half: \"0.9 %\" is stored as published"),
        (["0.40 to 0.60", "0.40 to 0.70"], "half: it was judged by \"0.40 to 0.70 %\""),
        (["\"revision\": 1", "\"revision\": 2"], "fig4: revision 2 was measured"),
        (["loss_pct,missed_pct", "loss_pct,lost_pct"], "the table has no column lost_pct"),
        (["\"half\"", "\"third\""], "has no claim third: it was renamed or removed"),
        (["voip-overlay/fig4", "voip-overlay/fig5"], "no figure voip-overlay/fig5"),
    ] {
        let found = after(FILE, edit);
        let here = found.iter().filter(|p| p.starts_with(FILE) && p.contains(wanted)).count();
        assert_eq!(here, 1, "{edit:?} should give {wanted}: {found:#?}");
        assert!(found.iter().all(|p| p.contains("`") || p.contains("find out why")), "{found:#?}");
    }
    let text = fs::read_to_string(tree.path().join(FILE)).unwrap();
    let line = 1 + text.lines().position(|l| l.contains("\"verdict\": \"holds\"")).unwrap();
    let found = after(FILE, ["\"verdict\": \"holds\"", "\"verdict\": \"fails\""]);
    assert!(found[0].starts_with(&format!("{FILE}:{line}: ")), "{found:#?}");
    // A number in the middle of the interval's bound is only on the page.
    let page = "docs/results/voip-overlay.md";
    for (file, edit) in
        [(page, ["0.49 (", "0.39 ("]), ("README.md", ["1 of 1 hold", "2 of 2 hold"])]
    {
        let found = after(file, edit);
        assert!(found.len() == 1 && found[0].starts_with(file), "{found:#?}");
        assert!(found[0].contains("should be \"|"), "{found:#?}");
    }
    assert_eq!(problems(&papers, &tree), []);
}

#[test]
fn a_claim_that_changes_in_the_code_is_found() {
    let (tree, _) = tree();
    let found = |change: &dyn Fn(&mut Vec<Claim>), revision| {
        let mut claims = claims();
        change(&mut claims);
        let found = problems(&with(claims, revision), &tree);
        let stored = found.iter().filter(|p| p.path == Path::new(FILE));
        stored.map(|p| p.what.clone()).collect::<Vec<_>>().join("\n")
    };
    let gone = "voip-overlay/fig4 has no claim half: it was renamed or removed";
    assert_eq!(found(&|c| drop(c.remove(0)), 1), gone);
    let renamed = found(&|c| c[0].id = "a-half", 1);
    assert_eq!(
        renamed,
        format!("{gone}\nno result of the claim voip-overlay/fig4 a-half is stored")
    );
    let expected = found(&|c| c[1].expected = Verdict::Holds, 1);
    assert_eq!(
        expected,
        "voip-overlay/fig4 none: \"fails\" is stored, and the code expects \"holds\""
    );
    assert!(found(&|c| c[0].bound = Bound::within(0.4, 0.5, ""), 1).contains("0.40 to 0.50 %"));
    assert!(found(&|c| c[0].published = Some("0.5 %"), 1).contains("the code has \"0.5 %\""));
    assert!(found(&|_| {}, 2).contains("revision 1 was measured, and the code's is 2"));
}

#[test]
fn generating_again_follows_the_code_but_measures_nothing() {
    let (tree, _) = tree();
    let mut reworded = claims();
    reworded[0].published = Some("half a percent");
    reworded.remove(1);
    let papers = with(reworded, 1);
    let mut results = Results::load(tree.path()).unwrap();
    results.follow(&papers);
    write(&papers, tree.path(), &results).unwrap();
    assert_eq!(problems(&papers, &tree), []);
    let mut renamed = claims();
    renamed[0].id = "a-half";
    let papers = with(renamed, 1);
    results.follow(&papers);
    write(&papers, tree.path(), &results).unwrap();
    let left: Vec<String> = problems(&papers, &tree).iter().map(|p| p.what.clone()).collect();
    assert_eq!(left.len(), 2, "both claims have to be measured: {left:?}");
}

#[test]
fn a_smaller_run_does_not_replace_a_larger_one() {
    let (tree, papers) = tree();
    let quick = tree.path().join("quick");
    run(&quick, &papers, Size::Quick, [0.7, 0.5, 0.9]);
    let mut results = Results::load(tree.path()).unwrap();
    let taken = take(&papers, &quick, &mut results).unwrap();
    assert_eq!((taken.figures, taken.left.len()), (0, 1));
    let tiny = tree.path().join("tiny");
    run(&tiny, &papers, Size::Tiny, [0.7, 0.5, 0.9]);
    let taken = take(&papers, &tiny, &mut Results::empty()).unwrap();
    assert_eq!((taken.figures, taken.left.len()), (0, 1));
    // A quick run alone is published as such; its undecided claims contradict nothing.
    let mut results = Results::empty();
    take(&papers, &quick, &mut results).unwrap();
    write(&papers, tree.path(), &results).unwrap();
    let page = fs::read_to_string(tree.path().join("docs/results/voip-overlay.md")).unwrap();
    assert!(page.contains("full ones: 1 of 1 figures.") && page.contains("fig4 --quick"), "{page}");
    assert!(results.figures[NAME].claims["half"].verdict == Verdict::Undecided);
    assert_eq!(problems(&papers, &tree), []);
}

#[test]
fn what_is_no_result_is_not_taken_over() {
    let (tree, papers) = tree();
    let mut results = Results::empty();
    let take = |papers: &Papers, out: &Path, results: &mut Results| {
        take(papers, out, results).map(|_| ()).unwrap_err().to_string()
    };
    let nowhere = take(&papers, &tree.path().join("nowhere"), &mut results);
    assert!(nowhere.contains("no results in"), "{nowhere}");
    let out = tree.path().join("lab-out");
    let other = take(&with(claims(), 2), &out, &mut results);
    assert!(other.contains("of revision 1, and the code's is 2"), "{other}");
    let data = out.join(NAME).join("data.csv");
    fs::write(&data, "path,loss_pct\noverlay,5\n").unwrap();
    let columns = take(&papers, &out, &mut results);
    assert!(columns.contains("its columns are path,loss_pct"), "{columns}");
    assert_eq!(results, Results::empty());
}

/// The results published in this source tree agree with the lab's stored results and claims.
#[test]
fn published_results_agree_with_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let problems = check(&papers(), &root).unwrap();
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
