//! A network between remote applications and a node, for TCP and UDP. It can fail, recover, and
//! change the address that the node sees.

use crate::common::{PATIENCE, free_port, ms};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

/// Switches for the traffic, shared with the relay's threads.
pub struct Valves {
    pub tcp: AtomicBool,
    pub udp: AtomicBool,
    /// Incremented to simulate a NAT that gives every client a new UDP port.
    pub mapping: AtomicU32,
    over: AtomicBool,
}

/// A relay in front of one node.
pub struct Relay {
    pub address: SocketAddr,
    pub valves: Arc<Valves>,
}

impl Relay {
    /// Starts a network in front of `node` that passes everything.
    pub fn to(node: SocketAddr) -> Relay {
        let address = free_port(Ipv4Addr::LOCALHOST.into());
        let listener = TcpListener::bind(address).expect("free");
        let udp = UdpSocket::bind(address).expect("free");
        let valves = Arc::new(Valves {
            tcp: AtomicBool::new(true),
            udp: AtomicBool::new(true),
            mapping: AtomicU32::new(0),
            over: AtomicBool::new(false),
        });
        let (v, w) = (Arc::clone(&valves), Arc::clone(&valves));
        thread::spawn(move || accept(&listener, node, &v));
        thread::spawn(move || datagrams(&udp, node, &w));
        Relay { address, valves }
    }

    /// Switches TCP and UDP on or off.
    pub fn set(&self, tcp: bool, udp: bool) {
        self.valves.tcp.store(tcp, Ordering::Relaxed);
        self.valves.udp.store(udp, Ordering::Relaxed);
    }

    /// Makes the node see other UDP ports from now on.
    pub fn remap(&self) {
        self.valves.mapping.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.valves.over.store(true, Ordering::Relaxed);
        // This wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Valves {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Blocks while TCP is switched off.
    fn wait(&self) {
        while !self.tcp.load(Ordering::Relaxed) && !self.over() {
            thread::sleep(ms(5));
        }
    }
}

fn accept(listener: &TcpListener, node: SocketAddr, valves: &Arc<Valves>) {
    for client in listener.incoming() {
        if valves.over() {
            return;
        }
        let (Ok(client), valves) = (client, Arc::clone(valves)) else { continue };
        thread::spawn(move || {
            valves.wait();
            let Ok(server) = TcpStream::connect(node) else { return };
            let (c, s) = (client.try_clone().expect("a clone"), server.try_clone().expect("one"));
            let v = Arc::clone(&valves);
            thread::spawn(move || copy(c, s, &v));
            copy(server, client, &valves);
        });
    }
}

/// Copies in one direction; when it ends, the opposite one ends too.
fn copy(mut from: TcpStream, mut to: TcpStream, valves: &Valves) {
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let _ = from.set_read_timeout(Some(PATIENCE));
    let mut buf = [0; 4_096];
    while !valves.over() {
        valves.wait();
        let n = match from.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        };
        valves.wait();
        if to.write_all(&buf[..n]).is_err() {
            break;
        }
    }
    valves.wait();
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn datagrams(udp: &UdpSocket, node: SocketAddr, valves: &Arc<Valves>) {
    udp.set_read_timeout(Some(ms(50))).expect("an option");
    let mut upstream: BTreeMap<(SocketAddr, u32), Arc<UdpSocket>> = BTreeMap::new();
    let mut buf = [0; 2_048];
    while !valves.over() {
        let Ok((n, client)) = udp.recv_from(&mut buf) else { continue };
        if !valves.udp.load(Ordering::Relaxed) {
            continue;
        }
        let key = (client, valves.mapping.load(Ordering::Relaxed));
        let socket = upstream.entry(key).or_insert_with(|| {
            let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
            socket.connect(node).expect("connected");
            let (socket_, back) = (Arc::clone(&socket), udp.try_clone().expect("a clone"));
            let valves = Arc::clone(valves);
            thread::spawn(move || answers(&socket_, &back, client, key.1, &valves));
            socket
        });
        let _ = socket.send(&buf[..n]);
    }
}

fn answers(from: &UdpSocket, to: &UdpSocket, client: SocketAddr, mapping: u32, valves: &Valves) {
    from.set_read_timeout(Some(ms(50))).expect("an option");
    let mut buf = [0; 2_048];
    while !valves.over() {
        let Ok(n) = from.recv(&mut buf) else { continue };
        // An expired mapping admits nothing.
        let current = valves.mapping.load(Ordering::Relaxed) == mapping;
        if current && valves.udp.load(Ordering::Relaxed) {
            let _ = to.send_to(&buf[..n], client);
        }
    }
}
