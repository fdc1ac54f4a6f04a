use super::*;
use proptest::prelude::*;
use std::time::Duration;
use trunkline_base::link_model::{Chain, Loss, Queue, Red, Unit};

const ENDS: &str = "a = { listen = \"127.0.0.1:5001\", peer = \"127.0.0.1:7003\" }\n\
                    b = { listen = \"[::1]:5002\" }\n";

fn parse(text: &str) -> Result<Config, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    Config::new(file.seed, file.buffer, file.link).map_err(|(_, e)| e.to_string())
}

fn link(keys: &str) -> Result<Config, String> {
    parse(&format!("[[link]]\nname = \"C-D\"\n{ENDS}{keys}"))
}

#[test]
fn keys_hold_for_both_directions_or_for_one() {
    let config = link(
        "delay = \"10ms\"\nloss = { forward = \"5%\" }\nburst = { forward = 0.25 }\n\
         rate = { reverse = \"1 Mbit/s\" }\nqueue = \"64 kB\"\nstream = 7",
    )
    .unwrap();
    let [forward, reverse] = &config.links[0].directions;
    let ms = Duration::from_millis;
    assert_eq!((forward.model.delay, reverse.model.delay), (ms(10), ms(10)));
    let burst = Loss::Burst { p: 0.05, b: 0.25, chain: Chain::PerPacket };
    assert_eq!((&forward.model.loss, &reverse.model.loss), (&burst, &Loss::None));
    assert_eq!(forward.model.rate, None);
    assert_eq!(reverse.model.rate.map(|r| r.as_bps()), Some(1_000_000));
    assert_eq!(forward.model.queue, Queue::Bytes(64_000));
    assert_eq!((forward.stream, reverse.stream), (14, 15));
    assert_eq!(config.links[0].ends[1].peer, None);

    let config = link("loss = 0.1\nburst = 0.5\nchain = \"continuous\"\nqueue = \"1 packet\"");
    let [forward, _] = &config.unwrap().links[0].directions;
    let chain = Chain::Continuous { spacing: ms(20) };
    assert_eq!(forward.model.loss, Loss::Burst { p: 0.1, b: 0.5, chain });
    assert_eq!(forward.model.queue, Queue::Packets(1));
}

