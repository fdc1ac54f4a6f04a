//! Runs through the command line: the bytes are the same however the work was shared, and
//! interrupted runs resume.

use crate::common;
use crate::common::*;
use std::fs;
use std::path::Path;

/// The arguments of a tiny run into `out`.
fn tiny<'a>(what: &'a str, out: &'a Path, speech: &'a Path) -> Vec<&'a str> {
    let speech = speech.to_str().unwrap();
    vec!["run", what, "--tiny", "--speech", speech, "--out", out.to_str().unwrap()]
}

/// Asserts that three shards of `what`, merged, are the files of one run, byte for byte.
fn shards_leave_no_trace_of(what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let speech = speech();
    let [whole, parts] = ["whole", "parts"].map(|n| dir.path().join(n));
    good(&[&tiny(what, &whole, &speech)[..], &["--jobs", "1"]].concat());
    let shards = ["1/3", "2/3", "3/3"].map(|part| {
        let out = dir.path().join(part.replace('/', "-"));
        good(&[&tiny(what, &out, &speech)[..], &["--shard", part]].concat());
        out.to_str().unwrap().to_owned()
    });
    let speech_arg = speech.to_str().unwrap();
    let mut merge = vec!["merge", "--speech", speech_arg, "--out", parts.to_str().unwrap()];
    merge.extend(shards.iter().map(String::as_str));
    good(&merge);
    same(&whole, &parts);
}

#[test]
fn shards_leave_no_trace() {
    shards_leave_no_trace_of("tfmc");
}

#[test]
#[ignore = "takes minutes; `make long-tests` runs it"]
fn shards_of_all_figures_leave_no_trace() {
    shards_leave_no_trace_of("all");
}

#[test]
fn processors_and_interruptions_leave_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let speech = speech();
    let [one, two, killed] = ["one", "two", "killed"].map(|n| dir.path().join(n));

    let fig9 = |out| tiny("voip-overlay/fig9", out, &speech);
    good(&[&fig9(&one)[..], &["--jobs", "1"]].concat());
    good(&[&fig9(&two)[..], &["--jobs", "2"]].concat());
    same(&one, &two);
    let csv = fs::read_to_string(one.join("voip-overlay/fig9/data.csv")).unwrap();
    assert!(csv.starts_with("path,") && csv.lines().count() == 9, "{csv}");
    let png = fs::read(one.join("voip-overlay/fig9/figure.png")).unwrap();
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");

    let mut run = lab(&fig9(&killed)).spawn().unwrap();
    let points = killed.join("voip-overlay/quality/points");
    while fs::read_dir(&points).map_or(0, Iterator::count) == 0 {
        assert!(run.try_wait().unwrap().is_none(), "it was over too soon");
        std::hint::spin_loop();
    }
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(!killed.join("voip-overlay/fig9/data.csv").exists(), "it was interrupted");
    let kept = tree(&killed);
    good(&fig9(&killed));
    // Files that a kill truncated have been written again.
    for (name, bytes) in
        kept.iter().filter(|(name, _)| name.extension().is_some_and(|e| e == "json"))
    {
        assert!(tree(&killed)[name] == *bytes, "{} was kept", name.display());
    }
    for name in tree(&two).keys() {
        assert!(fs::read(killed.join(name)).unwrap() == tree(&two)[name], "{}", name.display());
    }
}

#[test]
fn figures_of_one_experiment_share_its_points() {
    let dir = tempfile::tempdir().unwrap();
    let (out, nowhere) = (dir.path(), Path::new("/nowhere"));
    good(&tiny("voip-overlay/fig4", out, nowhere));
    let before = tree(out).len();
    good(&tiny("voip-overlay/fig5", out, nowhere));
    assert_eq!(tree(out).len(), before + 4 + 4, "four points and four files more");
    // A second run of the first part measures nothing: its rows are those on disk.
    let points = out.join("voip-overlay/loss/points");
    let one = points.join("links1-paper-calls10-packetuniform-loss5.json");
    let text = fs::read_to_string(&one).unwrap();
    fs::write(&one, text.replacen("\"5.00\"", "\"4.75\"", 1)).unwrap();
    good(&tiny("voip-overlay/fig4", out, nowhere));
    let csv = fs::read_to_string(out.join("voip-overlay/fig4/data.csv")).unwrap();
    assert!(csv.contains(",4.75,"), "{csv}");
}

