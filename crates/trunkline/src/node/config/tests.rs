use super::*;
use trunkline_overlay::identity::PublicKey;
use trunkline_overlay::route::Formula;

const GOOD: &str = r#"
[node]
id = 2
name = "B"
unsealed_for_measurements = true
listen = ["127.0.0.1:7002"]
socket = "/run/trunkline/b.sock"

[[link]]
neighbour = 1
address = "127.0.0.1:7001"
rate = "10 Mbit/s"

[[link]]
neighbour = 3
path = "isp2"
mtu = 1400
dscp = 0
penalty = "20ms"

[[route]]
to = [4, 5]
via = 3

[[route]]
to = "*"
via = 1

[realtime]
reorder = 3
retransmit_ratio = "20%"

[hello]
interval = "50ms"

[runtime]
offload = false
"#;

fn mistake(text: &str) -> String {
    parse(Path::new("x.toml"), text).unwrap_err().to_string()
}

/// If a key is given in place of a configuration, the offending line must not be shown.
#[test]
fn a_secret_key_is_not_quoted() {
    let key = "SGvzSnbUzYXXbyaBQMmfr2Km60e0zvV5cWQAB5Ii+D4=\n";
    let said = parse(Path::new("a.key"), key).map(|_| ()).expect_err("no configuration");
    let said = said.to_string();
    assert!(said.contains("is a key, not a configuration") && !said.contains("SGvz"), "{said}");
}

#[test]
fn a_whole_file() {
    let c = parse(Path::new("x.toml"), GOOD).unwrap();
    assert_eq!((c.name.as_str(), c.overlay.id, c.overlay.links.len()), ("B", NodeId(2), 2));
    let (a, b) = (&c.overlay.links[0], &c.overlay.links[1]);
    assert_eq!(a.rate.unwrap().as_bps(), 10_000_000);
    assert_eq!((a.dscp, b.dscp, b.mtu, b.path.as_str()), (46, 0, 1400, "isp2"));
    assert_eq!([a, b].map(|link| link.penalty.as_millis()), [0, 20]);
    assert_eq!((a.realtime.reorder, a.realtime.retransmit_ratio), (3, 0.2));
    assert_eq!(a.liveness.interval.as_millis(), 50);
    assert_eq!(c.overlay.routes.len(), 3);
    assert!(!c.runtime.offload);
    assert!(c.remote.is_empty(), "off by default");
}

#[test]
fn who_may_attach_from_other_hosts_is_said() {
    let key = trunkline_overlay::identity::Identity::from_secret(&[7; 32]).public();
    let client =
        |name| format!("[[client]]\nname = \"{name}\"\nkey = \"{key}\"\nbind = [4000]\nto = [3]\n");
    let nobody = GOOD.replace(
        "[[link]]\nneighbour = 1",
        "remote = [\"127.0.0.1:7800\", \"[::1]:7800\"]\n[[link]]\nneighbour = 1",
    );
    assert!(mistake(&nobody).contains("add a [[client]]"));
    assert!(mistake(&(nobody.clone() + &client("pbx"))).contains("[node] has none: give `key`"));
    let sealed = |text: &str| {
        let text = text.replace("unsealed_for_measurements = true", "key = \"b.key\"");
        text.replace("neighbour = ", &format!("key = \"{key}\"\nneighbour = "))
    };
    let c = parse(Path::new("x.toml"), &sealed(&(nobody.clone() + &client("pbx")))).unwrap();
    assert_eq!((c.remote.len(), c.clients[0].name.as_str(), c.clients[0].key), (2, "pbx", key));
    assert_eq!(*c.overlay.access.clients[0].bind, [4_000..=4_000]);
    let twice = sealed(&(nobody + &client("pbx") + &client("other")));
    assert!(mistake(&twice).contains("the name or the key of [[client]] \"pbx\""));
    let nowhere = sealed(&(GOOD.to_owned() + &client("pbx")));
    assert!(mistake(&nowhere).contains("no `remote` address in [node]"));
}

