//! The cases of tests/cases/sip: messages and media of phones and carriers, each in namespaces of its
//! own.

use crate::common::cases::passes;
use crate::common::on_time::on_time;
use macro_rules_attribute::apply;

#[apply(on_time)]
fn a_phone_is_heard_from_its_new_port() {
    passes("sip/01-nat-port-change");
}

#[apply(on_time)]
fn a_gateway_between_two_networks_is_named_in_each() {
    passes("sip/02-two-interfaces");
}

#[apply(on_time)]
fn a_stream_that_is_not_wanted_costs_no_call() {
    passes("sip/03-rejected-stream-without-format");
    passes("sip/10-rtcp-at-no-address");
}

#[apply(on_time)]
fn digits_hiccups_and_slow_clocks_cost_a_call_nothing_lasting() {
    passes("sip/04-dtmf-counts-as-late");
    passes("sip/05-hiccup-and-drift-are-late-for-ever");
}

#[apply(on_time)]
fn packets_of_keys_and_certificates_pass() {
    passes("sip/06-packets-over-1188-bytes");
}

#[apply(on_time)]
fn silence_by_agreement_is_not_idle_and_both_ends_hear_of_an_end() {
    passes("sip/07-held-call-is-dropped-after-ten-minutes");
}

#[apply(on_time)]
fn a_challenge_and_its_answer_are_one_call() {
    passes("sip/08-a-challenge-counts-as-a-call");
}

#[apply(on_time)]
fn a_host_without_tcp_is_remembered() {
    passes("sip/09-five-seconds-for-each-long-invite");
}

#[apply(on_time)]
fn media_are_followed_by_the_rules_of_their_network() {
    passes("sip/13-source-moves-or-is-another");
}

#[apply(on_time)]
fn a_callee_may_be_behind_a_nat() {
    passes("sip/15-private-address-of-callee");
}

#[apply(on_time)]
fn the_end_of_a_certificate_is_foreseen() {
    passes("sip/17-expired-certificate-is-taken");
}

#[apply(on_time)]
fn connections_of_vanished_phones_end() {
    passes("sip/18-vanished-phones");
}

#[apply(on_time)]
fn a_call_that_a_trunk_does_not_take_is_refused() {
    passes("admission/01-call-over-the-share-is-silent");
}
