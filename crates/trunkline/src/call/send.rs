use super::line::Target;
use super::{Carrier, Error, LawName, SAMPLES, read_wav, seconds, sleep_until};
use crate::clock;
use crate::units::Span;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use trunkline_client::{Service, SocketOption};
use trunkline_media::codec::g711::Law;
use trunkline_media::rtp::{self, Packetizer, Stream};

/// Play a WAV file into a call
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline call send --socket /run/trunkline/a.sock --to 6:5004 speech.wav
  trunkline call send --node a.toml --to 6:5004 speech.wav     # node included
  trunkline call send --udp --to 192.0.2.6:5004 speech.wav     # past the overlay")]
pub struct Args {
    #[command(flatten)]
    carrier: Carrier,
    /// Who is called: NODE:PORT on the overlay, IP:PORT over UDP
    #[arg(long)]
    to: Target,
    /// Any WAV file; it is brought to 8 kHz and one channel
    file: PathBuf,
    /// The encoding
    #[arg(long, value_enum, default_value = "mu")]
    law: LawName,
    /// Send once, without recovery
    #[arg(long)]
    best_effort: bool,
    /// How old a packet may become and still be played, 1 to 255 ms
    #[arg(long, default_value = "100ms")]
    deadline: Span,
    /// Stop after this much, repeating the file if it is shorter
    #[arg(long)]
    duration: Option<Span>,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let pcm = read_wav(&args.file)?;
    let any: IpAddr = match (&args.to, args.carrier.udp) {
        (Target::Udp(SocketAddr::V6(_)), true) => Ipv6Addr::UNSPECIFIED.into(),
        (Target::Udp(_), true) => Ipv4Addr::UNSPECIFIED.into(),
        (Target::Overlay(_), false) => Ipv4Addr::UNSPECIFIED.into(),
        (_, true) => return Err(Error::Usage("--udp wants --to IP:PORT")),
        (_, false) => return Err(Error::Usage("the overlay wants --to NODE:PORT")),
    };
    let open = args.carrier.open((any, 0).into(), 0)?;
    if let super::Line::Overlay(socket) = &open.line {
        let service = if args.best_effort { Service::BestEffort } else { Service::RealTime };
        let set = |option| socket.set_option(option).map_err(super::LineError::from);
        set(SocketOption::Service(service))?;
        set(SocketOption::Deadline(args.deadline.0))?;
    }
    let law = Law::from(args.law);
    let mut codes = Vec::with_capacity(pcm.len());
    law.encode_to(&pcm, &mut codes);
    let whole = codes.len().div_ceil(SAMPLES);
    let count = args.duration.map_or(whole, |d| (seconds(d) * 50.0).ceil() as usize);
    errln!("calling {} from {}: {} s", args.to, open.local, count as f64 / 50.0);
    send_all(args, &open.line, &codes, count)
}

fn send_all(args: &Args, line: &super::Line, codes: &[u8], count: usize) -> Result<(), Error> {
    let mut packetizer =
        Packetizer::new(Stream::g711(Law::from(args.law), clock::now().as_nanos() as u32));
    let bar = progress(count);
    let start = clock::now();
    let (mut packet, mut unsent) = ([0; rtp::HEADER_LEN + SAMPLES], 0u64);
    for k in 0..count {
        sleep_until(start + packetizer.interval() * k as u32);
        let at = k * SAMPLES % codes.len().next_multiple_of(SAMPLES);
        let frame = &codes[at..codes.len().min(at + SAMPLES)];
        // 172 bytes hold the header and a frame.
        let n = packetizer.write(frame, &mut packet).unwrap_or(0);
        unsent += u64::from(!line.send(&packet[..n], &args.to)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    // For a node in this process: the last packets may be asked for again.
    std::thread::sleep(args.deadline.0);
    outln!(
        "sent {count} packets{}",
        match unsent {
            0 => String::new(),
            n => format!("; {n} could not leave because the node was away or busy"),
        }
    );
    Ok(())
}

/// A bar that shows itself only to people, and only if it takes long enough.
pub fn progress(packets: usize) -> indicatif::ProgressBar {
    if packets < 100 || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    indicatif::ProgressBar::new(packets as u64)
}
