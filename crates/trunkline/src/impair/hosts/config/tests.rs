use super::*;
use crate::node::config::plain;
use trunkline_net::wifi::edca::{ACCESS_POINT_2005, DRAFT};

pub fn parse(text: &str) -> Result<Hosts, String> {
    let file = toml::from_str(text).map_err(|e: toml::de::Error| {
        format!("{}: {}", e.span().map_or(0, |span| span.start), plain(e.message()))
    })?;
    Hosts::new(file).map_err(|(at, what)| format!("{at}: {what}"))
}

const TEXT: &str = "[[host]]\nname = \"a\"\ntcp = \"reno\"\n\
    sysctl = { \"net.ipv4.tcp_sack\" = \"0\" }\n[[host]]\nname = \"b\"\n[[router]]\nname = \"r\"\n\
    [[edge]]\nbetween = [\"a\", \"r\"]\ndelay = \"1ms\"\n\
    [[edge]]\nname = \"narrow\"\nbetween = [\"r\", \"b\"]\nmtu = 1400\nrate = \"1 Mbit/s\"\n";

#[test]
fn hosts_routers_and_edges_are_read() {
    let hosts = parse(TEXT).expect("valid");
    assert_eq!((hosts.hosts.len(), &hosts.routers[..]), (2, &["r".to_owned()][..]));
    let sysctl = &hosts.hosts[0].sysctl;
    let set = [(CONGESTION_CONTROL, "reno"), ("net.ipv4.tcp_sack", "0")];
    assert!(sysctl.iter().map(|(k, v)| (k.as_str(), v.get_ref().as_str())).eq(set));
    let [first, second] = &hosts.edges[..] else { panic!("{:?}", hosts.edges) };
    assert_eq!(
        (&first.name[..], first.mtu, first.ends),
        ("1", 1_500, [EdgeEnd::Host(0), EdgeEnd::Router(0)])
    );
    assert_eq!((&second.name[..], second.mtu), ("narrow", 1_400));
    assert_eq!([0, 1].map(|n| second.directions[n].stream), [2, 3]);
    assert_eq!(hosts.models().filter(|m| m.rate.is_some()).count(), 2);
}

