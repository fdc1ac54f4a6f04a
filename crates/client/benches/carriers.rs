//! Cost to an application of one 160-byte packet, by carrier: sent by the application and read by a
//! node on the same thread, and in the opposite direction.

use criterion::{Criterion, criterion_group, criterion_main};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::thread;
use trunkline_base::wire::Writer;
use trunkline_client::{Address, DatagramSocket, NodeId, Service, in_process};
use trunkline_overlay::session::wire::{MAX_HEAD, ToClient};

const FAR: Address = Address { node: NodeId(7), port: 70 };
const BOUND: ToClient<'_> = ToClient::Bound { node: NodeId(1), port: 1, max_payload: 1200 };
const PACKET: ToClient<'_> = ToClient::Received {
    service: Service::RealTime,
    recovered: false,
    remaining_ms: 80,
    flow_seq: 1,
    from: FAR.node,
    port: FAR.port,
    payload: &[],
};

fn head(message: &ToClient<'_>) -> Vec<u8> {
    let mut head = [0; MAX_HEAD];
    let mut w = Writer::new(&mut head);
    message.emit_head(&mut w).expect("MAX_HEAD suffices");
    w.written().to_vec()
}

fn carriers(c: &mut Criterion) {
    let payload = [0xd5; 160];
    let mut buf = [0; 2048];
    let received = head(&PACKET);

    let (connector, mut acceptor) = in_process::listen(64 * 1024, 1).expect("descriptors");
    let binding = thread::spawn(move || DatagramSocket::bind(connector, 0));
    let mut node = loop {
        if let Some(node) = acceptor.accept() {
            break node;
        }
        thread::yield_now();
    };
    while node.recv(&mut buf).is_none() {}
    node.send(&head(&BOUND), &[]);
    let app = binding.join().expect("bind").expect("bound");
    c.bench_function("in-process: 32 sent, 32 read by the node", |b| {
        b.iter(|| {
            for _ in 0..32 {
                app.send_to(&payload, FAR).expect("room");
            }
            while let Some(len) = node.recv(&mut buf) {
                black_box(len);
            }
        })
    });
    c.bench_function("in-process: 32 sent by the node, 32 read", |b| {
        b.iter(|| {
            for _ in 0..32 {
                assert!(node.send(&received, &payload));
            }
            for _ in 0..32 {
                black_box(app.recv_from(&mut buf).expect("a packet"));
            }
        })
    });

    let path = std::env::temp_dir().join(format!("trunkline-bench-{}.sock", std::process::id()));
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None);
    let fd = fd.expect("a socket");
    bind(fd.as_raw_fd(), &UnixAddr::new(&path).expect("a short path")).expect("a free path");
    listen(&fd, Backlog::new(1).expect("a backlog")).expect("a listener");
    let listener = UnixListener::from(fd);
    let at = path.clone();
    let binding = thread::spawn(move || DatagramSocket::bind(at, 0));
    let (mut node, _) = listener.accept().expect("a session");
    assert_ne!(node.read(&mut buf).expect("bind"), 0);
    node.write_all(&head(&BOUND)).expect("answered");
    let app = binding.join().expect("bind").expect("bound");
    c.bench_function("unix: 32 sent, 32 read by the node", |b| {
        b.iter(|| {
            for _ in 0..32 {
                app.send_to(&payload, FAR).expect("room");
            }
            for _ in 0..32 {
                black_box(node.read(&mut buf).expect("a packet"));
            }
        })
    });
    let message = [&received[..], &payload].concat();
    c.bench_function("unix: 32 sent by the node, 32 read", |b| {
        b.iter(|| {
            for _ in 0..32 {
                node.write_all(&message).expect("room");
            }
            for _ in 0..32 {
                black_box(app.recv_from(&mut buf).expect("a packet"));
            }
        })
    });
    let _ = std::fs::remove_file(path);
}

criterion_group!(benches, carriers);
criterion_main!(benches);
