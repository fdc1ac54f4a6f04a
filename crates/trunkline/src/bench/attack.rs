//! `bench attack`: calls through a sealed node while an attacker sends it forged handshakes, or
//! replays its own envelopes.

use super::load::ENVELOPE;
use super::markdown::Table;
use super::sealed::{self, identity};
use super::under_test::{Contestant, DOWNSTREAM, RELAY, UPSTREAM, UnderTest};
use super::{Error, cannot, median, print_json};
use crate::call::sleep_until;
use crate::clock::{self, Stamps};
use crate::datapath::Snapshot;
use crate::datapath::mmsg::{BATCH, RxBatch, TxBatch, TxItem};
use crate::units::Span;
use arrayvec::ArrayVec;
use hdrhistogram::Histogram;
use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::{Reader, Writer};
use trunkline_overlay::counters::DropReason;
use trunkline_overlay::handshake::message::Initiation;
use trunkline_overlay::identity::MacKey;
use trunkline_overlay::wire::{
    DATA_HEADER, DataHeader, FlowHeader, Frame, Frames, HopHeader, Metric, Seal, Service,
};

/// Measure what forged handshakes and replayed envelopes do to calls
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline bench attack
  trunkline bench attack --calls 200 --json

Calls of 50 packets a second cross a sealed node on processor 1; the load and
the attacker share processor 0. `attack/s` counts the datagrams sent, `ns
each` is the time that the node's thread spent on each, in excess of its other work,
and `refused` the share that it counted as refused. The delay is from the
load's send to the kernel's receive behind the node. There are no retransmissions.")]
pub struct Args {
    /// Rounds of each attack
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Duration of each round
    #[arg(long, default_value = "5 s")]
    round: Span,
    /// Calls through the node
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    calls: u32,
    /// Forged handshakes a second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000))]
    handshakes: u32,
    /// Replayed envelopes a second
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1_000..=200_000))]
    envelopes: u32,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the result as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Traffic of the attacker. The others are compared with the first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attack {
    None,
    /// Initiations from an attacker that lacks the node's public key.
    WithoutKey,
    /// Initiations from an attacker that has the key, from many addresses.
    WithKey,
    /// Replays of envelopes that the node has already opened.
    Replays,
}

impl Attack {
    const ALL: [Attack; 4] = [Attack::None, Attack::WithoutKey, Attack::WithKey, Attack::Replays];

    fn name(self) -> &'static str {
        match self {
            Attack::None => "no attack",
            Attack::WithoutKey => "initiations, key unknown",
            Attack::WithKey => "initiations, 250 addresses",
            Attack::Replays => "replayed envelopes",
        }
    }
}

/// Result of one attack: medians over the rounds, and sums of packets.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    attack_pps: f64,
    /// Share of its processor that the packet thread used.
    cpu: f64,
    /// Processor time that each datagram of the attack cost the node, ns; 0 without an attack.
    each_ns: f64,
    packets: u64,
    lost: u64,
    p50_us: f64,
    p99_us: f64,
    /// Share of the attack's datagrams that the node counted as refused, 0 to 1.
    refused: f64,
    /// Handshakes that the node computed, and answers that it sent, per second.
    computed: f64,
    answers: f64,
    /// Datagrams that the kernel dropped because the node's socket buffer was full.
    kernel_drops: u64,
}

#[derive(Serialize)]
struct Report {
    calls: u32,
    seconds: f64,
    rows: Vec<Row>,
}

/// Raw measurements of one round.
struct Round {
    attacked: u64,
    seconds: f64,
    cpu_ns: f64,
    packets: u64,
    lost: u64,
    delay: Histogram<u64>,
    refused: u64,
    computed: u64,
    answers: u64,
    kernel_drops: u64,
}

