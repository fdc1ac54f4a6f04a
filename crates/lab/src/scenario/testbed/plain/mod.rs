//! Constant-rate flows outside the overlay: plain calls and streams. Each host where one starts or
//! ends has one process in its namespace, which sends and receives all of them; the lab sends it
//! the flows, and the time at which calls begin.

mod agent;
mod listen;
mod packet;

use super::super::model::{Carrier, Scenario, Stream};
use super::super::rows::{Packet, Received, stream_row};
use super::super::simulate::{FIRST_CALLER, FIRST_METER, FIRST_STREAM};
use super::super::{CallInstance, FIRST_PORT, MAX_LENGTH, SPACING};
use super::emulator::Emulator;
use super::process::Process;
use super::{Cpu, Error, cannot};
use crate::table::Row;
pub use agent::agent;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use trunkline_base::Time;
use trunkline_base::link_model::Ecn;
use trunkline_net::Protocol;
use trunkline_sim::voice::Arrival;

/// A flow of packets of equal size at a constant interval.
#[derive(Serialize, Deserialize, Clone, Debug)]
struct Flow {
    /// Number of the flow: plain calls come first, then streams.
    number: usize,
    /// Whether packets are UDP; otherwise they have TCP headers.
    udp: bool,
    from: SocketAddr,
    to: SocketAddr,
    /// Length of the payload in bytes, from [`packet::STAMP`] to [`packet::MAX_PAYLOAD`].
    payload: usize,
    /// TOS byte or traffic class (DSCP and ECN).
    class: u8,
    /// When the first packet is sent, in nanoseconds after the calls begin.
    first_ns: u64,
    /// Interval between packets, in nanoseconds.
    interval_ns: u64,
    count: u64,
    /// Whether the delay of each packet is reported, not just the longest.
    each: bool,
}

/// Flows that the process of a host has to send and receive.
#[derive(Serialize, Deserialize, Default)]
struct Plan {
    sends: Vec<Flow>,
    listens: Vec<Flow>,
}

impl Plan {
    /// Whether a scenario can lead to this plan.
    fn is_sane(&self) -> bool {
        let mut flows = self.sends.iter().chain(&self.listens);
        let most = u64::try_from(MAX_LENGTH.as_nanos()).unwrap_or(u64::MAX);
        flows.all(|flow| {
            let packets = flow.count.checked_mul(flow.interval_ns.max(1));
            let fits = (packet::STAMP..=packet::MAX_PAYLOAD).contains(&flow.payload)
                && flow.from.is_ipv4() == flow.to.is_ipv4();
            // Some slack, since the last interval may extend beyond the end.
            let is_short = packets.is_some_and(|all| all <= 2 * most) && flow.first_ns <= 2 * most;
            let is_slow = !flow.each || flow.interval_ns >= nanos(SPACING);
            fits && is_short && is_slow
        })
    }
}

/// Results of the process of a host.
#[derive(Serialize, Deserialize, Default)]
pub struct AgentReport {
    sent: Vec<Sent>,
    heard: Vec<Heard>,
}

/// Counters of the sender of a flow.
#[derive(Serialize, Deserialize, Default, Clone, Copy)]
struct Sent {
    number: usize,
    packets: u64,
    /// Number of packets sent more than [`LATE`](super::LATE) after they were due.
    late: u64,
    /// Number of packets that the kernel did not accept.
    refused: u64,
}

/// Packets of a flow that arrived.
#[derive(Serialize, Deserialize, Default, Clone)]
struct Heard {
    number: usize,
    packets: u64,
    /// Number of packets that a queue had marked with ECN (RFC 3168).
    marked: u64,
    longest_ns: u64,
    /// Delay of each packet in nanoseconds, `None` if it was lost; empty unless [`Flow::each`].
    delays_ns: Vec<Option<u64>>,
}

