//! The E-model, ITU-T G.107 (06/2015): from a connection's parameters to the
//! rating R, 0 (unusable) to 100, and from R to a mean opinion score.
//!
//! Names, symbols and numbers in brackets are the Recommendation's.

use core::time::Duration;

use libm::{atan2, cos, exp, log2, log10, pow, sqrt};

/// The input parameters, G.107 Table 2. Outside their permitted ranges the formulas still give a
/// number, but its meaning is untested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// SLR, send loudness rating: 0 to 18 dB.
    pub slr: f64,
    /// RLR, receive loudness rating: −5 to 14 dB.
    pub rlr: f64,
    /// STMR, sidetone masking rating: 10 to 20 dB.
    pub stmr: f64,
    /// LSTR, listener sidetone rating: 13 to 23 dB.
    pub lstr: f64,
    /// Ds, D-value of the telephone, send side: −3 to 3 dB.
    pub ds: f64,
    /// Dr, D-value of the telephone, receive side: −3 to 3 dB. No formula
    /// uses it; it ties STMR to LSTR (LSTR = STMR + Dr).
    pub dr: f64,
    /// TELR, talker echo loudness rating: 5 to 65 dB.
    pub telr: f64,
    /// WEPL, weighted echo path loss: 5 to 110 dB.
    pub wepl: f64,
    /// T, mean one-way delay of the echo path: 0 to 500 ms.
    pub t: f64,
    /// Tr, round-trip delay in a four-wire loop: 0 to 1,000 ms.
    pub tr: f64,
    /// Ta, absolute one-way delay, mouth to ear: 0 to 500 ms.
    pub ta: f64,
    /// qdu, quantization distortion units: 1 to 14.
    pub qdu: f64,
    /// Ie, equipment impairment factor of the codec: 0 to 40.
    pub ie: f64,
    /// Bpl, packet-loss robustness of the codec: 4.3 to 40.
    pub bpl: f64,
    /// Ppl, packet loss: 0 to 20 %.
    pub ppl: f64,
    /// BurstR, mean length of the bursts of loss over that of independent loss
    /// at the same rate: 1 to 8. See [`burst_ratio`].
    pub burst_r: f64,
    /// Nc, circuit noise referred to the 0 dBr point: −80 to −40 dBm0p.
    pub nc: f64,
    /// Nfor, noise floor at the receive side: −64 dBmp, not to be varied.
    pub nfor: f64,
    /// Ps, room noise at the send side: 35 to 85 dB(A).
    pub ps: f64,
    /// Pr, room noise at the receive side: 35 to 85 dB(A).
    pub pr: f64,
    /// A, advantage factor: 0 (wired) to 20 (hard to reach).
    pub a: f64,
}

impl Default for Parameters {
    /// The default values of G.107 Table 2: R = 93.2.
    fn default() -> Parameters {
        Parameters {
            slr: 8.0,
            rlr: 2.0,
            stmr: 15.0,
            lstr: 18.0,
            ds: 3.0,
            dr: 3.0,
            telr: 65.0,
            wepl: 110.0,
            t: 0.0,
            tr: 0.0,
            ta: 0.0,
            qdu: 1.0,
            ie: 0.0,
            bpl: 4.3,
            ppl: 0.0,
            burst_r: 1.0,
            nc: -70.0,
            nfor: -64.0,
            ps: 35.0,
            pr: 35.0,
            a: 0.0,
        }
    }
}

impl Parameters {
    /// Sets this mouth-to-ear delay, the same in both directions: T = Ta = Tr/2, as holds for
    /// packet networks without echo in between.
    pub fn with_delay(self, one_way: Duration) -> Parameters {
        let ms = one_way.as_secs_f64() * 1e3;
        Parameters { t: ms, ta: ms, tr: 2.0 * ms, ..self }
    }

    /// Sets this codec's impairment.
    pub fn with_codec(self, codec: Codec) -> Parameters {
        Parameters { ie: codec.ie, bpl: codec.bpl, ..self }
    }

    /// Sets the share of packets missed, 0 to 1, and their burst ratio.
    pub fn with_loss(self, share: f64, burst_r: f64) -> Parameters {
        Parameters { ppl: 100.0 * share, burst_r, ..self }
    }
}

/// A codec as the E-model sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codec {
    /// Ie, impairment without loss.
    pub ie: f64,
    /// Bpl, robustness to random loss.
    pub bpl: f64,
}

