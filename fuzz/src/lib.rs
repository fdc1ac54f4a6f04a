//! The code of the fuzz targets, without libFuzzer: tests replay the seeds through it, and a
//! failing input can be examined in a debugger.
//!
//! [`TARGETS`] is the list of targets. A target's function panics when an invariant is violated.

pub mod calls;
pub mod handshake;
pub mod latch;
pub mod media;
pub mod route;
pub mod script;
pub mod seeds;
pub mod sip;
pub mod tfmc;
pub mod tfrc;
pub mod wire;
pub mod world;

/// A fuzz target, with the number of mutations for tests.
pub struct Target {
    /// Name of the target, its binary and its folder of seeds.
    pub name: &'static str,
    /// Runs it on one input.
    pub run: fn(&[u8]),
    /// Number of mutations of each seed that tests run.
    pub mutations: u32,
}

const fn parser(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, mutations: 100 }
}

/// A target driven by scripts, which take up to half a second without optimisation.
const fn script(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run, mutations: 20 }
}

/// All targets: first the parsers of external bytes, then state machines and whole nodes driven by
/// scripts.
pub const TARGETS: &[Target] = &[
    parser("echo_message", wire::echo_message),
    parser("envelope", wire::envelope),
    parser("handshake_message", handshake::message),
    parser("remote_message", wire::remote_message),
    parser("route_frame", route::frame),
    parser("rtcp_parse", media::rtcp),
    parser("rtp_parse", media::rtp),
    parser("sdp", sip::sdp),
    parser("session_message", wire::session_message),
    parser("sip_message", sip::message),
    parser("sip_stream", sip::stream),
    parser("trunk_message", wire::trunk_message),
    parser("wav_read", media::wav),
    script("handshakes", handshake::run),
    script("latch", latch::run),
    script("router", route::run),
    script("sip_calls", calls::run),
    script("tfmc", tfmc::run),
    script("tfrc", tfrc::run),
    script("world", world::run),
];

/// Runs the target `name` on one input.
///
/// # Panics
///
/// If there is no such target, or if an invariant is violated.
pub fn run(name: &str, input: &[u8]) {
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        panic!("no fuzz target is called {name}: give one of {}", names.join(", "));
    };
    (target.run)(input);
}
