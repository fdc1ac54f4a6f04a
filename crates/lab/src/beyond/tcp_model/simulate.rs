//! Measures the simulated TCP over a simulated link.

use super::Params;
use crate::experiment::PointError;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_net::{IpVersion, Protocol};
use trunkline_sim::World;
use trunkline_sim::agent::tcp::{Bulk, Profile, Sink};

/// Goodput of one connection, in Mbit/s, during the span `measured`, which follows `before`.
pub fn goodput(
    place: &Params,
    profile: &Profile,
    (before, measured): (Duration, Duration),
    seed: u64,
) -> Result<f64, PointError> {
    let mut world = World::new(IpVersion::V6, seed);
    let (a, b) = (world.add_plain_host(), world.add_plain_host());
    let [there, back] = place.link();
    world.cable(a, b, there, back)?;
    let to = world.endpoint(b, 80);
    let sink = world.bind(b, Protocol::TCP, 80, Sink::new(profile.clone(), 80, 7))?;
    let [begin, end] = [before, before + measured].map(|span| Time::ZERO + span);
    let bulk = Bulk::new(profile.clone(), 4_000, to, seed as u32, (Time::ZERO, end), u64::MAX);
    world.bind(a, Protocol::TCP, 4_000, bulk)?;
    world.run_until(begin);
    let first = world.agent(sink).bytes();
    world.run_until(end);
    let bytes = world.agent(sink).bytes() - first;
    Ok(8e-6 * bytes as f64 / measured.as_secs_f64())
}