impl Codec {
    /// G.711 without concealment (G.113 Appendix I).
    pub const G711: Codec = Codec { ie: 0.0, bpl: 4.3 };
    /// G.729 Annex A with its own concealment (G.113 Appendix I).
    pub const G729A: Codec = Codec { ie: 11.0, bpl: 19.0 };
    /// G.711 with the concealment of its own Appendix I (G.113 Appendix I).
    pub const G711_PLC: Codec = Codec { ie: 0.0, bpl: 25.1 };
}

/// A rating and its components: R = Ro − Is − Id − Ie,eff + A (7-1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rating {
    /// Ro, basic signal-to-noise ratio.
    pub ro: f64,
    /// Is, impairments at the same time as the speech.
    pub is: f64,
    /// Id, impairments by delay and echo.
    pub id: f64,
    /// Ie,eff, impairment by codec and packet loss.
    pub ie_eff: f64,
    /// A, the advantage factor.
    pub a: f64,
    /// R, the resulting rating.
    pub r: f64,
}

impl Rating {
    /// Estimated mean opinion score (conversational quality), 1 to 4.5.
    pub fn mos(&self) -> f64 {
        mos(self.r)
    }
}

/// Rates a connection from its parameters.
pub fn rate(p: &Parameters) -> Rating {
    let no = noise(p);
    let ro = 15.0 - 1.5 * (p.slr + no); // (7-2)
    let ist = sidetone(p);
    let is = loudness(p, no) + ist + quantizing(p, ro); // (7-8)
    let id = talker_echo(p, no, ist) + listener_echo(p, ro) + absolute_delay(p.ta); // (7-17)
    let ie_eff = equipment(p);
    Rating { ro, is, id, ie_eff, a: p.a, r: ro - is - id - ie_eff + p.a }
}

/// No, the sum of all noise, dBm0p (7-3 to 7-7).
fn noise(p: &Parameters) -> f64 {
    let olr = p.slr + p.rlr;
    let nos = p.ps - p.slr - p.ds - 100.0 + 0.004 * sq(p.ps - olr - p.ds - 14.0);
    let pre = p.pr + 10.0 * log10(1.0 + pow(10.0, (10.0 - p.lstr) / 10.0));
    let nor = p.rlr - 121.0 + pre + 0.008 * sq(pre - 35.0);
    let nfo = p.nfor + p.rlr;
    10.0 * log10([p.nc, nos, nor, nfo].iter().map(|n| pow(10.0, n / 10.0)).sum())
}

/// Iolr, impairment by too quiet a connection (7-9, 7-10).
fn loudness(p: &Parameters, no: f64) -> f64 {
    let x = (p.slr + p.rlr + 0.2 * (64.0 + no - p.rlr)) / 8.0;
    20.0 * (root_one_plus(x, 8.0) - x)
}

/// Ist, impairment by a non-optimal sidetone (7-11, 7-12).
fn sidetone(p: &Parameters) -> f64 {
    let stmro =
        -10.0 * log10(pow(10.0, -p.stmr / 10.0) + exp(-p.t / 4.0) * pow(10.0, -p.telr / 10.0));
    12.0 * root_one_plus((stmro - 13.0) / 6.0, 8.0)
        - 28.0 * root_one_plus((stmro + 1.0) / 19.4, 35.0)
        - 13.0 * root_one_plus((stmro - 3.0) / 33.0, 13.0)
        + 29.0
}

/// Iq, impairment by quantizing distortion (7-13 to 7-16).
fn quantizing(p: &Parameters, ro: f64) -> f64 {
    let q = 37.0 - 15.0 * log10(p.qdu);
    let g = 1.07 + 0.258 * q + 0.0602 * sq(q);
    let y = (ro - 100.0) / 15.0 + 46.0 / 8.4 - g / 9.0;
    let z = 46.0 / 30.0 - g / 40.0;
    15.0 * log10(1.0 + pow(10.0, y) + pow(10.0, z))
}

/// Idte, impairment by talker echo (7-18 to 7-24).
fn talker_echo(p: &Parameters, no: f64, ist: f64) -> f64 {
    let mut terv =
        p.telr - 40.0 * log10((1.0 + p.t / 10.0) / (1.0 + p.t / 150.0)) + 6.0 * exp(-0.3 * sq(p.t));
    if p.stmr < 9.0 {
        // A strong sidetone masks some of the echo.
        terv += ist / 2.0;
    }
    let roe = -1.5 * (no - p.rlr);
    let re = 80.0 + 2.5 * (terv - 14.0);
    let half = (roe - re) / 2.0;
    let idte = (half + sqrt(sq(half) + 100.0) - 1.0) * (1.0 - exp(-p.t));
    if p.stmr > 20.0 { sqrt(sq(idte) + sq(ist)) } else { idte }
}

