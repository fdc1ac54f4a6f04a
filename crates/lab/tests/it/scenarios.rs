//! Scenarios in the simulator: the traffic and the faults of the files take place.

use crate::common::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use trunkline_lab::scenario::{Results, parse, simulate};
use trunkline_lab::table::Record;

const SHARED: &str = include_str!("../../scenarios/shared-queue.toml");
const PARTS: [&str; 5] = ["arrived", "lost", "queue_dropped", "no_room", "under_way"];

#[track_caller]
fn results(text: &str) -> Results {
    let scenario = parse(Path::new("x.toml"), text).unwrap_or_else(|why| panic!("{why}"));
    simulate(&scenario, None, 1).unwrap()
}

/// The ledger of a class in one direction of a link.
#[track_caller]
fn ledger<'a>(r: &'a Results, link: &str, way: &str, class: &str) -> Record<'a> {
    let fits = |row: &Record<'_>| row.is("link", link) && row.is("way", way);
    let mut rows = r.links.iter().filter(|row| fits(row) && row.is("class", class));
    rows.next().unwrap_or_else(|| panic!("{class} of {link} {way}: {}", r.links.csv()))
}

#[track_caller]
fn call<'a>(r: &'a Results, name: &str) -> Record<'a> {
    r.calls.iter().find(|row| row.is("calls", name)).unwrap()
}

/// Asserts that every row of a ledger adds up, and the classes to the total.
#[track_caller]
fn adds_up(r: &Results) {
    let mut sums: BTreeMap<(String, String, String), f64> = BTreeMap::new();
    for row in r.links.iter() {
        for unit in ["", "_bytes"] {
            let of = |part: &str| row.number(&format!("{part}{unit}"));
            assert_eq!(of("offered"), PARTS.map(of).iter().sum::<f64>(), "{}", r.links.csv());
            for part in PARTS.into_iter().chain(["offered"]) {
                let sign = if row.is("class", "all") { -1.0 } else { 1.0 };
                let key =
                    (row.text("link").into(), row.text("way").into(), format!("{part}{unit}"));
                *sums.entry(key).or_default() += sign * of(part);
            }
        }
    }
    assert!(sums.values().all(|&sum| sum == 0.0), "{sums:?}");
}

#[test]
fn a_stream_a_plain_call_and_an_overlay_in_one_queue_add_up() {
    let r = results(SHARED);
    adds_up(&r);
    let of = |class| ledger(&r, "bottleneck", "there", class);
    for class in ["stream", "call", "overlay"] {
        assert!(of(class).number("queue_dropped") > 0.0, "{}", r.links.csv());
    }
    // Too few packets for any to be sure to find the queue full.
    assert!(of("control").number("offered") > 0.0, "{}", r.links.csv());
    // 9.9 Mbit/s of 1,500 bytes for 18 s, one packet every 1,212,121 ns.
    let stream = r.streams.iter().next().unwrap();
    assert_eq!((stream.number("sent"), of("stream").number("offered")), (14_851.0, 14_851.0));
    assert_eq!(of("stream").number("offered_bytes"), 1_500.0 * 14_851.0);
    let gone = |class| of(class).number("lost") + of(class).number("queue_dropped");
    assert_eq!(stream.number("lost"), gone("stream"));
    // With plain UDP, too, the call misses the packets that a queue or the wire lost.
    let plain = call(&r, "plain");
    assert_eq!((plain.number("sent"), of("call").number("offered")), (1_000.0, 1_000.0));
    assert_eq!((plain.number("lost"), plain.number("recovered")), (gone("call"), 0.0));
    // 172 bytes of RTP, and 48 of headers.
    assert_eq!(of("call").number("offered_bytes"), 1_000.0 * 220.0);
    // Overlay packets are retransmitted, so that more are offered and fewer are lost.
    let overlay = call(&r, "overlay");
    assert!(of("overlay").number("offered") > 1_000.0 && overlay.number("recovered") > 0.0);
    assert!(overlay.number("lost") < gone("overlay"), "{}", r.links.csv());
    // 44 bytes more than plain packets, and never less: hellos are in another class.
    let bytes = of("overlay").number("offered_bytes") / of("overlay").number("offered");
    assert!((264.0..270.0).contains(&bytes), "{bytes}");
    // All overlay packets in the return direction are control: hellos every 200 ms, and requests.
    let back = ledger(&r, "bottleneck", "back", "control");
    assert_eq!(back.number("offered"), ledger(&r, "bottleneck", "back", "all").number("offered"));
    assert!(back.number("offered") > 28.0 * 5.0);
    // The fault affects the forward direction only.
    assert_eq!(back.number("lost"), 0.0);
    assert!(gone("stream") > 0.01 * 14_851.0);
    let figures: Vec<_> = r.figures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(figures, ["link-bottleneck-there", "link-bottleneck-back", "calls"]);
    // 5 Mbit/s leave enough capacity for all.
    let calm = results(&SHARED.replace("9.9 Mbit/s", "5 Mbit/s"));
    let all = ledger(&calm, "bottleneck", "there", "all");
    assert_eq!(all.number("queue_dropped"), 0.0, "{}", calm.links.csv());
}

