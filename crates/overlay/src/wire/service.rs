//! How a packet is carried on the links of its way.

use core::fmt;
use core::str::FromStr;

/// How a packet is to be carried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Service {
    /// Each packet is sent once, and nothing is done about a lost one.
    BestEffort = 1,
    /// Lost packets are asked for again while they can still be in time
    /// (Amir et al. 2005, IV-A).
    RealTime = 2,
}

impl Service {
    /// Every service that this version knows.
    pub const ALL: [Service; 2] = [Service::BestEffort, Service::RealTime];

    /// The names of all services.
    pub const NAMES: [&'static str; 2] = [Service::BestEffort.name(), Service::RealTime.name()];

    /// The service with this number on the wire; 3 is kept for reliable links.
    pub fn from_wire(bits: u8) -> Option<Service> {
        Service::ALL.into_iter().find(|service| *service as u8 == bits)
    }

    /// Its name in configuration and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Service::BestEffort => "best-effort",
            Service::RealTime => "real-time",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no [`Service`] has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such service: use best-effort or real-time")]
pub struct UnknownService;

impl FromStr for Service {
    type Err = UnknownService;

    fn from_str(name: &str) -> Result<Service, UnknownService> {
        Service::ALL.into_iter().find(|s| s.name() == name).ok_or(UnknownService)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_come_back() {
        for service in Service::ALL {
            assert_eq!(service.name().parse(), Ok(service));
            assert_eq!(Service::from_wire(service as u8), Some(service));
        }
        assert_eq!((Service::from_wire(0), Service::from_wire(3)), (None, None));
        assert_eq!("reliable".parse::<Service>(), Err(UnknownService));
    }
}
