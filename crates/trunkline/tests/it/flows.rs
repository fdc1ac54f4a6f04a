//! `trunkline flows` against real daemons: compared with the report of a call's listener, and with
//! more flows than a node keeps.

use crate::common::keys::CLIENT;
use crate::common::on_time::on_time;
use crate::common::{self, Chain, Node, Process, Setup, ms, run, trunkline, wait_for};
use macro_rules_attribute::apply;
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::thread;
use trunkline_base::wire::Writer;
use trunkline_client::{NodeId, Service, SocketOption};
use trunkline_overlay::wire::{
    DataHeader, ENVELOPE_OVERHEAD, FlowHeader, HopHeader, Incarnation, Null, ReceiverIndex, Seal,
};

fn control(node: &Node) -> PathBuf {
    node.socket.with_extension("ctl")
}

/// Gives every node of the chain a control socket, then starts them. With `impair`, the route via
/// node 2 is configured with its delay.
fn start(setup: &Setup<'_>) -> Chain {
    let onward = if setup.impair.is_empty() { "via = 2\n" } else { "via = 2\nonward = \"8ms\"\n" };
    let mut chain = Chain::prepare(setup);
    for node in &chain.nodes {
        let text = fs::read_to_string(&node.config).expect("written before");
        let line = format!("[node]\ncontrol = {:?}", control(node).to_str().expect("text"));
        let text = text.replacen("[node]", &line, 1).replace("via = 2\n", onward);
        fs::write(&node.config, text).expect("written");
    }
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    chain
}

#[track_caller]
fn ok(node: &Node, args: &[&str]) -> String {
    let ended = run(trunkline(["flows"]).args(args).arg("--control").arg(control(node)));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}: {}", ended.stdout);
    ended.stdout
}

#[track_caller]
fn flows(node: &Node, args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&ok(node, &[args, &["--json"]].concat())).expect("a list")
}

fn near(got: &Value, want: &Value, within: f64) {
    let number = |v: &Value| v.as_f64().unwrap_or_else(|| panic!("{v} is no number"));
    assert!((number(got) - number(want)).abs() <= within, "{got} is not {want} ± {within}");
}

/// Makes one call over two lossy links, and returns the listener's report and the count of the
/// listener's node.
fn call_over_loss(chain: &Chain, service: &[&str]) -> (Value, Value) {
    let (first, last) = (&chain.nodes[0], &chain.nodes[2]);
    let said = chain.dir.path().join("said.wav");
    let tone = (0..8_000).map(|n| (f64::from(n) * 0.3).sin() * 8e3).map(|v| v as i16);
    let pcm: Vec<i16> = tone.collect();
    trunkline_media::audio::write_wav(fs::File::create(&said).expect("created"), &pcm)
        .expect("written");
    let mut listener = Process::start(
        trunkline(["call", "recv", "--idle", "1500ms", "--json", "--socket"]).arg(&last.socket),
    );
    listener.wait_for_word("listening on");
    let mut sender = Process::start(
        trunkline(["call", "send", "--duration", "8 s", "--to", "3:5004", "--socket"])
            .arg(&first.socket)
            .args(service)
            .arg(&said),
    );
    sender.wait_for_word("calling");
    // During the call, both ends know the process that owns the flow.
    let pid = |process: &Process| json!(process.id());
    wait_for("the flow at both ends", || {
        let out = |f: &Value| f["ended"] == false && f["direction"] == "out";
        let sent = flows(first, &["3"]).into_iter().find(out)?;
        // The listener's port also has an owner again for the flow of the previous call.
        let its = |f: &Value| f["direction"] == "in" && f["peer_port"] == sent["port"];
        let came = flows(last, &["1"]).into_iter().find(its)?;
        assert_eq!((&came["pid"], &came["application"]), (&pid(&listener), &json!("trunkline")));
        assert_eq!(sent["pid"], pid(&sender));
        assert_eq!((&sent["last_10s"], &sent["call"]), (&Value::Null, &Value::Null));
        assert_eq!((&came["ended"], &came["port"]), (&json!(false), &sent["peer_port"]));
        (came["packets"].as_u64() > Some(20)).then_some(())
    });
    assert_eq!(sender.wait().code(), Some(0), "{}", sender.stderr());
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let report = serde_json::from_str(&listener.rest().0).expect("JSON");
    // The application has exited; the flow has ended but is still listed.
    let came = wait_for("the end of the flow", || {
        let mut came = flows(last, &["--worst", "1"]);
        came.retain(|f| f["ended"] == true && f["direction"] == "in");
        came.into_iter().min_by_key(|f| (f["since_s"].as_f64().unwrap_or(0.0) * 1e3) as u64)
    });
    (report, came)
}