/// Monotonic time in nanoseconds, the same for all processes of a machine.
pub fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every kernel has this clock");
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// All flows of a scenario, each with its sending and its receiving host.
fn flows(scenario: &Scenario, emulator: &Emulator) -> Vec<((usize, usize), Flow)> {
    let address = |host: usize, port: u16| SocketAddr::new(emulator.address(host), port);
    let plain = |p: &CallInstance<'_>| p.call.carrier == Carrier::Plain;
    let calls = scenario.placed().filter(plain).map(|CallInstance { call, port, offset }| {
        let ends = call.ends;
        let flow = Flow {
            number: 0,
            udp: true,
            from: address(ends.0, FIRST_CALLER + (port - FIRST_PORT)),
            to: address(ends.1, port),
            payload: call.bytes,
            class: 0,
            // The same as for calls over the overlay.
            first_ns: nanos(SPACING + offset),
            interval_ns: nanos(SPACING),
            count: scenario.packets(),
            each: true,
        };
        (ends, flow)
    });
    let streams = scenario.streams.iter().zip(0..).map(|(s, n)| {
        let &Stream { ends, protocol, payload, interval, dscp, ecn, start, count, .. } = s;
        let ecn = if ecn { Ecn::Ect0 } else { Ecn::NotCapable };
        let flow = Flow {
            number: 0,
            udp: protocol == Protocol::UDP,
            from: address(ends.0, FIRST_STREAM + n),
            to: address(ends.1, FIRST_METER + n),
            payload,
            class: ecn.in_tos(dscp << 2),
            first_ns: nanos(start),
            interval_ns: nanos(interval),
            count,
            each: false,
        };
        (ends, flow)
    });
    let all = calls.chain(streams).enumerate();
    all.map(|(number, (ends, flow))| (ends, Flow { number, ..flow })).collect()
}

/// The processes that send and receive plain flows, one for each host that needs one.
pub struct Agents(Vec<Mutex<(String, Process)>>);

impl Agents {
    /// Starts a process on each host where a plain flow starts or ends; files go into `dir`.
    ///
    /// # Errors
    ///
    /// If a file can't be written, or a process fails.
    pub fn start(scenario: &Scenario, emulator: &Emulator, dir: &Path) -> Result<Agents, Error> {
        let flows = flows(scenario, emulator);
        let own = std::env::current_exe().map_err(cannot("find this program"))?;
        let mut agents = Vec::new();
        for (n, host) in scenario.hosts.iter().enumerate() {
            let of = |end: fn(&(usize, usize)) -> usize| {
                let own = flows.iter().filter(|(ends, _)| end(ends) == n);
                own.map(|(_, flow)| flow.clone()).collect::<Vec<Flow>>()
            };
            let plan = Plan { sends: of(|ends| ends.0), listens: of(|ends| ends.1) };
            if plan.sends.is_empty() && plan.listens.is_empty() {
                continue;
            }
            let file = dir.join(format!("{}.json", n + 1));
            let text = serde_json::to_vec(&plan).expect("plain values are JSON");
            std::fs::write(&file, text).map_err(cannot(format!("write {}", file.display())))?;
            let name = format!("the sender and listener on {}", host.name);
            let program = emulator.bound(n, &own);
            let (process, _) = Process::start(program, name, &[AGENT], &file)?;
            agents.push(Mutex::new((host.name.clone(), process)));
        }
        Ok(Agents(agents))
    }

    /// Notifies all processes of the time at which calls begin.
    ///
    /// # Errors
    ///
    /// If one of the processes has ended.
    pub fn begin(&self, begun: Instant) -> Result<(), Error> {
        let begun = clock_ns() + nanos(begun.saturating_duration_since(Instant::now()));
        self.each(|process| process.tell(&begun.to_string()))
    }

