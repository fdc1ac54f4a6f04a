//! Damaged and forged files: each is refused or found, and the message has the cure.

use super::check::check;
use super::tests::{NAME, after, claims, problems, run, tree, with};
use super::*;
use crate::experiment::Size;

const PAGE: &str = "docs/results/voip-overlay.md";

/// The error of taking over the results of a run after this edit of one of their files.
fn taken(file: &str, edit: impl Fn(&str) -> String) -> String {
    let out = tempfile::tempdir().unwrap();
    let papers = with(claims(), 1);
    run(out.path(), &papers, Size::Full, [0.49, 0.45, 0.52]);
    let path = out.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    let edited = edit(&text);
    assert_ne!(edited, text, "{file}");
    fs::write(&path, edited).unwrap();
    let mut results = Results::empty();
    let said = take(&papers, out.path(), &mut results).unwrap_err().to_string();
    assert_eq!(results, Results::empty());
    said
}

#[test]
fn damaged_data_is_not_taken_over() {
    let file = format!("{NAME}/data.csv");
    for (edit, why) in [
        (["0.45,0.52\n", "0.45,0.5"], "its end is missing"),
        (
            ["0.45,0.52\n", "0.45,0.5\n"],
            "line 3: \"0.5\" in missed_high_pct is not a number with 2",
        ),
        (["0.45,0.52", "0.52,0.45"], "missed_low_pct 0.52 is above missed_high_pct 0.45"),
        (["5.0,0.49", "five,0.49"], "\"five\" in loss_pct is not a number with one decimal"),
        (["overlay,1.0", "over\"lay,1.0"], "in path is not a word"),
    ] {
        let said = taken(&file, |text| text.replacen(edit[0], edit[1], 1));
        assert!(said.contains(why) && said.contains("`trunkline-lab run`"), "{edit:?}: {said}");
    }
    let twice = taken(&file, |text| {
        let (names, rows) = text.split_once('\n').unwrap();
        format!("{names}\n{rows}{rows}")
    });
    assert!(twice.contains("the row overlay,1.0,0.00,0.00,0.00 is there twice"), "{twice}");
    let empty = taken(&file, |text| text.lines().next().unwrap().to_owned() + "\n");
    assert!(empty.contains("it has no rows"), "{empty}");
}

#[test]
fn the_results_of_another_experiment_are_not_taken_over() {
    for (edit, why) in [
        (["voip-overlay/loss", "voip-overlay/delay"], "of the experiment voip-overlay/delay"),
        (["\"schema\": ", "\"schema\": 9"], "it is of schema 9"),
        (["\"loss_pct\"", "\"lost_pct\""], "with the columns path,lost_pct,"),
        (["\"revision\": 1", "\"revision\": 2"], "it is of revision 2, and the code's is 1"),
        (["\"full\"", "\"huge\""], "unknown variant `huge`"),
        (["\"speech\": null", "\"speech\": \"x\""], "it names recordings"),
    ] {
        let said =
            taken("voip-overlay/loss/manifest.json", |text| text.replacen(edit[0], edit[1], 1));
        assert!(said.contains(why) && said.contains("remove it"), "{edit:?}: {said}");
    }
}

#[test]
fn forged_numbers_are_found() {
    let (tree, papers) = tree();
    for (edit, wanted) in [
        (["\"0.49\"", "\"9.99\""], "half: 9.99 is outside of its interval, 0.45 to 0.52"),
        (["\"0.49\"", "\"great\""], "half: \"great\" is not a number with 2 decimals"),
        (["\"0.49\"", "\"\""], "half: \"\" is not a number with 2 decimals"),
        (["\"0.45\"", "\"NaN\""], "half: \"NaN\" is not a number with 2 decimals"),
        (["\"0.45\"", "\"0.60\""], "half: the interval 0.60 to 0.52 is reversed"),
        (["\"full\"", "\"tiny\""], "fig4: a tiny run measures nothing"),
        (["1.0,0.00,0.00", "1.0,banana,0.00"], "fig4: \"banana\" in missed_pct is not a number"),
        (["5.0,0.49,0.45,0.52", "5.0,0.49,0.95,0.52"], "missed_low_pct 0.95 is above missed_high"),
        (["1.0,0.00,0.00,0.00", "5.0,0.49,0.45,0.52"], "is there twice"),
        (["\"values\": \"overlay\"", "\"values\": \"o\\\"v\""], "in path is not a word"),
        (["\"column\": \"path\"", "\"column\": \"missed_pct\""], "missed_pct is no parameter"),
        (["\"column\": \"path\"", "\"column\": \"loss_pct\""], "\"overlay\" in loss_pct is not"),
        (["\"seed\": 1,", "\"seed\": 1, "], "the lab writes it otherwise: "),
        (["\"seed\": 1,\n", "\"seed\": 1,\r\n"], "otherwise: the line ends in CRLF"),
    ] {
        let found = after(&tree, &papers, FILE, edit);
        let here = found.iter().filter(|p| p.starts_with(FILE) && p.contains(wanted)).count();
        assert_eq!(here, 1, "{edit:?} should give {wanted}: {found:#?}");
    }
    let gone = after(&tree, &papers, FILE, [NAME, "../../etc/x"]);
    let dropped = "the lab has no figure ../../etc/x: `trunkline-lab report --markdown` drops it";
    assert!(gone.iter().any(|p| p.contains(dropped)), "{gone:#?}");
}

