//! A call between phones of one gateway, which a registrar sends to several of them: one of those that
//! answer is its callee, and the others end nothing.

use crate::common::*;
use std::collections::BTreeSet;
use trunkline_gateway::{CallOutcome, CallSelection};
use trunkline_sip::{Message, Name};

const G: &str = "10.1.0.1:5060";
const REGISTRAR: &str = "10.3.0.1:5060";
const P: Agent = Agent { at: "10.1.0.9:5060", tag: "p", gateway: G };
const Q1: Agent = Agent { at: "10.1.0.20:5060", tag: "q1", gateway: G };
const R: Agent = Agent { at: REGISTRAR, tag: "r", gateway: G };
const Q2: Agent = Agent { at: "10.1.0.21:5060", tag: "q2", gateway: G };

fn uri(of: &Agent) -> String {
    format!("sip:{}@{}", of.tag, of.at)
}

struct Forked {
    world: World,
    /// The INVITE at the registrar.
    invite: Message,
    /// The INVITE at each phone.
    invites: [Message; 2],
}

impl Forked {
    /// P's call rings at both phones.
    fn begun() -> Forked {
        let mut world = World::new(vec![config(1, G)]);
        let to = "sip:b@10.3.0.1";
        world.send(P.at, G, &P.request(("INVITE", 1, to), "", &[], &sdp("10.1.0.9:4000")));
        let invite = world.read(REGISTRAR, "INVITE");
        let invites = [Q1, Q2].map(|phone| {
            let via = format!("Via: SIP/2.0/UDP {REGISTRAR};branch=z9hG4bK{}\r\nVia:", phone.tag);
            let branch = text(&invite).replace(to, &uri(&phone)).replacen("Via:", &via, 1);
            world.send(REGISTRAR, G, &branch);
            world.read(phone.at, "INVITE")
        });
        Forked { world, invite, invites }
    }

    /// Q1 and P talk, and Q2's answer has crossed the registrar's CANCEL.
    fn answered_twice() -> Forked {
        let mut call = Forked::begun();
        call.answer(0);
        call.ack(&Q1);
        call.answer(1);
        call
    }

    /// A phone answers, and P hears of it.
    fn answer(&mut self, n: usize) {
        let answer = self.accept(n);
        self.world.send(REGISTRAR, G, &answer);
        self.world.read(P.at, "200");
    }

    /// A phone answers; what the registrar would pass on.
    fn accept(&mut self, n: usize) -> String {
        let phone = [Q1, Q2][n].at;
        let place = format!("{}:5000", at(phone).ip());
        let answer = [Q1, Q2][n].response(&self.invites[n], "200 OK", &sdp(&place));
        self.world.send(phone, G, &answer);
        let answer = text(&self.world.read(REGISTRAR, "200"));
        let start = answer.find("Via:").unwrap();
        let end = start + answer[start..].find("\r\n").unwrap() + 2;
        assert!(answer[start..end].contains(REGISTRAR));
        format!("{}{}", &answer[..start], &answer[end..])
    }

    /// A request of P within its dialog with a phone, without the registrar, which stays out of it.
    fn of_p(&self, method: &str, number: u32, phone: &Agent) -> String {
        let n = usize::from(phone.tag == Q2.tag);
        let mut back = routes(&self.invites[n]);
        back.reverse();
        P.request((method, number, &uri(phone)), phone.tag, &back, "")
    }

    fn ack(&mut self, phone: &Agent) {
        let ack = self.of_p("ACK", 1, phone);
        self.world.send(P.at, G, &ack);
        self.world.read(phone.at, "ACK");
    }

    fn hang_up(&mut self) {
        let now = self.world.now;
        let Site { gateway, board, .. } = &mut self.world.sites[0];
        assert_eq!(gateway.hang_up(now, &CallSelection::All, board), 1);
        self.world.run();
    }

    /// Checks that the call of P and Q1 is up, and that its ports are.
    fn is_up(&self) {
        assert_eq!(self.world.outcomes(0), []);
        let site = &self.world.sites[0];
        let ports = site.gateway.calls().next().expect("a call").ports[0];
        assert!(ports.iter().all(|port| site.board.joined.contains_key(port)), "{ports:?}");
    }