/// A file with these hosts and, after a slash, routers.
fn on(hosts: &str, links: &str, rest: &str) -> String {
    let named = |kind: &str, names: &str| -> String {
        names.split(' ').map(|n| format!("[[{kind}]]\nname = \"{n}\"\n")).collect()
    };
    let (hosts, routers) = hosts.split_once('/').unwrap_or((hosts, ""));
    let routers = if routers.is_empty() { String::new() } else { named("router", routers) };
    format!("length = \"10 s\"\n{}{routers}{links}\n{rest}", named("host", hosts))
}

fn link(name: &str, a: &str, b: &str, more: &str) -> String {
    format!("[[link]]\nname = \"{name}\"\nbetween = [\"{a}\", \"{b}\"]\n{more}\n")
}

const CALL: &str = "[[call]]\nname = \"c\"\nfrom = \"a\"\nto = \"b\"\n";

fn delay(ms: u32) -> String {
    format!("delay = \"{ms}ms\"")
}

#[test]
fn a_link_without_a_wire_takes_the_shortest_way_in_a_loop_of_routers() {
    let links = [
        link("slow-a", "a", "r1", &delay(20)),
        link("slow-b", "r1", "b", &delay(20)),
        link("fast-a", "a", "r2", &delay(1)),
        link("fast-m", "r2", "r3", &delay(4)),
        link("fast-b", "r3", "b", &delay(2)),
        link("loop", "r1", "r2", &delay(30)),
        link("o", "a", "b", ""),
    ];
    let plain = "[[call]]\nname = \"p\"\nfrom = \"a\"\nto = \"b\"\nservice = \"plain\"";
    let r = results(&on("a b/r1 r2 r3", &links.concat(), &format!("{CALL}{plain}")));
    adds_up(&r);
    for name in ["c", "p"] {
        let row = call(&r, name);
        assert_eq!((row.number("delay_max_ms"), row.number("lost")), (7.0, 0.0), "{name}");
    }
    for name in ["slow-a", "slow-b", "loop"] {
        assert_eq!(ledger(&r, name, "there", "all").number("offered"), 0.0, "{name}");
    }
    assert_eq!(ledger(&r, "fast-m", "there", "call").number("offered"), 500.0);
    let back = |class| ledger(&r, "fast-m", "back", class).number("offered");
    assert_eq!(back("control"), back("all"), "all calls go there");
    assert!(!r.links.iter().any(|row| row.is("link", "o")), "it has no wire");
}

#[test]
fn a_plain_wire_of_two_hosts_is_shared_and_a_links_own_is_not() {
    let stream = "[[stream]]\nfrom = \"a\"\nto = \"b\"\ninterval = \"10ms\"";
    let links = [link("w", "a", "b", "delay = \"5ms\"\nplain = true"), link("o", "a", "b", "")];
    let r = results(&on("a b", &links.concat(), &format!("{CALL}{stream}")));
    adds_up(&r);
    let offered = |class| ledger(&r, "w", "there", class).number("offered");
    assert_eq!((offered("stream"), offered("overlay")), (1_000.0, 500.0));
    let links =
        [link("w", "a", "b", "delay = \"5ms\"\nplain = true"), link("o", "a", "b", &delay(9))];
    let r = results(&on("a b", &links.concat(), &format!("{CALL}{stream}")));
    assert_eq!(ledger(&r, "w", "there", "all").number("offered"), 1_000.0);
    assert_eq!(ledger(&r, "o", "there", "overlay").number("offered"), 500.0);
    assert_eq!(call(&r, "c").number("delay_max_ms"), 9.0);
}

