//! Contents of captures as tshark reads them, compared with the wires' counters.

use crate::common::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use trunkline_base::Bitrate;
use trunkline_base::link_model::{Chain, LinkModel, Loss, Queue, Red};
use trunkline_net::IpVersion;
use trunkline_overlay::link::IP_UDP_HEADERS;
use trunkline_overlay::wire::NodeId;
use trunkline_sim::voice::{VoiceSink, VoiceSource};
use trunkline_sim::{Topology, WireEnd, WireId, World, address};

/// A file in memory.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures both ends of a wire in memory.
fn capture(world: &mut World, wire: WireId) -> [Shared; 2] {
    [WireEnd::First, WireEnd::Second].map(|end| {
        let file = Shared::default();
        world.capture(wire, end, file.clone()).unwrap();
        file
    })
}

/// Whether tshark is installed; prints a message if not. CI installs it, so that nothing is skipped
/// there.
#[allow(clippy::disallowed_methods, reason = "a test may look at its environment")]
fn tshark_is_there() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        println!("skipped: tshark is not installed; run scripts/setup.sh");
        assert!(std::env::var_os("CI").is_none(), "tshark must be installed in CI");
    }
    there
}

/// Output of tshark: one line per packet, unless `args` request something else.
fn tshark(name: &str, file: &Shared, args: &[&str]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name).with_extension("pcapng");
    std::fs::write(&path, &*file.0.borrow()).unwrap();
    // `-n` turns off name resolution of addresses and ports.
    let mut command = Command::new("tshark");
    command.arg("-n").args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    let output = command.args(args).arg("-r").arg(&path).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("cut short"), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[derive(Debug, Clone, PartialEq)]
struct Packet {
    nanos: u64,
    from: (String, u16),
    to: (String, u16),
    number: u16,
    ip_bytes: u64,
    ecn: u8,
    dscp: u8,
    sent: bool,
    comment: String,
}

fn packets(name: &str, file: &Shared) -> Vec<Packet> {
    const FIELDS: [&str; 13] = [
        "frame.time_epoch",
        "ip.src",
        "udp.srcport",
        "ip.dst",
        "udp.dstport",
        "ip.id",
        "ip.len",
        "ip.dsfield.ecn",
        "ip.dsfield.dscp",
        "frame.packet_flags_direction",
        "frame.comment",
        "ip.checksum.status",
        "udp.checksum.status",
    ];
    let mut args = vec!["-T", "fields"];
    args.extend(FIELDS.iter().flat_map(|f| ["-e", *f]));
    let text = tshark(name, file, &args);
    text.lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let &[time, src, sport, dst, dport, id, len, ecn, dscp, way, comment, ip_ok, udp_ok] =
                &fields[..]
            else {
                panic!("not {} fields: {line}", FIELDS.len());
            };
            assert_eq!((ip_ok, udp_ok), ("1", "1"), "checksums: {line}");
            let (seconds, nanos) = time.split_once('.').unwrap();
            let number = |text: &str| match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
                None => text.parse().unwrap(),
            };
            Packet {
                nanos: number(seconds) * 1_000_000_000 + nanos.parse::<u64>().unwrap(),
                from: (src.into(), number(sport) as u16),
                to: (dst.into(), number(dport) as u16),
                number: number(id) as u16,
                ip_bytes: number(len),
                ecn: number(ecn) as u8,
                dscp: number(dscp) as u8,
                sent: match number(way) {
                    1 => false,
                    2 => true,
                    other => panic!("neither in nor out: {other}"),
                },
                comment: comment.into(),
            }
        })
        .collect()
}

fn count(packets: &[Packet], comment: &str) -> u64 {
    packets.iter().filter(|p| p.comment == comment).count() as u64
}

