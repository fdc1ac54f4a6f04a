//! The transports of the paper, and those that they are compared with.

use super::call::Codec;
use crate::experiment::Sabotage;
use trunkline_rate::tfrc::md::Minimum;
use trunkline_rate::tfrc::{Config, Least, Measure};
use trunkline_sim::agent::tcp::{Idle, Profile};

/// Transport of a call: a protocol and its parameters.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Each packet is sent when it is due.
    Udp,
    /// A byte stream as this implementation sends it, with or without Nagle's algorithm.
    Tcp {
        /// The implementation whose TCP is simulated.
        profile: Box<Profile>,
        /// Whether Nagle's algorithm is disabled.
        nodelay: bool,
    },
    /// Unreliable, at the rate that TFRC allows.
    Tfrc(Box<Config>),
}

/// The transports of the paper's figures, in the order of their legends.
pub const PAPERS: [&str; 6] = ["udp", "tcp", "tfrc", "tfrc-sp", "tfrc-sp-fr", "tfrc-sp-fr-md"];
/// The variants of TFRC that were specified when the paper was written.
pub const UNMODIFIED: [&str; 3] = ["tfrc", "tfrc-sp", "tfrc-sp-fr"];
/// The variant that the paper proposes.
pub const MODIFIED: &str = "tfrc-sp-fr-md";
/// Transports beyond the paper's.
pub const OURS: [&str; 7] = [
    // RFC 3390's window instead of one segment after a pause.
    "tcp-rfc3390",
    "tcp-linux-6",
    // The rate never falls below a segment per round trip after the first loss, instead of one in
    // 64 s.
    "tfrc-segment-per-rtt",
    "tfrc-rfc5348",
    // Eight segments of 1,460 bytes per round trip, or a single one, instead of eight packets.
    "tfrc-md-8-segments",
    "tfrc-md-1-segment",
    // The receive rate of the first report after a pause counts.
    "tfrc-md-first-report",
];

/// The transport of this name for a codec, broken according to `sabotage`.
///
/// # Panics
///
/// If there is no transport of this name.
pub fn named(name: &'static str, codec: Codec, sabotage: Sabotage) -> Transport {
    let segment = codec.framing().payload() as u16;
    let tfrc = |config: Config| Transport::Tfrc(Box::new(broken(name, config, sabotage)));
    let least = |bytes| {
        let minimum = Minimum { least: Some(Least::Bytes(bytes)), ..Minimum::PAPER };
        Config { minimum: Some(minimum), ..Config::minimum_delay(segment) }
    };
    match name {
        "udp" => Transport::Udp,
        "tcp" => tcp(Profile::freebsd_5_4(), sabotage),
        "tcp-rfc3390" => {
            tcp(Profile { idle: Idle::InitialWindow, ..Profile::freebsd_5_4() }, sabotage)
        }
        "tcp-linux-6" => tcp(Profile::linux_6(), sabotage),
        "tfrc" => tfrc(Config::basic(segment)),
        "tfrc-segment-per-rtt" => {
            tfrc(Config { avoidance: Least::Segments(1.0), ..Config::basic(segment) })
        }
        "tfrc-rfc5348" => tfrc(Config::rfc5348(segment)),
        "tfrc-sp" => tfrc(Config::small_packets(segment)),
        "tfrc-sp-fr" => tfrc(Config::faster_restart(segment)),
        "tfrc-sp-fr-md" => tfrc(Config::minimum_delay(segment)),
        "tfrc-md-first-report" => {
            let minimum = Minimum { discards: false, ..Minimum::PAPER };
            tfrc(Config { minimum: Some(minimum), ..Config::minimum_delay(segment) })
        }
        "tfrc-md-8-segments" => tfrc(least(8.0 * 1_460.0)),
        "tfrc-md-1-segment" => tfrc(least(1_460.0)),
        _ => panic!("no transport is called {name}"),
    }
}

fn tcp(mut profile: Profile, sabotage: Sabotage) -> Transport {
    if sabotage.is("initial-window-3390") {
        profile.idle = Idle::InitialWindow;
    }
    if sabotage.is("tcp-keeps-its-window") {
        profile.idle = Idle::Keep;
    }
    Transport::Tcp { profile: Box::new(profile), nodelay: !sabotage.is("nagle") }
}

fn broken(name: &str, mut config: Config, sabotage: Sabotage) -> Config {
    if sabotage.is("idle-excluded")
        || (sabotage.is("idle-excluded-for-small-packets") && name != "tfrc")
    {
        config.measure = Measure::WithoutIdle;
    }
    if sabotage.is("no-restart") {
        config.restart = None;
    }
    if sabotage.is("restart-with-such-a-floor") && name == UNMODIFIED[2] {
        config.minimum = Some(Minimum { least: Some(Least::Bytes(16_000.0)), ..Minimum::PAPER });
    }
    if let Some(minimum) = &mut config.minimum {
        if sabotage.is("no-floor") {
            minimum.least = None;
        }
        if sabotage.is("floor-of-the-codec") || sabotage.is("twentieth-lost-with-such-a-floor") {
            // More than G.711 needs over the longest round trip.
            minimum.least = Some(Least::Bytes(16_000.0));
        }
    }
    config
}
