//! Proxies as a user runs them.

use crate::common::{Chain, Process, free_port, trunkline};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Starts a proxy that listens.
pub fn proxy(at: &str, listen: &str, send: &str, more: &[&str]) -> Process {
    let args = ["proxy", "--json", "--socket", at, listen, send];
    let mut process = Process::start(trunkline(args).args(more));
    process.wait_for_word("listening on");
    process
}

/// Ends a proxy as an administrator would; what it counted and what it said.
pub fn end(mut proxy: Process) -> (Value, String) {
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait().code(), Some(0), "{}", proxy.stderr());
    let (stdout, stderr) = proxy.rest();
    (serde_json::from_str(&stdout).expect("JSON"), stderr)
}

/// Where applications of the chain's node at `i` attach.
pub fn socket(chain: &Chain, i: usize) -> &str {
    chain.nodes[i].socket.to_str().expect("text")
}

/// An even port and the odd one above it, as RTP and RTCP like them.
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
