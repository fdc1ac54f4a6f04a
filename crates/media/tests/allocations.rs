//! A frame of G.726 allocates nothing, whatever becomes of the rate.

use trunkline_media::codec::g711::Law;
use trunkline_media::codec::g726::{Decoder, Encoder, Packing, Rate};

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
    // Else nothing was measured.
    assert_eq!(bytes, 70_000);
    assert_eq!(counted.count_total, 0);
}
