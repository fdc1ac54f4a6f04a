//! Evaluation of a demo's packets.

use super::DEADLINE;
use super::chain::{Ledger, Metrics, Row, link_name, lossy_link};
use super::traffic::{INTERVAL, Kind, Packet, Plan, Traffic};
use crate::score::{self, Pesq};
use serde::Serialize;
use std::fmt;
use trunkline_base::stats::{Ratio, quantile};
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::playout::{self, Fate, Playout};
use trunkline_media::quality::emodel::{Codec, Parameters, burst_ratio, rate};
use trunkline_media::quality::pesq::{Score, summarize};

/// The contents of `result.json`.
#[derive(Serialize)]
pub struct Result {
    pub seed: u64,
    /// Names of the speakers, in the order of the calls.
    pub speakers: Vec<String>,
    pub runs: Vec<Run>,
    pub ledger: Check,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
}

/// Result of one service.
#[derive(Serialize)]
pub struct Run {
    pub service: &'static str,
    pub sent: u64,
    pub lost: u64,
    pub late: u64,
    pub recovered: u64,
    pub missed_percent: f64,
    pub missed_interval: [f64; 2],
    pub delay_ms: Delay,
    pub r: f64,
    pub mos: f64,
    /// PESQ against the speech before coding, in segments of 12 s; `None` if there is no speech, or
    /// too little.
    pub pesq: Option<Pesq>,
    /// Bytes on all links in both directions, including hellos and probes, relative to those of the
    /// packets alone without loss or recovery.
    pub overhead_percent: Option<f64>,
    /// The same overhead on the lossy link alone. Both are unknown if a node was killed, since its
    /// counts are lost.
    pub overhead_lossy_link_percent: Option<f64>,
    /// Packets that left the first node, or the caller over UDP; unknown where the overhead is.
    pub wire: Option<Wire>,
}

/// Voice traffic on the first link, without retransmissions and hellos. There are retransmissions
/// only if it is the lossy link.
#[derive(Serialize)]
pub struct Wire {
    /// Rate from the first voice packet to the last.
    pub packets_per_second: f64,
    /// Bytes including all headers, also those of IP and UDP.
    pub bytes_per_voice_packet: f64,
}

#[derive(Serialize)]
pub struct Delay {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// Effect on the calls of killing a node.
#[derive(Serialize)]
pub struct Restart {
    /// Time from the kill until the node was ready again.
    pub down_ms: f64,
    /// The longest time in which no packet sent over a service arrived, by service.
    pub gap_ms: Vec<(&'static str, f64)>,
}

/// Whether all counts agree.
#[derive(Serialize)]
pub struct Check {
    /// Discrepancies between the counts; empty if all agree.
    pub problems: Vec<String>,
    pub offered: u64,
    pub delivered: u64,
    pub lost: u64,
    pub lateness_us: serde_json::Value,
    pub links: serde_json::Value,
}

/// The p99.9 lateness of `impair`, in microseconds, above which a run measures the machine rather
/// than the services.
const BUSY_US: f64 = 1_000.0;

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.problems.is_empty() {
            return write!(f, "THE LEDGER DOES NOT ADD UP: {}", self.problems.join("; "));
        }
        let lateness_us = self.lateness_us["p99.9"].as_f64().unwrap_or(0.0);
        write!(
            f,
            "The ledger adds up: {} datagrams offered = {} delivered + {} lost + those dropped \
             otherwise or under way;\nnodes and listeners received what was delivered. Impair was \
             late by {:.1} ms (p99.9).",
            self.offered,
            self.delivered,
            self.lost,
            lateness_us / 1e3
        )?;
        if lateness_us > BUSY_US {
            write!(f, "\nThis machine was busy, and that delayed packets.")?;
        }
        Ok(())
    }
}

/// Computes the result of all services.
pub fn score(
    seed: u64,
    plan: &Plan,
    traffic: &Traffic,
    ledger: &Ledger,
    hops: u32,
    heard: &[Heard],
) -> Result {
    let restarted = traffic.outage.is_some();
    let run = |kind| {
        let of_kind = heard.iter().filter(|h| h.kind == kind);
        let pesq = summarize(of_kind.flat_map(|h| h.scores.iter().copied()));
        Run { pesq: pesq.map(Pesq::from), ..run(kind, plan, traffic, ledger, hops) }
    };
    Result {
        seed,
        speakers: plan.speakers.clone(),
        runs: Kind::ALL.into_iter().map(run).collect(),
        ledger: check(plan, traffic, ledger, restarted),
        restart: traffic.outage.map(|(died, back)| Restart {
            down_ms: ms(back.since(died)),
            gap_ms: Kind::ALL.map(|kind| (kind.name(), longest_gap(kind, plan, traffic))).to_vec(),
        }),
    }
}

