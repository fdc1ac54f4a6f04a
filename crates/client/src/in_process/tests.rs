use super::*;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use proptest::prelude::*;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::thread;

/// Uses edge-triggered epoll, which Miri supports; it does not support poll(2).
fn readable(fd: impl AsFd, wait_ms: u16) -> bool {
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    let watched = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    epoll.add(fd, EpollEvent::new(watched, 0)).unwrap();
    epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::from(wait_ms)).unwrap() == 1
}

/// Longest time in milliseconds that a wake-up may take on a busy machine; a lost one never
/// arrives.
const LOST: u16 = 20_000;

fn rng(seed: u128) -> Pcg64Mcg {
    Pcg64Mcg::new(seed)
}

/// Fills `buf` with a message distinguishable from all others, and returns its length.
fn message(number: u32, sizes: &mut Pcg64Mcg, buf: &mut [u8]) -> usize {
    let len = match sizes.random_range(0..100) {
        0 => sizes.random_range(0..=MAX_MESSAGE - 8),
        _ => sizes.random_range(0..200),
    };
    buf[..4].copy_from_slice(&number.to_ne_bytes());
    for (i, byte) in buf[4..4 + len].iter_mut().enumerate() {
        *byte = number.wrapping_mul(31).wrapping_add(i as u32) as u8;
    }
    4 + len
}

/// Sends `count` messages of the sequence `seed` and checks that the other end does the same.
fn exchange(mut end: End, count: u32, seed: u128) {
    let (mut out_sizes, mut in_sizes) = (rng(seed), rng(seed));
    let (mut out, mut expected, mut got) = ([0; MAX_MESSAGE], [0; MAX_MESSAGE], [0; MAX_MESSAGE]);
    let (mut sent, mut received) = (0, 0);
    let mut pending = None;
    while sent < count || received < count {
        let mut progress = false;
        while sent < count {
            let len = *pending.get_or_insert_with(|| message(sent, &mut out_sizes, &mut out));
            let (head, payload) = out[..len].split_at(len.min(11));
            if !end.send(head, payload) {
                break;
            }
            pending = None;
            sent += 1;
            progress = true;
        }
        while let Some(len) = end.recv(&mut got) {
            let wanted = message(received, &mut in_sizes, &mut expected);
            assert!(got[..len] == expected[..wanted], "message {received} is another");
            received += 1;
            progress = true;
        }
        if !progress && sent < count {
            // A full ring: no descriptor here signals that the other side has read.
            thread::yield_now();
        } else if !progress {
            assert!(readable(&end, LOST), "lost wake-up at message {received}");
        }
    }
    assert_eq!(end.recv(&mut got), None);
}

#[test]
fn a_million_messages_both_ways() {
    let (a, b) = pair(64 * 1024).unwrap();
    let count = as_many_as(1_000_000);
    let other = thread::spawn(move || exchange(b, count, 7));
    exchange(a, count, 7);
    other.join().unwrap();
}

/// Number of rounds to run. Miri takes milliseconds for each, and a few suffice to check their
/// memory accesses.
fn as_many_as(count: u32) -> u32 {
    if cfg!(miri) { count / 50_000 } else { count }
}

/// The reader polls for every message, and the next is sent only after the previous one has
/// arrived, so no later message can mask a lost wake-up.
#[test]
fn no_wake_up_is_lost() {
    let (mut a, mut b) = pair(0).unwrap();
    let count = as_many_as(200_000);
    let received = Arc::new(AtomicU32::new(0));
    let counter = received.clone();
    let reader = thread::spawn(move || {
        let mut number = [0; 4];
        for expected in 0..count {
            let mut wakes = 0..3;
            while b.recv(&mut number).is_none() {
                assert!(readable(&b, LOST), "lost wake-up of message {expected}");
                assert!(wakes.next().is_some(), "polling spins");
            }
            assert_eq!(u32::from_ne_bytes(number), expected);
            counter.store(expected + 1, Ordering::Release);
        }
    });
    let mut pauses = rng(1);
    for number in 0..count {
        if !a.send(&number.to_ne_bytes(), &[]) {
            break; // The reader has failed.
        }
        let mut spins = 0;
        while received.load(Ordering::Acquire) == number && !a.closed() {
            spins += 1;
            if spins > 1_000 {
                thread::yield_now();
            }
        }
        // Hits the reader anywhere between its last check and its sleep.
        for step in 0..pauses.random_range(0..1_000) {
            std::hint::black_box(step);
        }
    }
    reader.join().unwrap();
}

