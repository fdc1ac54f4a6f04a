//! A gateway as its operator sees it: the effect of commands on calls, and the state that remains.

use crate::common::on_time::on_time;
use crate::common::{self, Node, free_port, ms, run, temp_dir, trunkline, wait_for};
use macro_rules_attribute::apply;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// A phone and its gateway.
struct Phone {
    socket: UdpSocket,
    gateway: SocketAddr,
}

impl Phone {
    fn of(gateway: SocketAddr) -> Phone {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(ms(5_000))).expect("set");
        Phone { socket, gateway }
    }

    fn at(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    fn ask(&self, method: &str, to: SocketAddr, call: &str) {
        let at = self.at();
        let message = format!(
            "{method} sip:b@{to} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bK{call}{method}\r\n\
             Max-Forwards: 9\r\nFrom: <sip:a@{at}>;tag=1\r\nTo: <sip:b@{to}>\r\nCall-ID: {call}\r\n\
             CSeq: 1 {method}\r\nContact: <sip:a@{at}>\r\nContent-Length: 0\r\n\r\n"
        );
        self.socket.send_to(message.as_bytes(), self.gateway).expect("sent");
    }

    /// Reads the next message of a call, except provisional ones: messages without an
    /// acknowledgement are retransmitted.
    fn read(&self, call: &str) -> String {
        let mut buffer = [0; 4_096];
        loop {
            let n = self.socket.recv(&mut buffer).expect("a message");
            let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
            let is_of_it = text.contains(&format!("\r\nCall-ID: {call}\r\n"));
            if is_of_it && !text.starts_with("SIP/2.0 100") {
                return text;
            }
        }
    }

    /// Answers an INVITE with a response.
    fn answer(&self, invite: &str, said: &str) {
        let kept = ["Via:", "From:", "Call-ID:", "CSeq:", "Record-Route:"];
        let kept = invite.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
        let lines: String = kept.map(|line| format!("{line}\r\n")).collect();
        let at = self.at();
        let message = format!(
            "SIP/2.0 {said}\r\n{lines}To: <sip:b@{at}>;tag=2\r\nContact: <sip:b@{at}>\r\n\
             Content-Length: 0\r\n\r\n"
        );
        self.socket.send_to(message.as_bytes(), self.gateway).expect("sent");
    }
}

fn operate(node: &Node, args: &[&str]) -> common::Ended {
    let control = node.config.with_extension("ctl");
    run(trunkline(args).arg("--control").arg(control))
}

/// A command that waits for the drain to end fails, without stopping the node, once another command
/// has undone the drain.
fn who_waits_hears_of_it_when_it_is_taken_back(node: &Node, a: &Phone, gateway: SocketAddr) {
    let said = std::thread::scope(|scope| {
        let args = ["drain", "--stop", "--quiet", "1 s", "--timeout", "1 min"];
        let mut asked = 0;
        let waits = scope.spawn(move || operate(node, &args));
        wait_for("a refusal", || {
            asked += 1;
            let name = format!("draining-{asked}");
            a.ask("OPTIONS", gateway, &name);
            a.read(&name).starts_with("SIP/2.0 503").then_some(())
        });
        assert_eq!(operate(node, &["drain", "--undo"]).code, Some(0));
        a.ask("OPTIONS", gateway, "undone");
        assert!(a.read("undone").starts_with("SIP/2.0 200"), "at once");
        waits.join().expect("it ends")
    });
    assert_eq!(said.code, Some(1), "{}", said.stdout);
    assert!(said.stderr.contains("is not draining any more"), "{}", said.stderr);
}

