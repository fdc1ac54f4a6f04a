//! How a packet is carried on the links of its way.

use core::fmt;
use core::str::FromStr;

/// Makes [`Service`] and what is known of each: its number on the wire, its name,
/// the same as a metric label, and what the help of an option says of it.
macro_rules! services {
    ($($(#[$doc:meta])* $service:ident = $number:literal, $name:literal, $label:literal, $help:literal;)+) => {
        /// How a packet is to be carried.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Service {
            $($(#[$doc])* $service = $number,)+
        }

        impl Service {
            /// Every service that this version knows, in the order of their numbers.
            pub const ALL: [Service; Service::COUNT] = [$(Service::$service),+];

            /// How many these are.
            pub const COUNT: usize = [$($number),+].len();

            /// The names of all services.
            pub const NAMES: [&'static str; Service::COUNT] = [$($name),+];

            /// Its name in configuration and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Service::$service => $name),+ }
            }

            /// Its name within metrics.
            pub const fn label(self) -> &'static str {
                match self { $(Service::$service => $label),+ }
            }

            /// What it does, in a line.
            pub const fn help(self) -> &'static str {
                match self { $(Service::$service => $help),+ }
            }
        }
    };
}

// Numbers of two bits, from 1 on without a gap: 0 marks a control frame.
services! {
    /// Each packet is sent once, and nothing is done about a lost one.
    BestEffort = 1, "best-effort", "best_effort", "Sent once";
    /// Lost packets are asked for again while they can still be in time
    /// (Amir et al. 2005, IV-A).
    RealTime = 2, "real-time", "realtime",
        "Lost packets are asked for again while they can still be in time";
    /// Each link repeats what it loses until its neighbour has it, within the rate of a
    /// TCP (Amir and Danilov 2003).
    Reliable = 3, "reliable", "reliable",
        "Each link retransmissions what it loses until the next node has it, as fast as a TCP may";
}

impl Service {
    /// The service with this number on the wire.
    pub fn from_wire(number: u8) -> Option<Service> {
        Service::ALL.into_iter().find(|service| *service as u8 == number)
    }

    /// Its place in [`Service::ALL`].
    pub const fn index(self) -> usize {
        self as usize - 1
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no [`Service`] has.
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
