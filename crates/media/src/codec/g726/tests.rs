use super::*;
use proptest::prelude::*;

/// Samples in 20 ms at 8 kHz.
const FRAME: usize = 160;

/// `seconds` of a synthetic voice in G.711: twelve harmonics of a pitch that wanders around 140 Hz,
/// under two slow formants, in syllables of a quarter of a second.
fn voice(law: Law, seconds: usize) -> Vec<u8> {
    use core::f64::consts::TAU;
    let mut phase = 0.0;
    let sample = |n: usize| {
        let t = n as f64 / 8_000.0;
        let pitch = 140.0 + 25.0 * libm::sin(TAU * 0.7 * t);
        phase += pitch / 8_000.0;
        let loudness = 0.55 + 0.45 * libm::sin(TAU * 4.0 * t);
        let formants = [600.0 + 250.0 * libm::sin(TAU * 1.3 * t), 1_700.0];
        let harmonics = (1..=12).map(|h| {
            let hertz = pitch * f64::from(h);
            let weight: f64 =
                formants.iter().map(|f| 1.0 / (1.0 + libm::pow((hertz - f) / 150.0, 2.0))).sum();
            weight * libm::sin(TAU * phase * f64::from(h))
        });
        law.encode((loudness * 5_000.0 * harmonics.sum::<f64>()) as i16)
    };
    (0..8_000 * seconds).map(sample).collect()
}

fn pair(law: Law, rate: Rate) -> (Encoder, Decoder) {
    (Encoder::new(law, rate, Packing::Rtp), Decoder::new(law, rate, Packing::Rtp))
}

/// The decoding error of each sample; `rate_at` gives the rate at which each is sent.
fn errors(law: Law, pcm: &[u8], rate_at: impl Fn(usize) -> Rate) -> Vec<f64> {
    let (mut encoder, mut decoder) = pair(law, rate_at(0));
    let error = |(n, &code): (usize, &u8)| {
        encoder.set_rate(rate_at(n));
        decoder.set_rate(rate_at(n));
        let heard = decoder.decode(encoder.encode(code));
        f64::from(law.decode(heard)) - f64::from(law.decode(code))
    };
    pcm.iter().enumerate().map(error).collect()
}

fn energy(samples: &[f64]) -> f64 {
    samples.iter().map(|s| s * s).sum()
}

#[test]
fn payloads_are_as_long_as_table_1_has_them() {
    for (rate, bytes) in Rate::ALL.into_iter().zip([40, 60, 80, 100]) {
        assert_eq!(rate.payload_len(FRAME), bytes);
        assert_eq!(rate.bitrate().time_for(bytes).as_millis(), 20);
        for packing in [Packing::Rtp, Packing::Aal2] {
            let (mut out, name) = (Vec::new(), rate.encoding_name(packing));
            Encoder::new(Law::A, rate, packing).encode_to(&[0x55; FRAME], &mut out);
            assert_eq!(out.len(), bytes, "{name}");
            assert!(name.ends_with(&format!("G726-{}", rate.bits() * 8)), "{name}");
        }
    }
}

/// At least 4 dB more with each bit, from 10 dB at two bits.
#[test]
fn noise_falls_with_the_rate() {
    for law in [Law::A, Law::Mu] {
        let pcm = voice(law, 4);
        let signal: Vec<f64> = pcm.iter().map(|&c| f64::from(law.decode(c))).collect();
        for (rate, least) in Rate::ALL.into_iter().zip([10.0, 14.0, 18.0, 22.0]) {
            let noise = energy(&errors(law, &pcm, |_| rate));
            let snr = 10.0 * libm::log10(energy(&signal) / noise);
            assert!(snr >= least, "{law:?} {rate:?}: {snr:.1} dB");
            println!("{law:?} {rate:?}: {snr:.1} dB");
        }
    }
}

/// Detects a changed bit even without the ITU's vectors: a checksum (FNV-1a) of the output at the
/// time when they passed, at all rates in both laws, for codes in arbitrary order.
#[test]
fn no_bit_has_changed_since_the_vectors_passed() {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for law in [Law::A, Law::Mu] {
        for rate in Rate::ALL {
            let (mut encoder, mut decoder) = pair(law, rate);
            for n in 0..20_000u32 {
                let any = (n.wrapping_mul(0x9e37_79b9) >> 13) as u8;
                add(encoder.encode(any));
                add(decoder.decode(any));
            }
        }
    }
    assert_eq!(sum, 0x0182_13fc_3176_1d9f);
}