#[test]
fn every_mistake_has_a_place_and_a_way_out() {
    for (from, to, says) in [
        (
            "[\"a\", \"r\"]",
            "[\"a\", \"rr\"]",
            "no [[host]] or [[router]] is \"rr\"; did you mean \"r\"?",
        ),
        ("[\"a\", \"r\"]", "[\"a\", \"a\"]", "\"a\" is at both ends"),
        ("[\"r\", \"b\"]", "[\"r\", \"a\"]", "no [[edge]] or [[cell]] leads to host \"b\""),
        ("name = \"b\"", "name = \"a\"", "is the name of an earlier host or router"),
        ("name = \"r\"", "name = \"a b\"", "a name is one word"),
        ("mtu = 1400", "mtu = 1200", "1280 or more"),
        ("mtu = 1400", "mtu = 70000", "expected a number from 0 to 65535"),
        (
            "rate = \"1 Mbit/s\"",
            "rate = \"0 Mbit/s\"",
            "is zero, not a rate: write a number above 0",
        ),
        ("delay = \"1ms\"", "delay = \"-1ms\"", "is negative, not a length of time"),
        ("delay = \"1ms\"", "name = \"narrow\"", "is the name of an earlier edge"),
        ("rate = \"1 Mbit/s\"", "red = {}", "edge narrow: red needs rate"),
        (
            "rate = \"1 Mbit/s\"",
            "red = { mini = 1 }",
            "unknown field `mini`, expected one of `min`",
        ),
        ("delay = \"1ms\"", "trace = \"/\"", "cannot read the loss trace /: it is no regular file"),
        ("net.ipv4", "kernel.x", "is no setting of a namespace"),
        ("net.ipv4.tcp_sack", "net./../x", "is no setting of a namespace"),
        ("net.ipv4.tcp_sack", CONGESTION_CONTROL, "is also set by tcp: remove one of them"),
        ("delay", "dely", "unknown field `dely`"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let why = parse(&TEXT.replacen(from, to, 1)).expect_err(to);
        assert!(why.contains(says), "{to}: {why}");
    }
    let many: String = (0..=MAX_HOSTS).map(|n| format!("[[host]]\nname = \"h{n}\"\n")).collect();
    assert!(parse(&many).expect_err("too many").contains("there are 257 [[host]]: 1 to 256"));
    assert!(parse("").expect_err("nobody").contains("0 [[host]]"));
}

#[test]
fn a_mistake_is_where_its_key_is() {
    for (from, to, value) in [
        ("rate = \"1 Mbit/s\"", "red = { ecn = true }", "{ ecn"),
        ("delay = \"1ms\"", "burst = { reverse = 0.5 }", "0.5"),
        ("delay = \"1ms\"", "loss = \"90%\"\nburst = 0.1", "\"90%\""),
        ("delay = \"1ms\"", "trace = \"/\"", "\"/\""),
        ("\"narrow\"\nbetween", "\"1\"\nbetween", "\"1\"\nbetween"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let text = TEXT.replacen(from, to, 1);
        let (at, why) = Hosts::new(toml::from_str(&text).expect("TOML")).expect_err(to);
        assert!(text[at..].starts_with(value), "{to}: {why}, at {}", &text[at..]);
    }
}

const CELL: &str = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[router]]\nname = \"r\"\n\
    [[cell]]\nname = \"wifi\"\naccess_point = \"r\"\nstations = [\"a\", \"b\"]\nqueue = 20\n\
    attempts = 3\nbit_error_rate = 1e-5\n";

#[test]
fn cells_are_read() {
    let hosts = parse(CELL).expect("valid");
    let [cell] = &hosts.cells[..] else { panic!("{:?}", hosts.cells) };
    let config = cell.config;
    assert_eq!((config.stations, config.queue, config.attempts), (2, 20, 3));
    assert_eq!((config.bit_error_rate, config.access_point), (1e-5, ACCESS_POINT_2005));
    let all: Vec<_> = hosts.all_edges().collect();
    assert_eq!(all, [0, 1].map(|n| ([EdgeEnd::Router(0), EdgeEnd::Host(n)], 1_500)));
    let names: Vec<_> = cell.edges().map(|(_, name)| name).collect();
    assert_eq!(names, ["wifi a", "wifi b"]);
    let draft = parse(&CELL.replace("queue", "parameters = \"draft\"\nqueue")).expect("valid");
    assert_eq!([draft.cells[0].config.station, draft.cells[0].config.access_point], [DRAFT; 2]);
    // A cell cannot change while it runs.
    let other = parse(&CELL.replace("= 20", "= 21")).expect("valid");
    assert!(matches!(hosts.change(other), Err(ConfigError::OtherLinks { .. })));
}

#[test]
fn a_cell_that_cannot_be_is_named() {
    for (from, to, says) in [
        (
            "\"a\", \"b\"",
            "\"a\", \"bb\"",
            "no [[host]] or [[router]] is \"bb\"; did you mean \"b\"?",
        ),
        ("\"a\", \"b\"", "\"a\", \"b\", \"a\"", "\"a\" is in the cell already"),
        ("\"a\", \"b\"", "\"a\", \"b\", \"r\"", "\"r\" is in the cell already"),
        ("\"a\", \"b\"", "", "one station or more"),
        ("\"a\", \"b\"", "\"a\"", "no [[edge]] or [[cell]] leads to host \"b\""),
        ("queue = 20", "queue = 0", "cell wifi: the queue length is 0 packets"),
        ("attempts = 3", "attempts = 0", "expected a number from 1 to 255"),
        ("attempts = 3", "attempts = 256", "expected a number from 1 to 255"),
        ("1e-5", "\"1%\"", "expected a number without quotes"),
        ("queue = 20", "queue = -1", "expected a whole number of at least 0"),
        ("1e-5", "1.5", "cell wifi: bit error rate is 1.5"),
        ("queue = 20", "parameters = \"2005\"", "unknown variant `2005`"),
        ("queue = 20", "rate = \"1 Mbit/s\"", "unknown field `rate`"),
    ] {
        let text = CELL.replacen(from, to, 1);
        let why = parse(&text).expect_err(to);
        assert!(why.contains(says), "{to}: {why}");
        // The error points to the value that is out of range.
        if says.starts_with("cell wifi") || says.starts_with("expected a") {
            let end = text.find(to).expect("it was put there") + to.len();
            let value = to.rsplit(' ').next().expect("one word or more");
            assert!(why.starts_with(&format!("{}:", end - value.len())), "{to}: {why}");
        }
    }
    let edge = "[[edge]]\nbetween = [\"a\", \"wifi\"]\n";
    let why = parse(&format!("{edge}{CELL}")).expect_err("a cell at an end");
    assert!(why.contains("\"wifi\" is a [[cell]], and an edge joins hosts and routers"), "{why}");
    let second = |name: &str, of_edge: &str| {
        let edge = format!("[[edge]]\nname = \"{of_edge}\"\nbetween = [\"a\", \"r\"]\n");
        let cell = format!("name = \"{name}\"\naccess_point = \"r\"\nstations = [\"b\"]\n");
        parse(&format!("{edge}{CELL}[[cell]]\n{cell}")).expect_err(name)
    };
    assert!(second("wifi", "e").contains("\"wifi\" is the name of an earlier cell"));
    assert!(second("home", "home b").contains("\"home b\" is the name of an earlier edge"));
}

#[test]
fn a_file_may_have_several_networks() {
    let other =
        "[[host]]\nname = \"x\"\n[[host]]\nname = \"y\"\n[[edge]]\nbetween = [\"x\", \"y\"]\n";
    assert_eq!(parse(&format!("{TEXT}{other}")).expect("valid").hosts.len(), 4);
}

#[test]
fn only_what_edges_do_may_change() {
    let running = parse(TEXT).expect("valid");
    let changed = |from: &str, to: &str| {
        running.change(parse(&TEXT.replacen(from, to, 1)).expect("valid")).map(|c| c.directions)
    };
    assert_eq!(changed("1ms", "2ms").expect("may change"), [0, 1]);
    assert_eq!(changed("1 Mbit/s", "2 Mbit/s").expect("may change"), [2, 3]);
    // A comment moves every position but changes nothing.
    assert_eq!(changed("[[host]]", "# hosts\n[[host]]").expect("may change"), [0; 0]);
    for (from, to) in [("1400", "1500"), ("\"reno\"", "\"cubic\""), ("narrow", "wide")] {
        assert!(matches!(changed(from, to), Err(ConfigError::OtherLinks { .. })), "{to}");
    }
}
