use super::flow::{Dedup, FlowMap, LIFE, Peer, RELIABLE_LIFE};
use super::wire::RefusalReason;
use crate::wire::{Metric, Service};
use rand::RngExt;
use rand::rngs::ChaCha20Rng;
use trunkline_base::{Pacer, Rate, Time};

/// Number of a node's session: a small index that is reused after the session has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u32);

/// The client that gives a session its rights.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Client {
    /// An application on this machine.
    #[default]
    Local,
    /// This node's own gateway, which asks whether a trunk takes a call before the call is up: what
    /// it sends then is not refused.
    Gateway,
    /// The client with this number in the node's list of clients.
    Known(u16),
}

/// Flows of one session in each direction that are distinguished. Beyond that, the one that has
/// been silent longest is forgotten, and a copy of its packets could pass.
const MAX_FLOWS: usize = 256;

/// Packets of one flow that may be in flight, there and back: half a second's worth at 2,000
/// packets a second. In faster flows, the last ones count.
const UNDER_WAY: u16 = 1_024;

/// Ports below this are assigned only when requested by number; the range above is IANA's dynamic
/// one (RFC 6335).
const FIRST_DYNAMIC: u16 = 49_152;

/// Rate of notifications to a session about its destinations: an application that loses all of its
/// flows at once is notified of each.
const STATUSES: Rate = Rate { per_second: 100, burst: MAX_FLOWS as u32 };

#[derive(Debug)]
struct Session {
    client: Client,
    statuses: Pacer,
    metric: Option<Metric>,
    /// Whether it accepts packets that have waited past their deadline.
    late: bool,
    /// Whether it blocks until a link's queue has room, rather than lose packets.
    waits: bool,
    port: Option<u16>,
    sending: FlowMap<u16>,
    receiving: FlowMap<Dedup>,
}

/// The sessions of a node and the virtual ports they hold.
#[derive(Debug)]
pub struct Sessions {
    slots: Vec<Option<Session>>,
    free: Vec<u32>,
    max: usize,
    /// Number of sessions of the gateway, which no application has opened.
    of_gateway: usize,
    /// For every port, one more than the index of the session that holds it; 0 if none does.
    ports: Box<[u32]>,
    /// Draws dynamic ports: who isn't told the port of an application should not guess it.
    dynamic: ChaCha20Rng,
    /// Number of packets sent by all sessions, counted from its start value.
    sent: u16,
}

impl Sessions {
    /// Creates a table for at most `max` sessions; flow numbers begin at `first`, which should
    /// differ from one start of a node to the next. Dynamic ports are drawn by `dynamic`.
    pub(crate) fn new(max: usize, first: u16, dynamic: ChaCha20Rng) -> Sessions {
        Sessions {
            slots: Vec::new(),
            free: Vec::new(),
            max,
            of_gateway: 0,
            ports: vec![0; 1 << 16].into(),
            dynamic,
            sent: first,
        }
    }

    /// Number of open sessions.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Number of open sessions that belong to the gateway of this node.
    pub fn of_gateway(&self) -> usize {
        self.of_gateway
    }