    /// Checks that all processes still run.
    ///
    /// # Errors
    ///
    /// If one of the processes has ended; the error says how, as in [`Process::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.each(Process::check)
    }

    fn each(&self, act: impl Fn(&mut Process) -> Result<(), Error>) -> Result<(), Error> {
        self.0.iter().try_for_each(|a| act(&mut a.lock().expect("nobody panics").1))
    }

    /// Ends all processes; returns the outcome of all flows, and each process's processor time.
    ///
    /// # Errors
    ///
    /// If one of the processes has failed, or its report is not JSON.
    pub fn finish(self) -> Result<(PlainFlows, Vec<Cpu>), Error> {
        let agents = self.0.into_iter().map(|a| a.into_inner().expect("nobody panics"));
        let mut agents: Vec<(String, Process)> = agents.collect();
        agents.iter_mut().for_each(|(_, process)| process.close());
        let (mut outcome, mut cpu) = (PlainFlows::default(), Vec::new());
        for (host, process) in agents {
            let (said, time) = process.finish()?;
            let report: AgentReport = serde_json::from_str(&said)
                .map_err(|e| Error::Process(format!("the report of {host} is not JSON: {e}")))?;
            outcome.sent.extend(report.sent);
            outcome.heard.extend(report.heard);
            let process = format!("{host}, outside of the overlay");
            cpu.push(Cpu { process, seconds: time.as_secs_f64() });
        }
        outcome.sent.sort_by_key(|sent| sent.number);
        outcome.heard.sort_by_key(|heard| heard.number);
        Ok((outcome, cpu))
    }
}

/// The subcommand of `trunkline-lab` that sends and receives the plain flows of a host.
pub const AGENT: &str = "plain-flows";

/// Results of all flows, in the order of their numbers.
#[derive(Default)]
pub struct PlainFlows {
    sent: Vec<Sent>,
    heard: Vec<Heard>,
}

impl PlainFlows {
    /// For each flow, how many packets were sent late, and how many were sent in all.
    pub fn late(&self) -> impl Iterator<Item = (u64, u64)> {
        self.sent.iter().map(|sent| (sent.late, sent.packets))
    }

    /// Number of packets that the kernel did not accept.
    pub fn refused(&self) -> u64 {
        self.sent.iter().map(|sent| sent.refused).sum()
    }

    /// The packets of each plain call, in the order of the scenario's file.
    pub fn calls(&self, scenario: &Scenario) -> Vec<Vec<Packet>> {
        let plain = scenario.placed().filter(|p| p.call.carrier == Carrier::Plain);
        let calls = plain.zip(self.sent.iter().zip(&self.heard)).map(|(placed, (sent, heard))| {
            let delays = heard.delays_ns.iter().take(sent.packets as usize);
            let packets = (0..).zip(delays).map(|(k, delay)| {
                let sent = Time::ZERO + placed.offset + SPACING * k;
                let delay = delay.map(Duration::from_nanos);
                (sent, delay.map(|delay| Arrival { delay, recovered: false }))
            });
            packets.collect()
        });
        calls.collect()
    }

    /// The table's rows for all streams.
    pub fn streams(&self, scenario: &Scenario, is_valid: bool) -> Vec<Row> {
        let streams = scenario.streams.len();
        let own = |all: usize| all - streams..all;
        let each = self.sent[own(self.sent.len())].iter().zip(&self.heard[own(self.heard.len())]);
        let row = |(stream, (sent, heard)): (&Stream, (&Sent, &Heard))| {
            let received = Received {
                packets: heard.packets,
                marked: heard.marked,
                longest: Duration::from_nanos(heard.longest_ns),
            };
            stream_row("testbed", stream, (sent.packets, &received), is_valid)
        };
        scenario.streams.iter().zip(each).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_no_scenario_has_is_refused() {
        let end = SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), 5_000);
        let good = Flow {
            number: 0,
            udp: true,
            from: end,
            to: end,
            payload: 172,
            class: 0,
            first_ns: 0,
            interval_ns: nanos(SPACING),
            count: 360_000,
            each: true,
        };
        let is_sane = |flow: Flow| Plan { sends: vec![flow], ..Plan::default() }.is_sane();
        assert!(is_sane(good.clone()));
        let other = SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), 5_000);
        assert!(!is_sane(Flow { to: other, ..good.clone() }));
        assert!(!is_sane(Flow { payload: 7, ..good.clone() }));
        assert!(!is_sane(Flow { payload: 1_473, ..good.clone() }));
        assert!(!is_sane(Flow { count: u64::MAX, ..good.clone() }));
        assert!(!is_sane(Flow { first_ns: u64::MAX, ..good.clone() }));
        assert!(!is_sane(Flow { interval_ns: 0, ..good.clone() }));
        assert!(is_sane(Flow { interval_ns: 1_000, each: false, ..good }));
    }
}