#[test]
fn every_mistake_is_named() {
    for (keys, says) in [
        ("los = 0.1", "unknown field `los`"),
        ("loss = 1.1", "expected a share from 0 to 1"),
        ("loss = { forwards = 0.1 }", "unknown field `forwards`"),
        ("delay = { forward = 10 }", "expected a length of time"),
        ("delay = \"10\"", "\"10\" is not a length of time"),
        ("queue = \"100\"", "\"100\" is not a queue limit"),
        ("burst = 0.5", "link C-D: forward: burst needs loss"),
        ("loss = 0.1\nchain = \"continuous\"", "link C-D: forward: chain needs burst"),
        ("loss = 0.1\nspacing = \"20ms\"", "link C-D: forward: spacing needs burst"),
        (
            "loss = { reverse = 0.9 }\nburst = 0.1",
            "link C-D: forward: burst needs loss; add loss, or remove burst",
        ),
        ("loss = 0.9\nburst = 0.1", "link C-D: forward: loss 0.9 is more than burst 0.1 allows"),
        ("chain = \"both\"", "unknown variant `both`"),
        (
            "trace = \"/nowhere/trace\"",
            "forward: cannot read the loss trace /nowhere/trace: No such",
        ),
        ("trace = \"x\"\nloss = 0.1", "forward: trace and loss both define the losses"),
        ("red = {}", "link C-D: red needs rate"),
        ("rate = \"1 Mbit/s\"\nred = { mini = 1 }", "unknown field `mini`"),
        (
            "rate = { reverse = \"1 Mbit/s\" }\nred = { forward = {} }",
            "link C-D: forward: red needs rate in the same direction; add rate for forward, or",
        ),
        (
            "rate = { forward = \"1 Mbit/s\" }\nred = { forward = {}, reverse = { ecn = true } }",
            "link C-D: reverse: red needs rate in the same direction; add rate for reverse, or",
        ),
        (
            "rate = \"1 Mbit/s\"\nred = { forward = { mini = 1 } }",
            "unknown field `mini`, expected one of `min`",
        ),
        ("rate = \"1 Mbit/s\"\nred = { forward = {}, ecn = true }", "of both directions, or {"),
        ("rate = \"1 Mbit/s\"\nred = { reverse = { forward = {} } }", "of both directions, or {"),
        ("rate = \"1 Mbit/s\"\nqueue = \"9 kB\"\nred = {}", "forward: queue, red.min and red.max"),
        (
            "rate = \"1 Mbit/s\"\nred = { min = \"20 packets\" }",
            "forward: red: min is 20 and max is 15",
        ),
        ("rate = \"1 Mbit/s\"\nred = { packet = \"0 B\" }", "red: packet is 0 bytes"),
        (&format!("[[link]]\nname = \"C-D\"\n{ENDS}"), "link C-D: the name is taken"),
    ] {
        let error = link(keys).unwrap_err();
        assert!(error.contains(says), "{keys}: {error}");
    }
    let name = "[[link]]\na = { listen = \"localhost:5\" }";
    assert!(parse(name).unwrap_err().contains("\"localhost:5\" is not an address: write"));
    assert!(parse("seed = 1").unwrap_err().starts_with("no link"));
    let nobody = "[[link]]\na = { listen = \"[::1]:1\" }\nb = { listen = \"[::1]:2\" }";
    assert!(parse(nobody).unwrap_err().starts_with("link 1: neither a nor b has a peer"));
}

#[test]
fn red_takes_its_limit_from_the_queue() {
    let config = link(
        "rate = { forward = \"1 Mbit/s\" }\nred = { max = \"12 packets\", max_p = \"10%\", ecn = true }",
    );
    let forward = &config.unwrap().links[0].directions[0];
    let red = Red { max: 12.0, max_p: 0.1, ecn: true, ..Red::default() };
    assert_eq!(forward.model.queue, Queue::Red(red));

    let config = link(
        "rate = \"1 Mbit/s\"\nqueue = \"64 kB\"\nred = { min = \"5 kB\", max = \"15 kB\", \
         weight = 0.01, packet = \"172 B\", gentle = true }",
    );
    let red = Red {
        unit: Unit::Bytes,
        limit: 64_000,
        min: 5_000.0,
        max: 15_000.0,
        weight: 0.01,
        packet: 172,
        gentle: true,
        ..Red::default()
    };
    assert_eq!(config.unwrap().links[0].directions[1].model.queue, Queue::Red(red));

    let config = link("rate = \"1 Mbit/s\"\nqueue = \"30 packets\"\nred = { reverse = {} }");
    let queues = config.unwrap().links[0].directions.clone().map(|d| d.model.queue);
    let red = Red { limit: 30, ..Red::default() };
    assert_eq!(queues, [Queue::Packets(30), Queue::Red(red)]);
}

#[test]
fn a_trace_is_found_beside_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("links.toml");
    let text = format!("[[link]]\n{ENDS}trace = {{ reverse = \"outage.txt\" }}");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("outage.txt"), "# a comment\n0011\n").unwrap();
    let [forward, reverse] = &Config::read(&path).unwrap().links[0].directions;
    assert_eq!(forward.model.loss, Loss::None);
    assert_eq!(reverse.model.loss, Loss::Trace([false, false, true, true].into()));

    std::fs::write(folder.path().join("outage.txt"), "00\n02").unwrap();
    let error = Config::read(&path).unwrap_err().to_string();
    let place = format!("{}:4:21: link 1: reverse: cannot read the loss trace", path.display());
    assert!(error.starts_with(&place), "{error}");
    assert!(error.contains("outage.txt: line 2, column 2: '2' is neither 0"), "{error}");
}