pub fn ms(d: std::time::Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn is_late(p: &Packet) -> bool {
    matches!((p.sent, p.arrival), (Some(sent), Some(a)) if a.at.since(sent) > DEADLINE)
}

fn is_missed(p: &Packet) -> bool {
    p.arrival.is_none() || is_late(p)
}

/// The sent packets of all calls over one service.
pub fn packets<'a>(
    kind: Kind,
    plan: &Plan,
    traffic: &'a Traffic,
) -> impl Iterator<Item = &'a Packet> {
    let calls = (0..plan.calls).flat_map(move |call| traffic.call(kind, call));
    calls.filter(|p| p.sent.is_some())
}

fn run(kind: Kind, plan: &Plan, traffic: &Traffic, ledger: &Ledger, hops: u32) -> Run {
    let all = || packets(kind, plan, traffic);
    let count = |test: fn(&Packet) -> bool| all().filter(|p| test(p)).count() as u64;
    let sent = count(|_| true);
    let (lost, late) = (count(|p| p.arrival.is_none()), count(is_late));
    let recovered = count(|p| !is_late(p) && p.arrival.is_some_and(|a| a.recovered));
    let missed = share(lost + late, sent);

    let first = all().filter_map(|p| p.sent).min().unwrap_or_default();
    let clusters = |test: fn(&Packet) -> bool| {
        let mut seconds = vec![(0, 0); 2_000];
        for p in all() {
            let second = p.sent.map_or(0, |t| t.since(first).as_secs()) as usize;
            let (events, cases) = &mut seconds[second.min(1_999)];
            (*events, *cases) = (*events + u64::from(test(p)), *cases + 1);
        }
        seconds
    };
    let hit = |p: &Packet| is_missed(p) || p.arrival.is_some_and(|a| a.recovered);
    let hit = Ratio::of_losses(&clusters(hit));
    let (low, high) = Ratio::of_remaining(&clusters(is_missed), &hit).interval;

    let calls = (0..plan.calls).map(|c| traffic.call(kind, c));
    let heard = Parameters::default()
        .with_delay(DEADLINE + INTERVAL)
        .with_codec(Codec::G711_PLC)
        .with_loss(missed, burst_ratio(calls.flatten().map(is_missed)));
    let rating = rate(&heard);
    let overhead = |links: Option<u32>| {
        let whole = traffic.outage.is_none();
        whole.then(|| overhead_percent(kind, ledger, hops, links))
    };
    Run {
        service: kind.name(),
        sent,
        lost,
        late,
        recovered,
        missed_percent: missed * 100.0,
        missed_interval: [low * 100.0, high * 100.0],
        delay_ms: delays(all()),
        // The scale is undefined below 0.
        r: rating.r.max(0.0),
        mos: rating.mos(),
        pesq: None,
        overhead_percent: overhead(None),
        overhead_lossy_link_percent: overhead(Some(lossy_link(hops))),
        wire: traffic.outage.is_none().then(|| {
            let last = all().filter_map(|p| p.sent).max().unwrap_or_default();
            let seconds = (last.since(first) + INTERVAL).as_secs_f64();
            let (packets, bytes) = entered(kind, ledger);
            let bytes_per_voice_packet = if sent == 0 { 0.0 } else { bytes / sent as f64 };
            Wire { packets_per_second: packets / seconds, bytes_per_voice_packet }
        }),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn delays<'a>(packets: impl Iterator<Item = &'a Packet>) -> Delay {
    let of = |p: &Packet| Some(ms(p.arrival?.at.since(p.sent?)));
    let mut all: Vec<f64> = packets.filter_map(of).collect();
    all.sort_by(f64::total_cmp);
    let at = |share: f64| quantile(&all, share).unwrap_or(0.0);
    Delay { p50: at(0.5), p99: at(0.99), max: at(1.0) }
}

/// Bytes of IP and UDP headers on the loopback interface.
const IP_UDP: f64 = 28.0;

/// Class of the packets in a row that carry the voice of `kind`.
fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Udp | Kind::BestEffort => "best_effort",
        Kind::Once | Kind::RealTime | Kind::Trunk => "realtime",
    }
}

