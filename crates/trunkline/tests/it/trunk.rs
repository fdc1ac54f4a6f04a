//! Packets of several applications that a node sends together.

use crate::common::on_time::on_time;
use crate::common::{self, Chain, Node, Setup, ms, numbered, recv_number, trunkline, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use std::thread;
use trunkline_client::{DatagramSocket, SocketOption};

const CALLS: u16 = 10;
const PACKETS: u32 = 100;

/// Sends on all sockets at once every 20 ms, and checks that each receives each number once.
fn talk(pairs: &[(DatagramSocket, DatagramSocket)], from: u32) {
    thread::scope(|scope| {
        let heard: Vec<_> = pairs
            .iter()
            .map(|(_, to)| scope.spawn(|| (0..PACKETS).map(|_| recv_number(to).0).collect()))
            .collect();
        for n in from..from + PACKETS {
            for (socket, to) in pairs {
                socket.send_to(&numbered(n), to.local_addr()).expect("sent");
            }
            thread::sleep(ms(20));
        }
        for call in heard {
            let numbers: Vec<u32> = call.join().expect("it hears all");
            assert_eq!(numbers, (from..from + PACKETS).collect::<Vec<_>>());
        }
    });
}

fn envelopes(node: &Node) -> u64 {
    node.metrics().sum("link_sent_envelopes_total", "class=\"realtime\"")
}

fn shows(node: &Node, series: &str) -> bool {
    let (_, body) = common::get(node.http, "/metrics").expect("metrics");
    body.lines().any(|line| line.starts_with(series))
}

#[apply(on_time)]
fn a_trunk_begins_and_ends_by_reload_while_calls_go_on() {
    let mut chain = Chain::of(3);
    let far = &chain.nodes[2];
    let pairs: Vec<_> = (0..CALLS)
        .map(|n| (chain.nodes[0].bind(0), far.bind(5_000 + n)))
        .inspect(|(socket, _)| {
            socket.set_option(SocketOption::Deadline(ms(200))).expect("in range");
        })
        .collect();
    let plain = std::fs::read_to_string(&chain.nodes[0].config).expect("written before");
    talk(&pairs, 0);
    let all = u64::from(CALLS) * u64::from(PACKETS);
    assert_eq!(envelopes(&chain.nodes[0]), all);

    let reload = |node: &mut Node, text: &str| {
        std::fs::write(&node.config, text).expect("written");
        node.process().signal(Signal::SIGHUP);
    };
    reload(chain.first(), &format!("{plain}[[trunk]]\nto = 3\n"));
    wait_for("the trunk to open", || {
        shows(&chain.nodes[0], "trunkline_trunk_open{to=\"3\"} 1").then_some(())
    });
    let before = envelopes(&chain.nodes[0]);
    talk(&pairs, PACKETS);
    let (here, there) = (chain.nodes[0].metrics(), chain.nodes[2].metrics());
    let together = here.sum("trunk_sent_packets_total", "");
    assert_eq!(together + here.sum("trunk_sent_alone_total", ""), all);
    assert!(together > all * 9 / 10, "{together} of {all}");
    let sent = envelopes(&chain.nodes[0]) - before;
    assert!(sent < all / 3, "{sent} envelopes for {all} packets");
    assert_eq!(there.sum("trunk_received_packets_total", "from=\"1\""), together);
    assert_eq!(there.sum("trunk_received_unknown_total", ""), 0);
    assert_eq!(there.sum("to_sessions_total", ""), 2 * all);

    reload(chain.first(), &plain);
    wait_for("the trunk to end", || {
        (!shows(&chain.nodes[0], "trunkline_trunk_open")).then_some(())
    });
    talk(&pairs, 2 * PACKETS);
}

#[test]
fn a_trunk_that_cant_be_is_a_mistake_with_its_line() {
    let chain = Chain::prepare(&Setup::default());
    let node = &chain.nodes[0];
    let plain = std::fs::read_to_string(&node.config).expect("written before");
    for (section, why) in [
        ("to = 1", "node 1 has a trunk to itself: give the other end's id"),
        ("to = 0", "which is not a node id"),
        ("to = 2\nwait = \"11ms\"", "the trunk to node 2: wait must be 0 to 10 ms"),
        ("to = 2\nmultiplex = \"full\"", "did you mean `fill`?"),
        ("to = 2\n[[trunk]]\nto = 2", "two trunks lead to node 2: keep one"),
    ] {
        std::fs::write(&node.config, format!("{plain}[[trunk]]\n{section}\n")).expect("written");
        let ended = common::run(trunkline(["check"]).arg(&node.config));
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(ended.code == Some(2) && said.contains(why), "{section}: {said}");
        assert!(said.contains(".toml:"), "{said}");
    }
}
