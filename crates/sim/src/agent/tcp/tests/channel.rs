//! The channel, and a test that it never changes the data read.

use crate::agent::tcp::{Connection, Profile, Segment};
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use trunkline_base::{Rng, Time};
use trunkline_net::IpVersion;

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Index of the client, which opens the connection.
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// Decides on a segment for the given end: one delay per copy that arrives.
pub type Channel<'a> = dyn FnMut(usize, &Segment<'_>) -> Vec<Duration> + 'a;

/// The two ends, and the segments on their way.
pub struct Pair {
    pub now: Time,
    pub client: Connection,
    pub server: Option<Connection>,
    /// Profile of the server.
    pub profile: Profile,
    server_iss: u32,
    flying: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    count: u64,
    /// Data that each end has read.
    pub read: [Vec<u8>; 2],
    /// Whether received data are read at once.
    pub reads: bool,
    /// Time and data length of each segment sent towards each end.
    pub sent: [Vec<(Time, usize)>; 2],
}

impl Pair {
    pub fn new(profile: &Profile, iss: [u32; 2]) -> Pair {
        let client = Connection::connect(profile.clone(), (1_000, 80), iss[0], false);
        Pair {
            now: Time::from_millis(1),
            client,
            server: None,
            profile: profile.clone(),
            server_iss: iss[1],
            flying: BTreeMap::new(),
            count: 0,
            read: [Vec::new(), Vec::new()],
            reads: true,
            sent: [Vec::new(), Vec::new()],
        }
    }

    /// Establishes a connection over a channel of 10 ms.
    pub fn established(profile: &Profile) -> Pair {
        let mut pair = Pair::new(profile, [1, 2]);
        pair.run(Time::from_millis(1_000), &mut |_, _| vec![ms(10)]);
        assert!(pair.client.is_established());
        pair
    }

    fn flush(&mut self, channel: &mut Channel<'_>) {
        let mut out = Vec::new();
        for end in [CLIENT, SERVER] {
            let connection = match end {
                CLIENT => Some(&mut self.client),
                _ => self.server.as_mut(),
            };
            let Some(connection) = connection else { continue };
            if self.reads {
                connection.read(|bytes| self.read[end].extend_from_slice(bytes));
            }
            while connection.transmit(self.now, &mut out) {
                let segment = Segment::parse(&out).unwrap();
                self.sent[1 - end].push((self.now, segment.data.len()));
                for delay in channel(1 - end, &segment) {
                    self.count += 1;
                    self.flying.insert((self.now + delay, self.count), (1 - end, out.clone()));
                }
            }
            connection.check();
        }
    }

    /// Delivers a segment to an end.
    pub fn deliver(&mut self, end: usize, bytes: &[u8]) {
        let Some(segment) = Segment::parse(bytes) else { return };
        match (end, &mut self.server) {
            (CLIENT, _) => self.client.receive(self.now, &segment),
            (_, Some(server)) => server.receive(self.now, &segment),
            (_, None) => {
                let profile = self.profile.clone();
                self.server = Connection::accept(profile, IpVersion::V6, self.server_iss, &segment);
            }
        }
    }

    /// Runs until `end`, or until no event is left.
    pub fn run(&mut self, end: Time, channel: &mut Channel<'_>) {
        self.flush(channel);
        for steps in 0.. {
            assert!(steps < 1_000_000, "time does not pass");
            let timer = self.server.as_ref().map_or(Time::NEVER, Connection::deadline);
            let timer = timer.min(self.client.deadline());
            let arrival = self.flying.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at);
            let next = timer.min(arrival);
            if next > end || next == Time::NEVER {
                self.now = end.max(self.now);
                return;
            }
            self.now = self.now.max(next);
            if arrival <= timer {
                let (_, (end, bytes)) = self.flying.pop_first().unwrap();
                self.deliver(end, &bytes);
            } else {
                for connection in [Some(&mut self.client), self.server.as_mut()] {
                    if let Some(c) = connection.filter(|c| c.deadline() <= next) {
                        c.expire(next);
                    }
                }
            }
            self.flush(channel);
        }
    }
}

/// A channel with random loss, duplication and reordering.
fn adverse(seed: u64, loss: f64, twice: f64, spread: u64) -> impl FnMut() -> Vec<Duration> {
    let mut rng = Rng::seed_from_u64(seed);
    move || {
        let copies = if rng.random_bool(loss) { 0 } else { 1 + u32::from(rng.random_bool(twice)) };
        (0..copies).map(|_| ms(5) + Duration::from_micros(rng.random_range(0..=spread))).collect()
    }
}

#[test]
fn what_is_read_is_what_was_written() {
    let mut retransmitted = 0;
    for seed in 0..320u64 {
        let mut rng = Rng::seed_from_u64(seed);
        let mut profile = Profile::all()[seed as usize % 4].clone();
        profile.window_limit = None;
        profile.receive_buffer = [3_000, 70_000, 6 << 20][rng.random_range(0..3usize)];
        profile.send_buffer = 1 << rng.random_range(11..22u32);
        // Sequence numbers wrap during the transfer, on both sides.
        let iss = [0, 0].map(|_| 0u32.wrapping_sub(rng.random_range(0..60_000u32)));
        let text = [0, 0].map(|_| {
            let len = rng.random_range(0..60_000usize);
            (0..len).map(|_| rng.random()).collect::<Vec<u8>>()
        });
        let (loss, twice) = (rng.random_range(0.0..0.15), rng.random_range(0.0..0.1));
        let spread = [0, 1_000, 30_000][rng.random_range(0..3usize)];
        let mut fate = adverse(rng.random(), loss, twice, spread);
        let mut pair = Pair::new(&profile, iss);
        // The server has any profile, so that some pairs negotiate less than one end supports.
        let kind = Profile::all()[seed as usize / 4 % 4].clone();
        let Profile { window_limit, receive_buffer, send_buffer, .. } = profile;
        pair.profile = Profile { window_limit, receive_buffer, send_buffer, ..kind };
        let mut written = [0, 0];
        let mut until = Time::ZERO;
        while !pair.client.is_closed() || !pair.server.as_ref().is_some_and(|s| s.is_closed()) {
            for end in [CLIENT, SERVER] {
                let connection = match end {
                    CLIENT => &mut pair.client,
                    _ => match &mut pair.server {
                        Some(server) => server,
                        None => continue,
                    },
                };
                let rest = &text[end][written[end]..];
                let most = rest.len().min(rng.random_range(1..5_000));
                written[end] += connection.write(&rest[..most]);
                if written[end] == text[end].len() {
                    connection.close();
                }
            }
            // An application that does not always read closes the window.
            pair.reads = rng.random_bool(0.7);
            until += ms(rng.random_range(1..60));
            pair.run(until, &mut |_, _| fate());
            let what = (seed, profile.name, pair.client.stats());
            assert!(until < Time::from_millis(3_000_000), "it does not come to an end: {what:?}");
        }
        pair.reads = true;
        pair.run(until, &mut |_, _| vec![]);
        assert!(pair.read[SERVER] == text[CLIENT], "to the server, seed {seed}");
        assert!(pair.read[CLIENT] == text[SERVER], "to the client, seed {seed}");
        retransmitted += pair.client.stats().retransmitted;
    }
    assert!(retransmitted > 500, "the channel loses: {retransmitted}");
}