/// Decoded speech is coded to the same codes again: a second pair changes nothing.
#[test]
fn a_second_pair_of_codecs_adds_nothing() {
    for law in [Law::A, Law::Mu] {
        for rate in Rate::ALL {
            let ((mut encoder, mut decoder), (mut second, mut last)) =
                (pair(law, rate), pair(law, rate));
            for &code in &voice(law, 2) {
                let sent = encoder.encode(code);
                let heard = decoder.decode(sent);
                let again = second.encode(heard);
                assert_eq!(again, sent, "{law:?} {rate:?}");
                assert_eq!(last.decode(again), heard);
            }
        }
    }
}

#[test]
fn a_change_of_rate_keeps_encoder_and_decoder_in_step() {
    let pcm = voice(Law::Mu, 1);
    let (mut encoder, mut decoder) = pair(Law::Mu, Rate::Kbps40);
    for (n, frame) in pcm.chunks(FRAME).enumerate() {
        let rate = Rate::ALL[n * 7 % 4];
        encoder.set_rate(rate);
        decoder.set_rate(rate);
        let mut payload = Vec::new();
        encoder.encode_to(frame, &mut payload);
        decoder.decode_to(&payload, &mut Vec::new());
        assert_eq!(encoder.state, decoder.state);
    }
}

/// Largest allowed ratio of an error to those of the lower rate, 2 dB: a click would stand out.
/// Starting from a reset costs ten times that (see below).
const LARGER: f64 = 1.26;

/// Changes by one step, for 20 ms of every 120.
#[test]
fn a_change_of_rate_is_no_click() {
    for law in [Law::A, Law::Mu] {
        let pcm = voice(law, 12);
        let steady = Rate::ALL.map(|rate| errors(law, &pcm, |_| rate));
        for (low, high) in [(0, 1), (1, 2), (2, 3)] {
            for (from, to) in [(low, high), (high, low)] {
                let changed = |n: usize| n / FRAME % 6 == 3;
                let rate_at = |n: usize| Rate::ALL[if changed(n) { to } else { from }];
                let got = errors(law, &pcm, rate_at);
                let largest = |errors: &[f64]| {
                    let within = errors.iter().enumerate().filter(|(n, _)| changed(*n));
                    within.fold(0.0, |most: f64, (_, e)| most.max(e.abs()))
                };
                let (peak, allowed) = (largest(&got), largest(&steady[low]));
                let (from, to) = (Rate::ALL[from], Rate::ALL[to]);
                println!("{law:?} {from:?} to {to:?}: {peak}, steadily {allowed}");
                assert!(peak <= LARGER * allowed, "{law:?} {from:?} to {to:?}: {peak}, {allowed}");
            }
        }
    }
}

/// A call that changes from 64 kbit/s sounds as if it had been at 40 all along, if both ends
/// followed; otherwise, the first samples are overloaded.
#[test]
fn who_follows_g711_goes_on_without_a_seam() {
    for law in [Law::A, Law::Mu] {
        let pcm = voice(law, 2);
        let steady = errors(law, &pcm, |_| Rate::Kbps40);
        let (mut cold, mut warm) = (0.0, 0.0);
        for start in (0..pcm.len() - 20).step_by(FRAME).skip(1) {
            let (mut encoder, mut decoder) = pair(law, Rate::Kbps40);
            encoder.follow(&pcm[..start]);
            decoder.follow(&pcm[..start]);
            let heard = |encoder: &mut Encoder, decoder: &mut Decoder| -> Vec<f64> {
                let first = pcm[start..start + 20].iter().map(|&code| {
                    let heard = decoder.decode(encoder.encode(code));
                    f64::from(law.decode(heard)) - f64::from(law.decode(code))
                });
                first.collect()
            };
            let followed = heard(&mut encoder, &mut decoder);
            assert_eq!(followed, steady[start..start + 20]);
            warm += energy(&followed);
            encoder.reset();
            decoder.reset();
            cold += energy(&heard(&mut encoder, &mut decoder));
        }
        println!("{law:?}: {:.1} dB", 10.0 * libm::log10(cold / warm));
        assert!(cold > 4.0 * warm, "{law:?}: following is of no use: {cold} {warm}");
    }
}