#[test]
fn a_table_that_is_not_of_its_points_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (out, nowhere) = (dir.path(), Path::new("/nowhere"));
    good(&tiny("voip-overlay/fig4", out, nowhere));
    let report = ["report", "--out", out.to_str().unwrap()];
    good(&report);
    let data = out.join("voip-overlay/fig4/data.csv");
    let csv = fs::read_to_string(&data).unwrap();
    fs::write(&data, csv.replacen(",5.00,", ",4.99,", 1)).unwrap();
    bad(&report, &["fig4/data.csv", "differs from the points", "writes it again from the points"]);
    fs::write(&data, csv.replacen("links", "hops", 1)).unwrap();
    bad(&report, &["fig4/data.csv", "its columns are hops", "writes it again from the points"]);
    fs::remove_dir_all(out.join("voip-overlay/loss/points")).unwrap();
    let remedy = "(OUT/PAPER/EXPERIMENT/points): restore them, or `trunkline-lab run`";
    bad(&report, &["fig4/data.csv", "its columns are hops", remedy]);
    fs::remove_file(&data).unwrap();
    bad(&report, &["fig4/data.csv"]);
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (out, nowhere) = (dir.path().join("out"), Path::new("/nowhere"));
    let run = |what| tiny(what, &out, nowhere);
    bad(
        &run("voip-overlay/fig77"),
        &["no figure \"voip-overlay/fig77\"", "did you mean \"voip-overlay/fig7\"?"],
    );
    bad(&run("nonsense"), &["no figure \"nonsense\":", "list"]);
    bad(&run("voip-overlay/fig1"), &["/nowhere/librispeech/87-121553-0000.wav", "--speech"]);
    bad(&run("/nowhere.toml"), &["/nowhere.toml: cannot be read"]);
    for seed in ["-1", "1.5", "18446744073709551616"] {
        let args = [&run("voip-overlay/fig4")[..], &["--seed", seed]].concat();
        let error = String::from_utf8(common::run(&args).stderr).unwrap();
        let wanted = format!(
            "invalid value '{seed}' for '--seed <SEED>': a seed is a whole number from 0 to \
             18446744073709551615"
        );
        assert!(error.contains(&wanted), "{error}");
    }
    for (option, value) in
        [("--jobs", "0"), ("--shard", "3/2"), ("--shard", "0/2"), ("--seed", "-1")]
    {
        let args = [&run("voip-overlay/fig4")[..], &[option, value]].concat();
        assert_eq!(common::run(&args).status.code(), Some(2), "{args:?}");
    }
    // Noise in place of speech.
    let noise = dir.path().join("noise");
    fs::create_dir_all(noise.join("librispeech")).unwrap();
    let first = "librispeech/87-121553-0000.wav";
    fs::write(noise.join(first), [7; 1_000]).unwrap();
    bad(&tiny("voip-overlay/fig1", &out, &noise), &[&format!("noise/{first}: ")]);

    good(&run("voip-overlay/fig4"));
    let other = [&run("voip-overlay/fig4")[..], &["--seed", "2"]].concat();
    bad(
        &other,
        &["manifest.json: has the results of another run (tiny, seed 1", "this one: tiny, seed 2"],
    );
    let point = out.join("voip-overlay/loss/points/links1-paper-calls10-packetuniform-loss5.json");
    fs::write(&point, "[[\"1\"]]").unwrap();
    bad(&run("voip-overlay/fig4"), &["loss5.json: ", "remove it"]);
    fs::write(&point, "half of a fi").unwrap();
    bad(&run("voip-overlay/fig4"), &["loss5.json: ", "remove it"]);
}

#[test]
fn recordings_are_found_where_they_were_installed() {
    let dir = tempfile::tempdir().unwrap();
    let [prefix, elsewhere] = ["prefix", "elsewhere"].map(|n| dir.path().join(n));
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("share/trunkline")).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    let program = prefix.join("bin/trunkline-lab");
    fs::copy(env!("CARGO_BIN_EXE_trunkline-lab"), &program).unwrap();
    let run = |options: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(["run", "voip-overlay/fig1", "--tiny", "--out", "out"]).args(options);
        command.current_dir(&elsewhere).output().unwrap()
    };
    let lost = run(&[]);
    let error = String::from_utf8(lost.stderr).unwrap();
    assert_eq!(lost.status.code(), Some(2), "{error}");
    let installed = prefix.join("share/trunkline/speech");
    let both = format!("no recordings in {} nor in speech:", installed.display());
    assert!(error.contains(&both) && error.contains("--speech"), "{error}");

    std::os::unix::fs::symlink(speech(), &installed).unwrap();
    let found = run(&[]);
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let manifest = elsewhere.join("out/voip-overlay/quality/manifest.json");
    let manifest = fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("\"speech\": \"librispeech-irs "), "{manifest}");

    // A run with other speech is a different run.
    let other = run(&["--voices", "languages", "--filter", "none"]);
    let error = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(2), "{error}");
    assert!(error.contains("librispeech-irs") && error.contains("languages-none"), "{error}");
}

