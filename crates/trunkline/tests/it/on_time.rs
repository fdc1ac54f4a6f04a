//! The rule that tests which look at the clock go by.

use crate::common::ms;
use crate::common::on_time::{ATTEMPTS, Wakes, run};
use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Threads that calculate, three a processor, until dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn start() -> Busy {
        let busy = Busy(Arc::new(AtomicBool::new(true)));
        for _ in 0..3 * thread::available_parallelism().map_or(1, usize::from) {
            let on = Arc::clone(&busy.0);
            thread::spawn(move || {
                while on.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
        }
        busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn a_failure_on_a_busy_machine_is_tried_again() {
    let (times, _busy) = (Cell::new(0), Busy::start());
    run("a test of the tests", || {
        times.set(times.get() + 1);
        thread::sleep(ms(300));
        assert!(times.get() == ATTEMPTS, "a failure that this test wants");
    });
    assert_eq!(times.get(), ATTEMPTS);
}

#[test]
fn a_machine_that_kept_up_has_no_excuse() {
    let wakes = |late, worst| Wakes { all: 1_000, late, worst: ms(worst) };
    assert!(wakes(10, 10).kept_up());
    assert!(!wakes(11, 2).kept_up() && !wakes(1, 11).kept_up());
}

#[test]
fn what_succeeds_runs_once() {
    let times = Cell::new(0);
    run("a test of the tests", || times.set(times.get() + 1));
    assert_eq!(times.get(), 1);
}
