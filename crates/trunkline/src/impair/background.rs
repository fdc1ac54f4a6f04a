//! Long-running work on separate threads. They are scheduled like this process at its start, not
//! like the thread that has packets to send on time.

use std::thread::{self, JoinHandle};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::sys::run_ordinary;

/// Starts threads with the scheduling that this process had at first; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Background {
    /// Processors that threads may use; `None` if the system does not report them.
    processors: Option<CpuSet>,
}

impl Background {
    /// Captures the current scheduling of this thread, but never real-time priority.
    pub fn new() -> Background {
        Background { processors: sched_getaffinity(Pid::from_raw(0)).ok() }
    }

    /// Runs `work` on a thread of its own.
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        thread::spawn(move || {
            run_ordinary();
            // A processor may have been taken away since; any processor will do then.
            let _ = self.processors.map(|all| sched_setaffinity(Pid::from_raw(0), &all));
            work()
        })
    }

    /// The last of the processors that threads may use, if there is more than one.
    pub fn last_of_several(&self) -> Option<CpuSet> {
        let all = self.processors?;
        let mut each = (0..CpuSet::count()).filter(|&n| all.is_set(n).unwrap_or(false));
        let (first, last) = (each.next()?, each.next_back()?);
        let mut only = CpuSet::new();
        (first < last && only.set(last).is_ok()).then_some(only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_a_pinned_one_is_not_pinned() {
        let affinity = || sched_getaffinity(Pid::from_raw(0)).expect("known");
        let before = affinity();
        let background = Background::new();
        let Some(last) = background.last_of_several() else {
            println!("skipped: there is one processor");
            return;
        };
        // This affects only this thread.
        sched_setaffinity(Pid::from_raw(0), &last).expect("pinned");
        let pinned = affinity();
        assert!(pinned == last && pinned != before);
        assert_eq!(thread::spawn(affinity).join().expect("told"), pinned, "threads inherit it");
        assert_eq!(background.spawn(affinity).join().expect("told"), before);
        // A process bound to a single processor stays there.
        assert_eq!(Background::new().last_of_several(), None);
    }
}
