//! Calls that lead into each other: a call that passes this gateway twice is relayed twice, but a
//! loop is refused.

use super::{CallId, Calls, SideId, Stream};
use crate::config::Config;
use crate::media::{MediaRejected, Remote};
use core::net::SocketAddr;

/// Maximum number of this gateway's streams that a packet may pass in succession, equal to the
/// limit for requests: each costs as much as a separate stream.
const LONGEST: usize = 4;

/// A leg, and the port used there: 0 for RTP, 1 for RTCP.
type LegPort = ((CallId, usize, SideId), usize);

/// Addresses that RTP and RTCP for `remote` go to.
fn targets(remote: &Remote) -> [Option<SocketAddr>; 2] {
    match *remote {
        Remote::Udp { rtp, rtcp, .. } => [rtp, rtcp],
        _ => [None; 2],
    }
}

impl Calls {
    /// Checks that media may be sent to `remote` from the leg `start`: they must neither come back,
    /// through however many calls, nor pass this gateway too often.
    pub(super) fn check_chain(
        &self,
        start: (CallId, usize, SideId),
        remote: &Remote,
        config: &Config,
    ) -> Result<(), MediaRejected> {
        targets(remote)
            .into_iter()
            .flatten()
            .try_for_each(|at| self.check_target(start, at, config))
    }

    fn check_target(
        &self,
        start: (CallId, usize, SideId),
        at: SocketAddr,
        config: &Config,
    ) -> Result<(), MediaRejected> {
        let Some(mut ahead) = self.own(at, config) else { return Ok(()) };
        // The stream itself, and those before it.
        let mut length = 1 + self.behind(start, config);
        loop {
            let ((id, n, side), kind) = ahead;
            if (id, n) == (start.0, start.1) {
                return Err(MediaRejected::Loop(at));
            }
            length += 1;
            if length > LONGEST {
                return Err(MediaRejected::Chain(at));
            }
            let onward = self.stream_of(id, n).map(|stream| stream.legs[1 - side].remote);
            let next = onward.and_then(|remote| targets(&remote)[kind]);
            match next.and_then(|next| self.own(next, config)) {
                Some(next) => ahead = next,
                None => return Ok(()),
            }
        }
    }

    /// The leg that `at` belongs to, if it is a port of this gateway.
    fn own(&self, at: SocketAddr, config: &Config) -> Option<LegPort> {
        let leg = self.owners.get(&(at.port() & !1)).copied();
        leg.filter(|_| config.is_here(at.ip())).map(|leg| (leg, usize::from(at.port() & 1)))
    }

    pub(super) fn stream_of(&self, id: CallId, n: usize) -> Option<&Stream> {
        self.all.get(&id)?.streams.get(n)?.as_ref()
    }

    /// Number of this gateway's streams that packets pass before they reach the leg `start`; the
    /// maximum, if several chains lead there.
    fn behind(&self, start: (CallId, usize, SideId), config: &Config) -> usize {
        let into = |(id, n, side): (CallId, usize, SideId)| {
            self.stream_of(id, n).map(|stream| stream.legs[1 - side].port)
        };
        let mut ports: Vec<u16> = into(start).into_iter().collect();
        for length in 0..LONGEST {
            let leads_there = |&&(id, n, side): &&(CallId, usize, SideId)| {
                let remote = self.stream_of(id, n).map(|stream| stream.legs[side].remote);
                let places = remote.map(|remote| targets(&remote)).into_iter().flatten().flatten();
                let mut here = places.filter(|at| config.is_here(at.ip()));
                here.any(|at| ports.contains(&(at.port() & !1)))
            };
            ports = self.owners.values().filter(leads_there).filter_map(|leg| into(*leg)).collect();
            if ports.is_empty() {
                return length;
            }
        }
        LONGEST
    }
}
