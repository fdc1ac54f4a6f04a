use super::*;
use crate::message::Start;
use proptest::collection::vec;
use proptest::prelude::*;

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// The calling phone or the called peer by its port, over `connection` or UDP.
fn hop(port: u16, connection: Option<u64>) -> Hop {
    let remote = SocketAddr::new([192, 0, 2, 1].into(), port);
    Hop { socket: 0, remote, connection }
}

const PHONE: u16 = 5070;
const PEER: u16 = 5080;

fn request(method: &str, branch: &str) -> Message {
    let cseq = if ["ACK", "CANCEL"].contains(&method) { "INVITE" } else { method };
    let text = format!(
        "{method} sip:b@h SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:{PHONE};branch={branch}\r\n\
         From: <sip:a@h>;tag=1\r\nTo: <sip:b@h>\r\nCall-ID: 1\r\nCSeq: 1 {method}\r\n\
         Max-Forwards: 70\r\nX: {cseq}\r\n\r\n"
    );
    Message::parse(text.as_bytes()).unwrap()
}

/// A response to the last message sent downstream.
fn answer(forwarded: &Message, code: u16) -> Message {
    let source = hop(PEER, None).remote;
    Message::parse(&reply::response(forwarded, source, (code, "X"), b"peer", b"")).unwrap()
}

struct Proxy {
    t: Transactions,
    /// `None` for UDP; otherwise both sides use a connection.
    connection: Option<u64>,
}

impl Proxy {
    fn new(connection: Option<u64>) -> Proxy {
        Proxy { t: Transactions::new(3, [7; 32]), connection }
    }

    /// Drains the output: port and first line of each message.
    fn sent(&mut self) -> Vec<(u16, String)> {
        self.outputs().iter().map(|(port, m)| (*port, first_line(m))).collect()
    }

    fn outputs(&mut self) -> Vec<(u16, Message)> {
        let all = std::iter::from_fn(|| self.t.poll());
        all.map(|out| (out.to.remote.port(), Message::parse(&out.bytes).unwrap())).collect()
    }

    fn receive(&mut self, ms: u64, message: &Message) -> Incoming {
        assert_eq!(message.fault(), None);
        let from = if matches!(message.start(), Start::Request { .. }) { PHONE } else { PEER };
        self.t.receive(at(ms), hop(from, self.connection), message, || false)
    }

    /// Receives and forwards a request; returns it as forwarded.
    fn forward(&mut self, ms: u64, message: &Message) -> (TransactionId, Message) {
        let Incoming::Request(id) = self.receive(ms, message) else { panic!("not new") };
        let mut edit = Edit::new(message);
        self.t.stamp(&mut edit, id, "SIP/2.0/UDP 192.0.2.9:5060");
        let bytes = edit.finish();
        self.t.forward(at(ms), id, hop(PEER, self.connection), bytes.clone());
        (id, Message::parse(&bytes).unwrap())
    }

    /// Receives a response and passes it on, if it should; returns whether it did.
    fn pass(&mut self, ms: u64, message: &Message) -> bool {
        let Incoming::Response(id) = self.receive(ms, message) else { return false };
        let mut edit = Edit::new(message);
        edit.pop(Name::Via, 1);
        let Start::Response { code, .. } = message.start() else { return false };
        self.t.respond(at(ms), id, code, edit.finish());
        true
    }

    /// The messages sent until `ms`, with their times.
    fn until(&mut self, ms: u64) -> Vec<(u64, u16, String)> {
        let mut all = Vec::new();
        while self.t.next_timeout() <= at(ms) {
            let now = self.t.next_timeout();
            self.t.handle_timeout(now);
            let sent = self.sent();
            all.extend(
                sent.into_iter().map(|(port, line)| (now.as_nanos() / 1_000_000, port, line)),
            );
        }
        all
    }
}

fn first_line(message: &Message) -> String {
    String::from_utf8_lossy(message.bytes().split(|&b| b == b'\r').next().unwrap()).into_owned()
}

#[test]
fn long_messages_take_more_room() {
    let mut p = Proxy::new(None);
    p.t = Transactions::new(400, [7; 32]);
    // A host has half of three quarters.
    let room = 150 * USUAL / 60_000;
    for n in 0..=room + 1 {
        let long = format!("X-Long: {}\r\n\r\n", "x".repeat(60_000));
        let short = request("INVITE", &format!("z9hG4bK{n}x"));
        let text = String::from_utf8(short.bytes().to_vec()).unwrap();
        let text = text.replacen("\r\n\r\n", &format!("\r\n{long}"), 1);
        let message = Message::parse(text.as_bytes()).unwrap();
        let taken = matches!(p.receive(0, &message), Incoming::Request(_));
        assert_eq!(taken, n <= room, "{n} of {room}");
    }
}

