//! Reachability and delays between hosts, computed before the network is built.

use super::model::{Link, Vertex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Whether overlay links lead from one host to the other.
pub fn connected((from, to): (usize, usize), hosts: usize, links: &[Link]) -> bool {
    let mut reached = vec![false; hosts];
    let mut queue = vec![from];
    while let Some(here) = queue.pop() {
        if std::mem::replace(&mut reached[here], true) {
            continue;
        }
        queue.extend(links.iter().filter_map(Link::hosts).filter_map(|ends| match ends {
            (a, b) if a == here => Some(b),
            (a, b) if b == here => Some(a),
            _ => None,
        }));
    }
    reached[to]
}

/// The smallest delay from one host to another over wires that are not private to a link; `None` if
/// they aren't connected. As in the network itself, no path leads through a host.
pub fn routed(
    (from, to): (usize, usize),
    (hosts, routers): (usize, usize),
    links: &[Link],
) -> Option<Duration> {
    let index = |spot| match spot {
        Vertex::Host(n) => n,
        Vertex::Router(n) => hosts + n,
    };
    let mut arcs = vec![Vec::new(); hosts + routers];
    for link in links.iter().filter(|l| l.overlay.is_none()) {
        if let Some([there, back]) = &link.wire {
            let (a, b) = (index(link.ends.0), index(link.ends.1));
            arcs[a].push((b, there.delay));
            arcs[b].push((a, back.delay));
        }
    }
    let mut best = vec![None; hosts + routers];
    let mut queue = BinaryHeap::from([Reverse((Duration::ZERO, from))]);
    while let Some(Reverse((delay, here))) = queue.pop() {
        if best[here].is_some() {
            continue;
        }
        best[here] = Some(delay);
        if here == from || here >= hosts {
            queue.extend(arcs[here].iter().map(|&(next, more)| Reverse((delay + more, next))));
        }
    }
    best[to]
}
