use super::build::{self, Built, CALL, STREAM, events, host, node};
use super::model::{Call, Carrier, Scenario};
use super::results::Results;
use super::rows::{
    COLUMNS, Received, STREAM_COLUMNS, TRANSFER_COLUMNS, row, stream_row, transfer_row,
};
use super::{DRAIN, FIRST_PORT, Placed, SPACING, WARM_UP, draw, ledger};
use crate::experiment::PointError;
use crate::speech::Speech;
use crate::table::Table;
use trunkline_base::Time;
use trunkline_base::link_model::Ecn;
use trunkline_net::Protocol;
use trunkline_overlay::wire::Service;
use trunkline_sim::agent::tcp::{Bulk, Sink};
use trunkline_sim::agent::{AgentId, Cbr, Meter};
use trunkline_sim::voice::{self, Sinks, VoiceSink, VoiceSource};
use trunkline_sim::{World, WorldError};

/// First source port of plain calls; the other end's is [`FIRST_PORT`] plus the same number.
pub const FIRST_CALLER: u16 = 6_000;
/// First destination port of streams, and first source port. All are below the nodes'.
pub const FIRST_METER: u16 = 2_000;
pub const FIRST_STREAM: u16 = 3_000;
/// First source port of transfers, and first destination port.
const FIRST_BULK: u16 = 3_500;
const FIRST_SINK: u16 = 3_700;

/// Runs a scenario in the simulator.
///
/// # Errors
///
/// If its network can't be built or its speech can't be compared.
pub fn simulate(
    scenario: &Scenario,
    speech: Option<&Speech>,
    seed: u64,
) -> Result<Results, PointError> {
    let Built { mut world, wires } = build::build(scenario, seed)?;
    draw::record(scenario, &mut world, &wires);
    let start = Time::ZERO + WARM_UP;
    let placed = scenario.placed();
    let calls: Vec<voice::Call> =
        placed.map(|p| attach(scenario, &mut world, p, start)).collect::<Result<_, _>>()?;
    let streams = attach_streams(scenario, &mut world, start)?;
    let transfers = attach_transfers(scenario, &mut world, (start, seed))?;
    let end = start + scenario.length + DRAIN;
    // Data of a transfer that arrives after its end doesn't count.
    let stops = scenario.transfers.iter().enumerate().map(|(n, t)| (start + t.until, n));
    let mut stops: Vec<(Time, usize)> = stops.collect();
    stops.sort_unstable();
    let mut stops = stops.into_iter().peekable();
    let mut carried = vec![0; transfers.len()];
    let mut run_until = |world: &mut World, at: Time| {
        while let Some((stop, n)) = stops.next_if(|&(stop, _)| stop <= at) {
            world.run_until(stop);
            carried[n] = world.agent(transfers[n].1).bytes();
        }
        world.run_until(at);
    };
    for event in events(scenario, &wires, start) {
        if event.at <= end {
            run_until(&mut world, event.at);
            event.happen(&mut world)?;
        }
    }
    run_until(&mut world, end);

    let mut packets = calls.iter().map(|&(source, sink)| {
        let arrival = world.app(sink).arrivals(world.origin(source));
        let source = world.app(source);
        (0..source.sent()).map(|n| (source.sent_at(n), arrival(n))).collect()
    });
    let (mut rows, speech) = (Vec::new(), speech.filter(|_| scenario.pesq));
    let mut delays = Vec::new();
    for call in &scenario.calls {
        let group: Vec<_> = packets.by_ref().take(call.count as usize).collect();
        rows.push(row("simulator", call, &group, speech, true)?);
        delays.push(draw::delays(delays.len(), &group));
    }
    let calls = Table { columns: COLUMNS, rows };
    let each = scenario.streams.iter().zip(streams);
    let rows = each.map(|(s, (cbr, meter))| {
        let Meter { received, marked, longest, .. } = *world.agent(meter);
        let received = Received { packets: received.packets, marked, longest };
        stream_row("simulator", s, (world.agent(cbr).sent(), &received), true)
    });
    let streams = Table { columns: STREAM_COLUMNS, rows: rows.collect() };
    let links = ledger::links(scenario, &world, &wires);
    let mut figures = draw::figures(scenario, &world, &wires);
    figures.extend(draw::calls(scenario, &delays).map(|figure| ("calls".to_owned(), figure)));
    let each = scenario.transfers.iter().zip(&transfers).zip(carried);
    let rows = each.map(|((transfer, &(bulk, _)), bytes)| {
        let seconds = (transfer.until - transfer.from).as_secs_f64();
        let goodput = 8.0 * bytes as f64 / seconds;
        let again = world.agent(bulk).stats().retransmitted as f64;
        transfer_row("simulator", transfer, (goodput, again, f64::NAN), true)
    });
    let transfers = Table { columns: TRANSFER_COLUMNS, rows: rows.collect() };
    Ok(Results { calls, streams, transfers, links, figures })
}