/// Idle, impairment by listener echo (7-25, 7-26).
fn listener_echo(p: &Parameters, ro: f64) -> f64 {
    let rle = 10.5 * (p.wepl + 7.0) * pow(p.tr + 1.0, -0.25);
    let half = (ro - rle) / 2.0;
    half + sqrt(sq(half) + 169.0)
}

/// Idd, impairment by too long a delay even without echo (7-27, 7-28), with the default delay
/// sensitivity: sT = 1, mT = 100 ms.
fn absolute_delay(ta: f64) -> f64 {
    if ta <= 100.0 {
        return 0.0;
    }
    let x = log2(ta / 100.0);
    25.0 * (root_one_plus(x, 6.0) - 3.0 * root_one_plus(x / 3.0, 6.0) + 2.0)
}

/// Ie,eff, impairment by codec and packet loss (7-29).
fn equipment(p: &Parameters) -> f64 {
    if p.ppl <= 0.0 {
        return p.ie;
    }
    p.ie + (95.0 - p.ie) * p.ppl / (p.ppl / p.burst_r + p.bpl)
}

/// Computes (1 + x^n)^(1/n), which most impairments contain.
fn root_one_plus(x: f64, n: f64) -> f64 {
    pow(1.0 + pow(x, n), 1.0 / n)
}

fn sq(x: f64) -> f64 {
    x * x
}

/// The mean opinion score of a rating, 1 to 4.5 (B-4).
///
/// Below R = 6.5 the Recommendation's cubic falls below 1, the lowest possible score; the result is
/// clamped to 1.
pub fn mos(r: f64) -> f64 {
    if r <= 0.0 {
        return 1.0;
    }
    if r >= 100.0 {
        return 4.5;
    }
    (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0)
}

/// The rating of a mean opinion score: 6.5 to 100 (G.107 Appendix I). Scores outside 1 to 4.5 are
/// clamped.
pub fn r(mos: f64) -> f64 {
    let m = mos.clamp(1.0, 4.5);
    let h = atan2(
        15.0 * sqrt(-903_522.0 + 1_113_960.0 * m - 202_500.0 * m * m),
        18_566.0 - 6_750.0 * m,
    ) / 3.0;
    20.0 / 3.0 * (8.0 - sqrt(226.0) * cos(h + core::f64::consts::FRAC_PI_3))
}

/// BurstR of a call, from one flag per packet, true if missed: the mean length of the bursts over
/// 1/(1−p), their mean length if the same share p were lost independently (G.107 §7.5). About 1 for
/// independent loss; 1 if nothing was lost, or everything.
pub fn burst_ratio(lost: impl IntoIterator<Item = bool>) -> f64 {
    let (mut packets, mut missed, mut bursts) = (0u64, 0u64, 0u64);
    let mut before = false;
    for now in lost {
        packets += 1;
        missed += u64::from(now);
        bursts += u64::from(now && !before);
        before = now;
    }
    burst_ratio_of(packets, missed, bursts)
}

