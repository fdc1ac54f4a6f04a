//! What happens beside the network.

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// An agent asked to be woken, with this token.
    Wake { agent: u32, token: u64 },
    /// A datagram that a stalled host could not take is there for it.
    Held(u32),
}

/// What will happen, at moments that the network gives out, so that both together
/// have one order.
pub type Timers = trunkline_net::Schedule<Event>;