    /// Checks that this phone gets a BYE in the dialog of P and `phone`, and answers it.
    fn is_ended(&mut self, end: &Agent, phone: &Agent) {
        let bye = self.world.read(end.at, "BYE");
        let tags = [Name::From, Name::To].map(|name| {
            let value = String::from_utf8_lossy(bye.first(name).unwrap()).into_owned();
            value.split("tag=").nth(1).unwrap().to_owned()
        });
        let is_caller = end.tag == P.tag;
        let want = if is_caller { [phone.tag, P.tag] } else { [P.tag, phone.tag] };
        assert_eq!(tags, want);
        self.world.send(end.at, G, &end.response(&bye, "200 OK", ""));
    }
}

#[test]
fn a_second_answer_that_its_caller_ends_leaves_the_call_up() {
    let mut call = Forked::answered_twice();
    call.ack(&Q2);
    let bye = call.of_p("BYE", 2, &Q2);
    call.world.send(P.at, G, &bye);
    let bye = call.world.read(Q2.at, "BYE");
    call.world.send(Q2.at, G, &Q2.response(&bye, "200 OK", ""));
    call.world.read(P.at, "200");
    call.is_up();
    assert_eq!(call.world.sites[0].gateway.free_ports(), 50 - 4, "those of Q2 are free again");
    let bye = call.of_p("BYE", 3, &Q1);
    call.world.send(P.at, G, &bye);
    let bye = call.world.read(Q1.at, "BYE");
    call.world.send(Q1.at, G, &Q1.response(&bye, "200 OK", ""));
    assert_eq!(call.world.outcomes(0), [CallOutcome::CallerHungUp]);
    assert_eq!(call.world.sites[0].gateway.free_ports(), 50);
}

#[test]
fn a_second_answer_that_its_phone_ends_leaves_the_call_up() {
    for answer in ["200 OK", "481 Call/Transaction Does Not Exist"] {
        let mut call = Forked::answered_twice();
        let there = routes(&call.invites[1]);
        let bye = Q2.request(("BYE", 1, &uri(&P)), P.tag, &there, "");
        call.world.send(Q2.at, G, &bye.replace("To: <sip:b@h>", "To: <sip:p@h>"));
        let bye = call.world.read(P.at, "BYE");
        call.world.send(P.at, G, &P.response(&bye, answer, ""));
        call.is_up();
        call.hang_up();
        call.is_ended(&P, &Q1);
        call.is_ended(&Q1, &Q1);
        assert!(!call.world.mail_of(Q2.at).contains(&"BYE".to_owned()));
    }
}

#[test]
fn an_answer_here_after_one_elsewhere_ends_nothing() {
    let elsewhere = Agent { at: "10.4.0.9:5060", tag: "q3", gateway: G };
    let mut call = Forked::begun();
    let answer = elsewhere.response(&call.invite, "200 OK", &sdp("10.4.0.9:5000"));
    call.world.send(REGISTRAR, G, &answer);
    call.world.read(P.at, "200");
    let back = routes(&call.invite);
    call.world.send(P.at, G, &P.request(("ACK", 1, &uri(&elsewhere)), "q3", &back, ""));
    call.answer(1);
    call.ack(&Q2);
    let bye = call.of_p("BYE", 2, &Q2);
    call.world.send(P.at, G, &bye);
    let bye = call.world.read(Q2.at, "BYE");
    call.world.send(Q2.at, G, &Q2.response(&bye, "200 OK", ""));
    call.is_up();
    call.hang_up();
    call.is_ended(&P, &elsewhere);
    call.is_ended(&elsewhere, &elsewhere);
}

#[test]
fn a_stop_tells_a_second_phone_too() {
    let mut call = Forked::answered_twice();
    let now = call.world.now;
    let Site { gateway, board, .. } = &mut call.world.sites[0];
    gateway.stop(now, board);
    call.world.run();
    for (end, phone) in [(&P, &Q1), (&Q1, &Q1), (&Q2, &Q2)] {
        call.is_ended(end, phone);
    }
    assert_eq!(call.world.outcomes(0), [CallOutcome::Stopped]);
    assert_eq!(call.world.sites[0].gateway.free_ports(), 50);
}

