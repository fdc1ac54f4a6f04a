//! How long a program of ordinary priority waits for a processor, measured as cyclictest
//! does: by a thread that sleeps for a while, again and again, and looks how late it wakes.

use super::LATE;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For how long it sleeps.
const NAP: Duration = Duration::from_millis(2);

/// The thread.
pub struct Sleeper {
    over: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Sleeper {
    /// Lets it begin.
    pub fn start() -> Sleeper {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        Sleeper { over, thread: std::thread::spawn(move || sleep(&is_over)) }
    }

    /// Ends it: the share of the times that it woke more than 1 ms late.
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
