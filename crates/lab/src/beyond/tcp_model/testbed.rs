//! Measures this kernel's TCP over the modelled links, with iperf3 between two hosts for each.

use super::{BUFFER, KERNELS, Params, figures, rows_of, spans};
use crate::experiment::Size;
use crate::scenario::testbed::emulator::Emulator;
use crate::scenario::testbed::folder::Folder;
use crate::scenario::testbed::run_monitor::RunMonitor;
use crate::scenario::testbed::transfers::{Prepared, TransferResult, has};
use crate::scenario::testbed::wakes::Sleeper;
use crate::scenario::testbed::{Cpu, Effort, Error};
use crate::scenario::{Host, Link, Scenario, Transfer, Vertex};
use crate::testbed::{Round, Sample, Stage, Testbed};
use std::time::{Duration, Instant};
use trunkline_net::IpVersion;
use trunkline_sim::agent::tcp::Profile;

/// Largest number of simultaneous connections.
const MAX_CONNECTIONS: usize = 24;
/// Largest total traffic at a time, in Mbit/s: impair needs about three quarters of a processor for
/// it.
const MAX_MBIT_S: f64 = 225.0;
/// Time from the start of one connection to that of the next. In slow start each may send at its
/// link's full rate, which together may be more than impair can forward in time.
const STAGGER: Duration = Duration::from_millis(300);

/// A TCP connection over a separate link.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Flow {
    place: Params,
    tcp: &'static str,
}

impl Flow {
    /// Name of the samples of this connection.
    fn key(&self) -> String {
        key(&self.place, self.tcp)
    }

    /// Approximate upper bound of the connection's goodput, in Mbit/s.
    fn expected(&self) -> f64 {
        match self.tcp {
            "reno" => self.place.expected(),
            "cubic" => self.place.room().min(3.0 * self.place.law()),
            // BBR does not react to single losses.
            _ => self.place.room(),
        }
    }

    /// Number of runs of this connection. The fewer losses there are in a run, the more the runs
    /// vary: reno, to which the simulator is compared, gets enough runs for a mean within 3 %, but
    /// at most 12, and at least 8 where timeouts add to the variation.
    fn runs(&self, size: Size) -> usize {
        if self.place.loss == 0.0 {
            return 1;
        }
        let seconds = spans(size).1.as_secs_f64();
        let packets = 1e6 * self.place.expected() * seconds / (8.0 * super::PAYLOAD);
        let losses = packets * self.place.loss / 100.0;
        let enough = (400.0 / losses).ceil() as usize;
        match self.tcp {
            "reno" if self.place.is_heavy() => enough.clamp(size.pick(2, 5, 8), 12),
            "reno" => enough.clamp(size.pick(2, 2, 4), size.pick(2, 6, 12)),
            _ => 1,
        }
    }
}

fn key(place: &Params, tcp: &str) -> String {
    format!("{tcp} {}", place.key())
}

/// How the kernel's TCP is measured.
pub fn testbed() -> Testbed {
    Testbed {
        figure: figures::beside(),
        // Congestion controls that this kernel lacks are left out.
        rounds: Box::new(|size| {
            rounds(size, &KERNELS.into_iter().filter(|tcp| has(tcp)).collect::<Vec<_>>())
        }),
        rows: Box::new(|samples| rows_of(|place, tcp| Sample::pooled(samples, &key(place, tcp)))),
    }
}

