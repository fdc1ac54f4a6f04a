//! From where an end of a call may speak, and where it is spoken to: what its messages
//! came from and what they name. Whoever has read a call's names and tags, and is
//! elsewhere, is no end of it.

use crate::config::Config;
use core::net::IpAddr;
use trunkline_sip::value::{Address, Uri};
use trunkline_sip::{Message, Name};

/// The most that are kept: a call has no more proxies, or phones that it rings.
const MOST: usize = 32;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    addresses: Vec<IpAddr>,
    /// Whether it has named a host by name, or more than are kept: then it may be
    /// anywhere.
    is_anywhere: bool,
}

impl Places {
    /// Of who is at `ip`.
    pub fn at(ip: IpAddr) -> Places {
        Places { addresses: vec![ip.to_canonical()], is_anywhere: false }
    }

    /// Of who sent `message`, which came from `ip`.
    pub fn of(message: &Message, ip: IpAddr, config: &Config) -> Places {
        let mut places = Places::at(ip);
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
        let host = core::str::from_utf8(uri.host).unwrap_or_default();
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => self.add(ip.to_canonical()),
            Err(_) => self.is_anywhere = true,
        }
    }

    fn add(&mut self, ip: IpAddr) {
        if self.addresses.contains(&ip) {
            return;
        }
        match self.addresses.len() < MOST {
            true => self.addresses.push(ip),
            false => self.is_anywhere = true,
        }
    }

    /// Adds those of `more`.
    pub fn join(&mut self, more: &Places) {
        more.addresses.iter().for_each(|ip| self.add(*ip));
        self.is_anywhere |= more.is_anywhere;
    }

    /// Whether `ip` is one of them.
    pub fn have(&self, ip: IpAddr) -> bool {
        self.is_anywhere || self.addresses.contains(&ip.to_canonical())
    }
}
