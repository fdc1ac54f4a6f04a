//! What the fuzz targets do with their bytes, without libFuzzer: tests replay the seeds
//! through the same code, and a failing input can be looked at in a debugger.
//!
//! [`TARGETS`] is the list of targets. A target's function panics when an invariant does not
//! hold.

pub mod calls;
pub mod handshake;
pub mod media;
pub mod route;
pub mod script;
pub mod seeds;
pub mod sip;
pub mod tfmc;
pub mod tfrc;
pub mod wire;
pub mod world;

/// A target's name, which its binary and its folder of seeds have too, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target: the parsers of outside bytes, then state machines and whole nodes driven by a
/// script.
pub const TARGETS: &[Target] = &[
    ("echo_message", wire::echo_message),
    ("envelope", wire::envelope),
    ("handshake_message", handshake::message),
    ("remote_message", wire::remote_message),
    ("route_frame", route::frame),
    ("rtcp_parse", media::rtcp),
    ("rtp_parse", media::rtp),
    ("sdp", sip::sdp),
    ("session_message", wire::session_message),
    ("sip_message", sip::message),
    ("sip_stream", sip::stream),
    ("trunk_message", wire::trunk_message),
    ("wav_read", media::wav),
    ("handshakes", handshake::run),
    ("router", route::run),
    ("sip_calls", calls::run),
    ("tfmc", tfmc::run),
    ("tfrc", tfrc::run),
    ("world", world::run),
];

/// Runs the target `name` on one input.
///
/// # Panics
///
/// If there is no such target, and if an invariant does not hold.
pub fn run(name: &str, input: &[u8]) {
    let Some((_, run)) = TARGETS.iter().find(|(target, _)| *target == name) else {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        panic!("no fuzz target is called {name}: give one of {}", names.join(", "));
    };
    run(input);
}