#[test]
fn a_mistake_is_where_its_key_is() {
    let rate = "rate = { forward = \"1 Mbit/s\" }\n";
    for (keys, value) in [
        ("loss = 0.9\nburst = 0.1", "0.9"),
        ("delay = \"1ms\"\nburst = 0.5", "0.5"),
        ("loss = 0.1\nchain = \"continuous\"", "\"continuous\""),
        ("loss = 0.5\nburst = { reverse = 0.2 }\nchain = \"continuous\"", "\"continuous\""),
        ("loss = 0.5\nburst = 0.2\nchain = \"continuous\"", "0.2"),
        ("loss = 0.1\nburst = 0.5\nchain = \"continuous\"\nspacing = \"1ns\"", "\"1ns\""),
        ("loss = 0.1\ntrace = { reverse = \"x\" }", "\"x\""),
        ("red = { ecn = true }", "{ ecn = true }"),
        (
            &format!("{rate}red = {{ forward = {{}}, reverse = {{ ecn = true }} }}"),
            "{ ecn = true }",
        ),
        (&format!("{rate}red.forward.ecn = false\nred.reverse.ecn = true"), "reverse.ecn"),
        (
            &format!("{rate}[link.red.forward]\n[link.red.reverse]\necn = true"),
            "[link.red.reverse]",
        ),
        (&format!("{rate}red = {{ min = \"20 packets\" }}"), "{ min"),
        (&format!("{rate}queue = \"9 kB\"\nred = {{ ecn = true }}"), "{ ecn"),
        (&format!("[[link]]\n{ENDS}name = \"C-D\""), "\"C-D\""),
        ("[[link]]\na = { listen = \"[::1]:1\" }\nb = { listen = \"[::1]:2\" }", "[[link]]\na"),
    ] {
        let text = format!("[[link]]\nname = \"C-D\" # not here\n{ENDS}{keys}");
        let file: File = toml::from_str(&text).unwrap();
        let (at, why) = Config::new(file.seed, file.buffer, file.link).unwrap_err();
        assert!(text[at..].starts_with(value), "{keys}: {why}, at {}", &text[at..]);
    }
}

/// A value for any key, sensible or not.
fn any_value() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        (0.0f64..1e12, "(%| ?(ns|ms|s|h|B|kB|GB|packets?|bit/s|Gbit/s))?")
            .prop_map(|(n, unit)| format!("\"{n}{unit}\"")),
        "\"[a-z0-9.%: -]{0,12}\"",
        any::<f64>().prop_map(|x| x.to_string()),
        any::<i64>().prop_map(|x| x.to_string()),
        Just("true".to_owned()),
    ];
    text.prop_recursive(2, 8, 3, |inner| {
        let key = prop::sample::select(vec![
            "forward", "reverse", "min", "max", "max_p", "weight", "packet", "gentle", "ecn",
            "listen",
        ]);
        prop::collection::btree_map(key, inner, 0..4).prop_map(|pairs| {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{k} = {v}")).collect();
            format!("{{ {} }}", pairs.join(", "))
        })
    })
}

proptest! {
    #[test]
    fn any_configuration_is_run_or_refused(
        keys in prop::collection::btree_map(
            prop::sample::select(vec![
                "delay", "jitter", "rate", "queue", "loss", "burst", "chain", "spacing", "trace", "red", "stream",
            ]),
            any_value(),
            0..6,
        ),
    ) {
        let text: String = keys.iter().map(|(k, v)| format!("{k} = {v}\n")).collect();
        match link(&text) {
            Ok(config) => {
                for direction in &config.links[0].directions {
                    prop_assert_eq!(direction.model.validate(), Ok(()));
                }
            }
            Err(why) => prop_assert!(!why.is_empty()),
        }
    }

    #[test]
    fn no_file_is_too_strange(text in ".{0,200}") {
        let _ = parse(&text);
    }
}
