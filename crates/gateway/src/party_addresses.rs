//! Addresses at which an end of a call may be: those that its messages came from, and those that
//! they name. A sender at another address that knows the call's Call-ID and tags is not a party to
//! it.

use crate::config::Config;
use core::net::IpAddr;
use trunkline_sip::value::{Address, Uri, host_address};
use trunkline_sip::{Message, Name};

/// Maximum number of addresses kept: a call has no more proxies, or ringing phones.
const MAX_ADDRESSES: usize = 32;

/// Known addresses of one end of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartyAddresses {
    addresses: Vec<IpAddr>,
    /// Whether the end has named a host, or more addresses than are kept: then it may be at any
    /// address.
    is_anywhere: bool,
}

impl PartyAddresses {
    /// The addresses of an end at `ip`.
    pub fn at(ip: IpAddr) -> PartyAddresses {
        PartyAddresses { addresses: vec![ip.to_canonical()], is_anywhere: false }
    }

    /// The addresses of the sender of `message`, which came from `ip`.
    pub fn of(message: &Message, ip: IpAddr, config: &Config) -> PartyAddresses {
        let mut places = PartyAddresses::at(ip);
        for name in [Name::Contact, Name::RecordRoute] {
            message.list(name).for_each(|value| places.name(value, config));
        }
        places
    }

    fn name(&mut self, value: &[u8], config: &Config) {
        let uri = Address::parse(value).and_then(|address| Uri::parse(address.uri));
        let Some(uri) = uri.filter(|uri| !config.is_own(uri.host, uri.port, uri.secure)) else {
            return;
        };
        match host_address(uri.host) {
            Some(ip) => self.add(ip.to_canonical()),
            None => self.is_anywhere = true,
        }
    }

    fn add(&mut self, ip: IpAddr) {
        if self.addresses.contains(&ip) {
            return;
        }
        match self.addresses.len() < MAX_ADDRESSES {
            true => self.addresses.push(ip),
            false => self.is_anywhere = true,
        }
    }

    /// Adds the addresses in `more`.
    pub fn join(&mut self, more: &PartyAddresses) {
        more.addresses.iter().for_each(|ip| self.add(*ip));
        self.is_anywhere |= more.is_anywhere;
    }

    /// Whether the end may be at `ip`.
    pub fn have(&self, ip: IpAddr) -> bool {
        self.is_anywhere || self.addresses.contains(&ip.to_canonical())
    }
}