/// A writer preempted before its write must not make the reader spin or miss the message.
#[test]
fn a_write_may_come_late() {
    let wake = Wake::new().unwrap();
    wake.awake.store(true, Ordering::SeqCst);
    wake.arm(|| true);
    assert!(!readable(&wake.event, 0));
    wake.write();
    assert!(readable(&wake.event, 0));
    wake.arm(|| true);
    assert!(!readable(&wake.event, 0), "woken for nothing, once");
    wake.signal();
    assert!(readable(&wake.event, 0));
}

/// One side only sends; the other polls before every message, as an application may.
#[test]
fn one_poll_per_message() {
    let (mut a, mut b) = pair(0).unwrap();
    let count = 300_000u32;
    let reader = thread::spawn(move || {
        let mut number = [0; 4];
        for expected in 0..count {
            loop {
                assert!(readable(&b, LOST), "lost wake-up");
                let got = b.recv(&mut number);
                b.arm();
                if got.is_some() {
                    break;
                }
            }
            assert_eq!(u32::from_ne_bytes(number), expected);
        }
    });
    let mut pauses = rng(3);
    for number in 0..count {
        while !a.send(&number.to_ne_bytes(), &[]) {
            thread::yield_now();
        }
        for _ in 0..pauses.random_range(0..300) {
            std::hint::spin_loop();
        }
    }
    reader.join().unwrap();
}

#[test]
fn a_full_ring_refuses_until_it_is_read() {
    let (mut a, mut b) = pair(0).unwrap();
    let mut sent = 0;
    while a.send(&[1; 11], &[2; 160]) {
        sent += 1;
    }
    assert_eq!(sent, (PREFIX + MAX_MESSAGE) / (PREFIX + 171));
    let mut buf = [0; MAX_MESSAGE];
    assert_eq!(b.recv(&mut buf), Some(171));
    assert_eq!((buf[10], buf[11], buf[170]), (1, 2, 2));
    assert!(a.send(&[1; 11], &[2; 160]));
    assert!(!a.send(&[1; 11], &[2; 160]));
    while b.recv(&mut buf).is_some() {}
    assert!(a.send(&[], &[0; MAX_MESSAGE]), "the largest message fits the smallest ring");
    assert!(!a.send(&[0], &[0; MAX_MESSAGE]));
    assert_eq!(b.recv(&mut buf[..3]), Some(MAX_MESSAGE), "a short buffer takes the start");
}

#[test]
fn the_descriptor_follows_the_ring() {
    let (mut a, mut b) = pair(0).unwrap();
    let mut buf = [0; 8];
    for _ in 0..3 {
        assert!(!readable(&b, 0));
        assert!(a.send(&[1], &[]) && a.send(&[2], &[]));
        assert!(readable(&b, 0));
        assert_eq!(b.recv(&mut buf), Some(1));
        assert!(readable(&b, 0), "one message is left");
        assert_eq!(b.recv(&mut buf), Some(1));
        assert_eq!(b.recv(&mut buf), None);
    }
    assert!(!readable(&a, 0), "the other direction has its own");
}