#[test]
fn a_call_is_set_up() {
    let mut p = Proxy::new(None);
    let (_, forwarded) = p.forward(0, &request("INVITE", "z9hG4bK1"));
    let lines = ["SIP/2.0 100 Trying", "INVITE sip:b@h SIP/2.0"].map(String::from);
    assert_eq!(p.sent(), [(PHONE, lines[0].clone()), (PEER, lines[1].clone())]);
    assert_eq!((forwarded.max_forwards(), forwarded.list(Name::Via).count()), (Some(69), 2));
    assert_eq!(p.receive(10, &request("INVITE", "z9hG4bK1")), Incoming::Absorbed);
    assert_eq!(p.sent(), [(PHONE, lines[0].clone())], "again, since it asked again");
    assert_eq!(p.receive(20, &answer(&forwarded, 100)), Incoming::Absorbed);
    for code in [180, 183, 200, 200] {
        assert!(p.pass(30, &answer(&forwarded, code)));
        let sent = p.outputs();
        assert_eq!((sent.len(), sent[0].0, sent[0].1.list(Name::Via).count()), (1, PHONE, 1));
    }
    assert_eq!(p.receive(40, &request("INVITE", "z9hG4bK1")), Incoming::Absorbed);
    assert_eq!(p.sent(), [], "the 2xx is retransmitted by who said it");
    assert_eq!(p.receive(50, &request("ACK", "z9hG4bK2")), Incoming::Ack);
    assert!(!p.pass(60, &answer(&forwarded, 486)), "nothing but another 2xx now");
    p.sent();
    assert_eq!(p.until(40_000), []);
    assert!(p.t.is_empty() && !p.pass(50_000, &answer(&forwarded, 200)));
}

#[test]
fn a_refusal_is_acknowledged_on_each_side() {
    for connection in [None, Some(1)] {
        let mut p = Proxy::new(connection);
        let (_, forwarded) = p.forward(0, &request("INVITE", "z9hG4bK1"));
        p.sent();
        assert!(p.pass(100, &answer(&forwarded, 486)));
        let sent = p.outputs();
        assert_eq!(first_line(&sent[0].1), "ACK sip:b@h SIP/2.0");
        assert_eq!(sent[0].1.to().unwrap().tag(), Some(&b"peer"[..]));
        assert_eq!(
            (sent[0].0, sent[1].0, first_line(&sent[1].1).as_str()),
            (PEER, PHONE, "SIP/2.0 486 X")
        );
        assert!(!p.pass(200, &answer(&forwarded, 486)), "sent again: acknowledged again");
        assert_eq!(p.sent(), [(PEER, "ACK sip:b@h SIP/2.0".into())]);
        let again: Vec<u64> = p.until(5_000).iter().map(|(ms, ..)| *ms).collect();
        let want: &[u64] = if connection.is_none() { &[600, 1_600, 3_600] } else { &[] };
        assert_eq!(again, want, "until it is acknowledged");
        assert_eq!(p.receive(5_000, &request("ACK", "z9hG4bK1")), Incoming::Absorbed);
        assert_eq!((p.until(11_000), p.t.len()), (vec![], 0));
    }
}

#[test]
fn who_does_not_answer_is_asked_again_and_then_given_up() {
    let ask = |method: &str| {
        let mut p = Proxy::new(None);
        p.forward(0, &request(method, "z9hG4bK1"));
        p.sent();
        let all = p.until(70_000);
        (all, p.t.len())
    };
    let (invite, left) = ask("INVITE");
    let asked: Vec<u64> =
        invite.iter().filter(|(_, to, _)| *to == PEER).map(|(ms, ..)| *ms).collect();
    assert_eq!((asked, left), (vec![500, 1_500, 3_500, 7_500, 15_500, 31_500], 0));
    let told: Vec<_> = invite.iter().filter(|(_, to, _)| *to == PHONE).collect();
    assert_eq!((told[0].0, told[0].2.as_str()), (32_000, "SIP/2.0 408 Request Timeout"));
    let (options, left) = ask("OPTIONS");
    let asked: Vec<u64> = options.iter().map(|(ms, ..)| *ms).collect();
    let every_four = (7_500..32_000).step_by(4_000);
    assert_eq!((asked, left), ([500, 1_500, 3_500].into_iter().chain(every_four).collect(), 0));
    assert!(options.iter().all(|(_, to, _)| *to == PEER), "nobody is told");
    let mut tcp = Proxy::new(Some(1));
    tcp.forward(0, &request("OPTIONS", "z9hG4bK1"));
    tcp.sent();
    assert_eq!((tcp.until(33_000), tcp.t.len()), (vec![], 0));
}

