//! Pauses of senders, and steps of their timestamps, with packets around them that come late.

use crate::quality::{MS, Sent, receive_each};
use core::time::Duration;
use rand::rngs::ChaCha20Rng;
use rand::{RngExt as _, SeedableRng as _};

/// Time that a packet takes, and the jitter above it.
const USUAL: i64 = 40 * MS;
const JITTER: i64 = 4 * MS;
/// Packets before the first gap: 1 % of them is part of a talkspurt.
const BEFORE: usize = 1_000;
const SPURTS: usize = 8;
/// Packets that a phone misses until it plays by the sender's new clock.
const UNTIL_SHIFTED: usize = 8;

/// A gap between two talkspurts; all times are in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Time in which no speech is sent.
    pause: i64,
    /// By how much the timestamps advance in it.
    stamps: i64,
    /// How late the last packet before it comes, and the first one behind it.
    late: [i64; 2],
    /// Interval of the packets in it that describe the silence.
    silence: Option<i64>,
    /// Whether packets wait for a late one before them.
    is_queue: bool,
}

impl Gap {
    fn of(pause: i64, stamps: i64) -> Gap {
        Gap { pause, stamps, late: [0; 2], silence: None, is_queue: false }
    }

    /// The same with all kinds of late packets around it.
    fn each(self) -> impl Iterator<Item = Gap> {
        let late = [0, 50, 75, 100, 200, 400];
        let both = late.into_iter().flat_map(move |last| late.map(|first| [last, first]));
        both.flat_map(move |late| [false, true].map(|is_queue| Gap { late, is_queue, ..self }))
    }

    /// A stream of talkspurts with such gaps between them.
    fn stream(self) -> Vec<Sent> {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut all: Vec<Sent> = Vec::new();
        let (mut at, mut stamp) = (1_000, 0);
        for spurt in 0..SPURTS {
            let first = all.len();
            let count = if spurt == 0 { BEFORE } else { rng.random_range(30..90) };
            let speech = (0..count).map(|n| 20 * n as i64);
            let end = 20 * count as i64;
            let interval = self.silence.unwrap_or(i64::MAX / 2);
            let silence = (1..).map(|n: i64| n.saturating_mul(interval) - 20);
            let silence = silence.take_while(|after| *after < self.pause).map(|after| end + after);
            for after in speech.chain(silence) {
                let number = all.len() as u16;
                let stamp = 8 * (stamp + after) as u32;
                let delay = USUAL + rng.random_range(0..JITTER);
                all.push(Sent { at: (at + after) * MS, number, stamp, delay });
            }
            if let Some(last) = all.last_mut() {
                last.delay += self.late[0] * MS;
            }
            if spurt > 0 {
                all[first].delay += self.late[1] * MS;
            }
            (at, stamp) = (at + end + self.pause, stamp + end + self.stamps);
        }
        if self.is_queue {
            let mut free = 0;
            for sent in &mut all {
                free = free.max(sent.at + sent.delay);
                sent.delay = free - sent.at;
            }
        }
        all
    }

    /// How many packets count as late although the network has not delayed them, and by how much the
    /// others wait.
    fn cost(self) -> (usize, Duration) {
        let mut late = 0;
        let counts = receive_each(&self.stream(), false, |sent, is_late| {
            late += usize::from(is_late && sent.delay < USUAL + JITTER);
        });
        (late, counts.extra_delay())
    }
}

/// Fails with the gaps that cost more packets than `most` of them.
#[track_caller]
fn assert_cost(gaps: impl Iterator<Item = Gap>, most: impl Fn(Gap) -> usize) {
    let mut failed = Vec::new();
    for gap in gaps {
        let (late, _) = gap.cost();
        if late > most(gap) {
            failed.push(format!("{gap:?}: {late} packets that are on time are late"));
        }
    }
    assert!(failed.is_empty(), "{} gaps:\n{}", failed.len(), failed.join("\n"));
}

const PAUSES: [i64; 9] = [60, 120, 200, 380, 600, 980, 1_000, 1_500, 2_000];

#[test]
fn no_packet_is_late_because_of_a_late_one_before_a_pause() {
    for silence in [None, Some(160), Some(400)] {
        let gaps = PAUSES.into_iter().flat_map(|pause| Gap::of(pause, pause).each());
        assert_cost(gaps.map(|gap| Gap { silence, ..gap }), |_| 0);
    }
}

#[test]
fn a_pause_that_timestamps_do_not_count_costs_its_moment_beside_late_packets() {
    let gaps = PAUSES.into_iter().flat_map(|pause| Gap::of(pause, 0).each());
    assert_cost(gaps, |gap| {
        let first = if gap.pause < 100 { BEFORE / 100 } else { 0 };
        first + UNTIL_SHIFTED * (SPURTS - 1)
    });
}

#[test]
fn timestamps_that_step_ahead_beside_late_packets_make_none_late_and_no_buffer_longer() {
    let mut failed = Vec::new();
    for step in [100, 120, 200, 500, 880, 1_500, 5_000] {
        for gap in Gap::of(0, step).each() {
            let (_, usual) = Gap { stamps: 0, ..gap }.cost();
            let (late, longer) = gap.cost();
            // At a second, all that was known before is forgotten.
            let is_longer = step < 1_000 && longer > usual + Duration::from_millis(5);
            if late > 0 || is_longer {
                failed.push(format!("{gap:?}: {late} late, {longer:?} instead of {usual:?}"));
            }
        }
    }
    assert!(failed.is_empty(), "{} gaps:\n{}", failed.len(), failed.join("\n"));
}
