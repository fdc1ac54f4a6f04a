//! Measures how long a program of ordinary priority waits for a processor, as cyclictest does: a
//! thread sleeps repeatedly, and measures how late it wakes.

use super::LATE;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread sleeps each time.
const NAP: Duration = Duration::from_millis(2);

/// A thread that measures how often it wakes late.
pub struct Sleeper {
    over: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Sleeper {
    /// Starts a thread that sleeps and wakes until [`Sleeper::finish`].
    pub fn start() -> Sleeper {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        Sleeper { over, thread: std::thread::spawn(move || sleep(&is_over)) }
    }

    /// Ends the thread; returns the share (0 to 1) of wake-ups that were more than 1 ms late.
    pub fn finish(self) -> f64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a sleeper doesn't panic")
    }
}

fn sleep(is_over: &AtomicBool) -> f64 {
    let (mut times, mut late) = (0_u64, 0_u64);
    while !is_over.load(Ordering::Relaxed) {
        let due = Instant::now() + NAP;
        std::thread::sleep(NAP);
        times += 1;
        late += u64::from(due.elapsed() > LATE);
    }
    late as f64 / times.max(1) as f64
}
