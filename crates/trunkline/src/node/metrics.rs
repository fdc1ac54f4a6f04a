//! The packet thread's counters in the text formats of OpenMetrics and Prometheus.

mod gateway;
mod streams;

use super::flows::{Distribution, distributions};
use crate::datapath::{FlowSnapshot, LinkSnapshot, Snapshot};
use crate::sip::GatewayReport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use trunkline_overlay::counters::{ReceiverStats, Traffic};
use trunkline_overlay::link::LinkStats;
use trunkline_overlay::monitor::LinkQuality;
use trunkline_overlay::node::{Receiving, Trunk};
use trunkline_overlay::trunk::{self, State, Stats};
use trunkline_overlay::wire::Service;

/// HTTP content type of the text from [`render`] (OpenMetrics 1.0.0).
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// HTTP content type of the text from [`classic`].
pub const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Converts the text of [`render`] to Prometheus' older format, for clients that don't request
/// OpenMetrics. In it, a counter has the same name as its samples, with `_total`, and there is no
/// end marker.
pub fn classic(open_metrics: &str) -> String {
    let kind = |line: &str| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.1 == "counter");
    let mut out = String::with_capacity(open_metrics.len() + (1 << 10));
    let mut lines = open_metrics.lines().filter(|line| *line != "# EOF").peekable();
    let mut counter = false;
    while let Some(line) = lines.next() {
        // The `TYPE` line of a metric follows its `HELP` line.
        let told = kind(line).or_else(|| kind(lines.peek()?));
        counter = told.unwrap_or(counter);
        match line.strip_prefix("# ").and_then(|line| line.split_once(' ')?.1.split_once(' ')) {
            Some((name, _)) if counter => {
                out.push_str(&line.replacen(name, &format!("{name}_total"), 1))
            }
            Some((_, "unknown")) => out.push_str(&line.replace(" unknown", " untyped")),
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Renders `snapshot`, `flows` and a gateway's report as text.
pub fn render(
    snapshot: Snapshot,
    flows: Vec<FlowSnapshot>,
    report: Option<GatewayReport>,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("trunkline");
    registry.register_collector(Box::new(Node(snapshot, flows)));
    if let Some(report) = report {
        registry.register_collector(Box::new(gateway::Gateway(report)));
    }
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Node(Snapshot, Vec<FlowSnapshot>);

type Labels = Vec<(String, String)>;

/// One metric with its values by label.
struct Family<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Family<'_, '_> {
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        self.encode(name, help, values.map(|(l, v)| (l, ConstCounter::new(v))))
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.encode(name, help, values.map(|(l, v)| (l, ConstGauge::new(v))))
    }

    /// Writes the buckets of current values without a type: the values are gauges in the form of a
    /// histogram, so neither type may be declared.
    fn distribution(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        self.encode(name, help, values.map(|(l, v)| (l, Untyped(v))))
    }

    fn encode<M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, M)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        let Some((_, first)) = values.peek() else { return Ok(()) };
        let kind = first.metric_type();
        let mut encoder = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            if labels.is_empty() {
                return value.encode(encoder);
            }
            value.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

struct Untyped(f64);

impl EncodeMetric for Untyped {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

fn label(name: &str, value: impl fmt::Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn single(value: u64) -> impl Iterator<Item = (Labels, u64)> {
    std::iter::once((Labels::new(), value))
}

/// Traffic that a link sends, by class, and by service if the class belongs to one.
fn classes(s: &LinkStats) -> Vec<(&'static str, Option<Service>, Traffic)> {
    let mut all =
        vec![("hello", None, s.hellos), ("routing", None, s.routing), ("path", None, s.paths)];
    for service in Service::ALL {
        let of = s.of(service);
        all.push((service.label(), Some(service), of.originals));
        if of.receiver.is_some() {
            all.push(("request", Some(service), of.requests));
            all.push(("retransmission", Some(service), of.retransmissions));
        }
    }
    all
}

/// Counter of a trunk's end: name, help text and accessor.
type Counted<S> = (&'static str, &'static str, fn(&S) -> u64);

/// Counter of a service's receiving half: name, help text and accessor.
type Received = (&'static str, &'static str, fn(ReceiverStats) -> u64);
const RECEIVED: [Received; 4] = [
    ("received", "packets accepted", |r| r.received),
    ("missing", "packets found missing", |r| r.missing),
    ("asked", "retransmissions requested", |r| r.asked),
    ("filled", "missing packets that arrived after all", |r| r.filled),
];

impl Collector for Node {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let s = &self.0;
        let mut f = Family(&mut encoder);
        f.gauges(
            "sessions",
            "Applications attached now",
            std::iter::once((Labels::new(), s.node.sessions as f64)),
        )?;
        f.counters(
            "from_sessions",
            "Packets that applications here sent",
            single(s.node.from_sessions),
        )?;
        f.counters(
            "to_sessions",
            "Packets handed to applications here",
            single(s.node.to_sessions),
        )?;
        f.counters("forwarded", "Packets passed from link to link", single(s.node.forwarded))?;
        f.counters(
            "echoes_answered",
            "Echo requests of other nodes answered",
            single(s.node.echoes_answered),
        )?;
        f.counters(
            "port_unreachable_sent",
            "Packets to unbound ports for which the source was notified",
            single(s.node.port_unreachable_sent),
        )?;
        f.counters(
            "port_unreachable_accepted",
            "Port states reported by other nodes after an application had sent there",
            single(s.node.port_unreachable_accepted),
        )?;
        f.counters(
            "node_drops",
            "Packets and messages dropped outside any link",
            s.node.drops.iter().map(|(why, n)| (vec![label("reason", why.label())], n)),
        )?;
        f.counters(
            "kernel_drops",
            "Receives that found the socket's buffer full; with offload, each of up to 64 datagrams",
            single(s.udp.kernel_drops),
        )?;
        f.counters(
            "send_errors",
            "Datagrams that the kernel refused to send",
            single(s.thread.send_errors),
        )?;
        f.gauges(
            "receive_buffer_bytes",
            "Receive buffer of the UDP socket that has the smallest, in bytes",
            std::iter::once((Labels::new(), s.udp.receive_buffer as f64)),
        )?;
        f.counters("recv_errors", "Receives that failed", single(s.udp.recv_errors))?;
        f.counters("wakeups", "Wake-ups of the packet thread", single(s.thread.wakeups))?;
        f.counters("blocked", "Times that a socket had no room", single(s.thread.blocked))?;
        f.counters(
            "packet_thread_allocations",
            "Memory allocations of the packet thread: for sessions, flows and queries of its counters, none for packets",
            single(s.thread.allocations),
        )?;
        self.encode_flows(&mut f)?;
        self.encode_control(&mut f)?;
        self.encode_remote(&mut f)?;
        self.encode_quality(&mut f)?;
        self.encode_trunks(&mut f)?;
        streams::encode(&mut f, &s.node.streams)?;
        self.encode_links(&mut f)
    }
}

impl Node {
    /// Writes distributions of flows by quality; individual flows have no metrics.
    fn encode_flows(&self, f: &mut Family<'_, '_>) -> fmt::Result {
        let live = |ends_here| {
            let flows = self.1.iter().filter(|f| !f.flow.over);
            flows.filter(|f| f.flow.received.is_some() == ends_here).count() as f64
        };
        let directions = [("in", live(true)), ("out", live(false))];
        f.gauges("flows", "Flows that end (in) or begin (out) here and have not ended", {
            directions.into_iter().map(|(way, n)| (vec![label("direction", way)], n))
        })?;
        f.counters(
            "flow_controlled_packets",
            "Times that a packet of a blocking application was flow-controlled",
            single(self.0.node.flow_controlled),
        )?;
        f.counters(
            "over_rate",
            "Packets of applications refused because their user had used up [access] rate",
            single(self.0.thread.over_rate),
        )?;
        f.counters(
            "rate_waits",
            "Times that a message of a stream or a blocking application waited for [access] rate",
            single(self.0.thread.rate_waits),
        )?;
        f.counters(
            "flows_displaced",
            "Flows that made room for others in the table of flows before they had ended",
            single(self.0.node.flows_displaced),
        )?;
        for Distribution { name, help, at_most } in distributions(&self.1) {
            let bound = |le: f64| if le.is_finite() { le.to_string() } else { "+Inf".into() };
            let buckets =
                at_most.into_iter().map(|(le, n)| (vec![label("le", bound(le))], n as f64));
            f.distribution(name, help, buckets)?;
        }
        Ok(())
    }

    /// Writes the metrics of trunks, outgoing and incoming.
    fn encode_trunks(&self, f: &mut Family<'_, '_>) -> fmt::Result {
        let (out, coming) = &self.0.trunks;
        let is_open = out.iter().map(|t| (t, f64::from(t.state == State::Open)));
        let to = |t: &Trunk| vec![label("to", t.config.to.to_string())];
        f.gauges("trunk_open", "Whether the other end of a trunk takes trunk packets", {
            is_open.map(|(t, open)| (to(t), open))
        })?;
        let over = out.iter().map(|t| (to(t), f64::from(t.is_over_share)));
        f.gauges("trunk_over_share", "Whether a trunk sends more than a TCP would", over)?;
        let loss = out.iter().map(|t| (to(t), t.loss));
        f.gauges("trunk_loss_event_rate", "Loss events per trunk packet, as reported", loss)?;
        let sent: [Counted<Stats>; 9] = [
            ("packets", "Packets that left together with others", |s| s.packets),
            ("bytes", "Bytes of packets that left together with others", |s| s.bytes),
            ("trunk_packets", "Trunk packets sent", |s| s.trunk_packets),
            ("trunk_bytes", "Bytes of trunk packets with their headers", |s| s.trunk_bytes),
            ("compressed", "Packets whose RTP headers were compressed", |s| s.compressed),
            ("header_bytes_saved", "Bytes saved by compressing RTP headers", |s| {
                s.header_bytes_saved
            }),
            ("alone", "Packets to a trunk's node that left alone", |s| s.alone),
            ("unanswered", "Packets that left alone because the other end had not answered", |s| {
                s.unanswered
            }),
            ("dropped", "Trunk packets that no link accepted", |s| s.dropped),
        ];
        for (name, help, count) in sent {
            let counts = out.iter().map(|t| (to(t), count(&t.stats)));
            f.counters(&format!("trunk_sent_{name}"), help, counts)?;
        }
        let received: [Counted<trunk::ReceiverStats>; 4] = [
            ("trunk_packets", "Trunk packets received", |s| s.trunk_packets),
            ("packets", "Packets in those", |s| s.packets),
            ("unknown", "Packets of flows not announced yet", |s| s.unknown),
            ("no_template", "Packets with RTP headers not announced yet", |s| s.no_template),
        ];
        for (name, help, count) in received {
            let from = |t: &Receiving| vec![label("from", t.from.to_string())];
            let counts = coming.iter().map(|t| (from(t), count(&t.stats)));
            f.counters(&format!("trunk_received_{name}"), help, counts)?;
        }
        Ok(())
    }

    /// Writes the metrics of handshakes and routing.
    fn encode_control(&self, f: &mut Family<'_, '_>) -> fmt::Result {
        let by_reason = |why: &'static str, n| (vec![label("reason", why)], n);
        if let Some(end) = self.0.certificate_not_after {
            let help = "When the node's certificate ends, seconds since 1970";
            let end = std::iter::once((Labels::new(), end as f64));
            f.gauges("certificate_not_after_timestamp_seconds", help, end)?;
        }
        if let Some(h) = &self.0.handshakes {
            let help = "Handshake messages received";
            f.counters("handshake_messages", help, single(h.received))?;
            let help = "Handshakes that gave a link a session";
            f.counters("handshakes", help, single(h.established))?;
            let help = "Handshakes for which curves were computed";
            f.counters("handshakes_computed", help, single(h.computed))?;
            let help = "Handshakes that may have been copies, and were challenged";
            f.counters("handshakes_challenged", help, single(h.challenges))?;
            let help = "Handshake messages refused";
            let refused = h.refusals().map(|(why, n)| by_reason(why.label(), n));
            f.counters("handshakes_refused", help, refused)?;
        }
        if let Some((r, nodes)) = &self.0.routing {
            let nodes = std::iter::once((Labels::new(), *nodes as f64));
            f.gauges("routing_nodes", "Nodes whose links are known, this one included", nodes)?;
            let help = "Updates of other nodes that were new";
            f.counters("routing_accepted", help, single(r.accepted))?;
            let help = "Updates that were refused or already known";
            let refused = r.refused.iter().map(|(why, n)| by_reason(why.label(), n));
            f.counters("routing_refused", help, refused)?;
            let denied = std::iter::once((Labels::new(), r.denied as f64));
            let help = "Links that a node advertises and their other end does not";
            f.gauges("routing_links_denied", help, denied)?;
            let differing = std::iter::once((Labels::new(), self.0.differing.count as f64));
            let help = "Nodes whose routing formula, deadline or detection time differs";
            f.gauges("routing_differs", help, differing)?;
            let help = "Computations of shortest paths";
            f.counters("routing_spf_runs", help, single(r.spf_runs))?;
        }
        Ok(())
    }

    fn encode_remote(&self, f: &mut Family<'_, '_>) -> fmt::Result {
        let remote = &self.0.remote;
        let paths = [("udp", remote.over_udp), ("tcp", remote.over_tcp)];
        f.gauges(
            "remote_sessions",
            "Applications of other hosts attached now, by what carries packets to them",
            paths.into_iter().map(|(path, n)| (vec![label("carrier", path)], n as f64)),
        )?;
        f.counters(
            "remote_drops",
            "Datagrams and connections of remote applications given up",
            remote.stats.iter().map(|(why, n)| (vec![label("reason", why)], n)),
        )?;
        f.counters(
            "remote_replaced",
            "Sessions whose remote application came back over another connection",
            single(remote.stats.replaced),
        )
    }

    fn links(&self) -> impl Iterator<Item = (Labels, &LinkSnapshot)> {
        let labels =
            |l: &LinkSnapshot| vec![label("neighbour", l.neighbour), label("path", &l.path)];
        self.0.links.iter().map(move |l| (labels(l), l))
    }

    fn encode_quality(&self, f: &mut Family<'_, '_>) -> fmt::Result {
        let links = || self.links().map(|(l, link)| (l, link.quality));
        f.gauges("link_up", "Whether both ends have heard each other lately", {
            links().map(|(l, q)| (l, f64::from(u8::from(q.up))))
        })?;
        f.gauges("link_rtt_seconds", "Smoothed round trip", {
            links().filter_map(|(l, q)| Some((l, q.rtt?.as_secs_f64())))
        })?;
        f.gauges("link_jitter_seconds", "Interarrival jitter of hellos (RFC 3550)", {
            links().filter_map(|(l, q)| Some((l, q.jitter?.as_secs_f64())))
        })?;
        f.gauges(
            "link_damping_ratio",
            "Share of packets that the link is advertised to lose because it keeps failing",
            links().map(|(l, q)| (l, q.damping.share)),
        )?;
        type Pick = fn(&LinkQuality) -> Option<f64>;
        let both = |pick: [Pick; 2]| {
            links().flat_map(move |(l, q)| {
                ["in", "out"].into_iter().zip(pick).filter_map(move |(direction, pick)| {
                    let mut all = l.clone();
                    all.push(label("direction", direction));
                    Some((all, pick(&q)?))
                })
            })
        };
        f.gauges(
            "link_loss_ratio",
            "Share of envelopes lost: in, as measured here; out, as the neighbour reports",
            both([|q| Some(q.loss_in?.loss), |q| Some(q.loss_out?.loss)]),
        )?;
        f.gauges(
            "link_burst_ratio",
            "Probability that an envelope is lost after one that was lost",
            both([|q| Some(q.loss_in?.burst), |q| Some(q.loss_out?.burst)]),
        )?;
        f.gauges(
            "link_residual_loss_ratio",
            "Share of real-time packets missed in spite of recovery",
            both([|q| q.residual_in, |q| q.residual_out]),
        )?;
        f.gauges(
            "link_throughput_bytes_per_second",
            "UDP payload, averaged over about two seconds",
            both([
                |q| Some(q.rate_in.as_bps() as f64 / 8.0),
                |q| Some(q.rate_out.as_bps() as f64 / 8.0),
            ]),
        )
    }

    /// Writes how the links leave.
    fn encode_uplinks(&self, f: &mut Family<'_, '_>) -> fmt::Result {
        let links = || self.links();
        let refused = links().filter_map(|(l, link)| Some((l, link.send_error?.count)));
        f.counters("link_send_errors", "Datagrams that the kernel refused to send", refused)?;
        let help = "Time for which the link's interface or next hop has taken nothing";
        let stalled = |link: &LinkSnapshot| link.stalled.unwrap_or_default().as_secs_f64();
        f.gauges("link_stalled_seconds", help, links().map(|(l, link)| (l, stalled(link))))?;
        let help = "Whether the link leaves by another interface than the one that has its source";
        let elsewhere = |l: &LinkSnapshot| f64::from(l.leaves_by.is_some());
        f.gauges("link_leaves_elsewhere", help, links().map(|(l, link)| (l, elsewhere(link))))?;
        let help = "Whether packets of the neighbour arrive at another own address than the link's";
        let astray = |l: &LinkSnapshot| f64::from(l.arrives_at.is_some());
        f.gauges("link_arrives_elsewhere", help, links().map(|(l, link)| (l, astray(link))))
    }

    fn encode_links(&self, f: &mut Family<'_, '_>) -> fmt::Result {
        let links = || self.links();
        let with = |labels: &Labels, name: &str, value: &str| {
            let mut all = labels.clone();
            all.push(label(name, value));
            all
        };
        let sent = |pick: fn(Traffic) -> u64| {
            links().flat_map(move |(l, link)| {
                classes(&link.stats).into_iter().map(move |(class, service, t)| {
                    let labels = with(&l, "class", class);
                    let labels = match service {
                        Some(service) => with(&labels, "service", service.name()),
                        None => labels,
                    };
                    (labels, pick(t))
                })
            })
        };
        f.counters("link_sent_envelopes", "Envelopes sent", sent(|t| t.envelopes))?;
        f.counters("link_sent_bytes", "UDP payload sent", sent(|t| t.bytes))?;
        let each =
            |pick: fn(&LinkStats) -> u64| links().map(move |(l, link)| (l, pick(&link.stats)));
        f.counters(
            "link_received_envelopes",
            "Envelopes received",
            each(|s| s.received.envelopes),
        )?;
        f.counters("link_received_bytes", "UDP payload received", each(|s| s.received.bytes))?;
        for service in Service::ALL {
            for (name, what, pick) in RECEIVED {
                let of = |link: &LinkSnapshot| link.stats.of(service).receiver.map(pick);
                let mut counts = links().filter_map(|(l, link)| Some((l, of(link)?))).peekable();
                if counts.peek().is_some() {
                    let name = format!("link_{}_{name}", service.label());
                    f.counters(&name, &format!("{service}: {what}"), counts)?;
                }
            }
        }
        f.counters(
            "link_restarts",
            "Starts of the neighbour that were noticed",
            each(|s| s.restarts),
        )?;
        f.counters("link_downs", "Times that the link went down", each(|s| s.downs))?;
        f.counters(
            "link_goodbyes",
            "Number of these that the neighbour had announced",
            each(|s| s.goodbyes),
        )?;
        self.encode_uplinks(f)?;
        f.counters("link_drops", "Packets dropped at a link", {
            links().flat_map(|(l, link)| {
                let drops: Vec<_> = link
                    .stats
                    .drops
                    .iter()
                    .map(|(why, n)| (with(&l, "reason", why.label()), n))
                    .collect();
                drops
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::classic;

    #[test]
    fn the_older_format_names_counters_as_their_values_and_has_no_end() {
        let open = "# HELP a_drops Dropped\n# TYPE a_drops counter\na_drops_total{why=\"x\"} 3\n\
                    # HELP a_up Whether\n# TYPE a_up gauge\na_up 1.0\n\
                    # HELP a_mos_bucket By MOS\n# TYPE a_mos_bucket unknown\n\
                    a_mos_bucket{le=\"1\"} 2.0\n# EOF\n";
        let text = "# HELP a_drops_total Dropped\n# TYPE a_drops_total counter\n\
                    a_drops_total{why=\"x\"} 3\n\
                    # HELP a_up Whether\n# TYPE a_up gauge\na_up 1.0\n\
                    # HELP a_mos_bucket By MOS\n# TYPE a_mos_bucket untyped\n\
                    a_mos_bucket{le=\"1\"} 2.0\n";
        assert_eq!(classic(open), text);
    }
}
