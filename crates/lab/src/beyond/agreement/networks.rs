//! The networks in which simulator and testbed are compared, as scenarios.

use crate::experiment::{Sabotage, fnv1a};
use crate::scenario::{self, Scenario};
use rand::Rng as _;
use std::fmt::Write as _;
use std::path::Path;
use trunkline_base::{Rng, rng};

/// Kind of impairment in a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Packets are lost or delayed all the time.
    Lossy,
    /// A link or a host fails, once in each copy of the network.
    Failing,
}

/// An isolated network: hosts, links, and calls between the hosts.
pub struct Network {
    /// Name of the network, with which the names of its calls and hosts begin.
    pub name: &'static str,
    pub kind: Kind,
    text: fn(&mut String, u64, &mut Rng),
}

/// All networks, in the order of the figure.
pub const ALL: [Network; 6] = [
    // Two links that each lose 2.5 % in each direction; packets are recovered until their deadline.
    Network { name: "chain", kind: Kind::Lossy, text: chain },
    // A link with bursts of loss.
    Network { name: "burst", kind: Kind::Lossy, text: burst },
    // As in Amir et al. 2005: each lost packet is requested only once.
    Network { name: "once", kind: Kind::Lossy, text: once },
    // Five calls with jitter before a link of 600 kbit/s.
    Network { name: "queue", kind: Kind::Lossy, text: queue },
    // The direct link is cut, and a detour exists.
    Network { name: "cut", kind: Kind::Failing, text: cut },
    // The relay on the path crashes, and another one is available.
    Network { name: "crash", kind: Kind::Failing, text: crash },
];

/// Number of calls over links that lose packets: enough to measure the share of missed packets to
/// within 0.03 percentage points in eight minutes.
const MANY: u32 = 12;

/// Number of copies of each network in which something fails, each at its own time.
const COPIES: u64 = 5;

/// A scenario with these networks in parallel, with calls that last `seconds`.
pub fn scenario(
    networks: &[&Network],
    (seconds, seed): (u64, u64),
    sabotage: Sabotage,
) -> Scenario {
    let mut text = format!("length = \"{seconds} s\"\nsealed = true\n[routing]\n");
    if sabotage.is("paper-hellos") {
        text += "[hello]\ninterval = \"1s\"\ndead_after = \"10s\"\nprobes = false\n";
    }
    for network in networks {
        // Seeded by name, so that it does not depend on the other networks.
        let mut luck = rng(seed, fnv1a(network.name.bytes()));
        (network.text)(&mut text, seconds, &mut luck);
    }
    if sabotage.is("no-recovery") {
        text = text.replace("[[call]]", "[[call]]\nservice = \"best-effort\"");
    }
    scenario::parse(Path::new("agreement.toml"), &text).expect("a network of ours is a scenario")
}

fn host(text: &mut String, name: &str) {
    let _ = write!(text, "[[host]]\nname = \"{name}\"\n");
}

fn link(text: &mut String, (a, b): (&str, &str), rest: &str) {
    let _ = write!(text, "[[link]]\nbetween = [\"{a}\", \"{b}\"]\n{rest}\n");
}

fn call(text: &mut String, name: &str, (a, b): (&str, &str), count: u32) {
    let _ = write!(
        text,
        "[[call]]\nname = \"{name}\"\nfrom = \"{a}\"\nto = \"{b}\"\ncount = {count}\n"
    );
}

/// Two hosts with a link between them, and calls over it.
fn pair(text: &mut String, name: &str, rest: &str, calls: u32) {
    let (a, b) = (&*format!("{name}-a"), &*format!("{name}-b"));
    host(text, a);
    host(text, b);
    link(text, (a, b), rest);
    call(text, name, (a, b), calls);
}

fn chain(text: &mut String, _seconds: u64, _luck: &mut Rng) {
    for name in ["chain-a", "chain-b", "chain-c"] {
        host(text, name);
    }
    for ends in [("chain-a", "chain-b"), ("chain-b", "chain-c")] {
        link(text, ends, "delay = \"20ms\"\nloss = \"2.5%\"");
    }
    call(text, "chain", ("chain-a", "chain-c"), MANY);
}

fn burst(text: &mut String, _seconds: u64, _luck: &mut Rng) {
    pair(text, "burst", "delay = \"15ms\"\nloss = \"5%\"\nburst = \"50%\"", MANY);
}

fn once(text: &mut String, _seconds: u64, _luck: &mut Rng) {
    pair(text, "once", "delay = \"10ms\"\nloss = \"5%\"\nrecovery = \"once\"", MANY);
}

fn queue(text: &mut String, _seconds: u64, _luck: &mut Rng) {
    pair(text, "queue", "delay = \"20ms\"\njitter = \"5ms\"\nrate = \"600 kbit/s\"", 5);
}

/// Time at which a copy fails, in milliseconds after the calls of `seconds` begin: once link state
/// has settled, at a random moment between two hellos.
fn at(seconds: u64, luck: &mut Rng) -> u64 {
    400 * seconds + luck.next_u64() % 2_000
}

fn cut(text: &mut String, seconds: u64, luck: &mut Rng) {
    for n in 1..=COPIES {
        let [a, b, c] = ["a", "b", "c"].map(|end| format!("cut-{n}-{end}"));
        for name in [&a, &b, &c] {
            host(text, name);
        }
        link(text, (&a, &b), &format!("name = \"cut-{n}\"\ndelay = \"20ms\""));
        link(text, (&a, &c), "delay = \"12ms\"");
        link(text, (&c, &b), "delay = \"12ms\"");
        call(text, &format!("cut.{n}"), (&a, &b), 1);
        let at = at(seconds, luck);
        let _ = write!(text, "[[fault]]\nat = \"{at}ms\"\nwhat = \"cut\"\nlink = \"cut-{n}\"\n");
    }
}

fn crash(text: &mut String, seconds: u64, luck: &mut Rng) {
    for n in 1..=COPIES {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|end| format!("crash-{n}-{end}"));
        for name in [&a, &b, &c, &d] {
            host(text, name);
        }
        for (ends, delay) in [((&a, &b), 10), ((&b, &d), 10), ((&a, &c), 12), ((&c, &d), 12)] {
            link(text, (ends.0, ends.1), &format!("delay = \"{delay}ms\""));
        }
        call(text, &format!("crash.{n}"), (&a, &d), 1);
        let at = at(seconds, luck);
        let _ = write!(text, "[[fault]]\nat = \"{at}ms\"\nwhat = \"crash\"\nhost = \"{b}\"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_is_a_scenario() {
        for network in &ALL {
            let scenario = scenario(&[network], (45, 1), Sabotage::NONE);
            assert_eq!(scenario.faults.is_empty(), network.kind == Kind::Lossy);
        }
        let all: Vec<&Network> = ALL.iter().collect();
        scenario(&all, (45, 1), Sabotage::NONE);
    }
}
