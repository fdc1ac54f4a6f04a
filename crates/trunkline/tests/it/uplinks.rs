//! Several uplinks, one of which fails: the cases of tests/cases/net, each in namespaces of its own.

use crate::common::emulator::skip;
use crate::common::on_time::on_time;
use macro_rules_attribute::apply;
use std::path::Path;
use std::process::Command;

/// Runs a case; it must pass. Skips where the machine can't run it, except in CI for a missing
/// tool.
fn passes(case: &str) {
    let program = env!("CARGO_BIN_EXE_trunkline");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/run");
    let ran = Command::new(cases)
        .args(["--trunkline", program, "--lab", program, case])
        .output()
        .expect("the cases run");
    let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    match ran.status.code() {
        Some(0) => println!("{said}"),
        Some(78) => skip(&said),
        Some(77) if std::env::var_os("CI").is_none() => skip(&said),
        code => panic!("{case} ended with {code:?}:\n{said}"),
    }
}

#[apply(on_time)]
fn an_uplink_that_hangs_costs_no_other() {
    passes("net/01-hung-uplink");
}

#[apply(on_time)]
fn a_slow_uplink_costs_no_other() {
    passes("net/02-slow-uplink");
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