#[test]
fn either_end_notices_the_other_go() {
    for number in 0..4 {
        let (mut a, mut b) = pair(0).unwrap();
        if number >= 2 {
            std::mem::swap(&mut a, &mut b);
        }
        let mut buf = [0; 8];
        assert!(a.send(&[1], &[]));
        assert_eq!(b.recv(&mut buf), Some(1));
        assert_eq!(b.recv(&mut buf), None);
        assert!(!b.closed() && !readable(&b, 0));
        if number % 2 == 0 {
            drop(a);
            assert!(b.closed() && readable(&b, 0), "with nothing to receive");
            continue;
        }
        assert!(a.send(&[2], &[]));
        drop(a);
        assert!(b.closed() && readable(&b, 0));
        assert_eq!(b.recv(&mut buf), Some(1), "sent before the end");
        assert_eq!(b.recv(&mut buf), None);
        assert!(readable(&b, 0), "an end that is gone stays noticeable");
        assert!(!b.send(&[3], &[]));
    }
}

#[test]
fn the_acceptor_wakes_takes_and_refuses() {
    let (connector, mut acceptor) = listen(0, 2).unwrap();
    assert!(!readable(&acceptor, 0) && acceptor.accept().is_none());
    let mut first = connector.connect().unwrap();
    let second = connector.clone().connect().unwrap();
    assert!(matches!(connector.connect(), Err(Error::WouldBlock)));
    assert!(readable(&acceptor, 0));
    let mut node = acceptor.accept().unwrap();
    assert!(readable(&acceptor, 0), "another waits");
    assert!(node.send(&[9], &[]));
    assert_eq!(first.recv(&mut [0; 8]), Some(1));
    drop(acceptor);
    assert!(second.closed(), "never accepted");
    assert!(matches!(connector.connect(), Err(Error::NotRunning { .. })));
}

proptest! {
    /// Compares with a queue, over every position at which the ring can wrap.
    #[test]
    #[cfg_attr(miri, ignore = "takes Miri minutes")]
    fn a_ring_is_a_bounded_queue(
        ops in prop::collection::vec((any::<bool>(), 0usize..3000, 0usize..12), 1..200),
    ) {
        let capacity = PREFIX + MAX_MESSAGE;
        let (mut a, mut b) = pair(capacity).unwrap();
        let mut model = VecDeque::<Vec<u8>>::new();
        let mut used = 0;
        for (number, (push, payload, head)) in ops.into_iter().enumerate() {
            if push {
                let bytes: Vec<u8> = (0..head + payload).map(|i| (i * 7 + number) as u8).collect();
                let fits = used + PREFIX + bytes.len() <= capacity;
                prop_assert_eq!(a.send(&bytes[..head], &bytes[head..]), fits);
                if fits {
                    used += PREFIX + bytes.len();
                    model.push_back(bytes);
                }
            } else {
                let peeked = b.peek_message(|x, y| [x, y].concat());
                let taken = b.with_message(|x, y| [x, y].concat());
                prop_assert_eq!(&peeked, &taken);
                prop_assert_eq!(&taken, &model.pop_front());
                prop_assert_eq!(taken.is_none(), !readable(&b, 0), "quiet once it was found empty");
                used -= taken.map_or(0, |bytes| PREFIX + bytes.len());
            }
            prop_assert!(model.is_empty() || readable(&b, 0));
        }
    }
}

/// A writer that outruns its reader finds the ring buffer full most of the time and is woken
/// whenever there is room.
#[test]
fn no_wake_up_for_room_is_lost() {
    const MESSAGES: u32 = if cfg!(miri) { 50 } else { 20_000 };
    let (mut writer, mut reader) = pair(1).unwrap();
    let payload = [7; 4_000];
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buf = [0; MAX_MESSAGE];
            for _ in 0..MESSAGES {
                while reader.recv(&mut buf).is_none() {
                    assert!(readable(&reader, LOST), "a message that nobody was told of");
                }
            }
        });
        for _ in 0..MESSAGES {
            while !writer.send(&[], &payload) {
                assert!(readable(writer.arm_room(), LOST), "room that nobody was told of");
            }
        }
    });
}