/// Packets that carry voice into the first link, and their bytes, including IP and UDP headers.
fn entered(kind: Kind, ledger: &Ledger) -> (f64, f64) {
    let Some(row) = kind.row() else {
        let udp = find(ledger, "udp");
        let of = |what: &str| udp["forward"]["offered"][what].as_f64().unwrap_or(0.0);
        return (of("packets"), of("bytes"));
    };
    let labels = ["neighbour=\"2\"", &format!("class=\"{}\"", class(kind))];
    let first = &ledger.rows[row as usize][0];
    let packets = first.sum_where("trunkline_link_sent_envelopes_total", &labels);
    let bytes = first.sum_where("trunkline_link_sent_bytes_total", &labels);
    (packets, bytes + IP_UDP * packets)
}

/// Finds the link of this name in the ledger of `impair`.
fn find(ledger: &Ledger, name: &str) -> serde_json::Value {
    let mut links = ledger.impair["links"].as_array().into_iter().flatten();
    links.find(|l| l["name"] == name).cloned().unwrap_or_default()
}

/// Overhead on one link, or on all.
fn overhead_percent(kind: Kind, ledger: &Ledger, hops: u32, link: Option<u32>) -> f64 {
    let Some(row) = kind.row() else { return 0.0 };
    // Hellos are sent whatever a row carries. Two services share the default row, and each is
    // charged with all of its hellos, as if it were alone.
    let classes: &[&str] = match kind {
        Kind::Udp | Kind::BestEffort => &[class(kind), "hello", "routing"],
        Kind::Once | Kind::RealTime | Kind::Trunk => {
            &[class(kind), "retransmission", "request", "hello", "routing"]
        }
    };
    // Node ids count from 1; a link's ends are its index and the next.
    let neighbour = |node: usize| {
        link.map(|l| if node as u32 == l { l + 2 } else { l + 1 })
            .map_or(String::new(), |id| format!("neighbour=\"{id}\""))
    };
    let here = |node: usize| link.is_none_or(|l| node as u32 == l || node as u32 == l + 1);
    let total = |name: &str, classes: &[&str]| -> f64 {
        let of_node = |(i, m): (usize, &Metrics)| -> f64 {
            let labels = neighbour(i);
            let one = |class: &&str| m.sum_where(name, &[&labels, &format!("class=\"{class}\"")]);
            classes.iter().map(one).sum()
        };
        let nodes = ledger.rows[row as usize].iter().enumerate();
        nodes.filter(|(i, _)| here(*i)).map(of_node).sum()
    };
    let bytes = |classes: &[&str]| {
        total("trunkline_link_sent_bytes_total", classes)
            + IP_UDP * total("trunkline_link_sent_envelopes_total", classes)
    };
    // Without loss, the packets that enter the first link cross all links.
    let undisturbed = entered(kind, ledger).1 * link.map_or(f64::from(hops), |_| 1.0);
    if undisturbed == 0.0 {
        return 0.0;
    }
    (bytes(classes) / undisturbed - 1.0) * 100.0
}

fn longest_gap(kind: Kind, plan: &Plan, traffic: &Traffic) -> f64 {
    let mut sent: Vec<_> =
        packets(kind, plan, traffic).filter(|p| !is_missed(p)).filter_map(|p| p.sent).collect();
    sent.sort_unstable();
    sent.windows(2).map(|w| ms(w[1].since(w[0]))).fold(0.0, f64::max)
}

/// Checks the counts of `impair` for consistency, and against those of the nodes and the
/// applications.
fn check(plan: &Plan, traffic: &Traffic, ledger: &Ledger, restarted: bool) -> Check {
    let links = &ledger.impair["links"];
    let count = |direction: &serde_json::Value, what: &str| {
        direction[what]["packets"].as_u64().unwrap_or(0)
    };
    let mut problems = Vec::new();
    let (mut offered, mut delivered, mut lost) = (0, 0, 0);
    for link in links.as_array().into_iter().flatten() {
        for way in ["forward", "reverse"] {
            let d = &link[way];
            let parts =
                ["delivered", "lost", "queue_dropped", "pool_dropped", "send_errors", "in_flight"];
            let sum: u64 = parts.iter().map(|what| count(d, what)).sum();
            if count(d, "offered") != sum {
                problems.push(format!("link {} {way}: offered is not the sum", link["name"]));
            }
            offered += count(d, "offered");
            delivered += count(d, "delivered");
            lost += count(d, "lost");
        }
    }
    let udp = find(ledger, "udp");
    let sent = packets(Kind::Udp, plan, traffic).count() as u64;
    let came = packets(Kind::Udp, plan, traffic).filter(|p| p.arrival.is_some()).count() as u64;
    for (what, counted, seen) in [
        ("sent", count(&udp["forward"], "offered"), sent),
        ("received", count(&udp["forward"], "delivered"), came),
    ] {
        if counted != seen {
            problems.push(format!("UDP: {what} {seen}, in the ledger {counted}"));
        }
    }
    // The counts of a killed node are lost.
    let all = |row: Row| (0..ledger.rows[row as usize].len()).map(move |node| (row, node));
    for (row, node) in Row::ALL.into_iter().flat_map(all).filter(|_| !restarted) {
        let m = &ledger.rows[row as usize][node];
        // Handshake messages belong to no link until they are read.
        let seen = m.sum_where("trunkline_link_received_envelopes_total", &[])
            + m.sum_where("trunkline_handshake_messages_total", &[]);
        let delivered = |link: Option<usize>, way| {
            let link = link.map(|i| find(ledger, &link_name(row, i as u32))).unwrap_or_default();
            count(&link[way], "delivered")
        };
        let counted = delivered(node.checked_sub(1), "forward") + delivered(Some(node), "reverse");
        if seen as u64 != counted {
            let who = row.name(node as u32);
            problems.push(format!("{who} received {seen}, in the ledger {counted}"));
        }
    }
    if traffic.duplicates > 0 {
        problems.push(format!("{} packets arrived twice", traffic.duplicates));
    }
    let lateness_us = ledger.impair["lateness_us"].clone();
    Check { problems, offered, delivered, lost, lateness_us, links: links.clone() }
}