/// Attaches the two ends of a call.
fn attach(
    scenario: &Scenario,
    world: &mut World,
    place: Placed<'_>,
    start: Time,
) -> Result<voice::Call, WorldError> {
    let &Call { ends: (from, to), carrier, bytes, threshold, .. } = place.call;
    let service = match carrier {
        Carrier::Overlay(service) => service,
        Carrier::Plain => Service::BestEffort,
    };
    let (at, count) = (start + place.offset, scenario.packets());
    let mut source = VoiceSource::new(node(to), place.port, service, at, count);
    (source.spacing, source.bytes) = (SPACING, bytes);
    source.deadline_ms = u8::try_from(threshold.as_millis()).unwrap_or(u8::MAX);
    let (from, to) = (host(from), host(to));
    if let Carrier::Overlay(_) = carrier {
        let sink = world.attach(to, place.port, VoiceSink::default())?;
        return Ok((world.attach(from, 0, source)?, sink));
    }
    let caller = FIRST_CALLER + (place.port - FIRST_PORT);
    let sink = world.attach_udp(to, place.port, from, VoiceSink::default())?;
    let source = world.attach_udp(from, caller, to, source)?;
    world.set_class(from, Protocol::UDP, caller, CALL)?;
    Ok((source, sink))
}

/// The two ends of a stream.
type Bound = (AgentId<Cbr>, AgentId<Meter>);

/// Binds the two ends of each stream.
fn attach_streams(
    scenario: &Scenario,
    world: &mut World,
    start: Time,
) -> Result<Vec<Bound>, WorldError> {
    let mut bound = Vec::new();
    for (s, n) in scenario.streams.iter().zip(0..) {
        let (from, to) = (host(s.ends.0), host(s.ends.1));
        let (port, end) = (FIRST_STREAM + n, world.endpoint(to, FIRST_METER + n));
        let mut cbr = Cbr::tcp_sizes(port, end, start + s.start, s.interval, s.count);
        let ecn = if s.ecn { Ecn::Ect0 } else { Ecn::NotCapable };
        (cbr.protocol, cbr.bytes, cbr.tos) = (s.protocol, s.payload, ecn.in_tos(s.dscp << 2));
        let meter = world.bind(to, s.protocol, FIRST_METER + n, Meter::default())?;
        let cbr = world.bind(from, s.protocol, port, cbr)?;
        world.set_class(from, s.protocol, port, STREAM)?;
        bound.push((cbr, meter));
    }
    Ok(bound)
}

/// The two ends of a transfer.
type Connected = (AgentId<Bulk>, AgentId<Sink>);

/// Binds the two ends of each transfer.
fn attach_transfers(
    scenario: &Scenario,
    world: &mut World,
    (start, seed): (Time, u64),
) -> Result<Vec<Connected>, WorldError> {
    let mut bound = Vec::new();
    for (transfer, n) in scenario.transfers.iter().zip(0..) {
        let (from, to) = (host(transfer.ends.0), host(transfer.ends.1));
        let (port, end) = (FIRST_BULK + n, FIRST_SINK + n);
        let span = (start + transfer.from, start + transfer.until);
        // The initial value of sequence numbers only matters where they wrap.
        let iss = seed.wrapping_mul(0x9e37_79b9).wrapping_add(n.into()) as u32;
        let profile = || transfer.profile.clone();
        let sink = world.bind(to, Protocol::TCP, end, Sink::new(profile(), end, !iss))?;
        let place = world.endpoint(to, end);
        let bulk = Bulk::new(profile(), port, place, iss, span, u64::MAX);
        let bulk = world.bind(from, Protocol::TCP, port, bulk)?;
        for (host, port) in [(from, port), (to, end)] {
            world.set_class(host, Protocol::TCP, port, STREAM)?;
        }
        bound.push((bulk, sink));
    }
    Ok(bound)
}
