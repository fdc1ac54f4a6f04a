//! Tests that look at the clock: such a test fails only if the machine kept up.
//!
//! While it runs, a thread sleeps again and again and checks how late it wakes, as cyclictest
//! does. A test that failed while wake-ups were late runs again; after three times it is void,
//! which `make test` says in its summary.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// `#[apply(on_time)]` stands in place of `#[test]`.
macro_rules! on_time {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        #[test]
        $(#[$meta])*
        fn $name() {
            $crate::common::on_time::run(concat!(module_path!(), "::", stringify!($name)), || $body);
        }
    };
}
pub(crate) use on_time;

pub const ATTEMPTS: u32 = 3;
/// How long the thread sleeps each time.
const NAP: Duration = Duration::from_millis(2);
/// A machine that keeps up wakes 99 of 100 times within this,
const LATE: Duration = Duration::from_millis(1);
/// and always within this: half the distance between two packets of a call.
const WORST: Duration = Duration::from_millis(10);

/// Runs `body`, at most three times.
pub fn run(name: &str, body: impl Fn()) {
    let Err(worst) = attempt(body, |body| measured(body)) else { return };
    let line = format!(
        "void: {name}: wake-ups were up to {} ms late, three times\n",
        worst.as_micros().div_ceil(1_000)
    );
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("void.log");
    let file = OpenOptions::new().create(true).append(true).open(log);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of void tests");
}

type Body<'a> = &'a dyn Fn() -> thread::Result<()>;

/// Runs `body` until it succeeds; on a machine that kept up, as `measure` says, its panic
/// continues.
///
/// # Errors
///
/// After three failures on a machine that was late: how late it was at worst.
pub fn attempt(
    body: impl Fn(),
    measure: impl Fn(Body<'_>) -> (thread::Result<()>, Wakes),
) -> Result<(), Duration> {
    let mut worst = Duration::ZERO;
    for _ in 0..ATTEMPTS {
        let (result, wakes) = measure(&|| catch_unwind(AssertUnwindSafe(&body)));
        let Err(failure) = result else { return Ok(()) };
        if wakes.kept_up() {
            resume_unwind(failure);
        }
        eprintln!("it failed while the machine was late: {wakes:?}");
        worst = worst.max(wakes.worst);
    }
    Err(worst)
}

/// How late a thread woke.
#[derive(Debug, Default)]
pub struct Wakes {
    pub all: u64,
    pub late: u64,
    pub worst: Duration,
}

impl Wakes {
    pub fn kept_up(&self) -> bool {
        self.late * 100 <= self.all && self.worst <= WORST
    }
}

/// Runs `body`, and returns its value with the lateness of wake-ups during the run.
fn measured<T>(body: impl FnOnce() -> T) -> (T, Wakes) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut wakes = Wakes::default();
            while !over.load(Ordering::Relaxed) {
                let due = Instant::now() + NAP;
                thread::sleep(NAP);
                let lateness = due.elapsed();
                wakes.all += 1;
                wakes.late += u64::from(lateness > LATE);
                wakes.worst = wakes.worst.max(lateness);
            }
            wakes
        });
        let value = body();
        over.store(true, Ordering::Relaxed);
        (value, sleeper.join().expect("a sleeper doesn't panic"))
    })
}