#[test]
fn shards_that_make_no_whole_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let shard = |name: &str, part: &str, seed: &str| {
        let out = path(name);
        let args =
            ["run", "voip-overlay/fig4", "--tiny", "--out", &out, "--shard", part, "--seed", seed];
        good(&args);
        out
    };
    let merged = path("merged");
    let merge = |folders: &[&str], says: &[&str]| {
        bad(&[&["merge", "--out", &merged][..], folders].concat(), says);
    };
    let (a, b) = (shard("a", "1/2", "1"), shard("b", "2/2", "1"));
    merge(&[&a], &["shard 2/2 is missing"]);
    merge(&[&a, &a], &["are both shard 1"]);
    merge(&[&a, &shard("seed", "2/2", "2")], &["different runs"]);
    merge(&[&a, &shard("third", "2/3", "1")], &["different runs"]);
    merge(&[&a, dir.path().to_str().unwrap()], &["there is no shard here"]);
    let points = Path::new(&b).join("voip-overlay/loss/points");
    let victim = fs::read_dir(&points).unwrap().next().unwrap().unwrap().path();
    let kept = fs::read(&victim).unwrap();
    fs::remove_file(&victim).unwrap();
    merge(&[&a, &b], &["no shard has point voip-overlay/loss/links1", "interrupted"]);
    fs::write(&victim, kept).unwrap();
    good(&["merge", "--out", &merged, &b, &a]);
}

#[test]
fn the_report_shows_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    // For a folder without results neither a page nor the folder is created.
    let elsewhere = dir.path().join("elsewhere");
    let ended = lab(&["report", "--out", elsewhere.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("elsewhere: measure figures with `run`"), "{said}");
    assert!(ended.status.code() == Some(2) && !elsewhere.exists(), "{said}");

    good(&tiny("voip-overlay/fig4", dir.path(), Path::new("/nowhere")));
    assert!(good(&["report", "--out", out]).ends_with("report.html: 1 figure\n"));
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    let smaller = "1 of 1 figures here are of a smaller run";
    let held = "matches 2p² − 3p³<br><span class=\"small\">at 10 % loss the residual loss is";
    for has in ["<svg", "2p² − 3p³", "Not measured yet: ", "seed 1", smaller, held] {
        assert!(page.contains(has), "{has}");
    }
    assert!(!page.contains("src=") && !page.contains("<script"), "nothing is loaded");

    // Papers come first, and their statements are separate from this project's.
    good(&tiny("beyond/steady", dir.path(), Path::new("/nowhere")));
    assert!(good(&["report", "--out", out]).ends_with("report.html: 2 figures\n"));
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    let paper = at("<h2 id=\"voip-overlay\">Amir, Danilov, Goose");
    let beyond = at("<h2 id=\"beyond\">");
    let sentence = at("<td>5 % loss becomes about 0.5 %</td>");
    assert!(paper < sentence && sentence < at("id=\"voip-overlay/fig4\"") && sentence < beyond);
    assert!(beyond < at("id=\"beyond/steady\""));
    let claims = fs::read_to_string(dir.path().join("voip-overlay/fig4/claims.json")).unwrap();
    let claims: Vec<serde_json::Value> = serde_json::from_str(&claims).unwrap();
    let of = |whose: bool| claims.iter().filter(|c| c["published"].is_string() == whose).count();
    assert!(page[paper..beyond].contains(&format!(" of {} hold", of(true))), "{}", of(true));
    assert!(page[paper..beyond].contains(&format!(" of {} hold", of(false))), "{}", of(false));
    assert!(!page[beyond..].contains("Of the claims on the paper's sentences"));
}

#[test]
fn a_scenario_of_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let example = include_str!("../../scenarios/three-sites.toml");
    let quiet = example.replace("pesq = true", "pesq = false").replace("1 min", "10 s");
    fs::write(&file, &quiet).unwrap();
    let out = dir.path().to_str().unwrap();
    let args = ["run", file.to_str().unwrap(), "--out", out];
    assert!(good(&args).contains("recovered"));
    let data = dir.path().join("scenario/mine/data.csv");
    let first = fs::read(&data).unwrap();
    good(&args);
    assert!(fs::read(&data).unwrap() == first, "the same seed gives the same bytes");
    let csv = String::from_utf8(first).unwrap();
    assert!(csv.contains("recovered,5000,") && csv.contains("plain,5000,"), "{csv}");
    fs::write(&file, quiet.replace("jitter", "jiter")).unwrap();
    bad(&args, &["mine.toml:", "did you mean `jitter`?"]);
    for option in [&["--quick"][..], &["--shard", "1/2"]] {
        let args = [&["run", file.to_str().unwrap()], option].concat();
        bad(&args, &["mine.toml: ", &option[0][2..], "for seed in 1 2 3; do"]);
    }
}

