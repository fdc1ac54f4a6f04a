//! Proxies run as a user would.

use crate::common::{Chain, Process, free_port, trunkline};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Starts a proxy and waits until it listens.
pub fn proxy(at: &str, listen: &str, send: &str, more: &[&str]) -> Process {
    let args = ["proxy", "--json", "--socket", at, listen, send];
    let mut process = Process::start(trunkline(args).args(more));
    process.wait_for_word("listening on");
    process
}

/// Stops a proxy as an administrator would, and returns its counts and its log.
pub fn end(mut proxy: Process) -> (Value, String) {
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait().code(), Some(0), "{}", proxy.stderr());
    let (stdout, stderr) = proxy.rest();
    (serde_json::from_str(&stdout).expect("JSON"), stderr)
}

/// Socket at which applications attach to the chain's node at `i`.
pub fn socket(chain: &Chain, i: usize) -> &str {
    chain.nodes[i].socket.to_str().expect("text")
}

/// An even port and the odd one above it, as usual for RTP and RTCP.
pub fn pair() -> SocketAddr {
    loop {
        let first = free_port(LOCALHOST);
        let second = SocketAddr::new(LOCALHOST, first.port() + 1);
        if first.port().is_multiple_of(2) && UdpSocket::bind(second).is_ok() {
            return first;
        }
    }
}

pub fn range(at: SocketAddr) -> String {
    format!("udp:{}-{}", at, at.port() + 1)
}
