//! What of a link can change while it runs.

use super::Link;
use crate::monitor::Liveness;
use core::time::Duration;
use trunkline_base::Bitrate;

/// The settings of a link that can change while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkChange {
    /// See [`Config::rate`](super::Config::rate).
    pub rate: Option<Bitrate>,
    /// See [`Config::dscp`](super::Config::dscp).
    pub dscp: u8,
    /// See [`Config::penalty`](super::Config::penalty).
    pub penalty: Duration,
    /// See [`Config::damping`](super::Config::damping).
    pub damping: Duration,
    /// See [`Config::liveness`](super::Config::liveness).
    pub liveness: Liveness,
}

impl Link {
    /// Takes other settings; the next packet that leaves is the first to follow
    /// them.
    pub(crate) fn change(&mut self, change: &LinkChange) {
        let LinkChange { rate, dscp, penalty, damping, liveness } = change;
        (self.config.penalty, self.config.damping) = (*penalty, *damping);
        self.monitor.set_half_life(*damping);
        (self.config.rate, self.config.dscp) = (*rate, *dscp);
        self.config.liveness.clone_from(liveness);
        self.monitor.set_liveness(liveness);
    }
}