#[test]
fn a_second_answer_without_an_ack_is_ended_alone() {
    let mut call = Forked::answered_twice();
    call.world.mail.clear();
    call.world.wait(66_000);
    call.is_up();
    assert_eq!(call.world.mail_of(P.at), [""; 0]);
    assert_eq!(call.world.mail_of(Q1.at), [""; 0]);
    call.is_ended(&Q2, &Q2);
    assert_eq!(call.world.sites[0].gateway.free_ports(), 50 - 4);
    assert_eq!(call.world.sites[0].gateway.stats().idle, 0);
}

#[test]
fn a_call_that_passes_here_twice_idles_out_once() {
    for is_acknowledged in [true, false] {
        let mut call = Forked::begun();
        call.answer(0);
        if is_acknowledged {
            call.ack(&Q1);
        }
        call.world.mail.clear();
        call.world.wait(if is_acknowledged { 601_000 } else { 66_000 });
        for end in [&P, &Q1] {
            let its = call.world.mail.iter().filter(|(to, _)| *to == at(end.at));
            let byes = its.filter(|(_, message)| first_word(message) == "BYE");
            let branches = byes.map(|(_, bye)| bye.via().unwrap().branch().unwrap());
            let branches: BTreeSet<_> = branches.collect();
            assert_eq!(branches.len(), 1, "{}: BYEs that are not the same", end.tag);
            call.is_ended(end, &Q1);
        }
        assert_eq!(call.world.outcomes(0), [CallOutcome::Idle]);
        assert_eq!(call.world.sites[0].gateway.stats().idle, 1);
    }
}

/// Cause for the end of a call, or only of a phone's part in it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Idle,
    Unanswered,
    Refused,
    Cancelled,
    Operator,
    Stopped,
}

impl Forked {
    /// The registrar's answer to the caller's INVITE.
    fn registrar_says(&mut self, what: &str) {
        let answer = R.response(&self.invite, what, "");
        self.world.send(REGISTRAR, G, &answer);
    }

    fn come_to(&mut self, end: End) {
        if end != End::Unanswered {
            self.registrar_says("180 Ringing");
        }
        match end {
            End::Idle => {
                let rings = Q2.response(&self.invites[1], "180 Ringing", "");
                self.world.send(Q2.at, G, &rings);
                self.world.wait(66_000);
            }
            End::Unanswered => self.world.wait(34_000),
            End::Refused => self.registrar_says("480 Temporarily Unavailable"),
            End::Cancelled => {
                let cancel = P.request(("INVITE", 1, "sip:b@10.3.0.1"), "", &[], "");
                let cancel = cancel.replace("INVITE sip", "CANCEL sip");
                self.world.send(P.at, G, &cancel.replace("1 INVITE", "1 CANCEL"));
                self.registrar_says("487 Request Terminated");
            }
            End::Operator => self.hang_up(),
            End::Stopped => {
                let now = self.world.now;
                let Site { gateway, board, .. } = &mut self.world.sites[0];
                gateway.stop(now, board);
                self.world.run();
                // It ends before its next sweep.
                return;
            }
        }
        self.world.wait(2_000);
    }
}