#[test]
fn a_request_other_than_invite_is_answered_again() {
    let mut p = Proxy::new(None);
    let (_, forwarded) = p.forward(0, &request("BYE", "z9hG4bK1"));
    assert!(p.pass(10, &answer(&forwarded, 200)));
    assert!(!p.pass(20, &answer(&forwarded, 200)));
    p.sent();
    assert_eq!(p.receive(30, &request("BYE", "z9hG4bK1")), Incoming::Absorbed);
    assert_eq!(p.sent(), [(PHONE, "SIP/2.0 200 X".into())]);
    assert_eq!((p.until(33_000), p.t.len()), (vec![], 0));
}

#[test]
fn a_call_is_cancelled_when_it_rings_and_not_before() {
    let cancel = request("CANCEL", "z9hG4bK1");
    let mut p = Proxy::new(None);
    assert_eq!(p.receive(0, &cancel), Incoming::Absorbed);
    assert_eq!(p.sent(), [(PHONE, "SIP/2.0 481 Transaction Does Not Exist".into())]);
    let (_, forwarded) = p.forward(0, &request("INVITE", "z9hG4bK1"));
    p.sent();
    for ms in [10, 20] {
        assert_eq!(p.receive(ms, &cancel), Incoming::Absorbed);
        assert_eq!(p.sent(), [(PHONE, "SIP/2.0 200 OK".into())], "nothing has come back yet");
    }
    p.pass(30, &answer(&forwarded, 180));
    let sent = p.outputs();
    let (_, told) = sent.iter().find(|(to, _)| *to == PEER).unwrap();
    assert_eq!(first_line(told), "CANCEL sip:b@h SIP/2.0");
    assert_eq!(told.via().unwrap().branch(), forwarded.via().unwrap().branch());
    assert!(p.until(1_000).iter().any(|(_, to, line)| *to == PEER && line.starts_with("CANCEL")));
    assert_eq!(p.receive(1_100, &answer(told, 200)), Incoming::Absorbed);
    assert_eq!(p.until(1_900), [], "it has been heard");
    assert!(p.pass(2_000, &answer(&forwarded, 487)));
    p.sent();
    p.receive(2_000, &request("ACK", "z9hG4bK1"));
    assert_eq!((p.until(10_000), p.t.len()), (vec![], 0));

    let mut early = Proxy::new(None);
    let Incoming::Request(id) = early.receive(0, &request("INVITE", "z9hG4bK1")) else { panic!() };
    early.receive(1, &cancel);
    let lines: Vec<String> = early.sent().into_iter().map(|(_, line)| line).collect();
    assert_eq!(lines, ["SIP/2.0 100 Trying", "SIP/2.0 200 OK", "SIP/2.0 487 Request Terminated"]);
    early.t.forward(at(2), id, hop(PEER, None), request("INVITE", "z9hG4bK9").bytes().to_vec());
    assert_eq!(early.sent(), [], "it never is forwarded then");
}

#[test]
fn what_rings_for_ever_is_ended() {
    let mut p = Proxy::new(None);
    let (_, forwarded) = p.forward(0, &request("INVITE", "z9hG4bK1"));
    p.pass(1_000, &answer(&forwarded, 100));
    p.pass(100_000, &answer(&forwarded, 180));
    p.pass(200_000, &answer(&forwarded, 100));
    p.sent();
    let all = p.until(400_000);
    assert_eq!(
        all[0],
        (281_000, PEER, "CANCEL sip:b@h SIP/2.0".into()),
        "181 s after the last that counts"
    );
    let end = all.iter().find(|(_, to, _)| *to == PHONE).unwrap();
    assert_eq!((end.0, end.2.as_str()), (313_000, "SIP/2.0 487 Request Terminated"));
    assert!(p.t.is_empty());
}

#[test]
fn responses_go_where_the_request_asks() {
    let via = |more: &str| {
        let text = String::from_utf8(request("OPTIONS", "z9hG4bK1").bytes().to_vec()).unwrap();
        let mut p = Proxy::new(None);
        let message = Message::parse(text.replacen(":5070;", more, 1).as_bytes()).unwrap();
        let Incoming::Request(id) = p.receive(0, &message) else { panic!() };
        p.t.refuse(at(0), id, (404, "Not Found"), b"");
        p.sent()[0].0
    };
    assert_eq!([via(":5070;"), via(";"), via(":1;rport;")], [5_070, 5_060, PHONE]);
}

