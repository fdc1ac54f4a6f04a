//! Events outside the network: wake-ups, and datagrams for stalled hosts.

/// An event scheduled for a certain moment.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Wake-up that an agent requested, with its token.
    Wake { agent: u32, token: u64 },
    /// Delivery of a datagram that waited for a stalled host, by its slot.
    Held(u32),
}

/// Scheduled events. Their moments come from the network, so that both kinds have one common order.
pub type Timers = trunkline_net::Schedule<Event>;
