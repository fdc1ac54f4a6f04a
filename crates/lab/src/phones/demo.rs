//! The demonstration: the same call with and without the overlay.

use super::{
    Error, Gateways, Heard, Network, Options, Phone, PhoneSetup, Place, Rtp, SITE_A, SITE_B,
    Sniffer, hear,
};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Parameters of the demonstration.
#[derive(Clone, Debug)]
pub struct Demo<'a> {
    /// Path of the daemon.
    pub trunkline: &'a Path,
    /// Speech of each phone: WAV files, and their samples.
    pub speech: [(&'a Path, &'a [i16]); 2],
    /// Share of packets that the path between the sites loses, in each direction.
    pub loss: f64,
    /// Length of the call.
    pub talk: Duration,
}

/// One direction of a call, as the listener received it.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Whether the call crossed the overlay.
    pub over: bool,
    /// Speaker and listener of this direction.
    pub way: &'static str,
    /// The speech as heard, and its score.
    pub heard: Heard,
}

/// Plays the call twice at the same time: with gateways, and without.
pub fn play(demo: &Demo<'_>, folder: &Path) -> Result<Vec<Direction>, Error> {
    thread::scope(|scope| {
        let both = [true, false].map(|over| {
            let folder = folder.join(if over { "over" } else { "past" });
            scope.spawn(move || call(demo, &folder, over))
        });
        let mut heard = Vec::new();
        for one in both {
            let failed = || Error::Program("a call ended early".into());
            heard.extend(one.join().map_err(|_| failed())??);
        }
        Ok(heard)
    })
}

fn call(demo: &Demo<'_>, folder: &Path, over: bool) -> Result<Vec<Direction>, Error> {
    std::fs::create_dir_all(folder).map_err(super::cannot("make a folder"))?;
    let network = Network::new()?;
    network.lose(demo.loss)?;
    let options = Options { direct: true, ..Options::default() };
    let gateways = match over {
        true => Some(Gateways::start(&network, demo.trunkline, folder, &options)?),
        false => None,
    };
    let phone = |name, place, site: [&str; 3], wav, account| {
        let outbound = format!("sip:{};transport=udp", site[1]);
        let setup = PhoneSetup {
            name,
            domain: "",
            registers: false,
            outbound: over.then_some(&*outbound),
            transport: "udp",
            account,
            wav,
            certificate: None,
        };
        Phone::start(&network, place, site[0], folder, &setup)
    };
    let [(wav_a, pcm_a), (wav_b, pcm_b)] = demo.speech;
    let alice = phone("alice", Place::PhoneA, SITE_A, wav_a, "")?;
    let bob = phone("bob", Place::PhoneB, SITE_B, wav_b, ";answermode=auto")?;
    let sniffers = [Place::PhoneA, Place::PhoneB].map(|place| Sniffer::start(&network, place));
    let [a, b] = sniffers;
    let (a, b) = (a?, b?);
    alice.tell("dial", &format!("sip:bob@{}", SITE_B[0]))?;
    alice.wait_for("Call established")?;
    thread::sleep(demo.talk);
    alice.tell("hangup", "")?;
    thread::sleep(Duration::from_millis(500));
    let (at_a, at_b) = (a.stop(), b.stop());
    drop((bob, gateways));
    let of = |all: &[Rtp], from: &str, to: &str| -> Vec<Rtp> {
        let is = |rtp: &&Rtp| {
            (from.is_empty() || rtp.from.ip().to_string() == from)
                && (to.is_empty() || rtp.to.ip().to_string() == to)
        };
        all.iter().filter(is).cloned().collect()
    };
    let (phone_a, phone_b) = (SITE_A[0], SITE_B[0]);
    let there = hear(pcm_a, &of(&at_a, phone_a, ""), &of(&at_b, "", phone_b))?;
    let back = hear(pcm_b, &of(&at_b, phone_b, ""), &of(&at_a, "", phone_a))?;
    Ok(vec![
        Direction { over, way: "A to B", heard: there },
        Direction { over, way: "B to A", heard: back },
    ])
}
