//! Experiments in the testbed: real daemons and the kernel's TCP, compared with the simulator. A
//! round is the set of parts that are measured at the same time. If the machine was too slow for a
//! round, it is measured again once, then split in halves; a part that is late even alone is marked
//! invalid.

use crate::error::Error;
use crate::experiment::{Cells, Experiment, Figure, Size, fnv1a};
use crate::scenario::testbed::{self, Cpu, Effort};
use crate::store::{Manifest, read_json, write_json};
use nix::sys::utsname::uname;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};

/// Values of the column `where`: where a row was measured.
pub const PLACES: [&str; 2] = ["simulator", "testbed"];

/// How an experiment is measured in the testbed.
pub struct Testbed {
    /// The figure, drawn and judged from the simulator's rows followed by the testbed's.
    pub figure: Figure,
    /// The rounds of a run of this size, in order.
    pub rounds: Box<dyn Fn(Size) -> Vec<Round> + Send + Sync>,
    /// Makes the table's rows from the samples of all rounds.
    pub rows: Box<Rows>,
}

/// Parts of an experiment that are measured at the same time.
pub struct Round {
    /// The round's unique name, also used as a file name.
    pub name: String,
    /// Approximate duration of the round, in seconds.
    pub seconds: usize,
    /// Number of parts; each could be measured alone.
    pub parts: usize,
    /// Measures the parts with the given indices at the same time.
    pub run: Box<Run>,
}

/// Measures the parts of a round with these indices, all at the same time.
pub type Run =
    dyn Fn(&Stage<'_>, &[usize]) -> Result<(Vec<Sample>, Effort), testbed::Error> + Send + Sync;

/// Makes the rows of a table from the samples of all rounds.
pub type Rows = dyn Fn(&[Sample]) -> Cells + Send + Sync;

/// Inputs of every attempt at a round, besides the parts to measure.
pub struct Stage<'a> {
    /// Path of the daemon's program.
    pub trunkline: &'a Path,
    /// Seed of everything random; it differs for each attempt.
    pub seed: u64,
    /// Must be called once per second, to report progress.
    pub second: &'a (dyn Fn() + Sync),
}

/// A measured value, or several that belong together.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Name of the measured quantity; samples of the same name are pooled.
    pub of: String,
    /// The measured numbers; NaN where there was nothing to measure.
    #[serde(deserialize_with = "numbers")]
    pub numbers: Vec<f64>,
    /// Whether the machine kept up while this was measured.
    pub valid: bool,
}

/// Reads numbers from JSON, where NaN is written as `null`.
fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(from)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

impl Sample {
    /// Makes a sample that counts as valid until the round is found to be void.
    pub fn new(of: impl Into<String>, numbers: Vec<f64>) -> Sample {
        Sample { of: of.into(), numbers, valid: true }
    }

    /// The numbers of all samples named `of`, and whether all of these samples are valid.
    pub fn pooled(samples: &[Sample], of: &str) -> (Vec<f64>, bool) {
        let here = || samples.iter().filter(|sample| sample.of == of);
        (here().flat_map(|s| &s.numbers).copied().collect(), here().all(|s| s.valid))
    }
}

/// One attempt at a round, or at some of its parts.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Attempt {
    /// Name of the round.
    pub round: String,
    /// Number of the round's parts that were measured at the same time.
    pub parts: usize,
    /// Whether the samples of this attempt are among the results.
    pub counts: bool,
    /// Whether the machine kept up, and the processor time that was used.
    pub effort: Effort,
}

/// The file that is stored for a finished round.
#[derive(Serialize, Deserialize)]
struct Stored {
    run: Manifest,
    machine: Machine,
    samples: Vec<Sample>,
    attempts: Vec<Attempt>,
}

/// Kernel and daemon that were measured: rounds of different ones are never combined.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct Machine {
    /// Kernel release, as printed by `uname -r`.
    kernel: String,
    /// Digest of the daemon's program.
    digest: String,
}

