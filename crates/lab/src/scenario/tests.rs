//! Tests of scenario files, valid and invalid.

use super::*;
use std::path::Path;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{Chain, Loss, Queue};
use trunkline_net::{IpVersion, Protocol};
use trunkline_overlay::wire::Service;

const GOOD: &str = include_str!("../../scenarios/three-sites.toml");

fn mistake(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(Path::new("x.toml"), &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn the_example_is_good() {
    let s = parse(Path::new("three-sites.toml"), GOOD).unwrap();
    assert_eq!((s.name.as_str(), s.hosts.len(), s.links.len()), ("three-sites", 3, 2));
    assert!(s.calls.iter().any(|c| c.carrier == Carrier::Overlay(Service::BestEffort)));
    let [there, back] = s.links[0].wire.as_ref().unwrap();
    assert!(matches!(there.loss, Loss::Burst { .. }));
    assert_eq!(there.loss, back.loss);
}

#[test]
fn results_stay_in_the_folder_whatever_the_file_is_called() {
    for (file, name) in [("...toml", "scenario"), ("..toml", "scenario"), ("a/.toml", ".toml")] {
        assert_eq!(parse(Path::new(file), GOOD).unwrap().name, name, "{file}");
    }
}

#[test]
fn mistakes_have_a_place_and_a_way_out() {
    let typo = mistake("jitter =", "jiter =");
    assert!(typo.starts_with("x.toml:") && typo.ends_with("did you mean `jitter`?"), "{typo}");
    for (from, to, says) in [
        ("\"5%\"", "\"500%\"", "a share from 0 to 1"),
        ("\"5%\"", "\"95%\"", "loss 0.95 is more than burst 0.5 allows"),
        ("to = \"lyon\"", "to = \"lion\"", "there is no host \"lion\"; did you mean `lyon`?"),
        ("to = \"lyon\"", "to = \"paris\"", "both ends are host \"paris\""),
        ("count = 10", "count = 0", "1 to 1000"),
        ("length = \"1 min\"", "length = \"5 s\"", "segments of 12 s"),
        ("length = \"1 min\"", "length = \"3 h\"", "length is out of range"),
        ("length = \"1 min\"", "length = \"3 d\"", "a length of time"),
        ("\"real-time\"", "\"realtime\"", "did you mean `real-time`?"),
        ("threshold = \"100ms\"", "threshold = \"1 s\"", "1 to 255 ms"),
        ("burst = \"50%\"", "spacing = \"2ms\"", "give it, too"),
    ] {
        let error = mistake(from, to);
        assert!(error.contains(says), "{from} → {to}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let apart =
        GOOD.replacen("between = [\"dijon\", \"lyon\"]", "between = [\"dijon\", \"paris\"]", 1);
    let error = parse(Path::new("x.toml"), &apart).unwrap_err().to_string();
    assert!(error.contains("a link already"), "{error}");
}

const SHARED: &str = include_str!("../../scenarios/shared-queue.toml");

/// Reads a file with `more` at its end.
fn with(file: &str, more: &str) -> Result<Scenario, String> {
    parse(Path::new("x.toml"), &format!("{file}\n{more}")).map_err(|m| m.to_string())
}

/// Two hosts with a link between them, which has the keys `link`, after `top`.
fn two(top: &str, link: &str) -> Result<Scenario, String> {
    let file = format!(
        "length = \"2 s\"\n{top}\nhost = [{{ name = \"a\" }}, {{ name = \"b\" }}]\n\
         call = [{{ from = \"a\", to = \"b\" }}]\n[[link]]\nbetween = [\"a\", \"b\"]\n{link}"
    );
    with(&file, "")
}

#[test]
fn each_way_says_what_it_does_otherwise() {
    let both = "delay = \"5ms\"\nloss = \"4%\"\nburst = \"30%\"\nqueue = \"7 packets\"\n";
    let ways =
        |more: &str| two("", &format!("{both}{more}")).unwrap().links[0].wire.clone().unwrap();
    let loss = Loss::Burst { p: 0.04, b: 0.3, chain: Chain::PerPacket };
    let [there, back] = ways("");
    assert_eq!((there.loss.clone(), &there), (loss.clone(), &back));
    let more = "there = { loss = \"1%\", rate = \"1 Mbit/s\" }\n\
                back = { delay = \"9ms\", jitter = \"1ms\", queue = \"64 kB\" }";
    let [there, back] = ways(more);
    assert_eq!(there.loss, Loss::Burst { p: 0.01, b: 0.3, chain: Chain::PerPacket });
    assert_eq!((there.rate, back.rate), (Some(Bitrate::from_bps(1_000_000)), None));
    let ms = Duration::from_millis;
    assert_eq!([there.delay, there.jitter, back.delay, back.jitter], [5, 0, 9, 1].map(ms));
    assert_eq!((there.queue, back.queue), (Queue::Packets(7), Queue::Bytes(64_000)));
    assert_eq!(back.loss, loss);
    let [there, back] = ways("loses = \"there\"\nback = { loss = \"2%\" }");
    assert_eq!((there.loss, back.loss), (loss, Loss::Bernoulli { p: 0.02 }));
}

#[test]
fn one_ip_version_is_for_the_whole_file() {
    let of = |top: &str| two(top, "delay = \"5ms\"").map(|s| s.ip);
    assert_eq!(of(""), Ok(IpVersion::V6));
    assert_eq!([of("ip = 4"), of("ip = 6")], [Ok(IpVersion::V4), Ok(IpVersion::V6)]);
    for (other, is) in [
        ("5", "invalid value: integer `5`"),
        ("\"4\"", "invalid type: string \"4\""),
        ("[4, 6]", "invalid type: sequence"),
        ("4.0", "invalid type: floating point `4.0`"),
    ] {
        let wanted =
            format!("x.toml:2:6: {is}, expected 4 or 6 (the default), one number for all packets");
        assert_eq!(of(&format!("ip = {other}")).unwrap_err(), wanted);
    }
    let mixed = "[[call]]\nfrom = \"a\"\nto = \"b\"\n[[stream]]\nfrom = \"a\"\nto = \"b\"\nip = 4\n\
                 rate = \"1 Mbit/s\"";
    let file = "length = \"2 s\"\nip = 6\nhost = [{ name = \"a\" }, { name = \"b\" }]\n\
                link = [{ between = [\"a\", \"b\"], delay = \"5ms\" }]";
    let said = with(file, mixed).unwrap_err();
    assert!(said.starts_with("x.toml:11:1: all packets of a scenario are of one IP"), "{said}");
    assert!(said.contains("at the top"), "{said}");
    // The minimum packet size differs by 20 bytes, the difference between the IP headers.
    let stream = |ip: u8, packet: u8| {
        let more = format!(
            "[[stream]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1 Mbit/s\"\npacket = \"{packet} B\""
        );
        let file = file.replace("ip = 6", &format!("ip = {ip}"));
        let file = file.replace("\"5ms\"", "\"5ms\", plain = true");
        with(&file, &more).map(|s| s.streams[0].payload)
    };
    assert_eq!((stream(4, 48), stream(6, 68)), (Ok(8), Ok(8)));
    assert!(stream(6, 67).is_err() && stream(4, 47).is_err());
}

/// A value of each key that differs from its default, as written in a node's file.
const VALUES: &[(&str, &[&str])] = &[
    (
        "realtime",
        &[
            "recovery = \"once\"",
            "reorder = 3",
            "retransmit_ratio = 0.125",
            "retransmit_burst = 17",
            "recovery_budget = 0.25",
            "max_wait = \"70000000ns\"",
            "memory = \"8192 B\"",
        ],
    ),
    ("best_effort", &["max_wait = \"30000000ns\"", "memory = \"4096 B\""]),
    (
        "hello",
        &[
            "interval = \"50000000ns\"",
            "dead_after = \"2000000000ns\"",
            "probes = false",
            "piggyback = false",
            "loss = \"intervals\"",
        ],
    ),
    (
        "routing",
        &[
            "metric = \"hops\"",
            "formula = \"paper\"",
            "deadline = \"120000000ns\"",
            "detection = \"3000000ns\"",
            "max_nodes = 64",
            "damping = \"5000000000ns\"",
        ],
    ),
];

fn daemons(scenario: &Scenario, host: usize) -> String {
    let link = &scenario.links[0].overlay.as_ref().unwrap()[host];
    testbed::settings::of_node(link, scenario.hosts[host].routing.as_ref())
}

/// Settings read from a file and written for a daemon are those that the daemon reads.
#[test]
fn every_key_of_a_node_means_what_it_means_to_a_daemon() {
    for (section, lines) in VALUES {
        for line in *lines {
            let expected = format!("[{section}]\n{line}\n");
            let all = two(&format!("{section} = {{ {line} }}"), "delay = \"1ms\"").unwrap();
            assert_eq!([0, 1].map(|n| daemons(&all, n)), [&*expected; 2]);
            // Settings of one host take precedence over those of all.
            let base = two("routing = {}", "delay = \"1ms\"").unwrap();
            assert_eq!(daemons(&base, 0), "");
            let top = format!("routing = {{}}\n[[host]]\nname = \"x\"\n{section} = {{ {line} }}\n");
            let file = format!(
                "length = \"2 s\"\n{top}[[host]]\nname = \"y\"\n[[link]]\nbetween = [\"x\", \"y\"]\n\
                 delay = \"1ms\"\n[[call]]\nfrom = \"x\"\nto = \"y\""
            );
            let one = with(&file, "").unwrap();
            assert_eq!([daemons(&one, 0), daemons(&one, 1)], [expected, String::new()]);
        }
    }
    for (line, wire) in [
        ("mtu = 1400", "mtu = 1400"),
        ("dscp = 0", "dscp = 0"),
        ("rate = \"200 kbit/s\"", "rate = \"200000 bit/s\""),
        ("penalty = \"20ms\"", "penalty = \"20000000ns\""),
    ] {
        let read = |link: &str| {
            let s = two("", &format!("delay = \"1ms\"\n{link}")).unwrap();
            let ends = s.links[0].overlay.as_ref().unwrap();
            [0, 1].map(|n| testbed::settings::of_link(&ends[n]))
        };
        let said = format!("{wire}\n");
        assert_eq!(read(&format!("overlay = {{ {line} }}")), [&*said; 2]);
        assert_eq!(read(&format!("back = {{ overlay = {{ {line} }} }}")), ["", &said]);
    }
    let s = two("", "delay = \"1ms\"\npath = \"blue\"\nrecovery = \"once\"").unwrap();
    assert_eq!(daemons(&s, 1), "[realtime]\nrecovery = \"once\"\n");
    let ends = s.links[0].overlay.as_ref().unwrap();
    assert_eq!(testbed::settings::of_link(&ends[0]), "path = \"blue\"\n");
    let off = two("routing = { enabled = false }", "delay = \"1ms\"").unwrap();
    assert_eq!(off.hosts[0].routing, None);
    let few = with(GOOD, "[[host]]\nname = \"x\"\nmax_sessions = 9").unwrap();
    assert_eq!([few.hosts[0].max_sessions, few.hosts[3].max_sessions], [2_048, 9]);
}

/// Two tables of the same keys, one of them documented, stay equal.
#[test]
fn every_key_that_is_documented_of_a_node_is_known_here() {
    let documented = include_str!("../../../../docs/configuration.md");
    let keys = |section: &str| {
        let title = format!("\n## `{section}`");
        let from = documented.find(&title).unwrap_or_else(|| panic!("{title}")) + title.len();
        let text = documented[from..].split("\n## ").next().unwrap();
        let keys = text.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next());
        keys.collect::<Vec<_>>()
    };
    for (section, lines) in VALUES {
        let mut known: Vec<_> = lines.iter().map(|l| l.split(' ').next().unwrap()).collect();
        let mut written = keys(&format!("[{section}]"));
        written.retain(|key| *key != "enabled");
        known.sort_unstable();
        written.sort_unstable();
        assert_eq!(written, known, "[{section}]");
    }
    let link = keys("[[link]]");
    assert_eq!(
        link,
        [
            "neighbour",
            "path",
            "key",
            "address",
            "source",
            "interface",
            "mtu",
            "dscp",
            "rate",
            "penalty"
        ],
        "what leads to the neighbour follows from the scenario, and its links have no keys"
    );
}

/// The parser reports which keys exist.
#[test]
fn every_key_is_documented() {
    let documented = include_str!("../../../../docs/scenarios.md");
    let in_link = |table: &str| format!("delay = \"1ms\"\n{table} = {{ zzz = 1 }}");
    let asked = [
        two("zzz = 1", ""),
        two("", "zzz = 1"),
        two("", &in_link("there")),
        two("", &in_link("overlay")),
        two("", &in_link("red")),
        with(SHARED, "[[host]]\nzzz = 1"),
        with(SHARED, "[[router]]\nzzz = 1"),
        with(SHARED, "[[call]]\nzzz = 1"),
        with(SHARED, "[[stream]]\nzzz = 1"),
        with(SHARED, "[[program]]\nzzz = 1"),
        with(SHARED, "[[fault]]\nzzz = 1"),
    ];
    for error in asked.into_iter().map(|file| file.unwrap_err()) {
        let keys: Vec<_> = error.split('`').skip(1).step_by(2).filter(|k| *k != "zzz").collect();
        assert!(!keys.is_empty() && error.contains("unknown field `zzz`"), "{error}");
        for key in keys {
            let forms = [format!("`{key}`"), format!("`[{key}]`"), format!("`[[{key}]]`")];
            assert!(forms.iter().any(|form| documented.contains(form)), "{key} of {error}");
        }
    }
}

#[test]
fn a_stream_sends_what_it_says() {
    let stream = |more: &str| {
        let head = "[[stream]]\nfrom = \"paris\"\nto = \"lyon\"\n";
        with(SHARED, &format!("{head}{more}")).map(|s| s.streams[1].clone())
    };
    // 200 bytes of UDP at 80 kbit/s are 50 packets a second.
    let s =
        stream("protocol = \"udp\"\npacket = \"200 B\"\nrate = \"80 kbit/s\"\ndscp = 46").unwrap();
    assert_eq!((s.payload, s.interval, s.count), (152, Duration::from_millis(20), 1_000));
    assert_eq!((s.protocol, s.dscp, s.name.as_str()), (Protocol::UDP, 46, "paris-lyon"));
    let s = stream("interval = \"30ms\"\nstart = \"1 s\"\nstop = \"2 s\"\nname = \"x\"").unwrap();
    assert_eq!((s.payload, s.count, s.name.as_str()), (1_440, 34, "x"));
    assert_eq!((s.protocol, s.start), (Protocol::TCP, Duration::from_secs(1)));
    for (more, says) in [
        ("", "a rate or an interval"),
        ("rate = \"1 Mbit/s\"\ninterval = \"1ms\"", "and not both"),
        ("rate = \"0 bit/s\"", "a rate, such as"),
        ("rate = \"-1 Mbit/s\"", "a rate, such as"),
        ("rate = \"99999 Gbit/s\"", "at most once in 1 µs"),
        ("rate = nan", "a rate, such as"),
        ("interval = \"0ms\"", "at most once in 1 µs"),
        ("interval = \"1e9 s\"", "a length of time"),
        ("interval = \"1ms\"\npacket = \"67 B\"", "68 to 1500 B"),
        ("interval = \"1ms\"\npacket = \"1501 B\"", "68 to 1500 B"),
        ("interval = \"1ms\"\npacket = \"9e99 B\"", "a number of bytes"),
        ("interval = \"1ms\"\nprotocol = \"dccp\"", "unknown variant `dccp`"),
        ("interval = \"1ms\"\nprotocol = \"tcpp\"", "did you mean `tcp`?"),
        ("interval = \"1ms\"\ndscp = 64", "0 to 63"),
        ("interval = \"1ms\"\ndscp = -1", "u8"),
        ("interval = \"1ms\"\nstart = \"2 s\"\nstop = \"2 s\"", "before it stops"),
        ("interval = \"1ms\"\nstop = \"21 s\"", "within the 20s"),
        ("interval = \"1ms\"\nname = \"a,b\"", "a comma or a quote"),
        (
            "interval = \"1ms\"\nname = \"\\u001b[31m\"",
            "control character among them: \"\\u{1b}[31m\"",
        ),
        ("interval = \"1ms\"\nname = \"\\uffff\"", "1 to 64 characters"),
        ("interval = \"1ms\"\nname = \"\"", "1 to 64 characters"),
    ] {
        let error = stream(more).unwrap_err();
        assert!(error.contains(says) && error.starts_with("x.toml:"), "{more}: {error}");
    }
    let to = |to: &str| {
        let stream = format!("[[stream]]\nfrom = \"paris\"\nto = \"{to}\"\ninterval = \"1ms\"");
        with(SHARED, &stream).unwrap_err()
    };
    assert!(to("paris").contains("both ends are host \"paris\""));
    assert!(to("lyons").contains("did you mean `lyon`?"));
    assert!(to("far").contains("there is no host \"far\""));
    let stream = "[[stream]]\nfrom = \"paris\"\nto = \"lyon\"\ninterval = \"1ms\"";
    assert!(with(GOOD, stream).unwrap_err().contains("outside of the overlay: add links"));
}

#[test]
fn tcp_says_how_much_by_itself() {
    let head = "[[stream]]\nkind = \"tcp\"\nfrom = \"paris\"\nto = \"lyon\"\n";
    let transfer =
        |more: &str| with(SHARED, &format!("{head}{more}")).map(|s| s.transfers[0].clone());
    let t = transfer("").unwrap();
    assert_eq!((t.profile.name, t.congestion, &*t.name), ("linux-6", "reno", "paris-lyon"));
    let t = transfer("profile = \"ns2-reno\"\ncongestion = \"bbr\"\nstop = \"3 s\"").unwrap();
    assert_eq!((t.profile.name, t.congestion, t.until.as_secs()), ("ns2-reno", "bbr", 3));
    for (more, says) in [
        ("rate = \"1 Mbit/s\"", "TCP itself decides how much"),
        ("dscp = 46", "TCP itself decides how much"),
        ("profile = \"linux\"", "did you mean `linux-6`?"),
        ("congestion = \"cubik\"", "did you mean `cubic`?"),
        ("stop = \"99 s\"", "within the 20s"),
    ] {
        let error = transfer(more).unwrap_err();
        assert!(error.contains(says) && error.starts_with("x.toml:"), "{more}: {error}");
    }
    let program = |text: &str| with(SHARED, &format!("[[program]]\n{text}"));
    // Braces may have another meaning.
    program("host = \"lyon\"\ncommand = [\"awk\", \"{ print }\", \"{}\", \"{x\"]").unwrap();
    let found = program("host = \"lyon\"\ncommand = [\"ls\", \"{paris}\"]").unwrap();
    assert_eq!((found.programs[0].host, found.programs[0].command.len()), (1, 2));
    for (text, says) in [
        ("host = \"lyon\"\ncommand = []", "one word or more"),
        ("host = \"lyons\"\ncommand = [\"ls\"]", "did you mean `lyon`?"),
        ("host = \"lyon\"\ncommand = [\"ls\"]\nstart = \"20 s\"", "start before the end"),
        ("host = \"lyon\"\ncommand = [\"a\\u0000b\"]", "no NUL"),
        (
            "host = \"lyon\"\ncommand = [\"ls\", \"to:{pariss}\"]",
            "no host \"pariss\"; did you mean",
        ),
    ] {
        assert!(program(text).unwrap_err().contains(says), "{text}");
    }
}

#[test]
fn links_that_lead_nowhere_or_are_two_are_refused() {
    for (more, says) in [
        ("[[router]]\nname = \"near\"", "two hosts or routers \"near\""),
        ("[[router]]\nname = \"paris\"", "two hosts or routers \"paris\""),
        ("[[host]]\nname = \"far\"", "\"far\": name them differently"),
        ("[[link]]\nbetween = [\"near\", \"near\"]\ndelay = \"1ms\"", "both ends are router"),
        ("[[link]]\nbetween = [\"far\", \"near\"]\ndelay = \"1ms\"", "a link already"),
        ("[[link]]\nbetween = [\"lyon\", \"paris\"]", "a link already"),
        ("[[link]]\nbetween = [\"lyon\", \"near\"]", "delay is missing"),
        ("[[link]]\nbetween = [\"lyon\", \"paris\"]\nloss = \"1%\"", "delay is missing"),
        (
            "[[link]]\nbetween = [\"lyon\", \"nears\"]",
            "host or router \"nears\"; did you mean `near`?",
        ),
        (
            "[[link]]\nname = \"bottleneck\"\nbetween = [\"lyon\", \"near\"]\ndelay = \"1ms\"",
            "two links \"bottleneck\"",
        ),
        (
            "[[link]]\nname = \"../x\"\nbetween = [\"lyon\", \"near\"]\ndelay = \"1ms\"",
            "letters, digits",
        ),
        (
            "[[link]]\nname = \"\"\nbetween = [\"lyon\", \"near\"]\ndelay = \"1ms\"",
            "letters, digits",
        ),
        (
            "[[link]]\nbetween = [\"lyon\", \"near\"]\ndelay = \"1ms\"\noverlay = { mtu = 1400 }",
            "only for links of the overlay",
        ),
        (
            "[[link]]\nbetween = [\"lyon\", \"paris\"]\npath = \"b\"\noverlay = { mtu = 100 }",
            "mtu: 576 to 9000",
        ),
        (
            "[[link]]\nbetween = [\"lyon\", \"paris\"]\npath = \"b\"\nrecovery = \"onc\"",
            "did you mean `once`?",
        ),
        ("[[link]]\nbetween = [\"lyon\", \"near\"]\ndelay = \"1ms\"\nrate = \"0 bit/s\"", "a rate"),
        ("[[link]]\nbetween = [\"lyon\", \"near\"]\ndelay = \"-1ms\"", "a length of time"),
        (
            "[[link]]\nbetween = [\"lyon\", \"near\"]\ndelay = \"1ms\"\nthere = { loss = nan }",
            "a share",
        ),
        (
            "[[link]]\nbetween = [\"lyon\", \"near\"]\ndelay = \"1ms\"\nthere = { lose = 1 }",
            "did you mean `loss`?",
        ),
        ("[hello]\ninterval = \"0ms\"", "[hello] interval: 20 ms or more"),
        ("[realtime]\nretransmit_ratio = -0.5", "a share"),
        ("[realtime]\nmemory = \"1 B\"", "memory: 4 KiB"),
        ("[routing]\nmax_nodes = 1", "max_nodes: 2 to 10000"),
        ("[routing]\nmetric = \"hop\"", "did you mean `hops`?"),
        ("[routing]\ndamping = \"1ms\"", "damping: 1 s to 1 h"),
        ("[[host]]\nname = \"x\"\nrouting = {}", "write a [routing] for all"),
        ("[[call]]\nfrom = \"paris\"\nto = \"lyon\"\nservice = \"plane\"", "did you mean `plain`?"),
    ] {
        let error = with(SHARED, more).unwrap_err();
        assert!(error.contains(says) && error.starts_with("x.toml:"), "{more}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let second = "[[link]]\nbetween = [\"lyon\", \"paris\"]\npath = \"b\"";
    assert_eq!(with(SHARED, second).unwrap().links.len(), 5);
    let nowhere = with(GOOD, "[[link]]\nbetween = [\"paris\", \"lyon\"]").unwrap_err();
    assert!(nowhere.contains("no routers lead from \"paris\" to \"lyon\""), "{nowhere}");
    let routers: String = (0..1_001).map(|n| format!("[[router]]\nname = \"r{n}\"\n")).collect();
    assert!(with(GOOD, &routers).unwrap_err().contains("1001 routers, but at most 1000"));
}

#[test]
fn faults_name_what_there_is() {
    let fault = |more: &str| with(SHARED, &format!("[[fault]]\n{more}"));
    let good =
        "at = \"3 s\"\nlasts = \"500ms\"\nlink = \"bottleneck\"\nwhat = \"cut\"\nway = \"back\"";
    let made = fault(good).unwrap().faults[1].clone();
    assert_eq!((made.at, made.until), (Duration::from_secs(3), Some(Duration::from_millis(3_500))));
    let FaultKind::Link(1, models) = made.what else { panic!("{made:?}") };
    assert!(models[0].is_none() && models[1].as_ref().unwrap().loss == Loss::EVERYTHING);
    for (more, says) in [
        ("at = \"21 s\"\nlink = \"bottleneck\"\nwhat = \"cut\"", "after the end"),
        ("at = \"1 s\"\nwhat = \"cut\"", "name what it happens to"),
        ("at = \"1 s\"\nhost = \"paris\"\nwhat = \"cut\"", "name what it happens to"),
        ("at = \"1 s\"\nlink = \"bottleneck\"\nwhat = \"crash\"", "name what it happens to"),
        ("at = \"1 s\"\nlink = \"botleneck\"\nwhat = \"cut\"", "did you mean `bottleneck`?"),
        ("at = \"1 s\"\nlink = \"link 1\"\nwhat = \"cut\"", "there is no link with the name"),
        ("at = \"1 s\"\nlink = \"overlay\"\nwhat = \"cut\"", "no wire of its own"),
        ("at = \"1 s\"\nhost = \"pari\"\nwhat = \"crash\"", "did you mean `paris`?"),
        ("at = \"1 s\"\nhost = \"paris\"\nwhat = \"stal\"", "did you mean `stall`?"),
        ("at = \"1 s\"\nhost = \"paris\"\nwhat = \"stall\"", "say how long"),
        ("at = \"1 s\"\nhost = \"paris\"\nwhat = \"crash\"\nlasts = \"0ms\"", "lasts is 0"),
        ("at = \"1 s\"\nhost = \"paris\"\nwhat = \"restart\"\nlasts = \"1ms\"", "for good"),
        ("at = \"1 s\"\nhost = \"paris\"\nwhat = \"crash\"\nway = \"there\"", "way is only for"),
        ("at = \"1 s\"\nlink = \"bottleneck\"\nwhat = \"change\"", "becomes describes"),
        (
            "at = \"1 s\"\nlink = \"bottleneck\"\nwhat = \"change\"\nbecomes = {}",
            "becomes is empty",
        ),
        (
            "at = \"1 s\"\nlink = \"bottleneck\"\nwhat = \"cut\"\nbecomes = { loss = 0.5 }",
            "becomes describes",
        ),
        (
            "at = \"1 s\"\nlink = \"bottleneck\"\nwhat = \"change\"\nbecomes = { loss = 0.9, burst = 0.1 }",
            "more than burst 0.1 allows",
        ),
        (
            "at = \"1 s\"\nlink = \"bottleneck\"\nwhat = \"change\"\nbecomes = { overlay = { mtu = 600 } }",
            "leave `overlay` out",
        ),
    ] {
        let error = fault(more).unwrap_err();
        assert!(error.contains(says) && error.starts_with("x.toml:"), "{more}: {error}");
    }
}

#[test]
fn names_come_to_an_end() {
    let name = |n| with(SHARED, &format!("[[router]]\nname = \"{}\"", "ñ".repeat(n)));
    assert!(name(64).is_ok());
    let error = name(65).unwrap_err();
    assert!(error.contains("a name has 1 to 64 characters"), "{error}");
    let error = name(100_000).unwrap_err();
    assert!(error.len() < 400, "{error}");
}

#[test]
fn what_a_host_cannot_run_is_said_of_it_by_name() {
    let two = |top: &str, links: &str| {
        let hosts = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\nmax_sessions = 9\n";
        let call = "[[call]]\nfrom = \"a\"\nto = \"b\"\ncount = 10\n";
        let text = format!("length = \"1 s\"\n{top}\n{hosts}{links}{call}");
        parse(Path::new("x.toml"), &text).map(|_| ()).map_err(|e| e.to_string())
    };
    let link =
        |more: &str| format!("[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"1ms\"\n{more}\n");
    let sessions = two("", &link("")).unwrap_err();
    assert!(sessions.starts_with("x.toml:5:1: host \"b\" is an end of 10 calls"), "{sessions}");
    let path = two("", &link(&format!("path = \"{}\"", "p".repeat(64)))).unwrap_err();
    assert!(path.starts_with("x.toml:3:1: host \"a\": the path \"ppp"), "{path}");
    let three = link("").replace("\"b\"]", "\"b\", \"a\"]");
    let three = two("", &three).unwrap_err();
    assert!(three.contains(":9:11: a link is between two, not 3"), "{three}");
    let hello = two("[hello]\ninterval = \"1ms\"", &link("")).unwrap_err();
    assert!(hello.starts_with("x.toml:2:1: out of range ([hello] interval"), "{hello}");
}

#[test]
fn a_file_that_is_none_or_has_no_end_is_not_read() {
    for (path, says) in
        [("/dev/zero", "is not a file of at most 1048576 bytes"), ("/", "is not a file")]
    {
        let error = super::load(Path::new(path)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.toml");
    std::fs::write(&path, b"length = \"1 s\"\n\xff").unwrap();
    let error = super::load(&path).unwrap_err().to_string();
    assert!(error.ends_with("x.toml:2:1: the text from here on is not UTF-8"), "{error}");
}

#[test]
fn a_trace_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("trace"), vec![b'0'; 1_000_000]).unwrap();
    let mut text = "length = \"1 s\"\nhost = [{ name = \"a\" }, { name = \"b\" }]\n".to_owned();
    for n in 0..2 {
        text += &format!(
            "[[link]]\nbetween = [\"a\", \"b\"]\npath = \"{n}\"\ndelay = \"1ms\"\ntrace = \"trace\"\n"
        );
    }
    text += "[[call]]\nfrom = \"a\"\nto = \"b\"\n";
    let scenario = parse(&dir.path().join("x.toml"), &text).unwrap();
    let traces: Vec<_> = scenario.links.iter().flat_map(|l| l.wire.clone().unwrap()).collect();
    let Loss::Trace(first) = &traces[0].loss else { panic!("a trace") };
    for model in &traces {
        let Loss::Trace(other) = &model.loss else { panic!("a trace") };
        assert!(std::sync::Arc::ptr_eq(first, other));
    }
}
