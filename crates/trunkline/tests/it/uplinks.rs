//! Several uplinks, one of which fails: the cases of tests/cases/net, each in namespaces of its own.

use crate::common::cases::passes;
use crate::common::on_time::on_time;
use crate::common::{Process, free_port, ms, trunkline, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use std::path::Path;

#[apply(on_time)]
fn an_uplink_that_hangs_costs_no_other() {
    passes("net/01-hung-uplink");
}

#[apply(on_time)]
fn a_slow_uplink_costs_no_other() {
    passes("net/02-slow-uplink");
}

#[apply(on_time)]
fn a_queue_per_next_hop_costs_that_one_alone() {
    passes("net/22-queue-per-next-hop");
}

#[apply(on_time)]
fn a_node_answers_from_the_address_that_was_spoken_to() {
    passes("net/03-source-address");
}

#[apply(on_time)]
fn a_node_waits_for_its_addresses() {
    passes("net/10-boot-address-late");
}

#[apply(on_time)]
fn a_node_answers_from_there_after_its_route_has_moved() {
    passes("net/14-moved-route");
}

#[apply(on_time)]
fn a_transfer_yields_to_calls_behind_a_slow_router() {
    passes("net/16-slow-router");
}

#[apply(on_time)]
fn a_neighbour_is_found_by_its_name() {
    passes("net/15-names");
}

#[apply(on_time)]
fn each_of_two_providers_carries_its_link() {
    passes("net/13-two-providers");
}

#[apply(on_time)]
fn a_fault_of_an_uplink_is_told_of_its_link_each_time() {
    passes("net/18-why-nothing-leaves");
}

#[apply(on_time)]
fn a_fault_of_an_uplink_is_told_in_time() {
    passes("net/19-told-in-time");
}

#[apply(on_time)]
fn a_link_takes_no_other_path_than_its_source_says() {
    passes("net/20-bound-links");
}

/// Starts an unsealed node that listens at `listen`, with a file in `folder`.
fn start_at(folder: &Path, listen: &str) -> Process {
    let file = folder.join(format!("{}.toml", listen.replace(['[', ']', ':', '.'], "_")));
    let text = format!("[node]\nid = 1\nunsealed_for_measurements = true\nlisten = [{listen:?}]\n");
    std::fs::write(&file, text).expect("written");
    let mut node = trunkline(["node", "--until-stdin-closes", "--config"]);
    Process::start(node.arg(file))
}

/// The sockets of one node share its port; other nodes can't.
#[test]
fn a_second_node_on_the_port_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let v4 = ["127.0.0.1", "0.0.0.0"];
    let v6 = ["[::1]", "[::]"];
    for hosts in [v4, v6] {
        let ip = hosts[0].trim_matches(['[', ']']).parse().expect("an address");
        let port = free_port(ip).port();
        for first in hosts {
            let mut one = start_at(folder.path(), &format!("{first}:{port}"));
            one.wait_for_word("ready");
            for second in hosts {
                let mut two = start_at(folder.path(), &format!("{second}:{port}"));
                assert_eq!(two.wait().code(), Some(1), "{second} beside {first}");
                let says = || two.stderr().contains("Address already in use").then_some(());
                wait_for("the reason", says);
            }
            assert!(one.is_running());
            one.crash();
        }
    }
}

#[test]
fn signals_that_mean_nothing_end_no_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port([127, 0, 0, 1].into()).port();
    let mut node = start_at(folder.path(), &format!("127.0.0.1:{port}"));
    node.wait_for_word("ready");
    for signal in
        [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGIO, Signal::SIGPROF]
    {
        node.signal(signal);
    }
    std::thread::sleep(ms(200));
    assert!(node.is_running());
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success(), "it still stops in order");
}
