//! Ends a run as soon as any part of it fails.

use super::Error;
use super::emulator::Emulator;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Interval between checks that everything still runs.
pub const LOOK: Duration = Duration::from_millis(50);

/// Shared by all threads of a run: when calls begin, and the first failure.
pub struct Watch {
    begun: Instant,
    failed: Mutex<Option<Error>>,
    halted: Condvar,
}

impl Watch {
    /// Watches a run whose calls begin at `begun`.
    pub fn new(begun: Instant) -> Watch {
        Watch { begun, failed: Mutex::new(None), halted: Condvar::new() }
    }

    /// When the run's calls begin.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    fn failed(&self) -> MutexGuard<'_, Option<Error>> {
        self.failed.lock().expect("nobody panics")
    }

    /// Takes the result of a part of the run. If the part has failed, everything else ends too.
    pub fn note<T>(&self, part: Result<T, Error>) -> Option<T> {
        part.map_err(|why| {
            // Only the first counts: other parts fail because of it.
            self.failed().get_or_insert_with(|| Error::During {
                when: when(self.begun, Instant::now()),
                why: Box::new(why),
            });
            self.halted.notify_all();
        })
        .ok()
    }

    /// Checks that nothing has failed.
    ///
    /// # Errors
    ///
    /// [`Error::Halted`] if something has failed.
    pub fn check(&self) -> Result<(), Error> {
        self.failed().is_none().then_some(()).ok_or(Error::Halted)
    }

    /// Lets the thread sleep until `at`, or until something fails.
    ///
    /// # Errors
    ///
    /// [`Error::Halted`], as soon as something has failed.
    pub fn sleep_until(&self, at: Instant) -> Result<(), Error> {
        let left = at.saturating_duration_since(Instant::now());
        let (failed, _) = self
            .halted
            .wait_timeout_while(self.failed(), left, |failed| failed.is_none())
            .expect("nobody panics");
        failed.is_none().then_some(()).ok_or(Error::Halted)
    }

    /// Waits until `at`, and meanwhile calls `look` every [`LOOK`].
    ///
    /// # Errors
    ///
    /// The error of `look`, or [`Error::Halted`] as soon as something else has failed.
    pub fn attend(
        &self,
        at: Instant,
        look: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            look()?;
            let next = at.min(Instant::now() + LOOK);
            self.sleep_until(next)?;
            if next == at {
                return Ok(());
            }
        }
    }

    /// Waits until all of these threads have ended, and calls `second` once per second. If the
    /// emulator ends meanwhile, the run fails.
    pub fn attend_threads<T>(
        &self,
        threads: &[ScopedJoinHandle<'_, T>],
        emulator: &Emulator,
        second: &dyn Fn(),
    ) {
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_secs(1));
            self.note(emulator.check());
            second();
        }
    }

    /// Ends the watch; returns the first failure, if there was one.
    pub fn end(self) -> Result<(), Error> {
        self.failed.into_inner().expect("nobody panics").map_or(Ok(()), Err)
    }
}

/// Words for the time `now`, relative to the beginning of the calls.
fn when(begun: Instant, now: Instant) -> String {
    match now.checked_duration_since(begun) {
        Some(after) => format!("{:.1} s after the calls began", after.as_secs_f64()),
        None => format!("{:.1} s before the calls began", (begun - now).as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_ends_everything_and_says_when() {
        let watch = Watch::new(Instant::now() - Duration::from_secs(2));
        watch.check().unwrap();
        let long = Instant::now() + Duration::from_secs(60);
        let halted = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| watch.note(watch.sleep_until(long)));
            let mut looks = 0;
            let look = &mut || {
                looks += 1;
                (looks < 3).then_some(()).ok_or(Error::Process("the node of A has ended".into()))
            };
            assert_eq!(watch.note(watch.attend(long, look)), None);
            sleeper.join().unwrap()
        });
        assert_eq!(halted, None);
        assert!(Instant::now() < long, "the wait has ended early");
        assert!(matches!(watch.check(), Err(Error::Halted)));
        let why = watch.end().unwrap_err().to_string();
        assert!(why.ends_with(" s after the calls began: the node of A has ended"), "{why}");
        assert!(why.starts_with("2."), "{why}");
        let (early, late) = (Instant::now(), Instant::now() + Duration::from_secs(3));
        assert_eq!(when(late, early), "3.0 s before the calls began");
    }
}