/// No media flow, but a call exists, and no call starts.
fn a_call_keeps_it_from_being_empty(node: &mut Node, a: &Phone, b: &Phone, gateway: SocketAddr) {
    let said = operate(node, &["drain", "--quiet", "100ms", "--timeout", "1 s"]);
    assert_eq!(said.code, Some(1), "{}", said.stdout);
    let why = "packets still pass after 1 s, 1 call: node 1 stays drained; run it again";
    assert!(said.stderr.contains(why), "{}", said.stderr);
    let status: Value =
        serde_json::from_str(&operate(node, &["status", "--json"]).stdout).expect("JSON");
    assert_eq!((&status["calls"], &status["draining"]), (&1.into(), &true.into()));
    for (method, to) in [("INVITE", b.at()), ("OPTIONS", gateway)] {
        a.ask(method, to, method);
        let refusal = a.read(method);
        assert!(
            refusal.starts_with("SIP/2.0 503") && refusal.contains("being drained"),
            "{refusal}"
        );
    }
    wait_for("a warning", || {
        node.process().stderr().contains("is refused with 503: this gateway is").then_some(())
    });
}

#[apply(on_time)]
fn its_operators_orders_and_its_calls() {
    let dir = temp_dir();
    let mut node = Node { sealed: true, ..Node::new(dir.path(), 1, Ipv4Addr::LOCALHOST.into()) };
    let gateway = free_port(Ipv4Addr::LOCALHOST.into());
    let records = dir.path().join("calls.jsonl");
    let sip = |more: &str| {
        format!(
            "[sip]\nlisten = [\"udp:{gateway}\"]\nports = \"42000-42099\"\n\
             records = \"{}\"\n{more}",
            records.display()
        )
    };
    let control = node.config.with_extension("ctl");
    let write = |node: &Node, rest: &str| {
        node.write(rest);
        let text = fs::read_to_string(&node.config).expect("written");
        let line = format!("[node]\ncontrol = {:?}", control.to_str().expect("text"));
        fs::write(&node.config, text.replace("[node]", &line)).expect("written");
    };
    write(&node, &sip(""));
    node.start();
    let (a, b) = (Phone::of(gateway), Phone::of(gateway));
    a.ask("INVITE", b.at(), "up");
    let invite = b.read("up");
    b.answer(&invite, "200 OK");
    assert!(a.read("up").starts_with("SIP/2.0 200"));
    a.ask("INVITE", b.at(), "busy");
    let invite = b.read("busy");
    b.answer(&invite, "486 Busy Here");
    assert!(a.read("busy").starts_with("SIP/2.0 486"));
    b.read("busy");

    // Networks are changed during calls.
    write(&node, &sip("allow = [\"192.0.2.0/24\"]\n"));
    let said = operate(&node, &["reload"]);
    assert!(said.stdout.contains("applied: [sip] allow"), "{} {}", said.stdout, said.stderr);
    a.ask("OPTIONS", gateway, "nobody");
    let dropped = "is dropped: that address is not in [sip] allow";
    wait_for("a warning", || node.process().stderr().contains(dropped).then_some(()));
    write(&node, &sip(""));
    let said = operate(&node, &["reload"]);
    assert!(said.stdout.contains("applied: [sip] allow"), "{}", said.stdout);

    who_waits_hears_of_it_when_it_is_taken_back(&node, &a, gateway);

    a_call_keeps_it_from_being_empty(&mut node, &a, &b, gateway);

    // Once the command reports the stop, another node may be started.
    let said = operate(&node, &["drain", "--now", "--stop"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    UdpSocket::bind(gateway).expect("nobody has the gateway's port any more");
    assert_eq!(node.process().wait().code(), Some(0));
    let log = node.process().stderr();
    assert!(
        log.contains("stopped with 1 call up")
            && log.contains("2 of these have not answered in time")
            && log.contains(" (up)"),
        "{log}"
    );
    let records = fs::read_to_string(&records).expect("records");
    let records: Vec<Value> =
        records.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told = |n: usize| (&records[n]["call"], &records[n]["outcome"], &records[n]["status"]);
    assert_eq!(records.len(), 2, "{records:?}");
    assert_eq!(told(0), (&"busy".into(), &"refused".into(), &486.into()));
    assert_eq!(told(1), (&"up".into(), &"stopped".into(), &Value::Null));
    let [began, answered, ended] =
        ["began", "answered", "ended"].map(|key| records[1][key].as_f64().expect("a time"));
    assert!(began <= answered && answered < ended && records[0]["answered"].is_null());
}
