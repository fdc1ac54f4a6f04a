//! The E-model reduced to the effects of a packet network: delay and loss.
//!
//! Cole and Rosenbluth, *Voice over IP Performance Monitoring*, ACM SIGCOMM Computer Communication
//! Review 31(2), 2001, pp. 9–24: G.107 at its default values, with straight lines and a logarithm
//! fitted to the terms that depend on the network. Use it to compare with papers that do;
//! [`super::emodel`] is the Recommendation itself, in its later edition, and includes burstiness.

use core::time::Duration;

use libm::log;

use super::emodel;

/// R of G.107 (1998) at its default values, without delay and loss.
const BASE: f64 = 94.2;
/// Id per millisecond of one-way delay.
const SLOPE: f64 = 0.024;
/// Additional Id per millisecond beyond the knee.
const STEEP: f64 = 0.11;
/// Delay at which conversation begins to suffer, milliseconds.
const KNEE_MS: f64 = 177.3;

/// The loss parameters of a codec: Ie = γ1 + γ2 ln(1 + γ3 e), where e is the share of packets
/// missed (Balan et al., Table III, where γ is λ).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codec {
    /// γ1, impairment without loss.
    pub gamma1: f64,
    /// γ2, the scale of the impairment by loss.
    pub gamma2: f64,
    /// γ3, how steeply the impairment rises at small losses.
    pub gamma3: f64,
}

impl Codec {
    /// G.711 with concealment, random loss (Cole and Rosenbluth 2001).
    pub const G711: Codec = Codec { gamma1: 0.0, gamma2: 30.0, gamma3: 15.0 };
    /// G.729 with two frames, 20 ms, in a packet (Balan et al. 2007, Table III,
    /// after Ding and Goubran, *Speech Quality Prediction in VoIP Using the
    /// Extended E-Model*, GLOBECOM 2003).
    pub const G729: Codec = Codec { gamma1: 10.0, gamma2: 47.82, gamma3: 18.0 };

    /// Ie of this codec if this share of the packets, 0 to 1, is missed. Other values are clamped.
    pub fn impairment(self, missed: f64) -> f64 {
        self.gamma1 + self.gamma2 * log(1.0 + self.gamma3 * missed.clamp(0.0, 1.0))
    }
}

/// Id for this mouth-to-ear delay: 0.024 per millisecond, plus 0.11 for each millisecond beyond
/// 177.3 ms.
pub fn delay_impairment(one_way: Duration) -> f64 {
    let d = one_way.as_secs_f64() * 1e3;
    SLOPE * d + STEEP * (d - KNEE_MS).max(0.0)
}

/// A rating and its components: R = 94.2 − Id − Ie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rating {
    /// Id, impairment by delay.
    pub id: f64,
    /// Ie, impairment by codec and loss.
    pub ie: f64,
    /// R, at most 94.2; values below 0 mean the same as 0.
    pub r: f64,
}

impl Rating {
    /// Computes the rating from Id and Ie, in points.
    pub fn of(id: f64, ie: f64) -> Rating {
        Rating { id, ie, r: BASE - id - ie }
    }

    /// Id as a share of Id + Ie, 0 to 1; the rest is Ie's. 0 without either.
    pub fn delay_share(&self) -> f64 {
        let both = self.id + self.ie;
        if both > 0.0 { self.id / both } else { 0.0 }
    }

    /// Estimated mean opinion score, 1 to 4.5.
    pub fn mos(&self) -> f64 {
        emodel::mos(self.r)
    }
}

/// Rates a call with this mouth-to-ear delay, where this share of the packets, 0 to 1, was lost or
/// late. Other shares are clamped.
pub fn rate(one_way: Duration, missed: f64, codec: Codec) -> Rating {
    Rating::of(delay_impairment(one_way), codec.impairment(missed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(ms: u64, missed: f64, codec: Codec) -> f64 {
        rate(Duration::from_millis(ms), missed, codec).r
    }

    #[track_caller]
    fn near(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got} is not {want} ± {within}");
    }

    #[test]
    fn by_hand() {
        assert_eq!(r(0, 0.0, Codec::G711), 94.2);
        near(r(100, 0.0, Codec::G711), 91.8, 1e-9);
        // 0.024 · 277.3 = 6.6552 and 0.11 · 100 = 11.
        let late = rate(Duration::from_micros(277_300), 0.0, Codec::G711);
        near(late.id, 17.6552, 1e-9);
        // 30 ln 1.75 = 16.7885.
        near(r(0, 0.05, Codec::G711), 94.2 - 16.7885, 1e-4);
        // 47.82 ln 1.18 = 7.9150.
        near(r(0, 0.01, Codec::G729), 94.2 - 10.0 - 7.9150, 1e-4);
        near(late.delay_share(), 1.0, 0.0);
        near(Rating::of(5.0, 15.0).delay_share(), 0.25, 0.0);
        assert_eq!(rate(Duration::ZERO, 0.0, Codec::G711).delay_share(), 0.0);
        assert_eq!(r(0, 1.5, Codec::G711), r(0, 1.0, Codec::G711));
        assert_eq!(r(0, -1.0, Codec::G711), 94.2);
    }

    #[test]
    fn the_full_model_agrees_where_both_apply() {
        for ms in (0..=400).step_by(20) {
            for missed in [0.0, 0.01, 0.02, 0.05, 0.1] {
                let delay = Duration::from_millis(ms);
                let full = emodel::Parameters::default()
                    .with_delay(delay)
                    .with_codec(emodel::Codec::G711_PLC)
                    .with_loss(missed, 1.0);
                near(r(ms, missed, Codec::G711), emodel::rate(&full).r, 6.0);
            }
        }
    }

    #[test]
    fn scores() {
        near(rate(Duration::ZERO, 0.0, Codec::G711).mos(), 4.43, 0.01);
        assert_eq!(rate(Duration::from_secs(9), 1.0, Codec::G729).mos(), 1.0);
    }
}