#[test]
fn a_reset_is_a_new_beginning() {
    let (mut encoder, mut decoder) = pair(Law::A, Rate::Kbps24);
    for code in voice(Law::A, 1) {
        decoder.decode(encoder.encode(code));
    }
    assert_ne!(encoder.state, State::RESET);
    encoder.reset();
    decoder.reset();
    assert_eq!((&encoder.state, &decoder.state), (&State::RESET, &State::RESET));
    assert_eq!((encoder.rate(), decoder.rate()), (Rate::Kbps24, Rate::Kbps24));
}

#[test]
fn payloads_of_any_length_fill_the_frame() {
    for rate in Rate::ALL {
        for len in [0, 1, 2, 3, 4, 39, 100, 161, 1_500] {
            let mut decoder = Decoder::new(Law::Mu, rate, Packing::Rtp);
            let payload = vec![0xa7; len];
            let mut frame = [99; FRAME];
            playout::Decoder::decode(&mut decoder, &payload, &mut frame);
            let codes = len * 8 / rate.bits() as usize;
            assert!(frame.iter().skip(codes).all(|&s| s == 0), "{rate:?} {len}");
            let mut out = Vec::new();
            decoder.decode_to(&payload, &mut out);
            assert_eq!(out.len(), codes, "{rate:?} {len}");
        }
    }
}

/// Each step goes to the next existing sample, except for the second zero of µ-law.
#[test]
fn codes_are_ordered_as_their_samples_are() {
    for law in [Law::A, Law::Mu] {
        let mut code = law.encode(i16::MIN);
        let mut steps = 0;
        while next_higher(law, code) != code {
            let higher = next_higher(law, code);
            assert!(law.decode(higher) > law.decode(code), "{law:?} {code}");
            assert_eq!(expand(law, next_lower(law, higher)), expand(law, code), "{law:?}");
            (code, steps) = (higher, steps + 1);
        }
        assert_eq!(code, law.encode(i16::MAX));
        assert_eq!(steps, if law == Law::A { 255 } else { 254 });
        let lowest = law.encode(i16::MIN);
        assert_eq!(next_lower(law, lowest), lowest);
    }
}

proptest! {
    /// For any input, both ends stay in step, and nothing overflows.
    #[test]
    fn any_codes_keep_both_ends_in_step(
        mu: bool,
        steps in proptest::collection::vec((0usize..4, any::<u8>(), 1usize..400), 1..40),
    ) {
        let law = if mu { Law::Mu } else { Law::A };
        let (mut encoder, mut decoder) = pair(law, Rate::Kbps40);
        for (rate, code, times) in steps {
            encoder.set_rate(Rate::ALL[rate]);
            decoder.set_rate(Rate::ALL[rate]);
            for _ in 0..times {
                let sent = encoder.encode(code);
                prop_assert!(u32::from(sent) < 1 << Rate::ALL[rate].bits());
                decoder.decode(sent);
            }
            prop_assert_eq!(&encoder.state, &decoder.state);
        }
    }

    /// Codes that no encoder sends don't overflow anything either.
    #[test]
    fn any_payload_is_decoded(
        aal2: bool,
        payloads in proptest::collection::vec(
            (0usize..4, any::<u8>(), 0usize..1_500, any::<bool>()), 1..20),
    ) {
        let packing = if aal2 { Packing::Aal2 } else { Packing::Rtp };
        let mut decoder = Decoder::new(Law::A, Rate::Kbps16, packing);
        let mut out = Vec::new();
        for (rate, byte, len, varied) in payloads {
            decoder.set_rate(Rate::ALL[rate]);
            let payload: Vec<u8> =
                (0..len).map(|n| if varied { byte.wrapping_mul(n as u8) } else { byte }).collect();
            out.clear();
            decoder.decode_to(&payload, &mut out);
            prop_assert_eq!(out.len(), len * 8 / Rate::ALL[rate].bits() as usize);
        }
    }
}