#[test]
fn damping_is_a_half_life_or_none() {
    let with = |text: &str| GOOD.replace("[hello]", &format!("[routing]\n{text}\n[hello]"));
    let half_life = |text| {
        let c = parse(Path::new("x.toml"), &with(text)).unwrap();
        c.overlay.links[0].damping.as_secs()
    };
    assert_eq!(["", "damping = \"5 min\"", "damping = \"0 s\""].map(half_life), [60, 300, 0]);
    let short = mistake(&with("damping = \"10 ms\""));
    assert!(short.contains("[routing] damping: 1 s to 1 h, or 0 s for none"), "{short}");
    assert!(short.contains(" | damping = \"10 ms\""), "{short}");
    let typo = mistake(&with("dampening = \"10 s\""));
    assert!(typo.contains("did you mean `damping`?"), "{typo}");
}

#[test]
fn ways_are_computed_by_the_daemons_formula_or_the_papers() {
    let with = |text: &str| GOOD.replace("[hello]", &format!("[routing]\n{text}\n[hello]"));
    let formula = |text| {
        let c = parse(Path::new("x.toml"), &with(text)).unwrap();
        c.overlay.routing.unwrap().cost.formula
    };
    let texts = ["", "formula = \"measured\"", "formula = \"paper\""];
    use Formula::{Measured, Paper};
    assert_eq!(texts.map(formula), [Measured, Measured, Paper]);
    let typo = mistake(&with("formula = \"papers\""));
    assert!(typo.contains(" | formula = \"papers\""), "{typo}");
    assert!(typo.contains("did you mean `paper`?"), "{typo}");
}

#[test]
fn costs_have_a_deadline_and_a_detection_time() {
    let with = |text: &str| GOOD.replace("[hello]", &format!("[routing]\n{text}\n[hello]"));
    let millis = |text: &str| {
        let c = parse(Path::new("x.toml"), &with(text)).unwrap();
        let cost = c.overlay.routing.unwrap().cost;
        (cost.deadline.as_millis(), cost.detection.as_millis())
    };
    assert_eq!(millis(""), (100, 2));
    assert_eq!(millis("deadline = \"120 ms\"\ndetection = \"0 ms\""), (120, 0));
    assert_eq!(millis("deadline = \"120.1 ms\"\ndetection = \"2.1 ms\""), (120, 2));
    assert_eq!(millis("deadline = \"10 s\"\ndetection = \"10 s\""), (10_000, 10_000));
    for (line, range) in [
        ("deadline = \"0.9 ms\"", "deadline: 1 ms to 10 s"),
        ("deadline = \"10.1 s\"", "deadline: 1 ms to 10 s"),
        ("detection = \"11 s\"", "detection: 0 ms to 10 s"),
        ("detection = \"2.06ms\"", "detection must be a multiple of 0.1 ms"),
        ("detection = \"0.05ms\"", "detection must be a multiple of 0.1 ms"),
        ("deadline = \"100.01ms\"", "deadline must be a multiple of 0.1 ms"),
    ] {
        let wrong = mistake(&with(line));
        assert!(wrong.contains(&format!("[routing] {range}")), "{wrong}");
        assert!(wrong.contains(&format!(" | {line}")), "{wrong}");
    }
    let number = mistake(&with("deadline = 120"));
    assert!(number.contains("write a number and a unit"), "{number}");
    let typo = mistake(&with("detect = \"2 ms\""));
    assert!(typo.contains("did you mean `detection`?"), "{typo}");
}

#[test]
fn a_recovery_policy_is_named() {
    let with = |name: &str| GOOD.replace("reorder = 3", &format!("recovery = \"{name}\""));
    for policy in Recovery::all() {
        let config = parse(Path::new("x.toml"), &with(policy.name())).unwrap();
        assert!(config.overlay.links.iter().all(|l| l.realtime.recovery == policy));
    }
    assert_eq!(Recovery::default().name(), "until-deadline");
    let old = mistake(&with("one-strike"));
    assert!(old.contains(" | recovery = \"one-strike\""), "{old}");
    assert!(old.contains("`off`, `once`, `twice`, `until-deadline`\n"), "{old}");
    assert!(mistake(&with("onec")).contains("did you mean `once`?"));
}