#[test]
fn the_list_is_complete() {
    let text = good(&["list"]);
    let json: serde_json::Value = serde_json::from_str(&good(&["list", "--json"])).unwrap();
    let figures = json["figures"].as_array().unwrap();
    for paper in json["papers"].as_array().unwrap() {
        let count = |verdict: &str| paper["sentences"][verdict].as_u64().unwrap();
        let all = ["holds", "exceeds", "fails", "undecided"].map(count).iter().sum::<u64>();
        assert_eq!(all, paper["matrix"].as_array().unwrap().len() as u64, "{paper}");
    }
    for n in ["1", "2", "4", "5", "6", "7", "9", "10"] {
        let id = format!("voip-overlay/fig{n}");
        assert!(text.contains(&format!("{id}  ")), "{id}");
        assert!(figures.iter().any(|f| f["figure"] == id), "{id}");
    }
    for figure in figures {
        let published = figure["figure"].as_str().unwrap().starts_with("voip-overlay/");
        let claims = figure["claims"].as_array().unwrap();
        assert!(!published || !claims.is_empty(), "{figure}");
    }
}

#[test]
fn a_claim_is_listed_and_checked_by_its_name() {
    let name = "dccp-voice/fig3/one-segment-does-not";
    let all = good(&["list", name]);
    for line in [
        "    reading: one-segment: The minimum is one segment of 1,460 bytes per round trip.",
        "    published verdict: holds",
        "    sabotage: no-floor: SP+FR+MD has no minimum rate",
    ] {
        assert!(all.lines().any(|l| l == line), "{line}: {all}");
    }
    let others = good(&["list", "dccp-voice", "--reading", "one-segment"]);
    assert!(others.contains("one-segment-does-not") && !others.contains("sp-fr-drops"), "{others}");

    let checked = good(&["check", name, "--quick", "--sabotage", "--seeds", "1"]);
    let lines: Vec<&str> = checked.lines().collect();
    let [claim, sabotaged] = lines[..] else { panic!("{checked}") };
    assert!(claim.starts_with(&format!("holds: {name}: 0.0 (one run: no interval) %, bound: ")));
    assert!(claim.ends_with(" (reading: one-segment)"), "{claim}");
    let wanted = "sabotaged by no-floor (SP+FR+MD has no minimum rate): 100.0 (one run: no interval) %: \
                  fails";
    assert_eq!(sabotaged.trim_start(), wanted);

    let dir = tempfile::tempdir().unwrap();
    let run = |what| ["run", what, "--quick", "--out", dir.path().to_str().unwrap()];
    let ran = good(&run("dccp-voice/fig3"));
    let wanted = "    md-does-not: fails (published: fails; reading: declared): 6.0 (one run: no \
                  interval) %, bound: at most 1.0";
    assert!(ran.lines().any(|line| line == wanted), "{ran}");
    assert!(ran.ends_with("--quick changes nothing: dccp-voice/fig3, as long as at full size\n"));
    bad(&run(name), &["would be a claim of dccp-voice/fig3", "`check` and `list` take claims"]);
    bad(&["check", "tfmc/fig7", "--with", "no-tpc"], &["no sabotage or variation \"no-tpc\""]);
    bad(&["check", "dccp-voice/fig3/md"], &["fig3 has no claim \"md\":", "list dccp-voice/fig3"]);
}

/// Covers `list | head`, and a full disk.
#[test]
fn nothing_panics_where_what_it_prints_to_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let nowhere = Path::new("/nowhere");
    let run = tiny("voip-overlay/fig4", dir.path(), nowhere);
    good(&run);
    let scenario = dir.path().join("short.toml");
    let text = fs::read_to_string("scenarios/agreement.toml").unwrap();
    fs::write(&scenario, text.replace("1 min", "2 s")).unwrap();
    let scenario = scenario.to_str().unwrap();
    let check = ["check", "--tiny", "--speech", "/nowhere", "voip-overlay/fig4"];
    let bad_figure = ["run", "voip-overlay/fig99"];
    for args in [
        &["list"][..],
        &["list", "--json"],
        &run,
        &["report", "--out", out],
        &check,
        &["run", scenario, "--out", out],
        &bad_figure,
    ] {
        let status = lab(args).output().unwrap().status.code();
        // A reader that has closed the pipe is no error.
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let ended = lab(args).stdout(write).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), status, "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        // It doesn't matter either if standard error is closed.
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let ended = lab(args).stderr(write).output().unwrap();
        assert_eq!(ended.status.code(), status, "{args:?}");
        // Writing to /dev/full fails as on a full disk.
        #[expect(clippy::disallowed_types, reason = "there is no other full disk")]
        let full = fs::File::create("/dev/full").unwrap();
        let ended = lab(args).stdout(full).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {said}");
        if args != bad_figure {
            assert!(said.contains("error: cannot write to standard output: "), "{args:?}: {said}");
        }
    }
}
