//! Metrics of a SIP gateway.

use super::{Family, Labels, label, single};
use crate::operate::protocol::CallLeg;
use crate::sip::GatewayReport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt;
use trunkline_media::quality::emodel;

/// A gateway's state at one moment.
#[derive(Debug)]
pub(super) struct Gateway(pub GatewayReport);

/// Bounds between levels of user satisfaction (ITU-T G.107, annex B).
const MOS: [f64; 9] = [1.0, 2.0, 2.58, 3.1, 3.6, 4.03, 4.34, 4.5, f64::INFINITY];

impl Collector for Gateway {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut f = Family(&mut encoder);
        let GatewayReport { calls, stats, media, connections, free_ports, .. } = &self.0;
        let gauge = |n: usize| std::iter::once((Labels::new(), n as f64));
        f.gauges("calls_live", "Calls that ring or are up", gauge(stats.live))?;
        f.counters("calls", "Calls so far", single(stats.calls))?;
        f.counters("calls_answered", "Calls that were answered", single(stats.answered))?;
        let help = "Calls that were ended for inactivity";
        f.counters("calls_idle", help, single(stats.idle))?;
        let by = |(outcome, n): &(&str, u64)| (vec![label("outcome", outcome)], *n);
        let help = "Calls that have ended, by outcome as in their records";
        f.counters("calls_ended", help, self.0.ended.iter().map(by))?;
        f.counters("sip_requests", "Requests that were passed on", single(stats.requests))?;
        let help = "Requests that were refused here";
        f.counters("sip_requests_refused", help, single(stats.refused))?;
        let dropped = [
            ("malformed", stats.malformed),
            ("too_large", stats.too_large),
            ("forbidden", stats.forbidden),
        ];
        let by = |(why, n): (&str, u64)| (vec![label("reason", why)], n);
        let help = "Messages that were dropped, or refused for their form";
        f.counters("sip_messages_dropped", help, dropped.into_iter().map(by))?;
        f.gauges("sip_connections", "SIP connections that are open", gauge(connections.open))?;
        let help = "SIP connections that were closed for others at a limit";
        f.counters("sip_connections_displaced", help, single(connections.displaced))?;
        let help = "SIP connections that were refused at a limit";
        f.counters("sip_connections_refused", help, single(connections.refused))?;
        f.counters("media_packets", "Packets of calls that were relayed", single(media.relayed))?;
        let dropped = [
            ("unexpected_source", media.unexpected_source),
            ("too_large", media.too_large),
            ("unwanted", media.unwanted),
            ("unsent", media.unsent),
        ];
        let help = "Packets of calls that were not relayed";
        f.counters("media_packets_dropped", help, dropped.into_iter().map(by))?;
        let help = "Pairs of media ports that are free";
        f.gauges("media_ports_free", help, gauge(*free_ports))?;
        let help = "When the gateway's certificate ends, seconds since 1970";
        let end = Some(self.0.certificate_not_after).filter(|end| *end != 0);
        let end = end.into_iter().map(|end| (Labels::new(), end as f64));
        f.gauges("sip_certificate_not_after_timestamp_seconds", help, end)?;
        let live = calls.iter().filter(|call| !call.is_over());
        let mos = |leg: &CallLeg| leg.r_now.map(emodel::mos);
        let heard: Vec<f64> = live.flat_map(|call| &call.legs).filter_map(mos).collect();
        let buckets = MOS.iter().map(|bound| {
            let le = if bound.is_finite() { bound.to_string() } else { "+Inf".into() };
            let below = heard.iter().filter(|mos| *mos <= bound).count();
            (vec![label("le", le)], below as f64)
        });
        let help = "Ends of live calls by how they sounded in the last second: E-model, G.711";
        f.distribution("call_mos_bucket", help, buckets)
    }
}