/// Of names that only look alike, none is suggested.
#[test]
fn only_a_slip_has_a_suggestion() {
    let key = |section: &str, key: &str| {
        mistake(&GOOD.replace("[hello]", &format!("[{section}]\n{key} = true\n[hello]")))
    };
    for (section, other) in
        [("routing", "tmax"), ("routing", "delta"), ("log", "colour"), ("overlay", "trusted")]
    {
        let said = key(section, other);
        assert!(said.contains(&format!("unknown field `{other}`")), "{said}");
        assert!(!said.contains("did you mean"), "{said}");
    }
    for (section, slip, name) in [
        ("overlay", "key", "keys"),
        ("overlay", "revokd", "revoked"),
        ("overlay", "unconfigured-peers", "unconfigured_peers"),
        ("best_effort", "max_wiat", "max_wait"),
        ("routing", "dead_line", "deadline"),
        ("streams", "backlogs", "backlog"),
    ] {
        let said = key(section, slip);
        assert!(said.contains(&format!("did you mean `{name}`?")), "{said}");
    }
    let node = |key: &str| mistake(&GOOD.replace("id = 2", &format!("id = 2\n{key} = true")));
    assert!(!node("remote_peers").contains("did you mean"), "{}", node("remote_peers"));
    assert!(node("contol").contains("did you mean `control`?"));
}