/// Runs `bench attack` and prints its result.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut rounds: [Vec<Round>; 4] = Default::default();
    let bar = indicatif::ProgressBar::new(u64::from(args.rounds) * Attack::ALL.len() as u64);
    for _ in 0..args.rounds {
        for (attack, results) in Attack::ALL.into_iter().zip(&mut rounds) {
            results.push(round(args, attack)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let quiet: Vec<f64> = rounds[0].iter().map(|r| r.cpu_ns / r.seconds).collect();
    let rows = Attack::ALL.iter().zip(&rounds).map(|(attack, rounds)| row(*attack, rounds, &quiet));
    let report = Report {
        calls: args.calls,
        seconds: args.round.0.as_secs_f64() * f64::from(args.rounds),
        rows: rows.collect(),
    };
    match (args.json, args.markdown) {
        (true, _) => print_json(&report),
        (_, true) => markdown(args, &report),
        _ => print(&report),
    }
    Ok(())
}

fn row(attack: Attack, rounds: &[Round], quiet: &[f64]) -> Row {
    let of = |pick: &dyn Fn(&Round) -> f64| median(rounds.iter().map(pick).collect());
    let sum = |pick: fn(&Round) -> u64| rounds.iter().map(pick).sum::<u64>();
    let at = |q: f64| of(&|r| r.delay.value_at_quantile(q) as f64 / 1e3);
    let attacked = sum(|r| r.attacked);
    // Compare within one round of all attacks, since they ran under the same conditions.
    let beyond = rounds.iter().zip(quiet).filter(|(r, _)| r.attacked > 0);
    let each = beyond.map(|(r, quiet)| (r.cpu_ns - quiet * r.seconds) / r.attacked as f64);
    let each: Vec<f64> = each.collect();
    Row {
        name: attack.name(),
        attack_pps: of(&|r| r.attacked as f64 / r.seconds),
        cpu: of(&|r| r.cpu_ns / r.seconds / 1e9),
        each_ns: if each.is_empty() { 0.0 } else { median(each) },
        packets: sum(|r| r.packets),
        lost: sum(|r| r.lost),
        p50_us: at(0.5),
        p99_us: at(0.99),
        refused: sum(|r| r.refused) as f64 / attacked.max(1) as f64,
        computed: of(&|r| r.computed as f64 / r.seconds),
        answers: of(&|r| r.answers as f64 / r.seconds),
        kernel_drops: sum(|r| r.kernel_drops),
    }
}

/// The load and the attacker, both stepped once per millisecond.
struct Stage<'a> {
    under_test: &'a UnderTest,
    seal: Seal,
    behind: Seal,
    calls: u32,
    /// Sealed envelopes that the calls have sent, kept for replay.
    recorded: Vec<[u8; ENVELOPE]>,
    attackers: Vec<UdpSocket>,
    forged: Vec<Vec<u8>>,
    next: u64,
    attacked: u64,
    arrived: Vec<bool>,
    delay: Histogram<u64>,
    rx: RxBatch,
    tx: TxBatch,
}

fn round(args: &Args, attack: Attack) -> Result<Round, Error> {
    let under_test = UnderTest::start(Contestant::Sealed)?;
    let mut stage = Stage::new(&under_test, args.calls, attack)?;
    // Run until enough envelopes are recorded.
    stage.play(Duration::from_secs(1), 0, attack)?;
    let (sent, attacked) = (stage.next, stage.attacked);
    stage.delay.reset();
    let snapshot = || under_test.snapshot().ok_or(Error::Broken("the packet thread is silent"));
    let (before, cpu, start) = (snapshot()?, under_test.cpu_ns(), clock::now());
    let rate = match attack {
        Attack::None => 0,
        Attack::WithoutKey | Attack::WithKey => args.handshakes,
        Attack::Replays => args.envelopes,
    };
    stage.play(args.round.0, rate, attack)?;
    let (seconds, cpu) = (clock::now().since(start).as_secs_f64(), under_test.cpu_ns() - cpu);
    let end = clock::now() + Duration::from_millis(300);
    while clock::now() < end {
        stage.take()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = snapshot()?;
    let (packets, attacked) = (stage.next - sent, stage.attacked - attacked);
    let lost = stage.arrived[sent as usize..].iter().filter(|came| !**came).count() as u64;
    let delay = stage.delay;
    under_test.stop()?;
    let counted = |pick: fn(&Snapshot) -> u64| pick(&after) - pick(&before);
    let shakes = |s: &Snapshot| s.handshakes.clone().unwrap_or_default();
    Ok(Round {
        attacked,
        seconds,
        cpu_ns: cpu as f64,
        packets,
        lost,
        delay,
        refused: counted(refused),
        computed: shakes(&after).computed - shakes(&before).computed,
        answers: shakes(&after).answers - shakes(&before).answers,
        kernel_drops: counted(|s| s.udp.kernel_drops),
    })
}

/// Datagrams from others that the node has refused.
fn refused(s: &Snapshot) -> u64 {
    let reasons = [
        DropReason::UnknownReceiver,
        DropReason::NoSession,
        DropReason::Replayed,
        DropReason::Forged,
    ];
    let drops = s.links.iter().map(|l| &l.stats.drops).chain([&s.node.drops]);
    let dropped = drops.flat_map(|d| reasons.map(|why| d.get(why))).sum::<u64>();
    let shakes = s.handshakes.iter().flat_map(|h| h.refusals()).map(|(_, n)| n);
    dropped + shakes.sum::<u64>()
}

impl<'a> Stage<'a> {
    fn new(under_test: &'a UnderTest, calls: u32, attack: Attack) -> Result<Stage<'a>, Error> {
        let &UnderTest { ref upstream, ref downstream, entry, .. } = under_test;
        let behind = sealed::shake(downstream, DOWNSTREAM, RELAY, entry)?;
        let seal = sealed::shake(upstream, UPSTREAM, RELAY, entry)?;
        setsockopt(downstream, sockopt::ReceiveTimestampns, &true)
            .map_err(|e| cannot("ask for timestamps")(e.into()))?;
        let sources = if attack == Attack::WithKey { 250 } else { 1 };
        let attackers =
            (1..=sources).map(|n| UdpSocket::bind(SocketAddr::from(([127, 66, 0, n], 0))));
        let attackers = attackers.collect::<Result<_, _>>().map_err(cannot("bind a socket"))?;
        Ok(Stage {
            under_test,
            seal,
            behind,
            calls,
            recorded: Vec::new(),
            attackers,
            forged: forged(attack),
            next: 0,
            attacked: 0,
            arrived: Vec::new(),
            delay: Histogram::new(3).expect("three digits are a valid precision"),
            rx: RxBatch::new(),
            tx: TxBatch::new(),
        })
    }

    /// Runs the calls for this long, with `rate` attack datagrams per second.
    fn play(&mut self, long: Duration, rate: u32, attack: Attack) -> Result<(), Error> {
        let start = clock::now();
        let (mut due, mut called, mut attacked) = (start, 0u64, 0u64);
        while due.since(start) < long {
            due += Duration::from_millis(1);
            sleep_until(due);
            let passed = due.since(start).as_millis() as u64;
            let calls = passed * u64::from(self.calls) / 20;
            self.call((calls - called) as usize)?;
            let all = passed * u64::from(rate) / 1_000;
            match attack {
                Attack::None => {}
                Attack::WithoutKey | Attack::WithKey => self.forge(all - attacked),
                Attack::Replays => self.replay(all - attacked),
            }
            (called, attacked) = (calls, all);
            self.take()?;
        }
        Ok(())
    }

    fn call(&mut self, packets: usize) -> Result<(), Error> {
        for _ in 0..packets {
            let mut envelope = [0; ENVELOPE];
            let frames = Seal::frames_mut(&mut envelope);
            let payload = frames.len() - DATA_HEADER;
            let flow = (self.next % u64::from(self.calls)) as u16;
            let header = DataHeader {
                flow: FlowHeader {
                    service: Service::RealTime,
                    metric: Metric::default(),
                    source: UPSTREAM,
                    destination: DOWNSTREAM,
                    source_port: flow,
                    destination_port: flow,
                    flow_seq: (self.next / u64::from(self.calls)) as u16,
                },
                hop: HopHeader {
                    recovered: false,
                    hop_limit: 8,
                    link_seq: self.next as u16,
                    remaining_ms: 100,
                },
            };
            let mut w = Writer::new(frames);
            // The envelope has exactly this much room.
            let _ = header.emit(payload as u16, &mut w);
            let _ = w.u64(self.next).and_then(|()| w.u64(clock::now().as_nanos()));
            self.seal.seal(&mut envelope);
            let sent = self.under_test.upstream.send_to(&envelope, self.under_test.entry);
            sent.map_err(cannot("send a call's packet"))?;
            self.recorded.push(envelope);
            self.arrived.push(false);
            self.next += 1;
        }
        Ok(())
    }

    fn forge(&mut self, n: u64) {
        for _ in 0..n {
            let k = self.attacked as usize;
            let attacker = &self.attackers[k % self.attackers.len()];
            let bytes = &self.forged[k % self.forged.len()];
            self.attacked += u64::from(attacker.send_to(bytes, self.under_test.entry).is_ok());
        }
    }

    fn replay(&mut self, n: u64) {
        let to = self.under_test.entry;
        let mut left = n as usize;
        while left > 0 {
            // Skip the newest, which may not have arrived yet.
            let old = self.recorded.len().saturating_sub(500).max(1);
            let from = self.attacked as usize % old;
            let batch = &self.recorded[from..old.min(from + BATCH.min(left))];
            let item = |bytes| TxItem::new(to, bytes);
            let items: ArrayVec<_, BATCH> = batch.iter().map(|b| item(&b[..])).collect();
            let sent = self.tx.send(self.attackers[0].as_fd(), items.into_iter()).unwrap_or(0);
            self.attacked += sent as u64;
            left = if sent == 0 { 0 } else { left.saturating_sub(sent) };
        }
    }

    /// Receives the packets that have come through.
    fn take(&mut self) -> Result<(), Error> {
        let socket = &self.under_test.downstream;
        let (stamps, now) = (Stamps::sample(), clock::now());
        while self.rx.recv(socket.as_fd()).map_err(cannot("receive"))? > 0 {
            for (m, bytes) in self.rx.iter_mut() {
                for envelope in bytes.chunks_mut(m.stride.max(1)) {
                    if envelope.len() < ENVELOPE || self.behind.open(envelope).is_err() {
                        continue;
                    }
                    // A hello may share the envelope.
                    let data = |frame| match frame {
                        Ok(Frame::Data(_, payload)) => Some(payload),
                        _ => None,
                    };
                    let payload = Frames::new(Seal::frames(envelope)).find_map(data);
                    let mut r = Reader::new(payload.unwrap_or_default());
                    let (Ok(number), Ok(sent)) = (r.u64(), r.u64()) else { continue };
                    if let Some(came) = self.arrived.get_mut(number as usize) {
                        *came = true;
                    }
                    let at = m.stamp.map_or(now, |stamp| stamps.place(stamp, now - OLDEST, now));
                    // The histogram resizes automatically, so no value is out of range.
                    let _ = self.delay.record(at.since(Time::from_nanos(sent)).as_nanos() as u64);
                }
            }
        }
        // The attacker's sockets may drop the node's answers.
        Ok(())
    }
}

/// Age beyond which a missing packet is no longer awaited.
const OLDEST: Duration = Duration::from_millis(200);

/// Initiations that can only be recognised as forged by computing the curve.
fn forged(attack: Attack) -> Vec<Vec<u8>> {
    let key = match attack {
        Attack::WithKey => identity(RELAY).public(),
        _ => identity(DOWNSTREAM).public(),
    };
    let Some(mac) = MacKey::for_node(&key) else { return Vec::new() };
    let message = |n: u32| {
        let mut noise = [0x5a; 200];
        noise[..4].copy_from_slice(&n.to_be_bytes());
        Initiation { cookie: [0; 16], noise: &noise }.emit(&mac)
    };
    (0..4_096).map(message).collect()
}

fn markdown(args: &Args, report: &Report) {
    let row = |r: &Row| {
        vec![
            r.name.to_owned(),
            format!("{:.0}", r.attack_pps),
            format!("{:.1} %", r.cpu * 100.0),
            format!("{:.0}", r.each_ns),
            r.packets.to_string(),
            r.lost.to_string(),
            format!("{:.0}", r.p50_us),
            format!("{:.0}", r.p99_us),
            format!("{:.1} %", r.refused * 100.0),
            format!("{:.1}", r.computed),
            format!("{:.0}", r.answers),
        ]
    };
    Table {
        title: "A sealed node under attack",
        command: format!("attack --calls {} --rounds {}", report.calls, args.rounds),
        columns: &[
            "attack",
            "datagrams/s",
            "processor",
            "ns each",
            "packets of calls",
            "lost",
            "p50, µs",
            "p99, µs",
            "refused",
            "handshakes computed/s",
            "answers/s",
        ],
        rows: report.rows.iter().map(row).collect(),
        notes: Vec::new(),
    }
    .print();
}

fn print(report: &Report) {
    outln!(
        "{:<27} {:>8} {:>6} {:>8} {:>8} {:>6} {:>7} {:>7} {:>8} {:>10} {:>9} {:>6}",
        format!("{} calls, sealed node", report.calls),
        "attack/s",
        "cpu",
        "ns each",
        "packets",
        "lost",
        "p50 µs",
        "p99 µs",
        "refused",
        "computed/s",
        "answers/s",
        "drops"
    );
    for r in &report.rows {
        outln!(
            "{:<27} {:>8.0} {:>5.1}% {:>8.0} {:>8} {:>6} {:>7.0} {:>7.0} {:>7.1}% {:>10.1} {:>9.0} {:>6}",
            r.name,
            r.attack_pps,
            r.cpu * 100.0,
            r.each_ns,
            r.packets,
            r.lost,
            r.p50_us,
            r.p99_us,
            r.refused * 100.0,
            r.computed,
            r.answers,
            r.kernel_drops
        );
    }
}
