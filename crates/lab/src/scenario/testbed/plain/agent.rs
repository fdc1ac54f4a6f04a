//! The process in a host's namespace that sends and receives plain flows.

use super::super::{Error, LATE, cannot};
use super::listen::Ears;
use super::{AgentReport, Flow, Plan, Sent, clock_ns, packet};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sends and receives the flows in `file`. The start time is read from standard input, and the
/// flows end when that is closed.
///
/// # Errors
///
/// If `file` or the start time was not written by the lab, or a system call fails.
pub fn agent(file: &Path) -> Result<AgentReport, Error> {
    let text = std::fs::read(file).map_err(cannot(format!("read {}", file.display())))?;
    let wrong = |why: &dyn std::fmt::Display| {
        Err(Error::Process(format!("{}: {why}: only the lab may write this file", file.display())))
    };
    let plan: Plan = match serde_json::from_slice(&text) {
        Ok(plan) => plan,
        Err(why) => return wrong(&why),
    };
    if !plan.is_sane() {
        return wrong(&"no scenario has such flows");
    }
    let ears = Ears::open(&plan.listens)?;
    let mouths = plan.sends.iter().map(Mouth::open).collect::<Result<Vec<_>, _>>()?;
    // A failed write does not matter: if the lab is gone, standard input is closed too.
    let _ = writeln!(io::stderr(), "ready");
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(cannot("read standard input"))?;
    let begun = match line.trim().parse() {
        Ok(begun) => begun,
        // Standard input was closed before the start.
        Err(_) if line.is_empty() => return Ok(AgentReport::default()),
        Err(why) => return wrong(&why),
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(mouths, begun, &is_over));
        let heard = ears.listen();
        is_over.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("no sender panics");
        Ok(AgentReport { sent, heard: heard? })
    })
}

/// The sender of a flow.
struct Mouth {
    flow: Flow,
    socket: Socket,
    to: SockAddr,
    sent: Sent,
}

impl Mouth {
    fn open(flow: &Flow) -> Result<Mouth, Error> {
        let socket = || -> io::Result<Socket> {
            let (kind, protocol) = match flow.udp {
                true => (Type::DGRAM, Protocol::UDP),
                false => (Type::RAW, Protocol::TCP),
            };
            let socket = Socket::new(Domain::for_address(flow.from), kind, Some(protocol))?;
            socket.bind(&portless(flow, flow.from).into())?;
            match flow.from {
                SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4Tos, &flow.class.into())?,
                SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6TClass, &flow.class.into())?,
            }
            // A packet that there is no room for is lost; the sender must not block.
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = socket().map_err(cannot(format!("send from {}", flow.from)))?;
        let sent = Sent { number: flow.number, ..Sent::default() };
        let to = portless(flow, flow.to).into();
        Ok(Mouth { flow: flow.clone(), socket, to, sent })
    }

    /// When the next packet is due, in nanoseconds; `None` after the last one.
    fn due(&self, begun: u64) -> Option<u64> {
        let &Flow { first_ns, interval_ns, count, .. } = &self.flow;
        let k = self.sent.packets;
        (k < count).then(|| begun + first_ns + k * interval_ns)
    }
}

/// The address of `end` for the flow's socket: without a port unless the flow is UDP, since
/// raw packets have the ports in their own headers.
fn portless(flow: &Flow, end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip(), if flow.udp { end.port() } else { 0 })
}

/// Sends every packet when it is due, until `is_over` is set.
fn send(mut mouths: Vec<Mouth>, begun: u64, is_over: &AtomicBool) -> Vec<Sent> {
    let first = mouths.iter().enumerate().filter_map(|(n, m)| Some(Reverse((m.due(begun)?, n))));
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = first.collect();
    let mut packet = Vec::new();
    while let Some(Reverse((due, n))) = next.pop() {
        std::thread::sleep(Duration::from_nanos(due.saturating_sub(clock_ns())));
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let Mouth { flow, socket, to, sent } = &mut mouths[n];
        let now = clock_ns();
        packet::write(flow, sent.packets, now, &mut packet);
        sent.refused += u64::from(socket.send_to(&packet, to).is_err());
        sent.late += u64::from(u128::from(now.saturating_sub(due)) > LATE.as_nanos());
        sent.packets += 1;
        next.extend(mouths[n].due(begun).map(|due| Reverse((due, n))));
    }
    mouths.into_iter().map(|mouth| mouth.sent).collect()
}
