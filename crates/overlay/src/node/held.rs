//! Applications that are held back: they would rather wait for room in the queue
//! of a link than lose best effort. What waits for them is kept by the driver; here
//! is who waits for which link, first come, first served.

use super::Forwarder;
use super::forwarder::Packet;
use crate::link::LinkId;
use crate::session::SessionId;
use crate::wire::Service;
use std::collections::VecDeque;

/// Who waits for which link. It takes memory when there are more sessions than
/// ever before, and then no more.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By link.
    lines: Vec<VecDeque<SessionId>>,
    /// By session: in which line it is.
    links: Vec<Option<LinkId>>,
    /// How many are in a line.
    len: usize,
}

impl Held {
    /// Session `id` waits for `link`, if it doesn't wait already.
    fn join(&mut self, link: LinkId, id: SessionId) {
        let (line, session) = (usize::from(link.0), id.0 as usize);
        if self.links.len() <= session {
            self.links.resize(session + 1, None);
        }
        if self.lines.len() <= line {
            self.lines.resize_with(line + 1, VecDeque::new);
        }
        if self.links[session].is_none() {
            self.links[session] = Some(link);
            self.lines[line].push_back(id);
            self.len += 1;
        }
    }

    /// The first of those who wait for a link that has room.
    fn next(&mut self, has_room: impl Fn(LinkId) -> bool) -> Option<SessionId> {
        if self.len == 0 {
            return None;
        }
        let mut lines = (0..).map(LinkId).zip(&mut self.lines);
        let (_, line) = lines.find(|(link, line)| !line.is_empty() && has_room(*link))?;
        let id = line.pop_front()?;
        self.links[id.0 as usize] = None;
        self.len -= 1;
        Some(id)
    }

    /// Session `id` is over.
    pub(super) fn forget(&mut self, id: SessionId) {
        if let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::take) {
            self.lines[usize::from(link.0)].retain(|other| *other != id);
            self.len -= 1;
        }
    }
}

impl Forwarder {
    /// Whether session `id`'s application waits until there is room for `packet`.
    pub(super) fn is_flow_controlled(&self, id: SessionId, packet: &Packet<'_>) -> bool {
        packet.header.service == Service::BestEffort && self.sessions.waits(id)
    }

    /// Whether there is no room for `packet` of session `id`, and it waits for some.
    pub(super) fn holds_back(&mut self, id: SessionId, packet: &Packet<'_>) -> bool {
        if !self.is_flow_controlled(id, packet) {
            return false;
        }
        let metric = self.sessions.metric_of(id).unwrap_or(self.metric);
        let Some(hop) = self.next_hop(packet.header.destination, metric) else { return false };
        if self.links().get(hop.link).is_none_or(|link| link.has_room()) {
            return false;
        }
        self.held.join(hop.link, id);
        self.stats.held_back += 1;
        true
    }

    pub(super) fn next_ready(&mut self) -> Option<SessionId> {
        let Forwarder { held, links, .. } = self;
        // A link that is gone has no queue to wait for.
        held.next(|link| links.get(link).is_none_or(|link| link.has_room()))
    }
}