impl Machine {
    fn here(trunkline: &Path) -> Result<Machine, Error> {
        let kernel = uname().map_err(|e| Error::file(Path::new("uname"))(e.into()))?;
        let program = std::fs::read(trunkline).map_err(Error::file(trunkline))?;
        let kernel = kernel.release().to_string_lossy().into_owned();
        Ok(Machine { kernel, digest: format!("{:016x}", fnv1a(program)) })
    }
}

/// The folder where the finished rounds of a run are stored, so that it can be resumed.
pub struct RoundStore {
    folder: PathBuf,
    run: Manifest,
}

impl RoundStore {
    /// Store of the rounds of this run of `experiment` in the output folder `out`.
    pub fn new(out: &Path, experiment: &Experiment, size: Size, seed: u64) -> RoundStore {
        let folder = out.join(experiment.paper).join(experiment.name).join("testbed");
        RoundStore { folder, run: Manifest::new(experiment, size, seed, None) }
    }

    fn path(&self, round: &Round) -> PathBuf {
        self.folder.join(format!("{}.json", round.name))
    }

    /// Loads a stored round, if it counts: `None` if it was not valid, or was measured with
    /// another kernel or daemon, so that it is measured again.
    fn load(&self, round: &Round, machine: &Machine) -> Result<Option<Stored>, Error> {
        let path = self.path(round);
        let counts = |stored: &Stored| {
            stored.machine == *machine && stored.samples.iter().all(|sample| sample.valid)
        };
        match read_json::<Stored>(&path)? {
            Some(stored) if stored.run != self.run => {
                let (there, here) = (stored.run.line(), self.run.line());
                Err(Error::OtherRun { path, there, here })
            }
            stored => Ok(stored.filter(counts)),
        }
    }
}

/// Receives the progress of a run.
pub trait RunProgress: Sync {
    /// Called after every second of the rounds.
    fn second(&self);
    /// Called with a line for the user.
    fn say(&self, line: &str);
}

/// The results of all rounds of a run.
pub struct RoundsOutcome {
    /// All samples, in the order of the rounds.
    pub samples: Vec<Sample>,
    /// All attempts, including those whose samples don't count.
    pub attempts: Vec<Attempt>,
}

impl RoundsOutcome {
    /// Whether the machine kept up with everything that counts in the end.
    pub fn is_valid(&self) -> bool {
        self.samples.iter().all(|sample| sample.valid)
    }

    /// One line on how late the machine was at worst, in the attempts that count.
    pub fn worst(&self) -> String {
        let efforts = self.attempts.iter().filter(|a| a.counts).map(|a| &a.effort);
        let worst = efforts.cloned().reduce(|a, b| a.worse(&b));
        worst.map_or(String::new(), |effort| effort.line())
    }

    /// Processor time of each process, by name, summed over all attempts.
    pub fn cpu(&self) -> Vec<Cpu> {
        let mut sum: Vec<Cpu> = Vec::new();
        for cpu in self.attempts.iter().flat_map(|a| &a.effort.cpu) {
            match sum.iter_mut().find(|s| s.process == cpu.process) {
                Some(s) => s.seconds += cpu.seconds,
                None => sum.push(cpu.clone()),
            }
        }
        sum
    }
}

