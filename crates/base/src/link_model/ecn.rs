/// The two ECN bits of an IP header, by which a router signals congestion (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// The sender's transport ignores marks: 0b00.
    #[default]
    NotCapable,
    /// ECT(1), rarely used: 0b01.
    Ect1,
    /// ECT(0), the one in common use: 0b10.
    Ect0,
    /// Congestion experienced, marked by a router: 0b11.
    Marked,
}

impl Ecn {
    /// Reads the lower two bits of a TOS or traffic class byte.
    pub fn of_tos(tos: u8) -> Ecn {
        match tos & 0b11 {
            0b00 => Ecn::NotCapable,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Marked,
        }
    }

    /// Returns `tos` with its lower two bits replaced by these.
    pub fn in_tos(self, tos: u8) -> u8 {
        (tos & !0b11)
            | match self {
                Ecn::NotCapable => 0b00,
                Ecn::Ect1 => 0b01,
                Ecn::Ect0 => 0b10,
                Ecn::Marked => 0b11,
            }
    }

    /// Marks the packet if it is ECN-capable; returns whether it is now marked.
    pub(super) fn mark(&mut self) -> bool {
        if *self != Ecn::NotCapable {
            *self = Ecn::Marked;
        }
        *self == Ecn::Marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_two_bits_change() {
        for tos in 0..=255 {
            assert_eq!(Ecn::of_tos(tos).in_tos(tos), tos);
            assert_eq!(Ecn::of_tos(Ecn::Marked.in_tos(tos)), Ecn::Marked);
            let mut ecn = Ecn::of_tos(tos);
            assert_eq!(ecn.mark(), tos & 0b11 != 0);
            assert_eq!(ecn.in_tos(tos), if tos & 0b11 == 0 { tos } else { tos | 0b11 });
        }
    }
}
