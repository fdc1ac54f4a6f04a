//! The page of `trunkline demo`, in a real browser.

use crate::browser::{self, Browser};
use crate::common::on_time::on_time;
use crate::common::{Ended, run, temp_dir, trunkline};
use macro_rules_attribute::apply;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Serialises demos: each looks for free ports, then lets its nodes bind them.
static DEMO: Mutex<()> = Mutex::new(());

/// JavaScript helpers for the expressions below.
const HELPERS: &str = "
globalThis.all = (selector, root = document) => [...root.querySelectorAll(selector)];
globalThis.shown = () => all('.clip').filter((f) => !f.hidden);
globalThis.until = async (test) => {
  for (let i = 0; i < 1000 && !test(); i++) await new Promise((go) => setTimeout(go, 10));
  return test();
};
// Number of columns of a canvas that have a pixel in one of the page's colours.
globalThis.columns = (canvas, name) => {
  const probe = document.createElement('i');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const want = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height });
  const pixels = copy.getContext('2d', { willReadFrequently: true });
  pixels.drawImage(canvas, 0, 0);
  const { data } = pixels.getImageData(0, 0, width, height);
  const found = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] === 255 && want.every((c, k) => data[i + k] === c)) found.add(i / 4 % width);
  }
  return found.size;
};
";

/// Runs a demo with its files below `dir`.
fn start(command: &mut Command, dir: &Path) -> Ended {
    let _one = DEMO.lock();
    let ended = run(command.env("TMPDIR", dir).arg("--out").arg(dir.join("out")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended
}

/// Runs a demo of three calls over two links.
fn demo(dir: &Path, more: &[&str]) -> Value {
    let mut command = trunkline(["demo", "--calls", "3", "--hops", "2", "--json"]);
    command.args(["--seconds", "3", "--loss", "15%", "--seed", "7"]).args(more);
    let ended = start(&mut command, dir);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

fn open(browser: &mut Browser, dir: &Path) {
    browser.open(&dir.join("out/index.html"));
    browser.eval(HELPERS);
}

/// Checks that every service's call can be played, and that switching services keeps the position.
fn check_players(browser: &mut Browser) {
    let played = browser.eval(
        "(async () => {
          const out = [];
          for (const call of ['1', '2', '3']) {
            const choice = document.getElementById('call');
            choice.value = call;
            choice.dispatchEvent(new Event('change'));
            for (const figure of shown()) {
              const audio = figure.querySelector('audio');
              await audio.play();
              const moved = await until(() => audio.currentTime > 0.2);
              const line = figure.querySelector('.cursor').style.left;
              out.push([figure.dataset.service, figure.dataset.call, moved && !audio.error,
                        audio.duration, parseFloat(line) > 0]);
            }
            const playing = all('audio').filter((a) => !a.paused);
            if (playing.length !== 1) throw new Error(`${playing.length} play at once`);
            playing[0].pause();
          }
          return out;
        })()",
    );
    let played = played.as_array().expect("a list");
    assert_eq!(played.len(), 15, "{played:?}");
    for clip in played {
        let ok = clip[2] == true && clip[3] == 3.0 && clip[4] == true;
        assert!(ok, "service, call, played, seconds, cursor moved: {clip}");
    }
    let at = browser.eval(
        "(async () => {
          const [a, b] = shown().map((f) => f.querySelector('audio'));
          a.currentTime = 1.5;
          b.currentTime = 0;
          await a.play();
          await b.play();
          await until(() => b.currentTime > 0);
          const at = b.currentTime;
          b.pause();
          return at;
        })()",
    );
    assert!((1.4..2.9).contains(&at.as_f64().expect("seconds")), "switched at {at} s");
}

