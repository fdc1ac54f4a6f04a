//! What files say, and what they can't.

use super::*;
use std::path::Path;
use trunkline_base::link_model::Loss;
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
        ("length = \"1 min\"", "length = \"3 h\"", "a length of time"),
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