#[test]
fn stored_results_of_another_form_are_refused() {
    let (tree, _) = tree();
    let path = tree.path().join(FILE);
    let text = fs::read_to_string(&path).unwrap();
    for (edit, why) in [
        (["\"full\"", "\"huge\""], "unknown variant `huge`"),
        (["\"seed\": 1", "\"seed\": 1, \"rows\": 999999"], "unknown field `rows`"),
        (["1.0,0.00,0.00,0.00", "1.0,0.00"], "the row \"1.0,0.00\" should have 4 cells"),
        (["1.0,0.00,0.00,0.00", "1.0,0,0,0,0"], "should have 4 cells"),
        (
            ["At 5 % loss.", "At 5 %\\n# INJECTED"],
            "\"At 5 %\\n# INJECTED\" has a control character",
        ),
        (["\"overlay\"", "\"over\\u0007lay\""], "has a control character"),
        (["\"schema\": 1", "\"schema\": 99"], "schema 99 is not 1"),
        (["{", ""], "expected struct Results"),
    ] {
        assert!(text.contains(edit[0]), "{}: {text}", edit[0]);
        fs::write(&path, text.replacen(edit[0], edit[1], 1)).unwrap();
        let said = Results::load(tree.path()).unwrap_err().to_string();
        let cure = said.contains("restore it (`git checkout -- docs/results/verdicts.json`)");
        assert!(said.contains(why) && cure, "{edit:?}: {said}");
    }
}

#[test]
fn a_stored_text_is_no_markup() {
    let (tree, papers) = tree();
    let mut results = Results::load(tree.path()).unwrap();
    let figure = results.figures.get_mut(NAME).unwrap();
    figure.speech = Some("<script>".into());
    figure.parameters[0].values = "<b>".into();
    figure.claims.get_mut("none").unwrap().note = "a | <i>".into();
    figure.claims.get_mut("half").unwrap().measured = "a | <u>".into();
    figure.table.as_mut().unwrap().rows[0][0] = "| <p>".into();
    write(&papers, tree.path(), &results).unwrap();
    let page = fs::read_to_string(tree.path().join(PAGE)).unwrap();
    for has in ["&lt;script>", "&lt;b>", "a | &lt;i>", "a \\| &lt;u>", "\\| &lt;p>"] {
        assert!(page.contains(has), "{has}: {page}");
    }
}

#[test]
fn a_damaged_page_is_found_with_its_line() {
    let (tree, papers) = tree();
    let path = tree.path().join(PAGE);
    let text = fs::read_to_string(&path).unwrap();
    let last = text.lines().count();
    let found = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let found: Vec<String> = problems(&papers, &tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0].clone()
    };
    for (damaged, line, what) in [
        (text.trim_end().to_owned(), last + 1, "the final line feed is missing"),
        (text.clone() + "\n", last + 2, "the last line is empty"),
        (text.clone() + "more\n", last + 1, "\"more\" should be \"\""),
        (text.replace('\n', "\r\n"), 1, "the line ends in CRLF"),
    ] {
        let said = found(damaged.as_bytes());
        assert!(said.starts_with(&format!("{PAGE}:{line}: ")) && said.contains(what), "{said}");
    }
    let said = found(&[text.as_bytes(), b"\xff"].concat());
    assert!(
        said.contains("it is not UTF-8: `trunkline-lab report --markdown` generates"),
        "{said}"
    );
    fs::remove_file(&path).unwrap();
    let missing = problems(&papers, &tree);
    assert!(missing.len() == 1 && missing[0].what == "it is missing", "{missing:#?}");
    fs::create_dir(&path).unwrap();
    let folder = problems(&papers, &tree);
    assert!(folder[0].what.starts_with("it can't be read (") && folder[0].cure.contains("remove"));
}

#[test]
fn nothing_else_stands_among_the_pages() {
    let (tree, papers) = tree();
    for by_hand in ["notes.md", "daemon.md"] {
        fs::write(tree.path().join(FOLDER).join(by_hand), "by hand\n").unwrap();
    }
    assert_eq!(problems(&papers, &tree), []);
    fs::write(tree.path().join(FOLDER).join("better.md"), "forged\n").unwrap();
    let found = problems(&papers, &tree);
    let said = found[0].to_string();
    assert_eq!(said, "docs/results/better.md:1: the lab does not generate this file: remove it");
    fs::remove_file(tree.path().join(FOLDER).join("better.md")).unwrap();
    let path = tree.path().join("README.md");
    let text = fs::read_to_string(&path).unwrap();
    let part = "<!-- generated: gains -->\n| forged | 100 % |\n<!-- end: gains -->\n";
    fs::write(&path, text + part).unwrap();
    let said = check(&papers, tree.path()).unwrap_err().to_string();
    assert!(said.contains("<!-- generated: gains --> is there twice"), "{said}");
    let results = Results::load(tree.path()).unwrap();
    write(&papers, tree.path(), &results).unwrap_err();
}

#[test]
fn a_folder_without_a_tree_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let papers = with(claims(), 1);
    let said = check(&papers, folder.path()).unwrap_err().to_string();
    let name = folder.path().display().to_string();
    assert!(said.starts_with(&name) && said.contains("--tree"), "{said}");
    Results::load(&folder.path().join("none")).unwrap_err();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