#[apply(on_time)]
fn a_call_is_counted_as_its_listener_hears_it() {
    let impair = "delay = \"8ms\"\nloss = \"5%\"";
    let chain = start(&Setup { nodes: 3, impair, ..Setup::default() });
    for service in [&["--best-effort"][..], &[]] {
        let (report, flow) = call_over_loss(&chain, service);
        let of = |key: &str| report[key].as_u64().expect("a count");
        let (call, about) = (&flow["call"], format!("{report} {flow}"));
        assert_eq!(flow["application"], Value::Null, "{about}");
        // Three sender reports during the call, and five with the goodbye, are packets of the flow
        // too.
        let reports = call["expected"].as_u64().map(|n| n.wrapping_sub(of("packets")));
        assert!(reports.is_some_and(|n| (4..=8).contains(&n)), "{about}");
        let heard = flow["packets"].as_u64().map(|n| n.wrapping_sub(of("packets") - of("lost")));
        assert!(heard.is_some_and(|n| (1..=8).contains(&n)), "{about}");
        // The listener's deadline counts from the fastest packet.
        let missed = |v: &Value| v["lost"].as_u64().zip(v["late"].as_u64()).map(|(a, b)| a + b);
        // A node counts from the first packet that it knows of; the caller's reports also tell the
        // listener of earlier ones.
        let more_lost = call["lost"].as_i64().map(|n| n - of("lost") as i64);
        assert!(more_lost.is_some_and(|n| (-3..=6).contains(&n)), "{about}");
        let late = missed(call).expect("counts").abs_diff(missed(&report).expect("counts"));
        assert!(late <= 8, "{about}");
        near(&call["recovered"], &report["recovered"], 2.0);
        near(&call["r"], &report["r"], 2.0);
        near(&call["mos"], &report["mos"], 0.1);
        near(&flow["deadline_ms"], &json!(100.0), 3.0);
        let delay = call["delay_ms"].as_f64().expect("a way back");
        assert!((15.0..60.0).contains(&delay), "two links of 8 ms: {about}");
        assert!(of("lost") > 10 || service.is_empty(), "nothing was lost: {about}");
        assert!(of("recovered") > 10 || !service.is_empty(), "nothing was repeated: {about}");
    }
    let text = ok(&chain.nodes[2], &["--worst", "--limit", "1"]);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with("flow  peer ") && text.contains("MOS"), "{text}");
    assert!(text.ends_with("played out at the deadline.\n"), "{text}");
    assert_eq!(ok(&chain.nodes[2], &["9"]), "no flows from or to node 9\n");
    assert!(ok(&chain.nodes[1], &[]).starts_with("no flows: "), "a relay has none");
    let m = chain.nodes[2].metrics();
    assert_eq!(m.sum("flows", "direction=\"in\""), 0, "ended flows do not count");
    assert_eq!(m.sum("flow_mos_bucket", "le=\"+Inf\""), 0);
}

#[apply(on_time)]
fn a_remote_application_has_its_name() {
    let chain = start(&Setup { nodes: 2, sealed: true, ..Setup::default() });
    let (here, there) = (chain.nodes[0].bind_remote(4_000), chain.nodes[1].bind(4_000));
    here.set_option(SocketOption::Service(Service::RealTime)).expect("an option");
    here.send_to(b"hello", chain.nodes[1].address(4_000)).expect("sent");
    there.set_option(SocketOption::ReadTimeout(Some(ms(10_000)))).expect("an option");
    there.recv_from(&mut [0; 100]).expect("it came");
    let sent = &flows(&chain.nodes[0], &[])[0];
    let text = fs::read_to_string(&chain.nodes[0].config).expect("there");
    let name = sent["application"].as_str().expect("a name");
    assert!(text.contains(&format!("name = {name:?}")), "{sent}, client {CLIENT}: {text}");
    let came = &flows(&chain.nodes[1], &[])[0];
    assert_eq!((&came["pid"], &came["packets"]), (&json!(std::process::id()), &json!(1)));
    // A single packet has no jitter, and a call of one packet is whole.
    assert_eq!((&came["call"]["jitter_ms"], &came["call"]["lost"]), (&Value::Null, &json!(0)));
    let m = chain.nodes[1].metrics();
    assert_eq!(m.sum("flows", "direction=\"in\""), 1);
    for le in ["3.6", "4.03"] {
        assert_eq!(m.sum("flow_mos_bucket", &format!("le=\"{le}\"")), 0, "{le}");
    }
    assert_eq!(m.sum("flow_mos_bucket", "le=\"+Inf\""), 1);
}

