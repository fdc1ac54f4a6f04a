//! Two nodes and a link between them that carries only hellos.

use std::time::Duration;
use trunkline_base::link_model::{LinkModel, Loss};
use trunkline_base::{Rng, Time, rng};
use trunkline_overlay::monitor::Liveness;
use trunkline_sim::{HostId, Topology, WireId, World, WorldError};

/// One end of the link stalls now and then, and the other receives nothing.
#[derive(Clone, Copy, Debug)]
pub struct Stalls {
    /// Longest stall: durations are uniform from 0.2 s to this.
    pub longest: Duration,
}

impl Stalls {
    const SHORTEST: Duration = Duration::from_millis(200);
    /// Mean time from the end of a stall to the beginning of the next, in seconds.
    const APART: f64 = 60.0;
}

/// Counters of one minute of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Minute {
    /// Number of times that the link was declared dead.
    pub deaths: u64,
    /// UDP payload in both directions, in bytes.
    pub bytes: u64,
}

/// Two nodes 20 ms apart.
pub struct Pair {
    world: World,
    stalls: Option<(Stalls, Rng, Time)>,
    /// Random numbers for the times at which links are cut.
    rng: Rng,
}

const WIRE: WireId = WireId(0);
const ENDS: [HostId; 2] = [HostId(0), HostId(1)];
/// The end that stalls.
const FAR: HostId = ENDS[1];
const SECOND: Duration = Duration::from_secs(1);
/// By this time both ends have measured the round trip.
const START: Time = Time::from_millis(5_000);

impl Pair {
    /// A link with this loss in both directions that has just come up.
    pub fn new(
        loss: Loss,
        stalls: Option<Stalls>,
        liveness: &Liveness,
        seed: u64,
    ) -> Result<Pair, WorldError> {
        // The jitter keeps hellos from meeting timeouts to the nanosecond.
        let (delay, jitter) = (Duration::from_millis(20), Duration::from_millis(2));
        let model = LinkModel { delay, jitter, loss, ..LinkModel::default() };
        let mut topology = Topology::chain([model]);
        for end in ENDS {
            topology.config_mut(end).links[0].liveness = liveness.clone();
        }
        let mut pair = Pair {
            world: topology.build(seed)?,
            stalls: stalls.map(|s| (s, rng(seed, 1), START)),
            rng: rng(seed, 2),
        };
        pair.world.run_until(START);
        Ok(pair)
    }

    /// Observes the link for this many minutes without a real failure.
    pub fn watch(&mut self, minutes: u64) -> Vec<Minute> {
        (0..minutes).map(|_| self.minute()).collect()
    }

    fn minute(&mut self) -> Minute {
        let mut minute = Minute::default();
        let bytes = self.bytes();
        let mut before = ENDS.map(|end| self.downs(end));
        for _ in 0..60 {
            self.run_until(self.world.now() + SECOND);
            let downs = ENDS.map(|end| self.downs(end));
            // Both ends declaring each other dead at the same time count as one death.
            minute.deaths += (downs[0] - before[0]).max(downs[1] - before[1]);
            before = downs;
        }
        minute.bytes = self.bytes() - bytes;
        minute
    }

    /// Detection times of `cuts` real failures at the first end, in seconds.
    pub fn cut(&mut self, cuts: u32) -> Vec<f64> {
        self.stalls = None;
        (0..cuts).map(|_| self.one_cut()).collect()
    }

    fn one_cut(&mut self) -> f64 {
        // Once the link is up, the cut comes at a random moment between two hellos.
        let wait = SECOND + SECOND.mul_f64(uniform(&mut self.rng));
        self.world.run_until(self.world.now() + wait);
        while !self.is_up() {
            self.world.run_until(self.world.now() + STEP);
        }
        self.world.cut(WIRE);
        let cut = self.world.now();
        while self.is_up() {
            self.world.run_until(self.world.now() + STEP);
        }
        let unnoticed = self.world.now().since(cut).as_secs_f64();
        // Both ends have noticed before the link is restored.
        self.world.run_until(self.world.now() + 2 * SECOND);
        self.world.mend(WIRE);
        unnoticed
    }

    fn is_up(&self) -> bool {
        let mut links = self.world.node(ENDS[0]).links();
        links.next().is_some_and(|(_, link)| link.monitor().is_up())
    }

    fn downs(&self, end: HostId) -> u64 {
        self.world.node(end).links().map(|(_, link)| link.stats().downs).sum()
    }

    /// UDP payload sent so far: hellos are the only traffic.
    fn bytes(&self) -> u64 {
        let sent = |end| self.world.node(end).links().map(|(_, l)| l.stats().hellos.bytes);
        ENDS.into_iter().flat_map(sent).sum()
    }

    /// Runs the world, and stalls the far end when its time comes.
    fn run_until(&mut self, end: Time) {
        while let Some((Stalls { longest }, rng, next)) = &mut self.stalls
            && *next <= end
        {
            self.world.run_until(*next);
            let length = Stalls::SHORTEST + (*longest - Stalls::SHORTEST).mul_f64(uniform(rng));
            let until = *next + length;
            self.world.stall(FAR, until);
            *next = until + SECOND.mul_f64(-libm::log(uniform(rng)) * Stalls::APART);
        }
        self.world.run_until(end);
    }
}

/// Resolution of the measured detection time.
const STEP: Duration = Duration::from_millis(2);

/// A random number strictly between 0 and 1.
fn uniform(rng: &mut Rng) -> f64 {
    use rand::Rng as _;
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}
