//! The playout delay that a phone would choose for a stream, to tell which packets come too late.
//!
//! The delay is that of Moon, Kurose and Towsley (1998), as in `trunkline_media::playout::adaptive`:
//! the quantile of the latest packets' delays. Here it also follows a clock that is slow or fast,
//! and is at least as long as two packets.

use core::time::Duration;
use trunkline_base::Time;

/// One in this many packets may be late.
const LATE_ONE_IN: u32 = 100;
/// Least time that a packet waits in a phone, above the fastest: that of two usual packets, the least
/// that jitter buffers have.
const LEAST: i64 = 40 * BIN;
/// The same until enough packets have come to know the quantile.
const INITIAL: i64 = 100 * BIN;
/// Time that a phone waits longer than the quantile, so that packets which come ever later, from a
/// sender that drifts, are still in time until it chooses again.
const MARGIN: i64 = 5 * BIN;
/// Time after which a phone chooses again in speech that never pauses.
const AGAIN: Duration = Duration::from_millis(250);

/// Nanoseconds that a bin of the histogram covers.
const BIN: i64 = 1_000_000;
const BINS: usize = 512;
/// The latest packets count, in as many blocks, each of as many packets.
const BLOCKS: usize = 5;
const BLOCK: u32 = 2_000;
/// Bin in which a new stream begins, and the one to which the fastest packet may rise.
const FIRST: i64 = 64;
const HIGH: i64 = 320;

/// Times in which a fastest packet is sought to find the drift of a clock, and how many are kept.
const SAMPLE: Duration = Duration::from_secs(5);
const SAMPLES: usize = 16;
/// The largest drift, in nanoseconds per second: that of a bad crystal.
const MAX_DRIFT: i64 = 1_500_000;

/// Delays of a stream's latest packets, in nanoseconds relative to any one of them.
#[derive(Clone, Debug)]
pub(super) struct Playout {
    blocks: Box<[[u16; BINS]; BLOCKS]>,
    counts: [u32; BLOCKS],
    block: usize,
    /// Delay at which the first bin begins.
    origin: i64,
    /// The delay at which packets are played, since when, and when to choose anew.
    delay: i64,
    chosen: Time,
    drift: Drift,
}

impl Default for Playout {
    fn default() -> Playout {
        Playout {
            blocks: Box::new([[0; BINS]; BLOCKS]),
            counts: [0; BLOCKS],
            block: 0,
            origin: 0,
            delay: 0,
            chosen: Time::ZERO,
            drift: Drift::default(),
        }
    }
}

impl Playout {
    /// Begins with another stream.
    pub fn restart(&mut self) {
        if self.known() > 0 {
            self.blocks.iter_mut().for_each(|block| block.fill(0));
        }
        (self.counts, self.block, self.drift) = ([0; BLOCKS], 0, Drift::default());
    }

    /// Takes a packet that arrived at `at` after `delay`; `begins` if it begins a talkspurt. Returns
    /// whether it came too late.
    pub fn take(&mut self, at: Time, delay: i64, begins: bool) -> bool {
        let is_first = self.known() == 0;
        let delay = self.drift.remove(at, delay);
        if is_first {
            self.origin = delay - FIRST * BIN;
        }
        if self.counts[self.block] == BLOCK {
            self.turn();
        }
        if delay < self.origin {
            self.shift((self.origin - delay) / BIN + FIRST);
        }
        let bin = ((delay - self.origin) / BIN).min(BINS as i64 - 1);
        self.blocks[self.block][bin as usize] += 1;
        self.counts[self.block] += 1;
        if is_first || begins || at.since(self.chosen) >= AGAIN {
            self.choose(at);
        }
        delay > self.delay
    }

    fn known(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// Forgets the oldest block, and begins a new one in its place.
    fn turn(&mut self) {
        self.block = (self.block + 1) % BLOCKS;
        self.blocks[self.block].fill(0);
        self.counts[self.block] = 0;
        let fastest = self.fastest();
        if fastest > HIGH {
            self.shift(FIRST - fastest);
        }
    }

    /// The lowest bin that has a packet.
    fn fastest(&self) -> i64 {
        (0..BINS).find(|&n| self.blocks.iter().any(|block| block[n] > 0)).unwrap_or(0) as i64
    }

    /// Moves all packets up by `by` bins, or down if it is negative.
    fn shift(&mut self, by: i64) {
        for block in self.blocks.iter_mut() {
            let old = std::mem::replace(block, [0; BINS]);
            for (n, count) in (0..).zip(old).filter(|(_, count)| *count > 0) {
                let at = (n as i64).saturating_add(by).clamp(0, BINS as i64 - 1);
                block[at as usize] += count;
            }
        }
        self.origin -= by * BIN;
    }

    fn choose(&mut self, at: Time) {
        self.chosen = at;
        let known = self.known();
        let mut rest = known / LATE_ONE_IN;
        let slowest = (0..BINS).rev().find(|&n| {
            let count: u32 = self.blocks.iter().map(|block| u32::from(block[n])).sum();
            let is_it = count > rest;
            rest = rest.saturating_sub(count);
            is_it
        });
        let least = if known < LATE_ONE_IN { INITIAL } else { LEAST };
        let quantile = (slowest.unwrap_or(0) as i64 + 1) * BIN + MARGIN;
        self.delay = self.origin + quantile.max(self.fastest() * BIN + least);
    }
}

/// How much later a stream's packets come as time passes, because the two clocks differ.
///
/// The rate is the median of differences between the fastest packets of some seconds, so that a path
/// that becomes longer once does not look like a clock.
#[derive(Clone, Copy, Debug, Default)]
struct Drift {
    /// Least delays, each of [`SAMPLE`], the oldest first.
    samples: [i64; SAMPLES],
    count: usize,
    least: i64,
    /// Beginning of the present sample; `None` before the first packet.
    since: Option<Time>,
    /// In nanoseconds per second.
    rate: i64,
    /// Drift until `until`, in nanoseconds.
    total: i64,
    until: Time,
}

impl Drift {
    /// Takes a packet; returns its delay without the drift.
    fn remove(&mut self, at: Time, delay: i64) -> i64 {
        let since = *self.since.get_or_insert_with(|| {
            (self.least, self.until) = (delay, at);
            at
        });
        self.least = self.least.min(delay);
        let time = at.since(since);
        if time >= SAMPLE {
            self.total = self.total_at(at);
            self.until = at;
            if time >= 2 * SAMPLE {
                // A pause: its packets are of no single time.
                self.count = 0;
            } else {
                self.add(self.least);
            }
            (self.since, self.least) = (Some(at), delay);
        }
        delay - self.total_at(at)
    }

    fn total_at(&self, at: Time) -> i64 {
        let nanos = i128::from(at.since(self.until).as_nanos() as u64);
        self.total + (i128::from(self.rate) * nanos / 1_000_000_000) as i64
    }

    fn add(&mut self, least: i64) {
        if self.count == SAMPLES {
            self.samples.rotate_left(1);
            self.count -= 1;
        }
        self.samples[self.count] = least;
        self.count += 1;
        let lag = self.count / 4;
        if lag == 0 {
            return;
        }
        let mut all = [0; SAMPLES];
        let differences = self.count - lag;
        for (n, difference) in all[..differences].iter_mut().enumerate() {
            *difference = self.samples[n + lag] - self.samples[n];
        }
        let (_, median, _) = all[..differences].select_nth_unstable(differences / 2);
        let rate = *median / (lag as i64 * SAMPLE.as_secs() as i64);
        self.rate = rate.clamp(-MAX_DRIFT, MAX_DRIFT);
    }
}
