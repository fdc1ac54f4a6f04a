//! Changes to the settings of a running link.

use super::Link;
use crate::monitor::Liveness;
use core::time::Duration;
use trunkline_base::Bitrate;

/// Settings of a link that can change while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkChange {
    /// Rate limit; see [`Config::rate`](super::Config::rate).
    pub rate: Option<Bitrate>,
    /// Marking, 0 to 63; see [`Config::dscp`](super::Config::dscp).
    pub dscp: u8,
    /// Added latency, up to 5 s; see [`Config::penalty`](super::Config::penalty).
    pub penalty: Duration,
    /// Half-life of damping; see [`Config::damping`](super::Config::damping).
    pub damping: Duration,
    /// Hello protocol settings; see [`Config::liveness`](super::Config::liveness).
    pub liveness: Liveness,
}

impl Link {
    /// Applies new settings, from the next packet sent on.
    pub(crate) fn change(&mut self, change: &LinkChange) {
        let LinkChange { rate, dscp, penalty, damping, liveness } = change;
        (self.config.penalty, self.config.damping) = (*penalty, *damping);
        self.monitor.set_half_life(*damping);
        (self.config.rate, self.config.dscp) = (*rate, *dscp);
        self.config.liveness.clone_from(liveness);
        self.monitor.set_liveness(liveness);
    }
}