#[test]
fn each_way_of_a_wire_has_its_own_rate_and_loss() {
    // 1,500 bytes take 12 ms each and are sent every 10 ms, so that a sixth overflows the queue of
    // one.
    let more = "delay = \"5ms\"\nplain = true\nback = { delay = \"6ms\" }\n\
                there = { rate = \"1 Mbit/s\", queue = \"1 packet\" }";
    let stream = |from, to| {
        format!(
            "[[stream]]\nname = \"{from}\"\nfrom = \"{from}\"\nto = \"{to}\"\ninterval = \"10ms\"\n"
        )
    };
    let r =
        results(&on("a b", &link("w", "a", "b", more), &(stream("a", "b") + &stream("b", "a"))));
    let (there, back) = (ledger(&r, "w", "there", "stream"), ledger(&r, "w", "back", "stream"));
    assert!((160.0..=170.0).contains(&there.number("queue_dropped")), "{}", r.links.csv());
    assert_eq!((back.number("arrived"), back.number("queue_dropped")), (1_000.0, 0.0));
    let delays: Vec<f64> = r.streams.iter().map(|s| s.number("delay_max_ms")).collect();
    assert!((26.0..=29.0).contains(&delays[0]) && delays[1] == 6.0, "{delays:?}");
}

#[test]
fn more_than_fits_in_the_network_has_no_room() {
    // 400,000 packets are sent before the first one arrives, which exceeds the limit.
    let stream = "[[stream]]\nfrom = \"a\"\nto = \"b\"\ninterval = \"1us\"\nstop = \"400ms\"\n\
         packet = \"100 B\"\nprotocol = \"udp\"";
    let r = results(&on("a b", &link("w", "a", "b", "delay = \"1 s\"\nplain = true"), stream));
    adds_up(&r);
    let of = |part| ledger(&r, "w", "there", "stream").number(part);
    assert_eq!((of("offered"), of("arrived"), of("no_room")), (4e5, 3e5, 1e5));
}

#[test]
fn faults_begin_and_end_when_they_say() {
    let run = |fault: &str| {
        let calls = format!("{CALL}service = \"best-effort\"\n[[fault]]\nat = \"4 s\"\n{fault}");
        let r = results(&on("a b", &link("w", "a", "b", &delay(5)), &calls));
        adds_up(&r);
        call(&r, "c").number("lost")
    };
    let lost = run("lasts = \"2 s\"\nwhat = \"cut\"\nlink = \"w\"");
    // The nodes notice after a second, and soon after the repair they notice that too.
    assert!((98.0..=125.0).contains(&lost), "{lost}");
    assert_eq!(run("lasts = \"200ms\"\nwhat = \"cut\"\nway = \"back\"\nlink = \"w\""), 0.0);
    let lost = run("lasts = \"200ms\"\nwhat = \"cut\"\nway = \"there\"\nlink = \"w\"");
    assert!((9.0..=11.0).contains(&lost), "{lost}");
    let forever = run("what = \"cut\"\nlink = \"w\"");
    assert!((299.0..=301.0).contains(&forever), "{forever}");
    let half = run("what = \"change\"\nlink = \"w\"\nbecomes = { loss = \"50%\" }");
    assert!((110.0..=190.0).contains(&half), "{half}");
    let until =
        "what = \"cut\"\nlink = \"w\"\n[[fault]]\nat = \"4.5 s\"\nwhat = \"mend\"\nlink = \"w\"";
    let lost = run(until);
    assert!((24.0..=27.0).contains(&lost), "{lost}");
    for what in ["crash", "stop"] {
        let lost = run(&format!("lasts = \"2 s\"\nwhat = \"{what}\"\nhost = \"b\""));
        assert!((98.0..=150.0).contains(&lost), "{what}: {lost}");
        let on_its_own = run(&format!("what = \"{what}\"\nhost = \"b\""));
        assert!((298.0..=301.0).contains(&on_its_own), "{what}: {on_its_own}");
        let again = "[[fault]]\nat = \"6 s\"\nwhat = \"restart\"\nhost = \"b\"";
        assert_eq!(run(&format!("what = \"{what}\"\nhost = \"b\"\n{again}")), lost, "{what}");
    }
    // Packets for a stalled host wait for it: a hundred fit into its socket.
    assert_eq!(run("lasts = \"500ms\"\nwhat = \"stall\"\nhost = \"b\""), 0.0);
}

