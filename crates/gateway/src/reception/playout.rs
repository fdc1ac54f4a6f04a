//! The playout delay that a phone would choose for a stream, to tell which packets come too late.
//!
//! The delay is that of Moon, Kurose and Towsley (1998), as in `trunkline_media::playout::adaptive`:
//! the quantile of the latest packets' delays. Here it also follows a clock that is slow or fast,
//! and is at least as long as two packets. Packets that all come too late for some time show that the
//! sender's clock has another relation to ours, for example after a pause without timestamps: what was
//! known before is forgotten.

use core::time::Duration;
use trunkline_base::Time;

/// One in this many packets may be late.
const LATE_ONE_IN: u32 = 100;
/// Least time that a packet waits in a phone, above the fastest: that of two usual packets, the least
/// that jitter buffers have.
pub(super) const LEAST: i64 = 40 * MS;
/// The same until enough packets have come to know the quantile.
const INITIAL: i64 = 100 * MS;
/// Time after which a phone chooses again in speech that never pauses.
const AGAIN: Duration = Duration::from_millis(250);
/// The same before a packet that begins a talkspurt: some senders mark each packet so.
const TALKSPURT: Duration = Duration::from_millis(100);
/// Times in which a fastest packet is sought, and how many of them have the one above which a phone
/// waits: 2 s, so that it follows a sender whose clock drifts by some milliseconds in a second.
const TURN: Duration = AGAIN;
const RECENT: usize = 8;
/// Time for which all packets must come too late, and their least number, before the old delays are
/// forgotten. A burst after a pause in the network is shorter.
const SHIFTED: Duration = Duration::from_millis(100);
const SHIFTED_PACKETS: u32 = 3;
/// Time by which all of them must be too late. If it is less, as many must be late as the quantile
/// needs.
const FAR: i64 = 100 * MS;

const MS: i64 = 1_000_000;
/// Nanoseconds that a bin of the histogram covers.
const BIN: i64 = 2 * MS;
const BINS: usize = 512;
/// The latest packets count, in as many blocks, each of as many packets.
const BLOCKS: usize = 5;
const BLOCK: u32 = 2_000;
/// Bin in which a new stream begins, and the one to which the fastest packet may rise.
const FIRST: i64 = 32;
const HIGH: i64 = 160;

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
    /// The delay at which packets are played, and since when.
    delay: i64,
    chosen: Time,
    /// Least delays in the latest times of [`TURN`], the newest first, and the beginning of that one.
    recent: [i64; RECENT],
    turned: Time,
    /// Time that the fastest of the latest packets has to wait, so that the others are in time.
    wait: i64,
    /// Whether the sender's clock has shifted: then the first packets do not wait longer.
    has_shifted: bool,
    /// The latest packets, if all were too late.
    late: Option<LateRun>,
    drift: Drift,
}

/// Packets in a row that were all too late.
#[derive(Clone, Copy, Debug)]
struct LateRun {
    since: Time,
    last: Time,
    count: u32,
    /// The least of their delays.
    least: i64,
}

impl LateRun {
    fn new(since: Time, delay: i64) -> LateRun {
        LateRun { since, last: since, count: 0, least: delay }
    }

    fn with(self, at: Time, delay: i64) -> LateRun {
        let count = self.count.saturating_add(1);
        LateRun { count, last: at, least: self.least.min(delay), ..self }
    }

    /// Whether a late packet may be late for the same reason as these: those before a pause show nothing
    /// of a shift behind it.
    fn has(&self, at: Time, delay: i64) -> bool {
        at.since(self.last) < SHIFTED || delay - self.least <= FAR
    }
}

/// Fate of a packet at a phone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Played {
    /// Whether the packet came too late.
    pub is_late: bool,
    /// Nanoseconds that the fastest packets have to wait, so that the others are in time.
    pub wait: i64,
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
            recent: [i64::MAX; RECENT],
            turned: Time::ZERO,
            wait: 0,
            has_shifted: false,
            late: None,
            drift: Drift::default(),
        }
    }
}

impl Playout {
    /// Begins with another stream.
    pub fn restart(&mut self) {
        self.forget();
        (self.drift, self.has_shifted) = (Drift::default(), false);
    }

    fn forget(&mut self) {
        if self.known() > 0 {
            self.blocks.iter_mut().for_each(|block| block.fill(0));
        }
        (self.counts, self.block) = ([0; BLOCKS], 0);
        (self.recent, self.late) = ([i64::MAX; RECENT], None);
    }