#[test]
fn both_ends_of_a_link_agree_with_its_ledger() {
    if !tshark_is_there() {
        return;
    }
    let mut world = Topology::chain([link(ms(10), uniform(0.05))]).build(1).unwrap();
    let ends = capture(&mut world, WireId(0));
    calls(&mut world, (0, 1), RT, 5_000, 3, (at(1_000), 300));
    world.run_until(at(9_000));
    let in_flight = world.in_flight();
    world.finish_captures().unwrap();

    let [a, b] = [packets("link-a", &ends[0]), packets("link-b", &ends[1])];
    let ways = world.ledgers(WireId(0));
    let mut missing = 0;
    for (ledger, (sender, receiver)) in ways.iter().zip([(&a, &b), (&b, &a)]) {
        let sent: Vec<_> = sender.iter().filter(|p| p.sent).cloned().collect();
        let received: Vec<_> = receiver.iter().filter(|p| !p.sent).collect();
        assert_eq!(sent.len() as u64, ledger.offered.packets);
        // The ledger counts IPv6 headers.
        let longer = IP_UDP_HEADERS as u64 - 28;
        assert_eq!(sent.iter().map(|p| p.ip_bytes + longer).sum::<u64>(), ledger.offered.bytes);
        assert_eq!(count(&sent, "lost on the wire"), ledger.lost.packets);
        assert_eq!(count(&sent, ""), ledger.delivered.packets);
        // A packet without a comment arrives unchanged, 10 ms later.
        let kept = sent.iter().filter(|p| p.comment.is_empty());
        for (s, r) in kept.zip(&received) {
            let expected = Packet { nanos: s.nanos + 10_000_000, sent: false, ..s.clone() };
            assert_eq!(**r, expected);
        }
        missing += ledger.delivered.packets - received.len() as u64;
    }
    assert_eq!(missing, in_flight as u64);
    assert!(ways[0].lost.packets > 20, "or there was nothing to see");

    let ends = [0, 1].map(|h| address(trunkline_sim::HostId(h), 0));
    for p in &a {
        let [from, to] = if p.sent { [0, 1] } else { [1, 0] }.map(|e: usize| ends[e]);
        assert_eq!((&p.from.0, p.from.1), (&from.ip().to_string(), from.port()));
        assert_eq!((&p.to.0, p.to.1), (&to.ip().to_string(), to.port()));
    }
    // Voice is marked as expedited forwarding (DSCP 46).
    assert!(a.iter().filter(|p| p.sent && p.dscp == 46).count() >= 900);
}

#[test]
fn marks_and_drops_of_a_queue_are_seen() {
    if !tshark_is_there() {
        return;
    }
    let red = Red { ecn: true, weight: 0.02, limit: 30, ..Red::default() };
    let model = LinkModel {
        rate: Some(Bitrate::from_bps(400_000)),
        queue: Queue::Red(red),
        ..link(ms(10), Loss::None)
    };
    let perfect = LinkModel::default;
    let mut world = World::new(IpVersion::V6, 2);
    let (a, b) = world.plain_path(model, perfect(), None).unwrap();
    world.ecn_capable(a.wire());
    let ends = capture(&mut world, a.wire());
    // Six calls are 480 kbit/s.
    for k in 0..6 {
        let source = VoiceSource::new(NodeId(0), 5_000 + k, BE, at(10 * u64::from(k)), 300);
        world.attach_plain(a, 4_000 + k, source).unwrap();
        world.attach_plain(b, 5_000 + k, VoiceSink::default()).unwrap();
    }
    world.run_until(at(8_000));
    world.finish_captures().unwrap();

    let [sent, received] = [packets("red-a", &ends[0]), packets("red-b", &ends[1])];
    let l = world.ledgers(a.wire())[0];
    assert_eq!((sent.len(), received.len() as u64), (1_800, l.delivered.packets));
    assert_eq!(count(&sent, "dropped by the queue"), l.queue_dropped.packets);
    assert_eq!(count(&sent, "marked by the queue"), l.marked.packets);
    assert!(l.queue_dropped.packets > 100 && l.marked.packets > 10, "{l:?}");
    assert_eq!(l.early_dropped.packets, 0);
    // ECT(0) at the sender's end; CE at the receiver's, for exactly those marked.
    assert!(sent.iter().all(|p| p.ecn == 2));
    let marked = sent.iter().filter(|p| p.comment.starts_with("marked")).map(|p| p.number);
    let experienced = received.iter().filter(|p| p.ecn == 3).map(|p| p.number);
    assert_eq!(marked.collect::<Vec<_>>(), experienced.collect::<Vec<_>>());
}