#[test]
fn settings_of_nodes_and_links_change_what_they_are_about() {
    let three = |more: &str| {
        [
            link("direct", "a", "b", &format!("{}\n{more}", delay(30))),
            link("first", "a", "c", &delay(10)),
            link("second", "c", "b", &delay(10)),
        ]
        .concat()
    };
    let median = |top: &str, more: &str| {
        let text = on("a b c", &three(more), CALL);
        call(&results(&format!("{top}\n{text}")), "c").number("delay_p50_ms")
    };
    // Without link-state routing the path has the fewest links, with it the shortest delay.
    assert_eq!(median("", ""), 30.0);
    assert_eq!(median("routing = {}", ""), 20.0);
    assert_eq!(median("routing = { metric = \"hops\" }", ""), 30.0);
    assert_eq!(median("routing = { enabled = false }", ""), 30.0);
    let near = three("").replace("30ms", "15ms");
    let penalty =
        near.replacen("[[link]]\n", "[[link]]\nthere = { overlay = { penalty = \"20ms\" } }\n", 1);
    let of = |links: &str| {
        let r = results(&format!("routing = {{}}\n{}", on("a b c", links, CALL)));
        call(&r, "c").number("delay_p50_ms")
    };
    assert_eq!((of(&near), of(&penalty)), (15.0, 20.0));
    assert_eq!(of(&penalty.replace("there =", "back =")), 15.0, "the way there has none");

    let lossy = |top: &str, more: &str| {
        let links = link("w", "a", "b", &format!("delay = \"5ms\"\nloss = \"10%\"\n{more}"));
        let r = results(&format!("{top}\n{}", on("a b", &links, CALL)));
        (call(&r, "c").number("lost"), call(&r, "c").number("recovered"), r)
    };
    let lost = |top, more| lossy(top, more).0;
    let (without, repeated, _) = lossy("", "recovery = \"off\"");
    assert!(without > 30.0 && repeated == 0.0);
    assert_eq!(lost("realtime = { recovery = \"off\" }", ""), without);
    let (until, ..) = lossy("", "recovery = \"until-deadline\"");
    let (once, ..) = lossy("realtime = { recovery = \"off\" }", "recovery = \"once\"");
    assert!(until <= once && once < without / 2.0, "{until} {once} {without}");
    let none = lost("realtime = { repeat_share = 0, repeat_burst = 0 }", "");
    assert!(none >= without - 1.0, "a single packet may be repeated: {none} {without}");

    let hellos = |top: &str| {
        let (.., r) = lossy(top, "recovery = \"off\"");
        ledger(&r, "w", "back", "control").number("offered")
    };
    let often = hellos("hello = { probes = false }");
    let seldom = "hello = { probes = false, interval = \"600ms\", dead_after = \"3 s\" }";
    let (seldom, probing) = (hellos(seldom), hellos(""));
    // In 18 s, every 200 or 600 ms; and a link with loss is probed more often.
    assert!((85.0..=95.0).contains(&often) && (28.0..=32.0).contains(&seldom), "{often} {seldom}");
    assert!(probing > 1.5 * often, "{probing} {often}");
}

