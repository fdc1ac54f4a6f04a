//! The need for each connection: where there are too many, the least needed is closed for another.

use super::{Gateway, Pending};
use crate::calls::Call;
use crate::hops::Hops;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;
use trunkline_base::Time;
use trunkline_sip::value::Address;
use trunkline_sip::{Message, Name};

/// Lifetime in seconds of a registration whose answer gives none (RFC 3261, 10.2).
const LIFETIME: u32 = 3_600;

/// Time since the last byte for which a phone counts as reachable by the connection that it has
/// registered by. Registrations that live longer need keep-alives (RFC 5626, 4.4).
const REACHABLE: Duration = Duration::from_secs(3_600);

/// The need for a connection, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// It has brought no whole message.
    Unused,
    /// It has brought messages, and nothing depends on it now.
    Idle,
    /// A request that came or left by it has no final response yet.
    Request,
    /// A phone has registered by it, so that its calls arrive here.
    Registration,
    /// It belongs to a call that is up, or rings at the callee.
    Call,
}

/// The host in whose share of the connections one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The address, in its canonical form.
    pub address: IpAddr,
    /// Whether it is trusted, or the next hop of a route.
    pub is_peer: bool,
    /// Whether this gateway makes the connection for a request from there, to another host. Those
    /// have a share of their own: phones must not use up that of the hosts which their requests name.
    pub is_for_request: bool,
}

/// The ranks of all connections at one moment.
#[derive(Debug)]
pub struct Ranks<'a> {
    now: Time,
    hops: &'a Hops,
    calls: BTreeSet<u64>,
    requests: BTreeSet<u64>,
}

impl Ranks<'_> {
    /// The rank of a connection by which the last byte has arrived at `last`.
    pub fn of(&self, connection: u64, last: Time) -> Rank {
        let Some(known) = self.hops.connection(connection) else { return Rank::Unused };
        if self.calls.contains(&connection) {
            Rank::Call
        } else if self.now < known.registered && self.now.since(last) < REACHABLE {
            Rank::Registration
        } else if self.requests.contains(&connection) {
            Rank::Request
        } else if known.heard.is_some() {
            Rank::Idle
        } else {
            Rank::Unused
        }
    }
}

impl Gateway {
    /// The holder of a connection; `None` if it has ended.
    pub fn holder(&self, connection: u64) -> Option<Holder> {
        let known = self.hops.connection(connection)?;
        let (socket, remote) = known.ends();
        let address = remote.ip().to_canonical();
        let is_peer = self.config.is_peer(address);
        // Phones may have connections made to any port of a peer: its own are those of its routes,
        // and those at which it speaks SIP.
        let is_route = || {
            let transport = self.config.sockets.get(socket as usize).map(|it| it.transport);
            transport.is_some_and(|by| self.config.routes_to(by, remote).next().is_some())
        };
        let is_peers = is_peer && (known.heard.is_some() || is_route());
        let maker = known.made_for.filter(|maker| !is_peers && !self.config.is_peer(*maker));
        Some(match maker {
            Some(address) => Holder { address, is_peer: false, is_for_request: true },
            None => Holder { address, is_peer, is_for_request: false },
        })
    }

    /// The ranks of all connections.
    pub fn ranks(&self, now: Time) -> Ranks<'_> {
        let calls = self.calls.iter().map(|(_, call)| call);
        // An end has a tag as soon as it rings.
        let is_heard = |call: &&Call| call.answered.is_some() || call.sides[1].tag.is_some();
        let sides = calls.filter(is_heard).flat_map(|call| &call.sides);
        let calls = sides.filter_map(|side| side.hop?.connection).collect();
        let requests = self.transactions.connections().collect();
        Ranks { now, hops: &self.hops, calls, requests }
    }

    /// Notes how long a phone is registered by the connection that its request came by.
    pub(super) fn note_registration(&mut self, now: Time, pending: &Pending, answer: &Message) {
        if let Some(connection) = pending.up.connection {
            self.hops.registered(connection, lifetime(answer).map(|lifetime| now + lifetime));
        }
    }
}

/// Longest lifetime of the contacts that the answer to a registration lists; `None` if none is left.
fn lifetime(answer: &Message) -> Option<Duration> {
    let of_all = answer.first(Name::Expires).and_then(seconds);
    let contacts = answer.list(Name::Contact).filter_map(Address::parse);
    let each = contacts.map(|contact| contact.param("expires").flatten().and_then(seconds));
    let longest = each.map(|own| own.or(of_all).unwrap_or(LIFETIME)).max()?;
    (longest > 0).then(|| Duration::from_secs(longest.into()))
}

fn seconds(text: &[u8]) -> Option<u32> {
    let digits = text.split(|b| !b.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
    let number = core::str::from_utf8(digits).ok()?.parse();
    Some(number.unwrap_or(u32::MAX))
}
