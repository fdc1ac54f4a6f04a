/// The two bits of an IP header by which a router says that it is congested
/// (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// The sender's transport doesn't look at marks: 0b00.
    #[default]
    NotCapable,
    /// ECT(1): 0b01.
    Ect1,
    /// ECT(0), the usual one: 0b10.
    Ect0,
    /// Congestion experienced: marked on the way, 0b11.
    Marked,
}

impl Ecn {
    /// From the lower two bits of a TOS or traffic class byte.
    pub fn of_tos(tos: u8) -> Ecn {
        match tos & 0b11 {
            0b00 => Ecn::NotCapable,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Marked,
        }
    }

    /// `tos` with these as its lower two bits.
    pub fn in_tos(self, tos: u8) -> u8 {
        (tos & !0b11)
            | match self {
                Ecn::NotCapable => 0b00,
                Ecn::Ect1 => 0b01,
                Ecn::Ect0 => 0b10,
                Ecn::Marked => 0b11,
            }
    }

    /// Marks the packet, if it can be; whether it is marked now.
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