/// A packet that any member of the overlay can forge: from any port of its neighbour, with any
/// number.
fn forged(n: u32) -> Vec<u8> {
    let header = DataHeader {
        flow: FlowHeader {
            service: Service::RealTime,
            metric: trunkline_overlay::wire::Metric::default(),
            source: NodeId(9),
            destination: NodeId(2),
            source_port: (n % 20_000) as u16,
            destination_port: 5_000,
            flow_seq: (n / 20_000 * 30_011) as u16,
        },
        hop: HopHeader {
            recovered: false,
            hop_limit: 31,
            link_seq: n as u16,
            remaining_ms: (n % 256) as u8,
        },
    };
    let mut frames = [0; 200];
    let mut w = Writer::new(&mut frames);
    header.emit(20, &mut w).and_then(|()| w.bytes(&[0; 20])).expect("room");
    let frames = w.written();
    let mut envelope = vec![0; ENVELOPE_OVERHEAD + frames.len()];
    Seal::frames_mut(&mut envelope).copy_from_slice(frames);
    envelope
}

#[apply(on_time)]
fn twenty_thousand_flows_of_one_member_harm_no_other() {
    // The test plays node 1; node 3 is real, and has a call with node 2.
    let mut chain = start(&Setup { nodes: 3, ..Setup::default() });
    chain.nodes[0].crash();
    let victim = chain.nodes[1].bind(5_000);
    victim.set_option(SocketOption::ReadTimeout(Some(ms(1)))).expect("an option");
    let (from, to) = (chain.nodes[2].bind(4_000), chain.nodes[1].bind(4_000));
    from.set_option(SocketOption::Service(Service::RealTime)).expect("an option");
    let memory = chain.nodes[1].resident();
    let socket = UdpSocket::bind(chain.nodes[0].udp).expect("node 1 is gone");
    let at: SocketAddr = chain.nodes[1].udp;
    let attack = thread::spawn(move || {
        let index = ReceiverIndex::derived(NodeId(1), NodeId(2), "");
        let mut seal = Seal::Null(Null::new(index, Incarnation(u64::MAX)));
        for n in 0..60_000u32 {
            let mut envelope = forged(n);
            seal.seal(&mut envelope);
            socket.send_to(&envelope, at).expect("sent");
            if n % 50 == 0 {
                thread::sleep(ms(2));
            }
            // The victim reads only now and then, so that its packets are both delivered and
            // dropped: the node must handle both.
            if n % 10 == 0 {
                let _ = victim.recv_from(&mut [0; 100]);
            }
        }
        victim
    });
    // This call outlasts the attack: once silent, it would be evicted too.
    let mut sent = 0;
    while !attack.is_finished() || sent == 0 {
        let got = common::stream(&from, &to, sent..sent + 50, ms(20));
        assert_eq!(got.len(), 50);
        sent += 50;
    }
    let _victim = attack.join().expect("sent");
    let all = flows(&chain.nodes[1], &[]);
    let in_all = all.len();
    assert!((15_000..=16_385).contains(&in_all), "{in_all} flows");
    let ours: Vec<_> = all.iter().filter(|f| f["peer"] == 3).collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert_eq!((&ours[0]["packets"], &ours[0]["call"]["lost"]), (&json!(sent), &json!(0)));
    assert_eq!(flows(&chain.nodes[1], &["3"]).len(), 1);
    let m = chain.nodes[1].metrics();
    assert!(m.sum("flows_displaced_total", "") > 3_000);
    // Each flow takes 1.2 kB, plus the memory for answering.
    let grown = chain.nodes[1].resident() - memory;
    assert!(grown < 60 << 10, "{grown} KiB more");
    chain.nodes[1].assert_healthy();
}