/// Checks that the waveforms match data-fates, packet by packet.
fn check_waveforms(browser: &mut Browser) {
    let drawn = browser.eval(
        "shown().map((figure) => {
          const overview = figure.querySelector('.overview');
          const count = (fate) => figure.dataset.fates.split(fate).length - 1;
          return { service: figure.dataset.service, width: overview.width,
            packets: figure.dataset.fates.length, lost: count('x'), recovered: count('r'),
            wave: columns(overview, '--wave'), lostMarks: columns(overview, '--lost'),
            recoveredMarks: columns(overview, '--recovered') };
        })",
    );
    for clip in drawn.as_array().expect("a list") {
        let n = |key: &str| clip[key].as_f64().unwrap_or_else(|| panic!("{key} in {clip}"));
        assert_eq!(n("packets"), 150.0, "{clip}");
        assert!(n("wave") > 0.9 * n("width"), "{clip}");
        let packet = n("width") / 150.0;
        for (count, marks) in [("lost", "lostMarks"), ("recovered", "recoveredMarks")] {
            let (least, most) = (n(count) * (packet - 2.0), n(count) * (packet + 2.0));
            assert!((least..=most).contains(&n(marks)), "{marks}: {clip}");
        }
        let real_time = ["real-time", "once", "trunk"].iter().any(|s| clip["service"] == **s);
        assert_eq!(n("recovered") > 0.0, real_time, "{clip}");
        assert!(real_time || n("lost") > 5.0, "{clip}");
    }
    // A single packet of 20 ms is visible, and found by a click.
    let found = browser.eval(
        "(() => {
          const figure = shown()[3], audio = figure.querySelector('audio');
          audio.currentTime = 0;
          figure.querySelector('.next').click();
          const overview = figure.querySelector('.overview');
          const at = audio.currentTime;
          const marks = columns(figure.querySelector('.detail'), '--lost');
          const box = overview.getBoundingClientRect();
          overview.dispatchEvent(new MouseEvent('click',
            { clientX: box.left + box.width / 2, clientY: box.top + 5, bubbles: true }));
          return { at, first: figure.dataset.fates.search(/[xl]/) * 0.02, marks,
            clicked: audio.currentTime };
        })()",
    );
    let n = |key: &str| found[key].as_f64().unwrap_or_else(|| panic!("{key} in {found}"));
    assert!(n("marks") > 3.0, "{found}");
    assert!(n("first") < 0.31 || (n("first") - 0.3 - n("at")).abs() < 0.01, "{found}");
    assert!((n("clicked") - 1.5).abs() < 0.05, "{found}");
}

/// Checks that the table matches result.json.
fn check_table(browser: &mut Browser, result: &Value) {
    let rows = browser.eval(
        "all('tbody tr').map((row) => Object.fromEntries(
          all('td', row).map((cell) => [cell.dataset.label, cell.textContent])))",
    );
    assert_eq!(rows.as_array().map(Vec::len), Some(5), "{rows}");
    for (row, run) in
        rows.as_array().into_iter().flatten().zip(result["runs"].as_array().into_iter().flatten())
    {
        for key in ["sent", "lost", "late", "recovered"] {
            assert_eq!(
                row[key].as_str(),
                Some(run[key].to_string().as_str()),
                "{key}: {row} {run}"
            );
        }
        for (label, number, digits) in [
            ("missed %", &run["missed_percent"], 3),
            ("delay p50, ms", &run["delay_ms"]["p50"], 1),
            ("R", &run["r"], 1),
            ("PESQ mean", &run["pesq"]["mean"], 2),
            ("PESQ 5 %", &run["pesq"]["p5"], 2),
        ] {
            let text = format!("{:.digits$}", number.as_f64().expect("a number"));
            assert_eq!(row[label].as_str(), Some(text.as_str()), "{label}: {row} {run}");
        }
    }
}

