//! Cost of a call at an endpoint: coding, reading a packet, playing a minute; and of finding the
//! best playout of a call afterwards.

use core::hint::black_box;
use core::time::Duration;
use criterion::{Criterion, criterion_group, criterion_main};
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::codec::g726::{Decoder, Encoder, Packing, Rate};
use trunkline_media::conceal::Concealer;
use trunkline_media::playout::optimal::{Packet, optimal};
use trunkline_media::playout::{Config, Playout};
use trunkline_media::quality::reduced::Codec;
use trunkline_media::rtp::{self, Packetizer, Stream};

/// Samples in 20 ms at 8 kHz.
const FRAME: usize = 160;

/// A minute of samples with every value, in an order that no predictor can exploit.
fn samples() -> Vec<i16> {
    (0..FRAME as i32 * 50 * 60).map(|i| (i * 7_919) as i16).collect()
}

fn g711(c: &mut Criterion) {
    let pcm = samples();
    for (name, law) in [("A-law", Law::A), ("mu-law", Law::Mu)] {
        let mut codes = Vec::new();
        law.encode_to(&pcm, &mut codes);
        let mut spoken = pcm.chunks(FRAME).cycle();
        let mut coded = codes.chunks(FRAME).cycle();
        let (mut to_codes, mut to_pcm) = (Vec::new(), Vec::new());
        c.bench_function(&format!("g711: encode 20 ms, {name}"), |b| {
            b.iter(|| {
                to_codes.clear();
                law.encode_to(black_box(spoken.next().unwrap_or(&[])), &mut to_codes);
                black_box(&to_codes);
            });
        });
        c.bench_function(&format!("g711: decode 20 ms, {name}"), |b| {
            b.iter(|| {
                to_pcm.clear();
                law.decode_to(black_box(coded.next().unwrap_or(&[])), &mut to_pcm);
                black_box(&to_pcm);
            });
        });
    }
}

fn g726(c: &mut Criterion) {
    let pcm = samples();
    let mut codes = Vec::new();
    Law::A.encode_to(&pcm, &mut codes);
    for rate in Rate::ALL {
        let kbps = rate.bits() * 8;
        let mut encoder = Encoder::new(Law::A, rate, Packing::Rtp);
        let mut decoder = Decoder::new(Law::A, rate, Packing::Rtp);
        let mut payloads = Vec::new();
        Encoder::new(Law::A, rate, Packing::Rtp).encode_to(&codes, &mut payloads);
        let mut spoken = codes.chunks(FRAME).cycle();
        let mut coded = payloads.chunks(rate.payload_len(FRAME)).cycle();
        let (mut payload, mut heard) = (Vec::new(), Vec::new());
        c.bench_function(&format!("g726: encode 20 ms, {kbps} kbit/s"), |b| {
            b.iter(|| {
                payload.clear();
                encoder.encode_to(black_box(spoken.next().unwrap_or(&[])), &mut payload);
                black_box(&payload);
            });
        });
        c.bench_function(&format!("g726: decode 20 ms, {kbps} kbit/s"), |b| {
            b.iter(|| {
                heard.clear();
                decoder.decode_to(black_box(coded.next().unwrap_or(&[])), &mut heard);
                black_box(&heard);
            });
        });
    }
}

fn receive(c: &mut Criterion) {
    let mut coded = Vec::new();
    Law::Mu.encode_to(&samples(), &mut coded);
    let mut packetizer = Packetizer::new(Stream::g711(Law::Mu, 1));
    let packets: Vec<_> = coded
        .chunks(FRAME)
        .map(|frame| {
            let mut packet = [0; rtp::HEADER_LEN + FRAME];
            packetizer.write(frame, &mut packet).expect("the packet has its size");
            packet
        })
        .collect();
    c.bench_function("rtp: read a packet", |b| {
        b.iter(|| rtp::parse(black_box(&packets[7])).map(|view| view.sequence));
    });
    // One packet in twenty is lost, one in twenty late.
    c.bench_function("playout: a call of 60 s", |b| {
        b.iter(|| {
            let mut playout = Playout::new(Config::default());
            for (i, packet) in packets.iter().enumerate().filter(|(i, _)| i % 20 != 7) {
                let rtp = rtp::parse(packet).expect("an RTP packet");
                let delay = Duration::from_millis(if i % 20 == 11 { 140 } else { 40 });
                playout.receive(rtp.sequence, delay, false, rtp.payload).expect("in order");
            }
            black_box(playout.finish(Some(packets.len()), &mut Concealing::new(Law::Mu)))
        });
    });
}

fn conceal(c: &mut Criterion) {
    let pcm = samples();
    let mut frame = [0; FRAME];
    let mut concealer = Concealer::new();
    let mut spoken = pcm.chunks_exact(FRAME).cycle();
    let mut next = |frame: &mut [i16; FRAME]| {
        frame.copy_from_slice(spoken.next().unwrap_or(&[0; FRAME]));
    };
    c.bench_function("conceal: 20 ms received", |b| {
        b.iter(|| {
            next(&mut frame);
            concealer.received(black_box(&mut frame));
        });
    });
    // The concealer has to find a new pitch for each gap.
    c.bench_function("conceal: 20 ms lost after 20 ms received", |b| {
        b.iter(|| {
            next(&mut frame);
            concealer.received(&mut frame);
            concealer.lost(black_box(&mut frame));
        });
    });
}

/// 100 talkspurts of 50 packets: queues that drain, jitter, and one packet in 100 lost.
fn offline(c: &mut Criterion) {
    let packets: Vec<Packet> = (0..5_000u64)
        .map(|i| {
            let (talkspurt, scattered) = (i / 50, i * 7_919);
            let queue = talkspurt * talkspurt * 40 * (50 - i % 50) / 50;
            let delay = Duration::from_micros(50_000 + queue + scattered % 20_000);
            Packet { talkspurt: talkspurt as u32, delay: (scattered % 100 > 0).then_some(delay) }
        })
        .collect();
    c.bench_function("playout: the best of 100 talkspurts", |b| {
        b.iter(|| {
            let packets = black_box(&packets).iter().copied();
            optimal(packets, Duration::from_millis(38), Codec::G711)
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(40)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .nresamples(10_000);
    targets = g711, g726, receive, conceal, offline
}
criterion_main!(benches);