/// BurstR of `packets` packets, of which `missed` were missed in `bursts` runs; 1 if none or all
/// were missed.
pub fn burst_ratio_of(packets: u64, missed: u64, bursts: u64) -> f64 {
    if missed == 0 || missed >= packets || bursts == 0 {
        return 1.0;
    }
    let received = (packets - missed) as f64 / packets as f64;
    missed as f64 / bursts as f64 * received
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got} is not {want} ± {within}");
    }

    #[test]
    fn defaults_are_the_recommendations() {
        let d = rate(&Parameters::default());
        near(d.r, 93.2062, 0.0001); // as other implementations print it
        near(d.mos(), 4.41, 0.005);
        near(d.ro, 94.77, 0.005);
        near(d.is, 1.41, 0.005);
        near(d.id, 0.15, 0.005);
        assert_eq!((d.ie_eff, d.a), (0.0, 0.0));
    }

    #[test]
    fn loss_by_hand() {
        let loss = |codec, share, burst_r| {
            rate(&Parameters::default().with_codec(codec).with_loss(share, burst_r)).ie_eff
        };
        near(loss(Codec::G711, 0.01, 1.0), 95.0 / 5.3, 1e-9);
        near(loss(Codec::G711_PLC, 0.05, 1.0), 475.0 / 30.1, 1e-9);
        near(loss(Codec::G711_PLC, 0.05, 2.0), 475.0 / 27.6, 1e-9);
        near(loss(Codec { ie: 11.0, bpl: 19.0 }, 0.02, 1.0), 11.0 + 168.0 / 21.0, 1e-9);
        assert_eq!(loss(Codec { ie: 11.0, bpl: 0.0 }, 0.0, 1.0), 11.0);
    }

    /// Cole and Rosenbluth fitted Id over the same defaults by two straight lines (2001, "Voice
    /// over IP performance monitoring"): an independent check of the delay formulas.
    #[test]
    fn delay_follows_the_published_fit() {
        for ms in (0..=400).step_by(10) {
            let d = f64::from(ms);
            let fit = 0.024 * d + 0.11 * (d - 177.3f64).max(0.0);
            let one_way = Duration::from_millis(ms as u64);
            let id = rate(&Parameters::default().with_delay(one_way)).id;
            near(id, fit, 3.0);
        }
    }

    #[test]
    fn absolute_delay_starts_at_100_ms() {
        assert_eq!(absolute_delay(100.0), 0.0);
        // X = 1: 25 (2^(1/6) − 3 (1 + 3^−6)^(1/6) + 2).
        near(absolute_delay(200.0), 3.044, 0.001);
    }

    #[test]
    fn worse_is_worse() {
        let base = Parameters::default().with_delay(Duration::from_millis(100));
        let r = |p: Parameters| rate(&p).r;
        for worse in [
            Parameters { telr: 40.0, ..base },
            Parameters { wepl: 30.0, ..base },
            Parameters { nc: -50.0, ..base },
            Parameters { ps: 70.0, ..base },
            Parameters { pr: 70.0, ..base },
            Parameters { slr: 16.0, ..base },
            Parameters { qdu: 8.0, ..base },
            Parameters { ppl: 1.0, ..base },
        ] {
            assert!(r(worse) < r(base) - 0.5, "{worse:?}");
        }
        near(r(Parameters { a: 10.0, ..base }), r(base) + 10.0, 1e-9);
    }

    #[test]
    fn scores_of_the_user_satisfaction_table() {
        // G.107 Annex B, Table B.1.
        for (rating, score) in
            [(90.0, 4.34), (80.0, 4.03), (70.0, 3.60), (60.0, 3.10), (50.0, 2.58)]
        {
            near(mos(rating), score, 0.01);
        }
        assert_eq!((mos(-5.0), mos(3.0), mos(100.0), mos(120.0)), (1.0, 1.0, 4.5, 4.5));
    }

    proptest! {
        #[test]
        fn score_and_rating_are_inverse(rating in 6.6f64..99.9) {
            near(r(mos(rating)), rating, 1e-3);
        }

        #[test]
        fn finite_over_the_permitted_ranges(
            ms in 0u64..500, ppl in 0.0f64..=1.0, burst_r in 1.0f64..8.0, telr in 5.0f64..65.0,
            stmr in 10.0f64..20.0, wepl in 5.0f64..110.0, noise in 35.0f64..85.0,
        ) {
            let p = Parameters { telr, stmr, wepl, ps: noise, pr: noise, ..Parameters::default() }
                .with_delay(Duration::from_millis(ms))
                .with_loss(ppl, burst_r);
            let rating = rate(&p);
            prop_assert!(rating.r.is_finite() && rating.r < 94.0, "{:?}", rating);
            prop_assert!((1.0..=4.5).contains(&rating.mos()));
        }
    }

    #[test]
    fn burst_ratio_of_known_patterns() {
        // 10 % lost, in runs of four: 4 × 0.9.
        let runs = (0..400).map(|i| i % 40 < 4);
        near(burst_ratio(runs), 3.6, 1e-9);
        // Every tenth packet: more regular than independent loss.
        near(burst_ratio((0..400).map(|i| i % 10 == 0)), 0.9, 1e-9);
        assert_eq!(burst_ratio([]), 1.0);
        assert_eq!(burst_ratio([false; 9]), 1.0);
        assert_eq!(burst_ratio([true; 9]), 1.0);
    }

    #[test]
    fn independent_loss_has_ratio_one() {
        // A multiplicative hash is random enough here.
        let lost = (0..200_000u64).map(|i| {
            (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 7)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
                >> 56
                < 26
        });
        near(burst_ratio(lost), 1.0, 0.03);
    }
}