/// Distributes all connections over rounds: the fastest first, each into the first round that
/// has room.
fn rounds(size: Size, kernels: &[&'static str]) -> Vec<Round> {
    let flow = |place| kernels.iter().map(move |&tcp| Flow { place, tcp });
    let flows = Params::all(size).into_iter().flat_map(flow);
    let mut flows: Vec<Flow> =
        flows.flat_map(|flow| std::iter::repeat_n(flow, flow.runs(size))).collect();
    flows.sort_by(|a, b| b.expected().total_cmp(&a.expected()));
    let mut rounds: Vec<(Vec<Flow>, f64)> = Vec::new();
    for flow in flows {
        let has_room = |(flows, sum): &&mut (Vec<Flow>, f64)| {
            flows.len() < MAX_CONNECTIONS && sum + flow.expected() <= MAX_MBIT_S
        };
        match rounds.iter_mut().find(has_room) {
            Some((flows, sum)) => {
                flows.push(flow);
                *sum += flow.expected();
            }
            None => rounds.push((vec![flow], flow.expected())),
        }
    }
    let (before, measured) = spans(size);
    let round = |((flows, _), n): ((Vec<Flow>, f64), usize)| Round {
        name: format!("round-{n}"),
        seconds: (before + measured + STAGGER * flows.len() as u32).as_secs() as usize + 2,
        parts: flows.len(),
        run: Box::new(move |stage, parts| {
            let flows: Vec<Flow> = parts.iter().map(|&n| flows[n]).collect();
            run(stage, &flows, (before, measured))
        }),
    };
    rounds.into_iter().zip(1..).map(round).collect()
}

/// A scenario with two hosts and a link for each connection.
fn scenario(flows: &[Flow], (before, measured): (Duration, Duration)) -> Scenario {
    let buffers = format!("4096 1048576 {BUFFER}");
    let host = |n: usize| {
        let mut host = Host::new(n.to_string());
        for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            host.sysctl.insert(key.into(), buffers.clone());
        }
        host
    };
    let link = |(flow, n): (&Flow, usize)| Link {
        name: n.to_string(),
        named: false,
        ends: (Vertex::Host(2 * n), Vertex::Host(2 * n + 1)),
        wire: Some(flow.place.link()),
        overlay: None,
        routed: None,
    };
    let transfer = |(flow, n): (&Flow, usize)| Transfer {
        name: flow.key(),
        ends: (2 * n, 2 * n + 1),
        from: STAGGER * n as u32,
        until: STAGGER * n as u32 + before + measured,
        congestion: flow.tcp,
        profile: Profile::linux_6(),
    };
    Scenario {
        name: super::FIGURE.into(),
        length: before + measured,
        ip: IpVersion::V6,
        pesq: false,
        sealed: false,
        hosts: (0..2 * flows.len()).map(host).collect(),
        routers: Vec::new(),
        links: flows.iter().zip(0..).map(link).collect(),
        calls: Vec::new(),
        streams: Vec::new(),
        transfers: flows.iter().zip(0..).map(transfer).collect(),
        programs: Vec::new(),
        faults: Vec::new(),
    }
}

/// Runs all of these connections at the same time.
fn run(
    stage: &Stage<'_>,
    flows: &[Flow],
    spans: (Duration, Duration),
) -> Result<(Vec<Sample>, Effort), Error> {
    let dir = Folder::new()?;
    let scenario = scenario(flows, spans);
    let emulator = Emulator::start(stage.trunkline, &scenario, stage.seed, dir.path())?;
    let prepared = scenario.transfers.iter().zip(0..);
    let prepared: Vec<Prepared<'_>> = prepared
        .map(|(transfer, n)| Prepared::new(transfer, n, &emulator))
        .collect::<Result<_, _>>()?;
    let (watch, sleeper) = (RunMonitor::new(Instant::now()), Sleeper::start());
    let carried: Vec<Option<TransferResult>> = std::thread::scope(|scope| {
        let (watch, before) = (&watch, spans.0);
        let carry = move |ready: Prepared<'_>| watch.note(ready.carry(watch, before));
        let running: Vec<_> =
            prepared.into_iter().map(|ready| scope.spawn(move || carry(ready))).collect();
        watch.attend_threads(&running, &emulator, stage.second);
        running.into_iter().map(|t| t.join().expect("no transfer panics")).collect()
    });
    let wakes_late = sleeper.finish();
    watch.end()?;
    let (ledger, time) = emulator.finish()?;
    let cpu = vec![Cpu { process: "impair".into(), seconds: time.as_secs_f64() }];
    let sample = |(flow, carried): (&Flow, &TransferResult)| {
        Sample::new(flow.key(), vec![carried.goodput_bps / 1e6])
    };
    let samples = flows.iter().zip(carried.iter().flatten()).map(sample).collect();
    Ok((samples, Effort::new(&ledger, wakes_late, cpu)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_is_in_a_round_with_room() {
        for size in Size::ALL {
            let parts: usize = rounds(size, &KERNELS).iter().map(|round| round.parts).sum();
            let flow = |place| KERNELS.map(|tcp| Flow { place, tcp }.runs(size));
            let wanted: usize = Params::all(size).into_iter().flat_map(flow).sum();
            assert_eq!(parts, wanted);
            assert!(
                rounds(size, &KERNELS)
                    .iter()
                    .all(|round| (1..=MAX_CONNECTIONS).contains(&round.parts))
            );
        }
        assert!(rounds(Size::Full, &KERNELS).len() < 20, "{}", rounds(Size::Full, &KERNELS).len());
    }
}