#[test]
fn a_key_or_section_that_is_missing_or_there_twice_is_named() {
    for (from, to, says) in [
        ("id = 2\n", "", "2:1: `id` is missing: give the node's number, as id = 1"),
        ("listen = [\"127.0.0.1:7002\"]\n", "", "2:1: `listen` is missing: give an address, as"),
        ("neighbour = 1\n", "", "9:1: `neighbour` is missing: give the other node's number"),
        ("via = 3\n", "", "21:1: `via` is missing: give the neighbour that"),
        ("id = 2", "id =", "3:5: a value is missing after the ="),
        (
            "id = 2",
            "id = -2",
            "3:6: invalid value: integer `-2`, expected a node id, a number from 1",
        ),
        ("via = 3", "via = -3", "23:7: invalid value: integer `-3`, expected a node id, a number"),
        ("id = 2", "id = 2\nid = 2", "4:1: duplicate key `id`: keep one of the two"),
        ("[hello]", "[realtime]\n[hello]", "duplicate section `realtime`: keep one of the two"),
        ("[hello]", "[overlai]\n[hello]", "unknown section `overlai`, expected one of"),
        ("[hello]", "[overlai]\n[hello]", "did you mean `overlay`?"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let said = mistake(&GOOD.replacen(from, to, 1));
        assert!(said.contains(says) && said.starts_with("x.toml:"), "{says}: {said}");
    }
    let none = mistake("");
    assert!(none.starts_with("x.toml: [node] is missing: it has at least `id`"), "{none}");
}

#[test]
fn a_mistake_is_at_its_value_or_its_heading() {
    let at = |text: &str, says: &str| {
        let said = mistake(text);
        let (place, rest) = said.split_once(": ").expect("a place");
        assert!(rest.starts_with(says), "{says}: {said}");
        let place = place.strip_prefix("x.toml:").expect("a line").to_owned();
        let line = place.split(':').next().and_then(|n| n.parse::<usize>().ok()).expect("a number");
        (text.lines().nth(line - 1).expect("a line").to_owned(), place)
    };
    let line = |text: &str, says| at(text, says).0;
    let unsealed = "unsealed_for_measurements = true\n";
    assert_eq!(line(&GOOD.replace(unsealed, ""), "[node] has no key"), "[node]");
    let key = trunkline_overlay::identity::Identity::from_secret(&[7; 32]).public();
    let overlay = format!("[overlay]\nkeys = [\"{key}\"]\n[hello]");
    let says = "[overlay] and [[known]] don't apply";
    assert_eq!(line(&GOOD.replace("[hello]", &overlay), says), "[overlay]");
    let known = format!("[[known]]\nnode = 9\nkey = \"{key}\"\n[hello]");
    assert_eq!(line(&GOOD.replace("[hello]", &known), says), "[[known]]");
    let client = format!("[[client]]\nname = \"pbx\"\nkey = \"{key}\"\n[hello]");
    let says = "there is a [[client]], but no `remote`";
    assert_eq!(line(&GOOD.replace("[hello]", &client), says), "[[client]]");
    let trunk = GOOD.replace("[hello]", "[[trunk]]\nto = 4\nwait = \"11ms\"\n[hello]");
    assert_eq!(line(&trunk, "the trunk to node 4: wait"), "wait = \"11ms\"");
    let twice = GOOD.replace("path = \"isp2\"", "path = \"\"").replace("= 3\n", "= 1\n");
    assert_eq!(at(&twice, "two links to neighbour 1").1, "16:8");
    let sealed = GOOD.replace("neighbour = 3", &format!("neighbour = 3\nkey = \"{key}\""));
    assert_eq!(line(&sealed, "the link to neighbour 3 has a key"), format!("key = \"{key}\""));
}

/// Keys that are known only once the node's identity is read.
#[test]
fn a_key_that_two_nodes_have_is_at_its_line() {
    let identity = trunkline_overlay::identity::Identity::from_secret(&[7; 32]);
    let key = |n| trunkline_overlay::identity::Identity::from_secret(&[n; 32]).public();
    let text = GOOD
        .replace("unsealed_for_measurements = true", "key = \"b.key\"")
        .replace("neighbour = 1", &format!("neighbour = 1\nkey = \"{}\"", key(1)))
        .replace("neighbour = 3", &format!("neighbour = 3\nkey = \"{}\"", identity.public()));
    let mut config = parse(Path::new("x.toml"), &text).unwrap();
    config.unlock_with(&Secrets { identity, certificate: None });
    let said = check_keys(&config, Path::new("x.toml"), &text).unwrap_err().to_string();
    assert!(said.starts_with("x.toml:17:7: nodes 3 and 2 are given the same key"), "{said}");
}

#[test]
fn mistakes_have_a_line_and_a_way_out() {
    let typo = mistake(&GOOD.replace("neighbour = 1", "neighbor = 1"));
    assert!(typo.starts_with("x.toml:10:1: unknown field `neighbor`"), "{typo}");
    assert!(typo.contains("did you mean `neighbour`?"), "{typo}");
    let value = mistake(&GOOD.replace("10 Mbit/s", "fast"));
    assert!(value.starts_with("x.toml:12:8: "), "{value}");
    let route = mistake(&GOOD.replace("via = 3", "via = 9"));
    assert!(route.starts_with("x.toml:23:7: a route goes via node 9"), "{route}");
    let mtu = mistake(&GOOD.replace("1400", "100"));
    assert!(mtu.starts_with("x.toml:17:7: link to neighbour 3: out of range (mtu"), "{mtu}");
    let penalty = mistake(&GOOD.replace("20ms", "6 s"));
    assert!(penalty.contains("link to neighbour 3: out of range (penalty: 0 to 5 s)"), "{penalty}");
    let star = mistake(&GOOD.replace("\"*\"", "\"all\""));
    assert!(star.contains("a list of node ids, or \"*\" for all others"), "{star}");
    for nowhere in ["relay.example.org", "192.0.2.1"] {
        let address = mistake(&GOOD.replace("127.0.0.1:7001", nowhere));
        let why =
            format!("x.toml:11:11: address \"{nowhere}\" has no port; give an address or a name");
        assert!(address.starts_with(&why), "{address}");
    }
    let name = parse(Path::new("x.toml"), &GOOD.replace("127.0.0.1:7001", "relay.example:7000"));
    let paths = name.expect("a name").paths;
    assert_eq!(paths.values().next().unwrap().host.as_ref().unwrap().name, "relay.example");
    let family = mistake(&GOOD.replace("127.0.0.1:7001", "[::1]:7001"));
    assert!(family.contains("no address of its family"), "{family}");
    let listen = |all: &str| GOOD.replace("[\"127.0.0.1:7002\"]", all);
    let two = mistake(&listen("[\"127.0.0.1:7002\", \"0.0.0.0:7002\"]"));
    assert!(two.contains("0.0.0.0:7002 is the same as 127.0.0.1:7002, or"), "{two}");
    let several = parse(
        Path::new("x.toml"),
        &listen("[\"127.0.0.1:7002\", \"127.0.0.2:7002\", \"[::1]:7002\"]"),
    );
    assert_eq!(several.unwrap().listen.len(), 3);
    let keyless = mistake(&GOOD.replace("unsealed_for_measurements = true", ""));
    assert!(keyless.contains("trunkline keygen FILE"), "{keyless}");
    let key = mistake(&GOOD.replace("neighbour = 1", "neighbour = 1\nkey = \"AAAA\""));
    assert!(key.contains("44 characters of base64"), "{key}");
    let sealed = GOOD.replace("unsealed_for_measurements = true", "key = \"b.key\"");
    let unknown_peer = mistake(&sealed);
    assert!(unknown_peer.contains("neighbour 1 has no key"), "{unknown_peer}");
    let overlay = "[overlay]\nkeys = [\"O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=\"]\n[hello]";
    let c = parse(Path::new("x.toml"), &sealed.replace("[hello]", overlay)).unwrap();
    assert!(c.key_files.is_some() && c.overlay.sealing.is_none(), "not read yet");
    let unsealed = mistake(&GOOD.replace("[hello]", "[overlay]\nunconfigured_peers = 1\n[hello]"));
    assert!(unsealed.contains("don't apply to an unsealed node"), "{unsealed}");
    let priority = mistake(&GOOD.replace("offload = false", "realtime_priority = 0"));
    assert!(priority.contains("1 to 99"), "{priority}");
    let memory = mistake(&GOOD.replace("[hello]", "[best_effort]\nmemory = \"10 B\"\n[hello]"));
    assert!(memory.contains("[best_effort] memory"), "{memory}");
    let window = mistake(&GOOD.replace("[hello]", "[reliable]\ncongestion = \"vegas\"\n[hello]"));
    assert!(window.contains("reno") && window.contains("cubic"), "{window}");
    let (node, rest) = GOOD.split_once("[[link]]").unwrap();
    let (_, rest) = rest.split_once("[realtime]").unwrap();
    let relay = format!("{node}[realtime]{rest}");
    assert!(parse(Path::new("x.toml"), &relay).is_ok());
    let hello = mistake(&relay.replace("50ms", "1ms"));
    assert!(hello.starts_with("x.toml:14:12: out of range ([hello] interval: 20 ms"), "{hello}");
    let path = mistake(&GOOD.replace("isp2", &"isp".repeat(30)));
    assert!(path.starts_with("x.toml:16:8: the path \"isp"), "{path}");
}

#[test]
fn a_gateway_has_keys() {
    let phones = "[sip]\nlisten = [\"udp:127.0.0.1:5060\"]\n[hello]";
    let gateway = mistake(&GOOD.replace("[hello]", phones));
    assert!(
        gateway.starts_with("x.toml:5:29: [node] unsealed_for_measurements and [sip]"),
        "{gateway}"
    );
    assert!(gateway.contains("give [node] a `key`, which `trunkline keygen FILE`"), "{gateway}");
}

#[test]
fn an_unknown_key_is_told_the_nearest_key() {
    let old = GOOD.replace("unsealed_for_measurements", "unsealed");
    let said = mistake(&old);
    assert!(said.starts_with("x.toml:5:1: unknown field `unsealed`"), "{said}");
    assert!(said.contains("did you mean `unsealed_for_measurements`?"), "{said}");
    let said = mistake(
        &GOOD.replace("[[link]]\nneighbour = 1", "remotes = true\n[[link]]\nneighbour = 1"),
    );
    assert!(said.starts_with("x.toml:9:1: unknown field `remotes`"), "{said}");
    assert!(said.contains("did you mean `remote`?"), "{said}");
}

#[test]
fn what_would_do_harm_in_silence_is_a_mistake() {
    for nobody in ["0.0.0.0:7001", "127.0.0.1:0", "224.0.0.1:7001", "255.255.255.255:7001"] {
        let address = mistake(&GOOD.replace("127.0.0.1:7001", nobody));
        assert!(address.starts_with(&format!("x.toml:11:11: address {nobody} ")), "{address}");
    }
    let both = GOOD.replace("[\"127.0.0.1:7002\"]", "[\"0.0.0.0:7002\", \"[::]:7002\"]");
    let local = |ip: &str| both.replace("127.0.0.1:7001", &format!("[{ip}]:7001"));
    assert!(mistake(&local("fe80::1")).contains("add the name of its interface"));
    assert!(mistake(&local("::ffff:192.0.2.1")).contains("is of IPv4"));
    assert!(parse(Path::new("x.toml"), &local("fe80::1%2")).is_ok());
    for (own, why) in [
        ("[fe80::1]:7002", "add the name of its interface"),
        ("224.0.0.1:7002", "is not a single machine's"),
        ("255.255.255.255:7002", "is not a single machine's"),
        ("[ff02::1]:7002", "is not a single machine's"),
        ("[::ffff:192.0.2.1]:7002", "is of IPv4"),
    ] {
        let listen = mistake(&GOOD.replace("127.0.0.1:7002", own));
        assert!(listen.contains(own) && listen.contains(why), "{listen}");
    }
    for value in ["256", "64", "-1", "\"EF\""] {
        let dscp = mistake(&GOOD.replace("dscp = 0", &format!("dscp = {value}")));
        assert!(dscp.starts_with("x.toml:18:8: "), "{dscp}");
        assert!(dscp.contains("expected a number from 0 to 63, without quotes"), "{dscp}");
        assert!(dscp.contains("EF is 46"), "{dscp}");
    }
    let priority = mistake(&GOOD.replace("offload = false", "realtime_priority = 300"));
    assert!(priority.contains("expected a number from 1 to 99"), "{priority}");
    let log = |filter| mistake(&format!("{GOOD}[log]\nfilter = \"{filter}\""));
    for slip in ["loud", "", "info,lnk"] {
        assert!(log(slip).contains("is no level: write error, warn"), "{}", log(slip));
    }
    assert!(log("trunkline=loud").contains("is not understood"));
    for filter in ["INFO", "off", "warn,trunkline=debug"] {
        let text = format!("{GOOD}[log]\nfilter = \"{filter}\"");
        assert!(parse(Path::new("x.toml"), &text).is_ok(), "{filter}");
    }
}

#[test]
fn a_key_of_the_other_kind_is_told_apart() {
    let sealed = GOOD.replace("unsealed_for_measurements = true", "key = \"b.key\"");
    let identity = |n| trunkline_overlay::identity::Identity::from_secret(&[n; 32]);
    let keys = |first: &str| {
        let text = sealed.replace("neighbour = 1", &format!("neighbour = 1\nkey = \"{first}\""));
        let other = format!("neighbour = 3\nkey = \"{}\"", identity(3).public());
        text.replace("neighbour = 3", &other)
    };
    let file = mistake(&keys("/etc/trunkline/a.key"));
    assert!(
        file.starts_with("x.toml:11:7: a public key belongs here, not the name of a"),
        "{file}"
    );
    assert!(file.contains("`trunkline pubkey /etc/trunkline/a.key` prints"), "{file}");
    let inline = mistake(&sealed.replace("b.key", &identity(2).public().to_string()));
    assert!(
        inline.starts_with("x.toml:5:7: [node] key is a key itself: give the name"),
        "{inline}"
    );
    // Some secrets are not points of the curve, which gives them away…
    let no_point = mistake(&keys(&identity(2).secret_text()));
    assert!(no_point.contains("not a public key; if they are a secret key"), "{no_point}");
    // …and others are recognised only once the node's identity is read.
    let secret =
        (4..).map(identity).find(|i| i.secret_text().parse::<PublicKey>().is_ok()).unwrap();
    let with = |text: &str| {
        let mut config = parse(Path::new("x.toml"), text).unwrap();
        config.unlock_with(&Secrets { identity: secret.clone(), certificate: None });
        check_keys(&config, Path::new("x.toml"), text).map_err(|e| e.to_string())
    };
    assert_eq!(with(&keys(&identity(1).public().to_string())), Ok(()));
    let own = with(&keys(&secret.secret_text())).unwrap_err();
    assert!(own.starts_with("x.toml:11:8: a public key belongs here, and this is what"), "{own}");
    let revoked = format!("[overlay]\nrevoked = [\"{}\"]\n[hello]", secret.public());
    let text = keys(&identity(1).public().to_string()).replace("[hello]", &revoked);
    let revoked = with(&text).unwrap_err();
    assert!(
        revoked.starts_with("x.toml:36:11: [overlay] revoked has this node's own"),
        "{revoked}"
    );
}

#[test]
fn streams_have_bounds() {
    let with = |keys: &str| GOOD.replace("[hello]", &format!("[streams]\n{keys}\n[hello]"));
    for (keys, why) in [
        ("max = 1048577", "max is out of range (0 to 1048576)"),
        ("max = -1", "expected a whole number of at least 0"),
        ("backlog = 0", "backlog is 0: give 1 to 65535"),
        ("backlog = 65536", "invalid value"),
        ("buffer = \"63 KiB\"", "buffer is out of range (64 KiB to 16 MiB)"),
        ("buffer = \"17 MiB\"\nmemory = \"1 GB\"", "buffer is out of range"),
        ("buffer = 65536", "as in \"1500 B\""),
        ("memory = \"7 MiB\"", "memory is less than four times buffer"),
        ("congestion = \"bbr\"", "cubic"),
        ("buffers = \"1 MiB\"", "did you mean `buffer`?"),
    ] {
        let said = mistake(&with(keys));
        assert!(said.starts_with("x.toml:3") && said.contains(why), "{keys}: {said}");
    }
    let text = with("max = 10\nbuffer = \"64 MiB\"");
    let line = text.lines().position(|line| line.starts_with("buffer")).unwrap() + 1;
    let said = mistake(&text);
    assert!(said.starts_with(&format!("x.toml:{line}:10: ")), "{said}");
    let keys = "max = 10\nbacklog = 3\nbuffer = \"1 MiB\"\nmemory = \"4 MiB\"\n\
                congestion = \"cubic\"";
    let streams = parse(Path::new("x.toml"), &with(keys)).unwrap().overlay.streams;
    let got = (streams.max, streams.backlog, streams.buffer, streams.memory);
    assert_eq!(got, (10, 3, 1 << 20, 4 << 20));
    assert_eq!(streams.algorithm.name(), "cubic");
    // With no streams, their memory limit is irrelevant.
    assert!(parse(Path::new("x.toml"), &with("max = 0\nmemory = \"0 B\"")).is_ok());
}

#[test]
fn a_link_leaves_from_an_address_or_by_an_interface() {
    let link = |lines: &str| {
        let address = "address = \"127.0.0.1:7001\"";
        GOOD.replace(address, &format!("{address}\n{lines}"))
    };
    let text = link("source = \"127.0.0.1\"\ninterface = \"wwan0\"");
    let config = parse(Path::new("x.toml"), &text).unwrap();
    let expected = WantedPath {
        source: Some("127.0.0.1".parse().unwrap()),
        interface: Some("wwan0".into()),
        host: None,
    };
    assert_eq!(config.paths, [((NodeId(1), String::new()), expected)].into());
    for (lines, what) in [
        ("source = \"127.0.0.2\"", ":12:10: source 127.0.0.2: [node] listen has neither"),
        ("source = \"0.0.0.0\"", "is not a single machine's: it stands for all"),
        ("source = \"::1\"", "[node] listen has neither"),
        ("interface = \"\"", ":12:13: interface \"\" is not a name: `ip link` lists"),
        ("interface = \"a/b\"", "is not a name"),
    ] {
        let said = mistake(&link(lines));
        assert!(said.contains(what), "{lines}: {said}");
    }
    let twice = GOOD.replace("path = \"isp2\"", "path = \"isp2\"\naddress = \"127.0.0.1:7001\"");
    let said = mistake(&twice);
    assert!(said.contains("neighbour 1 has the same address and leaves the same way"), "{said}");
    assert!(parse(Path::new("x.toml"), &twice.replace("mtu = 1400", "interface = \"b\"")).is_ok());
    let listen = "[\"127.0.0.3:7002\", \"127.0.0.4:7002\"]";
    let config =
        parse(Path::new("x.toml"), &twice.replace("[\"127.0.0.1:7002\"]", listen)).unwrap();
    let sources: Vec<_> = config.paths.values().map(|e| e.source.unwrap().to_string()).collect();
    assert_eq!(sources, ["127.0.0.3", "127.0.0.4"], "each provider's address has a link");
    let first = "address = \"127.0.0.1:7001\"\nsource = \"127.0.0.3\"";
    let one = twice.replacen("address = \"127.0.0.1:7001\"", first, 1);
    let config = parse(Path::new("x.toml"), &one.replace("[\"127.0.0.1:7002\"]", listen)).unwrap();
    let sources: Vec<_> = config.paths.values().map(|e| e.source.unwrap().to_string()).collect();
    assert_eq!(sources, ["127.0.0.3", "127.0.0.4"], "that of the other is taken");
    let said = mistake(&one.replace("127.0.0.1:7002", "127.0.0.3:7002"));
    assert!(said.contains("has the same address and leaves the same way"), "{said}");
}
