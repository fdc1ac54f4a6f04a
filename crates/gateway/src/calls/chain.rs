//! Calls that lead into each other: one that comes through here twice has its media
//! come through twice, but not for ever.

use super::{CallId, Calls, SideId, Stream};
use crate::config::Config;
use crate::media::{Remote, Unfit};
use core::net::SocketAddr;

/// Through how many streams of this gateway, one after the other, a packet may pass:
/// as often as a request may (each costs as much as a stream of its own).
const LONGEST: usize = 4;

/// A leg, and whether by its port for RTP (0) or for RTCP (1).
type Way = ((CallId, usize, SideId), usize);

/// Where RTP and RTCP go that are for `remote`.
fn targets(remote: &Remote) -> [Option<SocketAddr>; 2] {
    match *remote {
        Remote::Udp { rtp, rtcp, .. } => [rtp, rtcp],
        _ => [None; 2],
    }
}

impl Calls {
    /// Whether media may be sent to who is at the end of the leg `start`: they neither
    /// come back, over however many calls, nor pass here too often.
    pub(super) fn check_chain(
        &self,
        start: (CallId, usize, SideId),
        remote: &Remote,
        config: &Config,
    ) -> Result<(), Unfit> {
        targets(remote).into_iter().flatten().try_for_each(|at| self.check_way(start, at, config))
    }

    fn check_way(
        &self,
        start: (CallId, usize, SideId),
        at: SocketAddr,
        config: &Config,
    ) -> Result<(), Unfit> {
        let Some(mut ahead) = self.own(at, config) else { return Ok(()) };
        // The stream itself, and those before it.
        let mut length = 1 + self.behind(start, config);
        loop {
            let ((id, n, side), kind) = ahead;
            if (id, n) == (start.0, start.1) {
                return Err(Unfit::Loop(at));
            }
            length += 1;
            if length > LONGEST {
                return Err(Unfit::Chain(at));
            }
            let onward = self.stream_of(id, n).map(|stream| stream.legs[1 - side].remote);
            let next = onward.and_then(|remote| targets(&remote)[kind]);
            match next.and_then(|next| self.own(next, config)) {
                Some(next) => ahead = next,
                None => return Ok(()),
            }
        }
    }

    /// The leg of a port of this gateway's own, if `at` is one.
    fn own(&self, at: SocketAddr, config: &Config) -> Option<Way> {
        let leg = self.owners.get(&(at.port() & !1)).copied();
        leg.filter(|_| config.is_here(at.ip())).map(|leg| (leg, usize::from(at.port() & 1)))
    }

    pub(super) fn stream_of(&self, id: CallId, n: usize) -> Option<&Stream> {
        self.all.get(&id)?.streams.get(n)?.as_ref()
    }

    /// Through how many streams that passes which is sent by the leg `start`, before it
    /// comes to it; if several lead there, through the most.
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
