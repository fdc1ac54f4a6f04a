//! Memory of daemons after a peak.

use crate::common::on_time::on_time;
use crate::common::{Chain, allow_files};
use macro_rules_attribute::apply;
use std::thread;
use std::time::{Duration, Instant};
use trunkline_client::{StreamListener, StreamSocket};

/// A peak is given back within a minute: 500 streams whose data no application reads.
#[apply(on_time)]
fn streams_leave_no_memory_behind() {
    const STREAMS: usize = 500;
    /// Growth that may remain, in KiB: less than a tenth of the peak's.
    const KEPT: u64 = 16 << 10;
    assert!(allow_files(8 * STREAMS as u64), "too few open files are allowed");
    let mut chain = Chain::of(2);
    let resident = |chain: &mut Chain| [0, 1].map(|i: usize| chain.nodes[i].resident());
    let before = resident(&mut chain);
    let listener = StreamListener::bind(chain.nodes[1].socket.as_path(), 900).expect("a port");
    let (from, to) = (chain.nodes[0].socket.clone(), chain.nodes[1].address(900));
    let accepts = thread::spawn(move || {
        let mut accepted = Vec::new();
        while accepted.len() < STREAMS {
            accepted.push(listener.accept().expect("a stream"));
        }
        accepted
    });
    let open: Vec<_> =
        (0..STREAMS).map(|_| StreamSocket::connect(from.as_path(), to).expect("opened")).collect();
    let accepted = accepts.join().expect("all");
    for stream in &open {
        stream.set_nonblocking(true);
    }
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        for stream in &open {
            let _ = stream.write(&[7; 16 << 10]);
        }
    }
    let peak = resident(&mut chain);
    println!("{before:?} KiB, with streams {peak:?}");
    assert!((0..2).any(|i| peak[i] > before[i] + 2 * KEPT), "{before:?} {peak:?}");
    drop((open, accepted));
    let ended = Instant::now();
    loop {
        let now = resident(&mut chain);
        if (0..2).all(|i| now[i] < before[i] + KEPT) {
            println!("{now:?} after {:?}", ended.elapsed());
            break;
        }
        let patience = Duration::from_secs(65);
        assert!(ended.elapsed() < patience, "{before:?} KiB, then {peak:?}, at last {now:?}");
        thread::sleep(Duration::from_millis(500));
    }
}
