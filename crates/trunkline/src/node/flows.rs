//! Flows as shown to an operator, rated by the E-model; and streams.

use crate::datapath::FlowSnapshot;
use crate::datapath::sessions::Application;
use crate::operate::protocol::{Direction, Flow, FlowQuality, Stream};
use std::time::Duration;
use trunkline_media::quality::emodel::{Codec, Parameters, burst_ratio_of, rate};
use trunkline_overlay::node as overlay;
use trunkline_overlay::session::Client;
use trunkline_overlay::session::flows::{Counts, Received};

/// Usual duration of audio in a G.711 packet: the oldest sample has this age when the packet
/// leaves.
const PACKET: Duration = Duration::from_millis(20);

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Converts a flow for display; `clients` maps client numbers to the names of `[[client]]`
/// sections.
pub fn view<'a>(snapshot: &FlowSnapshot, clients: impl Fn(u16) -> Option<&'a str>) -> Flow {
    let FlowSnapshot { at, flow, application } = snapshot;
    let (name, pid) = named(application.as_ref(), clients);
    let span = flow.span.as_secs_f64();
    let per_second = |n: u64| (span > 0.0).then(|| n as f64 / span);
    let quality = |counts| flow.received.and_then(|received| quality(counts, &received));
    Flow {
        direction: if flow.received.is_some() { Direction::In } else { Direction::Out },
        port: flow.ends.port,
        peer: flow.ends.peer.0,
        peer_port: flow.ends.peer_port,
        service: flow.service,
        application: name,
        pid,
        since_s: at.since(flow.since).as_secs_f64(),
        silent_s: at.since(flow.last).as_secs_f64(),
        ended: flow.over,
        packets: flow.call.packets,
        bytes: flow.call.bytes,
        refused: flow.refused,
        pps: per_second(flow.recent.packets),
        bps: per_second(flow.recent.bytes * 8),
        deadline_ms: flow.received.and_then(|r| r.deadline()).map(ms),
        restarts: flow.received.map(|r| r.restarts),
        last_10s: quality(&flow.recent),
        call: quality(&flow.call),
    }
}

/// Removes the ratings of a flow that is no speech.
pub fn without_rating(flow: Flow) -> Flow {
    let unrated = |q: FlowQuality| FlowQuality { r: None, mos: None, ..q };
    Flow { last_10s: flow.last_10s.map(unrated), call: flow.call.map(unrated), ..flow }
}

/// Converts a stream for display; `clients` maps client numbers to the names of `[[client]]`
/// sections.
pub fn stream_view<'a>(
    (stream, application): &(overlay::Stream, Option<Application>),
    clients: impl Fn(u16) -> Option<&'a str>,
) -> Stream {
    let (application, pid) = named(application.as_ref(), clients);
    Stream {
        peer: stream.peer.0,
        peer_port: stream.peer_port,
        port: stream.port,
        state: stream.state.name().into(),
        application,
        pid,
        rtt_ms: stream.rtt.map(ms),
        window: stream.window,
        sent: stream.sent,
        unacknowledged: stream.unacknowledged,
        received: stream.received,
        unread: stream.unread,
        retransmitted: stream.retransmitted,
    }
}

/// Name of an application, and its process id.
fn named<'a>(
    application: Option<&Application>,
    clients: impl Fn(u16) -> Option<&'a str>,
) -> (Option<String>, Option<i32>) {
    match application {
        Some(Application::Process(pid)) => (process(*pid), Some(*pid).filter(|pid| *pid > 0)),
        Some(Application::Inside) => (Some("in the node's process".into()), None),
        Some(Application::Remote(Client::Known(i))) => (clients(*i).map(str::to_owned), None),
        None | Some(Application::Remote(Client::Local | Client::Gateway)) => (None, None),
    }
}

/// Name of a process, while it runs and is accessible.
fn process(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Quality of a flow with these `counts`; `None` if no packet was expected.
pub fn quality(counts: &Counts, received: &Received) -> Option<FlowQuality> {
    let &Counts { expected, late, recovered, .. } = counts;
    if expected == 0 {
        return None;
    }
    // More packets may have arrived than were due, if some were missing before.
    let missed = u64::try_from(counts.missed).unwrap_or(0).min(expected);
    let bursts = u64::try_from(counts.bursts).unwrap_or(0).min(missed);
    // Playout is at the deadline, as far as it is known; later packets count as missed, as in
    // `trunkline call recv`.
    let deadline = received.deadline().unwrap_or(received.most_left);
    let share = missed as f64 / expected as f64;
    let heard = Parameters::default()
        .with_delay(deadline + PACKET)
        .with_codec(Codec::G711_PLC)
        .with_loss(share, burst_ratio_of(expected, missed, bursts));
    let rating = rate(&heard);
    Some(FlowQuality {
        expected,
        lost: counts.lost(),
        late,
        recovered,
        missed_share: share,
        delay_ms: received.delay(counts).map(ms),
        jitter_ms: counts.jitter().map(ms),
        // The scale has no meaning below 0.
        r: Some(rating.r.max(0.0)),
        mos: Some(rating.mos()),
    })
}

/// Cumulative distribution of the flows by one quality measure.
pub struct Distribution {
    /// Name of the metric.
    pub name: &'static str,
    /// Help text of the metric.
    pub help: &'static str,
    /// For each upper bound, the number of flows at or below it.
    pub at_most: Vec<(f64, usize)>,
}

/// Distributions of the incoming `flows` that received packets in the last ten seconds. A flow
/// without a value is left out of that distribution.
pub fn distributions(flows: &[FlowSnapshot]) -> Vec<Distribution> {
    type Pick = fn(&FlowQuality) -> Option<f64>;
    let measures: [(&str, &str, &[f64], Pick); 4] = [
        (
            "flow_missed_ratio_bucket",
            "Incoming flows by the share of packets missed, lost or late, in the last ten seconds",
            &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, f64::INFINITY],
            |q| Some(q.missed_share),
        ),
        (
            "flow_mos_bucket",
            "Incoming flows by their mean opinion score in the last ten seconds: E-model, G.711",
            &[1.0, 2.0, 2.58, 3.1, 3.6, 4.03, 4.34, f64::INFINITY],
            |q| q.mos,
        ),
        (
            "flow_delay_seconds_bucket",
            "Incoming flows by their mean one-way delay in the last ten seconds",
            &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, f64::INFINITY],
            |q| Some(q.delay_ms? / 1e3),
        ),
        (
            "flow_jitter_seconds_bucket",
            "Incoming flows by their jitter in the last ten seconds",
            &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, f64::INFINITY],
            |q| Some(q.jitter_ms? / 1e3),
        ),
    ];
    let live = flows.iter().filter(|f| !f.flow.over);
    let known: Vec<_> = live.filter_map(|f| quality(&f.flow.recent, &f.flow.received?)).collect();
    let count = |(name, help, bounds, pick): (_, _, &[f64], Pick)| {
        let below = |bound| known.iter().filter_map(pick).filter(|v| *v <= bound).count();
        let at_most = bounds.iter().map(|bound| (*bound, below(*bound))).collect();
        Distribution { name, help, at_most }
    };
    measures.map(count).into()
}