impl Testbed {
    /// Measures every round that is not stored yet.
    ///
    /// # Errors
    ///
    /// If a round fails, the store can't be read or written, or it holds another run's rounds.
    /// Rounds that have been measured stay stored.
    pub fn run(
        &self,
        (rounds_store, size): (&RoundStore, Size),
        trunkline: &Path,
        watch: &dyn RunProgress,
    ) -> Result<RoundsOutcome, Error> {
        let machine = Machine::here(trunkline)?;
        let mut outcome = RoundsOutcome { samples: Vec::new(), attempts: Vec::new() };
        for round in (self.rounds)(size) {
            let stored = match rounds_store.load(&round, &machine)? {
                Some(stored) => {
                    (0..round.seconds).for_each(|_| watch.second());
                    stored
                }
                None => {
                    let seed = rounds_store.run.seed();
                    let attempts = Vec::new();
                    let mut it = Measuring { round: &round, trunkline, watch, seed, attempts };
                    let samples = it.all().map_err(|why| Error::Testbed {
                        what: format!("{}, round {}", self.figure.name, round.name),
                        why,
                    })?;
                    let (run, attempts) = (rounds_store.run.clone(), it.attempts);
                    let machine = machine.clone();
                    let stored = Stored { run, machine, samples, attempts };
                    write_json(&rounds_store.path(&round), &stored)?;
                    stored
                }
            };
            outcome.samples.extend(stored.samples);
            outcome.attempts.extend(stored.attempts);
        }
        Ok(outcome)
    }
}

struct Measuring<'a> {
    round: &'a Round,
    trunkline: &'a Path,
    watch: &'a dyn RunProgress,
    seed: u64,
    attempts: Vec<Attempt>,
}