#[test]
fn a_phone_whose_answer_has_not_reached_the_caller_is_told() {
    for end in
        [End::Idle, End::Unanswered, End::Refused, End::Cancelled, End::Operator, End::Stopped]
    {
        let mut call = Forked::begun();
        call.accept(0);
        call.world.mail.clear();
        call.come_to(end);
        let of_q1 = call.world.mail_of(Q1.at);
        assert_eq!(of_q1.first().map(String::as_str), Some("ACK"), "{end:?}: {of_q1:?}");
        let ack = call.world.read(Q1.at, "ACK");
        assert_eq!(ack.first(Name::CSeq), Some(&b"1 ACK"[..]));
        assert_eq!(ack.to().unwrap().tag(), Some(&b"q1"[..]));
        let bye = call.world.mail.iter().find(|(to, _)| *to == at(Q1.at));
        assert_eq!(bye.unwrap().1.first(Name::CSeq), Some(&b"2 BYE"[..]));
        let byes = call.world.mail.iter().filter(|(to, _)| *to == at(Q1.at));
        let branches: BTreeSet<_> = byes.map(|(_, bye)| bye.via().unwrap().branch()).collect();
        assert_eq!(branches.len(), 1, "{end:?}");
        call.is_ended(&Q1, &Q1);
        assert!(!call.world.mail_of(P.at).contains(&"BYE".to_owned()));
        if end == End::Idle {
            // The other phone rings on.
            assert_eq!(call.world.outcomes(0), []);
            call.answer(1);
            call.ack(&Q2);
            call.is_up();
        } else {
            assert_eq!(call.world.outcomes(0).len(), 1, "{end:?}");
            // The registrar cancels the other phone, or its INVITE gives up.
            let free = call.world.sites[0].gateway.free_ports();
            assert!(free >= 48, "{end:?}: {free}");
        }
    }
}

#[test]
fn the_callee_is_the_phone_of_whose_answer_the_caller_hears_first() {
    for is_first in [0, 1] {
        let mut call = Forked::begun();
        let answers = [call.accept(0), call.accept(1)];
        for n in [is_first, 1 - is_first] {
            call.world.send(REGISTRAR, G, &answers[n]);
            call.world.read(P.at, "200");
        }
        let [callee, other] = if is_first == 0 { [Q1, Q2] } else { [Q2, Q1] };
        call.ack(&callee);
        call.hang_up();
        call.is_ended(&P, &callee);
        call.is_ended(&callee, &callee);
        assert_eq!(call.world.outcomes(0), [CallOutcome::Operator]);
        // The other one is in no call any more.
        call.world.wait(1_000);
        call.is_ended(&other, &other);
        assert_eq!(call.world.sites[0].gateway.free_ports(), 50);
        assert!(call.world.sites[0].gateway.is_quiet());
    }
}

/// The registrar forwards the call to another of its users, who is forwarded to Q1.
#[test]
fn a_call_that_passes_here_three_times_ends_as_one() {
    let mut world = World::new(vec![config(1, G)]);
    let users = ["sip:b@10.3.0.1".to_owned(), "sip:c@10.3.0.1".to_owned(), uri(&Q1)];
    world.send(P.at, G, &P.request(("INVITE", 1, &users[0]), "", &[], &sdp("10.1.0.9:4000")));
    let mut invite = world.read(REGISTRAR, "INVITE");
    for n in [1, 2] {
        let via = format!("Via: SIP/2.0/UDP {REGISTRAR};branch=z9hG4bK{n}\r\nVia:");
        let onward = text(&invite).replace(&users[n - 1], &users[n]).replacen("Via:", &via, 1);
        world.send(REGISTRAR, G, &onward);
        invite = world.read(if n == 1 { REGISTRAR } else { Q1.at }, "INVITE");
    }
    world.send(Q1.at, G, &Q1.response(&invite, "200 OK", &sdp("10.1.0.20:5000")));
    for _ in [1, 2] {
        let answer = text(&world.read(REGISTRAR, "200"));
        let start = answer.find("Via:").unwrap();
        let end = start + answer[start..].find("\r\n").unwrap() + 2;
        world.send(REGISTRAR, G, &format!("{}{}", &answer[..start], &answer[end..]));
    }
    world.read(P.at, "200");
    let mut call = Forked { world, invite: invite.clone(), invites: [invite.clone(), invite] };
    call.ack(&Q1);
    assert_eq!(call.world.sites[0].gateway.free_ports(), 50 - 6);
    call.is_up();
    call.hang_up();
    call.is_ended(&P, &Q1);
    call.is_ended(&Q1, &Q1);
    assert_eq!(call.world.outcomes(0), [CallOutcome::Operator]);
    assert_eq!(call.world.sites[0].gateway.free_ports(), 50);
    assert!(call.world.sites[0].gateway.is_quiet());
}
