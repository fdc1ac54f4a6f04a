//! The rule that tests which look at the clock go by.

use crate::common::ms;
use crate::common::on_time::{ATTEMPTS, Wakes, attempt};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn wakes(late: u64, worst: u64) -> Wakes {
    Wakes { all: 1_000, late, worst: ms(worst) }
}

/// A test that fails so many times, on such a machine: what becomes of it, and how often it ran.
fn failing(times: u32, wakes: fn() -> Wakes) -> (Option<Result<(), Duration>>, u32) {
    let ran = Cell::new(0);
    let body = || {
        ran.set(ran.get() + 1);
        assert!(ran.get() > times, "a failure that this test wants");
    };
    let ended = catch_unwind(AssertUnwindSafe(|| attempt(body, |body| (body(), wakes()))));
    (ended.ok(), ran.get())
}

#[test]
fn a_late_machine_has_a_test_run_again_at_most_twice() {
    let late = || wakes(11, 7);
    assert_eq!(failing(0, late), (Some(Ok(())), 1));
    assert_eq!(failing(2, late), (Some(Ok(())), 3));
    assert_eq!(failing(3, late), (Some(Err(ms(7))), ATTEMPTS));
}

#[test]
fn a_machine_that_kept_up_is_no_excuse() {
    assert_eq!(failing(1, || wakes(10, 10)), (None, 1));
    assert!(!wakes(11, 2).kept_up() && !wakes(1, 11).kept_up());
}