impl Measuring<'_> {
    /// Measures all parts of the round.
    fn all(&mut self) -> Result<Vec<Sample>, testbed::Error> {
        let parts: Vec<usize> = (0..self.round.parts).collect();
        self.measure(&parts, 2)
    }

    /// Measures these parts at the same time, up to `times` times; if every attempt is void,
    /// measures each half of them. A part that is void even alone gets invalid samples.
    fn measure(&mut self, parts: &[usize], times: usize) -> Result<Vec<Sample>, testbed::Error> {
        let mut void = Vec::new();
        for _ in 0..times {
            let (samples, valid) = self.attempt(parts)?;
            if valid {
                return Ok(samples);
            }
            void = samples;
        }
        if parts.len() < 2 {
            // Invalid samples are better than none.
            if let Some(last) = self.attempts.last_mut() {
                last.counts = true;
            }
            return Ok(void.into_iter().map(|s| Sample { valid: false, ..s }).collect());
        }
        let (first, second) = parts.split_at(parts.len() / 2);
        let mut samples = self.measure(first, 1)?;
        samples.extend(self.measure(second, 1)?);
        Ok(samples)
    }

    /// Measures these parts once; returns the samples, and whether they are valid.
    fn attempt(&mut self, parts: &[usize]) -> Result<(Vec<Sample>, bool), testbed::Error> {
        let &mut Measuring { round, trunkline, watch, .. } = self;
        // No two attempts, of any rounds, share randomness.
        let name = format!("{} {}", round.name, self.attempts.len());
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ fnv1a(name.bytes());
        let stage = Stage { trunkline, seed, second: &|| watch.second() };
        let (samples, effort) = (round.run)(&stage, parts)?;
        let valid = effort.valid;
        if !valid {
            watch.say(&format!("round {} is void: {}", round.name, effort.why_void()));
        }
        let (counts, round, parts) = (valid, round.name.clone(), parts.len());
        self.attempts.push(Attempt { round, parts, counts, effort });
        Ok((samples, valid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    struct Nobody;

    impl RunProgress for Nobody {
        fn second(&self) {}
        fn say(&self, _line: &str) {}
    }

    fn effort(valid: bool) -> Effort {
        let late = if valid { 80.0 } else { 1_080.0 };
        Effort::new(&serde_json::json!({ "lateness_us": { "p99.9": late } }), 0.0, Vec::new())
    }

    /// Measures a round of five parts on a machine that keeps up with `bearable` at a time;
    /// returns the samples, and the number of parts in each attempt.
    fn of_five(bearable: usize) -> (Vec<Sample>, Vec<usize>) {
        let seeds = Mutex::new(Vec::new());
        let run = move |stage: &Stage<'_>, parts: &[usize]| {
            let mut seeds = seeds.lock().expect("nobody panics");
            assert!(!seeds.contains(&stage.seed), "each attempt has another seed");
            seeds.push(stage.seed);
            let samples = parts.iter().map(|n| Sample::new(n.to_string(), vec![]));
            Ok((samples.collect(), effort(parts.len() <= bearable)))
        };
        let round = Round { name: "r".into(), seconds: 1, parts: 5, run: Box::new(run) };
        let (trunkline, watch) = (Path::new("t"), &Nobody);
        let mut measuring =
            Measuring { round: &round, trunkline, watch, seed: 7, attempts: vec![] };
        let samples = measuring.all().unwrap();
        (samples, measuring.attempts.iter().map(|a| a.parts).collect())
    }

    /// A testbed with two rounds of one part each, which counts the attempts.
    fn two_rounds(attempts: &Arc<AtomicUsize>, valid: bool) -> Testbed {
        let attempts = Arc::clone(attempts);
        let round = move |name: &str| {
            let attempts = Arc::clone(&attempts);
            let run = move |_: &Stage<'_>, _: &[usize]| {
                attempts.fetch_add(1, Ordering::Relaxed);
                let samples = vec![Sample::new("a", vec![1.0, f64::NAN])];
                Ok((samples, effort(valid)))
            };
            Round { name: name.into(), seconds: 1, parts: 1, run: Box::new(run) }
        };
        Testbed {
            figure: crate::beyond::experiments().remove(0).figures.remove(0),
            rounds: Box::new(move |_| ["one", "two"].map(&round).into()),
            rows: Box::new(|_| Vec::new()),
        }
    }

    #[test]
    fn rounds_that_count_are_not_measured_again() {
        let out = tempfile::tempdir().unwrap();
        let trunkline = out.path().join("trunkline");
        std::fs::write(&trunkline, "1").unwrap();
        let experiment = &crate::beyond::experiments()[0];
        let rounds_store = |seed| RoundStore::new(out.path(), experiment, Size::Tiny, seed);
        let attempts = Arc::new(AtomicUsize::new(0));
        let run = |valid, seed| {
            let before = attempts.load(Ordering::Relaxed);
            let testbed = two_rounds(&attempts, valid);
            let outcome = testbed.run((&rounds_store(seed), Size::Tiny), &trunkline, &Nobody)?;
            let (of_a, is_valid) = Sample::pooled(&outcome.samples, "a");
            assert_eq!((of_a.len(), is_valid), (4, outcome.is_valid()));
            assert!(of_a[0] == 1.0 && of_a[1].is_nan(), "also as it is read again");
            assert_eq!(Sample::pooled(&outcome.samples, "b"), (vec![], true));
            Ok::<_, Error>((attempts.load(Ordering::Relaxed) - before, is_valid))
        };
        // Each round is tried twice; then its invalid samples are kept.
        assert_eq!(run(false, 1).unwrap(), (4, false));
        assert_eq!(run(true, 1).unwrap(), (2, true));
        assert_eq!(run(true, 1).unwrap(), (0, true));
        std::fs::remove_file(rounds_store(1).folder.join("two.json")).unwrap();
        assert_eq!(run(true, 1).unwrap(), (1, true));
        assert!(matches!(run(true, 2), Err(Error::OtherRun { .. })));
        // With another daemon, everything is measured again.
        std::fs::write(&trunkline, "2").unwrap();
        assert_eq!(run(true, 1).unwrap(), (2, true));
    }

    #[test]
    fn a_void_round_is_repeated_once_then_halved() {
        for (bearable, attempts) in [
            (5, vec![5]),
            (3, vec![5, 5, 2, 3]),
            (2, vec![5, 5, 2, 3, 1, 2]),
            (0, vec![5, 5, 2, 1, 1, 3, 1, 2, 1, 1]),
        ] {
            let (samples, made) = of_five(bearable);
            assert_eq!(made, attempts);
            let of: Vec<&str> = samples.iter().map(|s| s.of.as_str()).collect();
            assert_eq!(of, ["0", "1", "2", "3", "4"]);
            assert!(samples.iter().all(|s| s.valid == (bearable > 0)));
        }
    }
}
