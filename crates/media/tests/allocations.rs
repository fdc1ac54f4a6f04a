//! Neither a frame of G.726, at any change of rate, nor parity of packets allocates.

use trunkline_media::codec::g711::Law;
use trunkline_media::codec::g726::{Decoder, Encoder, Packing, Rate};
use trunkline_media::parity::{self, Group};
use trunkline_media::rtp::RtpView;

#[test]
fn a_frame_costs_no_allocation() {
    let mut encoder = Encoder::new(Law::A, Rate::Kbps40, Packing::Rtp);
    let mut decoder = Decoder::new(Law::A, Rate::Kbps40, Packing::Rtp);
    let (mut payload, mut heard) = (Vec::with_capacity(100), Vec::with_capacity(160));
    let mut bytes = 0;
    let counted = allocation_counter::measure(|| {
        for n in 0..1_000u32 {
            let rate = Rate::ALL[n as usize % 4];
            encoder.set_rate(rate);
            decoder.set_rate(rate);
            payload.clear();
            heard.clear();
            encoder.encode_to(&[(n * 37) as u8; 160], &mut payload);
            decoder.decode_to(&payload, &mut heard);
            encoder.follow(&heard);
            decoder.follow(&heard);
            bytes += payload.len();
        }
    });
    // Otherwise nothing was measured.
    assert_eq!(bytes, 70_000);
    assert_eq!(counted.count_total, 0);
}

#[test]
fn parity_costs_no_allocation() {
    let (mut a, mut b) = ([0; 172], [0; 92]);
    let view = |sequence, payload| RtpView {
        payload_type: 96,
        marker: false,
        sequence,
        timestamp: 160 * u32::from(sequence),
        ssrc: 7,
        payload,
    };
    let (mut repair, mut lost) = ([0; 184], [0; 172]);
    let mut bytes = 0;
    let counted = allocation_counter::measure(|| {
        for first in 0..1_000 {
            view(first, &[1; 160]).emit(&mut a).unwrap();
            view(first + 3, &[2; 80]).emit(&mut b).unwrap();
            let group = Group::new(first, 2, 3).unwrap();
            let len = parity::emit(&group, &[&a, &b], &mut repair).unwrap();
            let parity = parity::parse(&repair[..len]).unwrap();
            bytes += parity.recover(7, &[&a], &mut lost).unwrap();
        }
    });
    // Otherwise nothing was measured.
    assert_eq!(bytes, 92_000);
    assert_eq!(counted.count_total, 0);
}