    /// Takes a packet that arrived at `at` after `delay`; `begins` if it begins a talkspurt.
    pub fn take(&mut self, at: Time, delay: i64, begins: bool) -> Played {
        let is_first = self.known() == 0;
        let delay = self.drift.remove(at, delay);
        if is_first {
            self.origin = delay - FIRST * BIN;
        }
        self.add(delay);
        let mut is_late = !is_first && delay > self.delay;
        let run = self.late.filter(|run| is_late && run.has(at, delay));
        let run = run.unwrap_or(LateRun::new(at, delay)).with(at, delay);
        if is_late && self.is_shift(at, run) {
            self.shift_base(at, delay, run);
            is_late = false;
        } else {
            // Few packets that all come too late may be a shift, which is to be seen first.
            let may_shift = is_late && at.since(run.since) < SHIFTED;
            let again = if begins { TALKSPURT } else { AGAIN };
            if is_first || !may_shift && at.since(self.chosen) >= again {
                self.choose(at);
                is_late = delay > self.delay;
            }
        }
        if at.since(self.turned) >= TURN {
            self.recent.rotate_right(1);
            (self.recent[0], self.turned) = (i64::MAX, at);
        }
        self.late = is_late.then_some(run);
        Played { is_late, wait: self.wait }
    }

    /// Delay at `at` of a packet as fast as the fastest of late; `None` before the first.
    pub fn fastest(&self, at: Time) -> Option<i64> {
        let least = self.recent_least();
        (least < i64::MAX).then(|| least + self.drift.total_at(at))
    }

    fn add(&mut self, delay: i64) {
        if self.counts[self.block] == BLOCK {
            self.turn();
        }
        if delay < self.origin {
            self.shift((self.origin - delay) / BIN + FIRST);
        }
        let bin = ((delay - self.origin) / BIN).min(BINS as i64 - 1);
        self.blocks[self.block][bin as usize] += 1;
        self.counts[self.block] += 1;
        self.recent[0] = self.recent[0].min(delay);
    }

    /// Whether packets up to `at` that all came too late show that the old delays no longer hold.
    fn is_shift(&self, at: Time, run: LateRun) -> bool {
        let is_far = run.least - self.delay > FAR && run.count > SHIFTED_PACKETS;
        let common = (self.known() / LATE_ONE_IN).max(SHIFTED_PACKETS);
        at.since(run.since) >= SHIFTED && (is_far || run.count > common)
    }

    /// Begins anew with the delays of the latest packets.
    fn shift_base(&mut self, at: Time, delay: i64, run: LateRun) {
        self.drift.shift(run.least - self.recent_least(), run.since);
        self.forget();
        self.has_shifted = true;
        self.origin = run.least - FIRST * BIN;
        self.add(run.least);
        self.add(delay);
        self.choose(at);
    }

    fn recent_least(&self) -> i64 {
        self.recent.into_iter().min().unwrap_or(i64::MAX)
    }

    fn known(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// Forgets the oldest block, and begins a new one in its place.
    fn turn(&mut self) {
        self.block = (self.block + 1) % BLOCKS;
        self.blocks[self.block].fill(0);
        self.counts[self.block] = 0;
        let fastest = self.lowest();
        if fastest > HIGH {
            self.shift(FIRST - fastest);
        }
    }

    /// The lowest bin that has a packet.
    fn lowest(&self) -> i64 {
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
        let known = self.known();
        let mut rest = known / LATE_ONE_IN;
        let mut quantile = self.origin + BIN;
        for n in (0..BINS).rev() {
            let count: u32 = self.blocks.iter().map(|block| u32::from(block[n])).sum();
            if count > rest {
                // As if the packets of a bin were spread evenly over it.
                let above = BIN * i64::from(rest) / i64::from(count);
                quantile = self.origin + (n as i64 + 1) * BIN - above;
                break;
            }
            rest -= count;
        }
        let fastest = self.recent_least();
        let needed = quantile.max(fastest + LEAST);
        let is_new = known < LATE_ONE_IN && !self.has_shifted;
        self.delay = if is_new { quantile.max(fastest + INITIAL) } else { needed };
        self.wait = needed - fastest;
        self.chosen = at;
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

    /// Moves what is known by `by`, by which all packets since `from` have come later without a drift.
    fn shift(&mut self, by: i64, from: Time) {
        self.samples[..self.count].iter_mut().for_each(|least| *least += by);
        if self.since.is_none_or(|since| since < from) {
            self.least += by;
        }
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