#[test]
fn queues_may_drop_early_and_mark_and_losses_may_be_recorded() {
    let run = |wire: &str, stream: &str| {
        let wire = link("w", "a", "b", &format!("delay = \"5ms\"\nplain = true\n{wire}"));
        let stream = format!("[[stream]]\nfrom = \"a\"\nto = \"b\"\ninterval = \"10ms\"\n{stream}");
        let r = results(&on("a b", &wire, &stream));
        adds_up(&r);
        let row = r.streams.iter().next().unwrap();
        ["lost", "marked", "delay_max_ms"].map(|column| row.number(column))
    };
    // 12 ms each, sent every 10 ms: a queue of 100 absorbs two thirds of the excess.
    let full = "rate = \"1 Mbit/s\"\nqueue = \"100 packets\"";
    let [tail, _, late] = run(full, "");
    let red = |more: &str| {
        format!("{full}\nred = {{ min = \"5 packets\", max = \"80 packets\", weight = 0.1{more} }}")
    };
    let [early, none, sooner] = run(&red(", max_p = \"50%\""), "");
    assert!(early > tail && sooner < late / 2.0 && none == 0.0, "{early} {tail} {sooner} {late}");
    let marking = red(", max_p = \"50%\", ecn = true");
    assert_eq!(run(&marking, "")[0], early, "nobody minds marks");
    let [dropped, marked, _] = run(&marking, "ecn = true\ndscp = 8");
    assert!(dropped < early && marked > 50.0, "{dropped} {marked}");

    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("losses"), "# one of four\n0100\n").unwrap();
    let text = |more: &str| {
        let wire = link("w", "a", "b", &format!("{}\nplain = true\n{more}", delay(5)));
        let stream = |from, to| {
            format!("[[stream]]\nfrom = \"{from}\"\nto = \"{to}\"\ninterval = \"10ms\"\n")
        };
        on("a b", &wire, &(stream("a", "b") + &stream("b", "a")))
    };
    let read = |more: &str| parse(&dir.path().join("x.toml"), &text(more));
    let lost = |more: &str| {
        let r = simulate(&read(more).unwrap(), None, 1).unwrap();
        r.streams.iter().map(|row| row.number("lost")).collect::<Vec<_>>()
    };
    assert_eq!(lost("trace = \"losses\""), [250.0, 250.0]);
    assert_eq!(lost("trace = \"losses\"\nback = { loss = 0 }"), [250.0, 0.0]);
    assert_eq!(lost("loss = 1\nthere = { trace = \"losses\" }"), [250.0, 1_000.0]);
    let fault = "[[fault]]\nat = \"5 s\"\nlink = \"w\"\nwhat = \"change\"\n\
                 becomes = { trace = \"losses\", rate = \"100 Mbit/s\" }\n[[link]]\n\
                 between = [\"a\", \"r\"]\ndelay = \"1ms\"\n[[router]]\nname = \"r\"";
    assert_eq!(lost(fault), [125.0, 125.0]);
    fs::write(dir.path().join("words"), "0120").unwrap();
    for (more, says) in [
        ("trace = \"loses\"", "loses: No such file"),
        ("trace = \"words\"", "line 1, column 3"),
        ("trace = \"/dev/zero\"", "is not a file of at most"),
        ("trace = \"losses\"\nloss = \"1%\"", "both determine which packets are lost"),
        ("red = { min = \"5 packets\" }", "red is for a queue"),
        ("rate = \"1 Mbit/s\"\nred = { min = \"5 kB\" }", "must all count packets"),
        ("rate = \"1 Mbit/s\"\nred = { min = \"15 packets\" }", "min below max"),
        ("rate = \"1 Mbit/s\"\nred = { weight = 0 }", "weight is 0"),
        ("rate = \"1 Mbit/s\"\nred = { max_p = nan }", "a share"),
        ("rate = \"1 Mbit/s\"\nred = { packet = \"0 B\" }", "packet is 0 bytes"),
        ("rate = \"1 Mbit/s\"\nred = { gentel = true }", "did you mean `gentle`?"),
    ] {
        let error = read(more).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("x.toml:"), "{more}: {error}");
    }
}

#[test]
fn sealed_links_carry_calls_and_tell_nobody_what() {
    let links = link("w", "a", "b", &delay(5));
    let of = |top: &str| results(&format!("{top}\n{}", on("a b", &links, CALL)));
    let (open, sealed) = (of(""), of("sealed = true"));
    adds_up(&sealed);
    assert_eq!(call(&sealed, "c").number("lost"), 0.0);
    let control = |r: &Results| ledger(r, "w", "there", "control").number("offered");
    assert!(control(&open) > 30.0 && (1.0..10.0).contains(&control(&sealed)));
}

#[test]
fn everything_is_written_and_said_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shared.toml");
    fs::write(&file, SHARED).unwrap();
    let (file, out) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    let said = good(&["run", file, "--out", out]);
    assert!(said.contains("bottleneck       there    control"), "{said}");
    let folder = dir.path().join("scenario/shared");
    let first = tree(&folder);
    let names: Vec<_> = first.keys().map(|p| p.to_str().unwrap()).collect();
    let way = |way| ["png", "svg"].map(|kind| format!("link-bottleneck-{way}.{kind}"));
    let tables =
        ["calls.png", "calls.svg", "data.csv", "links.csv", "streams.csv"].map(str::to_owned);
    let mut expected: Vec<_> = way("there").into_iter().chain(way("back")).chain(tables).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let svg = fs::read_to_string(folder.join("link-bottleneck-there.svg")).unwrap();
    assert!(svg.contains(">bottleneck changes<") && svg.contains(">mended<"), "{svg}");

    let json: serde_json::Value =
        serde_json::from_str(&good(&["run", file, "--out", out, "--json"])).unwrap();
    assert_eq!(tree(&folder), first, "the same seed gives the same bytes");
    let links = json["links"].as_array().unwrap();
    let csv = String::from_utf8(first[Path::new("links.csv")].clone()).unwrap();
    assert_eq!(links.len(), csv.lines().count() - 1);
    let one = links.iter().find(|l| l["link"] == "bottleneck" && l["class"] == "stream").unwrap();
    assert_eq!(one["offered"], 14_851);
    assert_eq!(
        (&json["streams"][0]["stream"], &json["calls"][0]["sent"]),
        (&"bulk".into(), &1_000.into())
    );
    assert!(json["calls"][0]["pesq_mean"].is_null() && json["testbed"].is_null());

    bad(&["run", "voip-overlay/fig4", "--out", out, "--json"], &["--json is for scenarios"]);
}