#[test]
fn rtp_on_a_plain_path_can_be_analysed() {
    if !tshark_is_there() {
        return;
    }
    let bursts = Loss::Burst { p: 0.1, b: 0.5, chain: Chain::PerPacket };
    let mut world = World::new(IpVersion::V6, 3);
    let (a, b) =
        world.plain_path(link(ms(50), bursts.clone()), link(ms(50), bursts), None).unwrap();
    let ends = capture(&mut world, a.wire());
    let source = VoiceSource::new(NodeId(0), 5_004, BE, at(1_000), 500);
    world.attach_plain(a, 4_000, source).unwrap();
    world.attach_plain(b, 5_004, VoiceSink::default()).unwrap();
    world.run_until(at(12_000));
    world.finish_captures().unwrap();
    let l = world.ledgers(a.wire())[0];

    let rtp = ["-d", "udp.port==5004,rtp", "-T", "fields", "-e", "rtp.seq", "-e", "rtp.p_type"];
    let mut seen = BTreeMap::new();
    for (name, file) in ["rtp-a", "rtp-b"].into_iter().zip(&ends) {
        let text = tshark(name, file, &rtp);
        let numbers: Vec<u64> = text
            .lines()
            .map(|line| {
                let (seq, kind) = line.split_once('\t').expect("RTP");
                assert_eq!(kind, "0", "PCMU");
                seq.parse().unwrap()
            })
            .collect();
        seen.insert(name, numbers);
    }
    assert_eq!(seen["rtp-a"], (0..500).collect::<Vec<_>>());
    assert_eq!(seen["rtp-b"].len() as u64, l.delivered.packets);
    assert!(l.lost.packets > 20);

    // Wireshark's own analysis: packets, and losses between the first and the last.
    let streams =
        tshark("rtp-b", &ends[1], &["-d", "udp.port==5004,rtp", "-q", "-z", "rtp,streams"]);
    let line = streams.lines().find(|l| l.contains("g711U")).expect("a stream of G.711");
    let (first, last) = (seen["rtp-b"][0], seen["rtp-b"][seen["rtp-b"].len() - 1]);
    let lost = last - first + 1 - l.delivered.packets;
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words.contains(&l.delivered.packets.to_string().as_str()), "{line}");
    assert!(words.contains(&lost.to_string().as_str()), "{line}");
    assert!(line.contains("198.18.0.1") && line.contains("198.19.0.1"), "{line}");
}

#[test]
fn a_full_disk_is_told_once_and_the_run_goes_on() {
    /// A writer that fails after this many bytes.
    struct Disk(usize);
    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.0.checked_sub(bytes.len()) {
                Some(left) => {
                    self.0 = left;
                    Ok(bytes.len())
                }
                None => Err(io::ErrorKind::StorageFull.into()),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let run = |disk: Option<usize>| {
        let mut world = Topology::chain([link(ms(10), uniform(0.05))]).build(1).unwrap();
        if let Some(bytes) = disk {
            world.capture(WireId(0), WireEnd::Second, Disk(bytes)).unwrap();
        }
        calls(&mut world, (0, 1), RT, 5_000, 1, (at(1_000), 100));
        world.run_until(at(4_000));
        let told = world.finish_captures().map_err(|e| e.to_string());
        (world.digest(), told, world.finish_captures().map_err(|e| e.to_string()))
    };
    let without = run(None);
    assert_eq!((&without.1, &without.2), (&Ok(()), &Ok(())));
    assert_eq!(run(Some(1 << 20)), without);
    let (digest, told, again) = run(Some(10_000));
    assert_eq!((digest, again), (without.0, Ok(())));
    let told = told.unwrap_err();
    assert!(told.starts_with("cannot write the capture of wire 0, second end: "), "{told}");

    let mut world = Topology::chain([link(ms(10), Loss::None)]).build(1).unwrap();
    let none = world.capture(WireId(0), WireEnd::First, Disk(10)).unwrap_err();
    assert!(none.to_string().starts_with("cannot write the capture of wire 0, first end: "));
}