#[test]
fn what_has_no_room_is_told_to_come_later() {
    let mut p = Proxy::new(None);
    p.t = Transactions::new(8, [7; 32]);
    // One host may take half of the room for requests outside calls.
    for n in 0..3 {
        p.forward(0, &request("OPTIONS", &format!("z9hG4bK{n}")));
    }
    p.sent();
    assert_eq!(p.receive(1, &request("OPTIONS", "z9hG4bK9")), Incoming::Refused);
    assert_eq!(p.sent(), [(PHONE, "SIP/2.0 503 Service Unavailable".into())]);
    assert_eq!(p.receive(1, &request("OPTIONS", "z9hG4bK0")), Incoming::Absorbed);
    let of_other = |p: &mut Proxy, branch: &str| {
        let remote = "192.0.2.77:5060".parse().unwrap();
        let from = Hop { socket: 0, remote, connection: None };
        let taken = p.t.receive(at(1), from, &request("OPTIONS", branch), || false);
        matches!(taken, Incoming::Request(_))
    };
    for n in 0..4 {
        assert_eq!(of_other(&mut p, &format!("z9hG4bKo{n}")), n < 3);
    }
    // Requests of calls get the rest, but one host gets at most half of everything.
    for n in 0..3 {
        let text = String::from_utf8(request("BYE", &format!("z9hG4bKd{n}")).bytes().to_vec());
        let text = text.unwrap().replace("To: <sip:b@h>", "To: <sip:b@h>;tag=2");
        let message = Message::parse(text.as_bytes()).unwrap();
        // A tag alone, which anyone can write, doesn't make it one of a call.
        assert_eq!(p.receive(1, &message), Incoming::Refused);
        let taken = p.t.receive(at(1), hop(PHONE, None), &message, || true);
        assert_eq!(matches!(taken, Incoming::Request(_)), n < 1);
    }
    p.until(33_000);
    assert!(matches!(p.receive(33_000, &request("OPTIONS", "z9hG4bK9")), Incoming::Request(_)));
}

proptest! {
    /// For any messages and losses, all transactions end and release their memory; by then, an
    /// INVITE has had one final response, or several 2xx.
    #[test]
    fn all_ends(
        events in vec((0u64..20_000, 0usize..10), 0..40), udp: bool, acts: bool,
    ) {
        let mut p = Proxy::new((!udp).then_some(1));
        let invite = request("INVITE", "z9hG4bK1");
        let (mut now, mut begun, mut forwarded) = (0, false, None);
        let mut finals = Vec::new();
        let mut note = |p: &mut Proxy| {
            for (to, message) in p.outputs() {
                if let (PHONE, Start::Response { code: code @ 200.., .. }, Some(b"INVITE")) =
                    (to, message.start(), message.cseq().map(|cseq| cseq.method))
                {
                    finals.push(code);
                }
            }
        };
        for (later, event) in events {
            now += later;
            while p.t.next_timeout() <= at(now) {
                p.t.handle_timeout(p.t.next_timeout());
                note(&mut p);
            }
            match (event, &forwarded) {
                // After its end, it would be a new one.
                (0, _) if begun && p.t.is_empty() => {}
                (0, None) if acts && !begun => forwarded = Some(p.forward(now, &invite).1),
                (0, _) => prop_assert_eq!(p.receive(now, &invite) == Incoming::Absorbed, begun),
                (1, _) => { p.receive(now, &request("CANCEL", "z9hG4bK1")); }
                (2, _) => { p.receive(now, &request("ACK", "z9hG4bK1")); }
                (n, Some(forwarded)) => {
                    let code = [100, 180, 183, 200, 302, 486, 603][n - 3];
                    p.pass(now, &answer(forwarded, code));
                }
                _ => {}
            }
            begun |= event == 0;
            note(&mut p);
        }
        let mut steps = 0;
        while p.t.next_timeout() < Time::NEVER {
            p.t.handle_timeout(p.t.next_timeout());
            note(&mut p);
            steps += 1;
            prop_assert!(steps < 200);
        }
        prop_assert!(p.t.is_empty() && p.t.taken == Usage::default() && p.t.by_source.is_empty());
        finals.dedup();
        prop_assert!(finals.len() <= 1, "{:?}", finals);
        prop_assert!(forwarded.is_none() || finals.len() == 1);
    }
}
