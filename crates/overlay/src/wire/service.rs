//! Services: how the links on its path carry a packet.

use core::fmt;
use core::str::FromStr;

/// Defines [`Service`] with the properties of each: its number on the wire, its name, the same as a
/// metric label, and a phrase for the help of an option.
macro_rules! services {
    ($($(#[$doc:meta])* $service:ident = $number:literal, $name:literal, $label:literal, $help:literal;)+) => {
        /// How a packet is to be carried.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Service {
            $($(#[$doc])* $service = $number,)+
        }

        impl Service {
            /// Every service that this version supports, in the order of their numbers.
            pub const ALL: [Service; Service::COUNT] = [$(Service::$service),+];

            /// Number of services in this version.
            pub const COUNT: usize = [$($number),+].len();

            /// Names of all services, in the order of their numbers.
            pub const NAMES: [&'static str; Service::COUNT] = [$($name),+];

            /// The service's name in configuration and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Service::$service => $name),+ }
            }

            /// The service's name in metric labels.
            pub const fn label(self) -> &'static str {
                match self { $(Service::$service => $label),+ }
            }

            /// A one-line description of the service.
            pub const fn help(self) -> &'static str {
                match self { $(Service::$service => $help),+ }
            }
        }
    };
}

// Numbers of two bits, from 1 on without a gap: 0 marks a control frame.
services! {
    /// Each packet is sent once, and losses are not recovered.
    BestEffort = 1, "best-effort", "best_effort", "Sent once";
    /// Lost packets are requested again while they can still be in time (Amir et al. 2005, IV-A).
    RealTime = 2, "real-time", "realtime",
        "Lost packets are requested again while they can still be in time";
    /// Each link retransmits lost packets until its neighbour has them, at no more than the rate of
    /// a TCP (Amir and Danilov 2003).
    Reliable = 3, "reliable", "reliable",
        "Each link retransmits what it loses until the next node has it, as fast as a TCP may";
}

impl Service {
    /// The service with this number on the wire.
    pub fn from_wire(number: u8) -> Option<Service> {
        Service::ALL.into_iter().find(|service| *service as u8 == number)
    }

    /// Index of the service in [`Service::ALL`].
    pub const fn index(self) -> usize {
        self as usize - 1
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that no [`Service`] has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such service: use {}", Service::NAMES.join(" or "))]
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
        for (place, service) in Service::ALL.into_iter().enumerate() {
            assert_eq!(service.name().parse(), Ok(service));
            assert_eq!(Service::from_wire(service as u8), Some(service));
            assert_eq!(service.index(), place);
            assert!((1..4).contains(&(service as u8)), "two bits, and 0 is taken");
        }
        assert_eq!((Service::from_wire(0), Service::from_wire(4)), (None, None));
        assert_eq!("no-such".parse::<Service>(), Err(UnknownService));
        let said = UnknownService.to_string();
        assert!(said.starts_with("no such service: use best-effort or real-time"), "{said}");
    }
}