    /// Whether no session is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn open(&mut self, client: Client) -> Option<SessionId> {
        if self.len() >= self.max {
            return None;
        }
        let session = Session {
            client,
            statuses: Pacer::of(STATUSES),
            metric: None,
            late: false,
            waits: false,
            port: None,
            sending: FlowMap::new(MAX_FLOWS),
            receiving: FlowMap::new(MAX_FLOWS),
        };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        self.slots[index as usize] = Some(session);
        self.of_gateway += usize::from(client == Client::Gateway);
        Some(SessionId(index))
    }

    pub(crate) fn close(&mut self, id: SessionId) {
        let Some(session) = self.slots.get_mut(id.0 as usize).and_then(Option::take) else {
            return;
        };
        self.free.push(id.0);
        self.of_gateway -= usize::from(session.client == Client::Gateway);
        if let Some(port) = session.port {
            self.ports[usize::from(port)] = 0;
        }
    }

    /// Metric that routes its packets, if its application has set one.
    pub(crate) fn metric_of(&self, id: SessionId) -> Option<Metric> {
        self.slots.get(id.0 as usize)?.as_ref()?.metric
    }

    pub(crate) fn set_metric(&mut self, id: SessionId, metric: Option<Metric>) {
        if let Some(session) = self.get_mut(id) {
            session.metric = metric;
        }
    }

    pub(crate) fn set_late(&mut self, id: SessionId, on: bool) {
        if let Some(session) = self.get_mut(id) {
            session.late = on;
        }
    }

    pub(crate) fn set_blocking(&mut self, id: SessionId, on: bool) {
        if let Some(session) = self.get_mut(id) {
            session.waits = on;
        }
    }

    /// Whether its application blocks until there is room, rather than lose best-effort packets.
    pub(crate) fn waits(&self, id: SessionId) -> bool {
        self.slots.get(id.0 as usize).and_then(Option::as_ref).is_some_and(|s| s.waits)
    }

    /// Whether the holder of `port` accepts packets that have waited past their deadline.
    pub(crate) fn accepts_late(&self, port: u16) -> bool {
        let holder = self.holder(port).and_then(|id| self.slots.get(id.0 as usize)?.as_ref());
        holder.is_some_and(|session| session.late)
    }

    /// The client that session `id` belongs to.
    pub(crate) fn client_of(&self, id: SessionId) -> Option<Client> {
        Some(self.slots.get(id.0 as usize)?.as_ref()?.client)
    }

    fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Whether session `id` may be notified of one more change.
    pub(crate) fn may_tell(&mut self, now: Time, id: SessionId) -> bool {
        self.get_mut(id).is_some_and(|s| s.statuses.admit(now, 1))
    }

    /// Whether the packet numbered `seq` of the flow from session `id` to `peer` is among the
    /// latest ones sent.
    pub(crate) fn has_sent(&self, id: SessionId, peer: Peer, seq: u16) -> bool {
        let session = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        let next = session.and_then(|s| s.sending.peek(peer));
        next.is_some_and(|next| (1..=UNDER_WAY).contains(&next.wrapping_sub(seq)))
    }

    /// Binds session `id` to the port `wanted`, or to any dynamic one if that is 0.
    pub(crate) fn bind(&mut self, id: SessionId, wanted: u16) -> Result<u16, RefusalReason> {
        if self.get_mut(id).is_none_or(|s| s.port.is_some()) {
            return Err(RefusalReason::OutOfOrder);
        }
        let port = match wanted {
            0 => self.free_port().ok_or(RefusalReason::NoFreePort)?,
            port if self.ports[usize::from(port)] != 0 => return Err(RefusalReason::PortInUse),
            port => port,
        };
        self.ports[usize::from(port)] = id.0 + 1;
        if let Some(session) = self.get_mut(id) {
            session.port = Some(port);
        }
        Ok(port)
    }

    /// A free dynamic port: the first one from a random one on (RFC 6056, 3.3.1).
    fn free_port(&mut self) -> Option<u16> {
        let first = self.dynamic.random_range(FIRST_DYNAMIC..=u16::MAX);
        let mut all = (first..=u16::MAX).chain(FIRST_DYNAMIC..first);
        all.find(|port| self.ports[usize::from(*port)] == 0)
    }

    /// The port that session `id` holds.
    pub(crate) fn port_of(&self, id: SessionId) -> Option<u16> {
        self.slots.get(id.0 as usize)?.as_ref()?.port
    }

    /// The session that holds `port`.
    pub(crate) fn holder(&self, port: u16) -> Option<SessionId> {
        self.ports[usize::from(port)].checked_sub(1).map(SessionId)
    }

    /// The next number of the flow from session `id` to `peer`. A new flow starts at the count of
    /// all packets sent from here, which no flow's numbers overtake: so the receiver of any earlier
    /// flow with these ends takes the new numbers for later ones.
    pub(crate) fn next_flow_seq(&mut self, id: SessionId, peer: Peer) -> u16 {
        self.sent = self.sent.wrapping_add(1);
        let start = self.sent;
        let Some(session) = self.get_mut(id) else { return start };
        let next = session.sending.get(peer, || start);
        let seq = *next;
        *next = seq.wrapping_add(1);
        seq
    }

    /// Whether the packet numbered `seq` of the flow from `peer` to session `id`, carried by
    /// `service` with this `deadline`, is new.
    pub(crate) fn is_new(
        &mut self,
        now: Time,
        deadline: Time,
        id: SessionId,
        peer: Peer,
        (service, seq): (Service, u16),
    ) -> bool {
        let Some(session) = self.get_mut(id) else { return false };
        let life = if service == Service::Reliable { RELIABLE_LIFE } else { LIFE };
        session.receiving.get(peer, Dedup::default).is_new(now, deadline, seq, life)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn sessions(max: usize, first: u16) -> Sessions {
        Sessions::new(max, first, ChaCha20Rng::from_seed([1; 32]))
    }

    #[test]
    fn ports_are_given_once_and_come_back() {
        let mut s = sessions(2, 0);
        let (a, b) = (s.open(Client::Local).unwrap(), s.open(Client::Local).unwrap());
        assert!(s.open(Client::Local).is_none(), "the table is full");
        assert_eq!(s.bind(a, 5), Ok(5));
        assert_eq!(s.bind(a, 6), Err(RefusalReason::OutOfOrder));
        assert_eq!(s.bind(b, 5), Err(RefusalReason::PortInUse));
        assert!(s.bind(b, 0).is_ok_and(|port| port >= FIRST_DYNAMIC));
        s.close(a);
        s.close(a);
        let c = s.open(Client::Local).unwrap();
        assert_eq!((c, s.len()), (a, 2));
        assert_eq!(s.bind(c, 5), Ok(5));
        assert_eq!(s.holder(5), Some(c));
    }

    #[test]
    fn a_displaced_flow_goes_on_with_later_numbers() {
        let mut s = sessions(1, 65_000);
        let id = s.open(Client::Local).unwrap();
        let mut last = std::collections::BTreeMap::new();
        for round in 0..4_000u64 {
            let peer = (crate::wire::NodeId((round % 300) as u32), 1);
            let seq = s.next_flow_seq(id, peer);
            let before = last.insert(peer, seq).unwrap_or(seq.wrapping_sub(1));
            assert!((1..1_000).contains(&seq.wrapping_sub(before)), "{before} then {seq}");
        }
    }

    #[test]
    fn dynamic_ports_run_out_with_an_error() {
        let mut s = sessions(20_000, 0);
        for _ in FIRST_DYNAMIC..=u16::MAX {
            let id = s.open(Client::Local).unwrap();
            s.bind(id, 0).unwrap();
        }
        let last = s.open(Client::Local).unwrap();
        assert_eq!(s.bind(last, 0), Err(RefusalReason::NoFreePort));
    }
}