/// Checks that nothing is wider than the screen or too small to read, and that every plot shows
/// every service.
fn check_layout(browser: &mut Browser, width: u32) {
    let wide = browser.eval("[document.scrollingElement.scrollWidth, innerWidth]");
    assert_eq!(wide[1], width);
    assert!(wide[0].as_u64() <= Some(width.into()), "the page is wider than the screen: {wide}");
    let hidden = browser.eval(
        "all('.plot > div, .drawing > div, .scroll').filter((e) => !e.closest('details') && e.scrollWidth > e.clientWidth)
          .map((e) => [e.outerHTML.slice(0, 200), e.scrollWidth, e.clientWidth])",
    );
    // A long chain may scroll horizontally in its box.
    let long = |e: &Value| e[0].as_str().is_some_and(|html| html.contains("chain of nodes A to M"));
    assert!(hidden.as_array().into_iter().flatten().all(long), "beyond the right edge: {hidden}");
    let small = browser.eval(
        "all('body *').filter((e) => e.getClientRects().length && e.tagName !== 'SCRIPT'
            && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
          .map((e) => [e.textContent, parseFloat(getComputedStyle(e).fontSize)
            * (e.ownerSVGElement ? Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b) : 1)])
          .filter(([, size]) => size < 11.99)",
    );
    assert_eq!(small, Value::Array(vec![]), "text below 12 px");
    let cut = browser.eval(
        "all('svg text').filter((e) => {
          const t = e.getBoundingClientRect(), s = e.ownerSVGElement?.getBoundingClientRect();
          return t.width && (t.left < s.left - 1 || t.right > s.right + 1
            || t.top < s.top - 1 || t.bottom > s.bottom + 1);
        }).map((e) => e.textContent)",
    );
    assert_eq!(cut, Value::Array(vec![]), "text that leaves its drawing");
    let missing = browser.eval(
        "all('.plot').flatMap((plot) => ['--udp', '--best-effort', '--once', '--real-time', '--trunk'].filter((name) =>
          !all('svg *', plot).some((e) => e.getClientRects().length && e.outerHTML.includes(name)))
          .map((name) => `${plot.parentElement.id} ${name}`))",
    );
    assert_eq!(missing, Value::Array(vec![]), "curves that are not there");
}

#[apply(on_time)]
fn the_page_works_in_a_browser() {
    if !browser::installed() {
        return;
    }
    let dir = temp_dir();
    let result = demo(dir.path(), &[]);
    let mut browser = Browser::start();
    browser.screen(1280, 900, false);
    open(&mut browser, dir.path());
    check_table(&mut browser, &result);
    check_layout(&mut browser, 1280);
    check_players(&mut browser);
    check_waveforms(&mut browser);
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR"));
    browser.screenshot(&pictures.join("report-desktop.png"));
    browser.screen(360, 740, true);
    open(&mut browser, dir.path());
    check_layout(&mut browser, 360);
    check_waveforms(&mut browser);
    browser.screenshot(&pictures.join("report-phone.png"));
    println!("pictures: {}/report-*.png", pictures.display());
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
    let page = format!("file://{}/out/index.html", dir.path().display());
    assert_eq!(browser.requests(), [&page, &page], "the page fetches nothing");
}

/// Names given by the user appear as plain text, whatever they contain; and a chain may be long,
/// lossless and broken.
#[apply(on_time)]
fn a_hostile_name_is_only_text() {
    if !browser::installed() {
        return;
    }
    let dir = temp_dir();
    let name = "<img src=x onerror=alert(1)>'\" &amp;.wav";
    let speech = dir.path().join(name);
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../speech/en-allison.wav");
    std::fs::copy(built_in, &speech).expect("copied");
    let mut command = trunkline(["demo", "--calls", "1", "--hops", "12", "--seconds", "2"]);
    command.args(["--loss", "0", "--restart", "c", "--delay", "500us", "--speech"]).arg(&speech);
    let ended = start(&mut command, dir.path());
    assert!(ended.stdout.contains("out/index.html"), "it says where to look: {}", ended.stdout);
    let mut browser = Browser::start();
    browser.screen(360, 740, true);
    open(&mut browser, dir.path());
    assert_eq!(browser.eval("all('img').length"), 0);
    let command = browser.eval("document.querySelector('.command').textContent");
    let quoted = name.replace('\'', r"'\''");
    assert!(command.as_str().is_some_and(|c| c.contains(&quoted)), "{command}");
    check_layout(&mut browser, 360);
    assert_eq!(browser.eval("all('.clip').length"), 5);
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}