/// Audio that one listener received.
pub struct Heard {
    pub kind: Kind,
    pub call: usize,
    pub pcm: Vec<i16>,
    /// The fate of each packet.
    pub fates: Vec<Fate>,
    /// PESQ of each segment in turn; `None` where there is no speech.
    pub scores: Vec<Option<Score>>,
}

impl Heard {
    /// Name of the recording's file.
    pub fn file_name(&self) -> String {
        format!("{}-{:02}.wav", self.kind.name(), self.call + 1)
    }
}

/// Decodes the audio of each listener, by kind and call, and scores it.
pub fn heard(plan: &Plan, traffic: &Traffic) -> Vec<Heard> {
    let mut out = Vec::new();
    for kind in Kind::ALL {
        for call in 0..plan.calls {
            let config = playout::Config {
                deadline: DEADLINE,
                first_sequence: Some(0),
                ..playout::Config::default()
            };
            let mut playout = Playout::new(config);
            for (k, packet) in traffic.call(kind, call).iter().enumerate() {
                let (Some(sent), Some(a)) = (packet.sent, packet.arrival) else { continue };
                let delay = a.at.since(sent);
                // The packets are in order and within bounds, so that playout accepts them all.
                let _ = playout.receive(k as u16, delay, a.recovered, plan.frame(call, k));
            }
            let played = playout.finish(Some(plan.packets), &mut Concealing::new(Law::Mu));
            let (pcm, fates) = (played.pcm, played.fates);
            out.push(Heard { kind, call, pcm, fates, scores: Vec::new() });
        }
    }
    listen(plan, &mut out);
    out
}

/// Scores each segment. As in Amir et al. 2005, §II-C, the reference is the original recording, so
/// that the codec's impairment is included.
fn listen(plan: &Plan, heard: &mut [Heard]) {
    let pairs: Vec<(&[i16], &[i16])> =
        heard.iter().map(|h| (&plan.speech[h.call][..], &h.pcm[..])).collect();
    // Both have the length of the call, and no call is too short.
    let scores = score::all(&pairs).unwrap_or_default();
    for (listener, scores) in heard.iter_mut().zip(scores) {
        listener.scores = scores;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One link with 100 packets of 216 bytes, 10 separate hellos of 46 bytes, and as many bytes of
    /// hellos that share a datagram.
    #[test]
    fn all_bytes_on_links_count() {
        let node = |class: &str, envelopes: u64, bytes: u64| {
            format!(
                "trunkline_link_sent_envelopes_total{{neighbour=\"2\",class=\"{class}\"}} {envelopes}\n\
                 trunkline_link_sent_bytes_total{{neighbour=\"2\",class=\"{class}\"}} {bytes}\n"
            )
        };
        let text = node("realtime", 100, 21_600) + &node("hello", 10, 460 + 220);
        let ledger = Ledger {
            impair: serde_json::Value::Null,
            rows: vec![vec![Metrics::parse(&text), Metrics::parse("")]],
        };
        let percent = overhead_percent(Kind::RealTime, &ledger, 1, None);
        let expected = 100.0 * (680.0 + 280.0) / (100.0 * 244.0);
        assert!((percent - expected).abs() < 1e-9, "{percent}, not {expected}");
    }
}
