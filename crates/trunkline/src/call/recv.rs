use super::{Carrier, Error, SAMPLES, read_wav, write_wav};
use crate::clock;
use crate::score::{self, Pesq};
use crate::stop::Signals;
use crate::units::Span;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_base::stats::quantile;
use trunkline_media::codec::g711::{Concealing, Law};
use trunkline_media::playout::{self, Fate, Playout, RelativeDelay};
use trunkline_media::quality::emodel::{Codec, Parameters, burst_ratio, rate};
use trunkline_media::quality::pesq::{self, summarize};
use trunkline_media::rtp;

/// Answer a call: play it out, conceal what is missing, write what was heard
/// and count
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline call recv --socket /run/trunkline/f.sock --port 5004 --out heard.wav
  trunkline call recv --udp --port 5004 --json

Without a common clock, a packet's delay is counted from the fastest packet of
the call; `late` means that it came more than the deadline after that.")]
pub struct Args {
    #[command(flatten)]
    carrier: Carrier,
    /// The virtual port, or with --udp the UDP port; 0 is any
    #[arg(long, default_value_t = 5004)]
    port: u16,
    /// The address to listen on, with --udp
    #[arg(long, default_value = "0.0.0.0")]
    listen: std::net::IpAddr,
    /// Write what was heard to this WAV file
    #[arg(long)]
    out: Option<PathBuf>,
    /// Play a packet this long after the fastest one's delay
    #[arg(long, default_value = "100ms")]
    deadline: Span,
    /// Hang up after this much silence
    #[arg(long, default_value = "2 s")]
    idle: Span,
    /// Score what was heard against what was said, this WAV file: PESQ. The
    /// call must begin with its beginning, and may repeat it
    #[arg(long, value_name = "REF.wav")]
    score: Option<PathBuf>,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

/// What a call was like.
#[derive(serde::Serialize)]
struct Report {
    packets: usize,
    played: usize,
    recovered: usize,
    late: usize,
    lost: usize,
    missed_percent: f64,
    delay_above_fastest_ms: Quantiles,
    r: f64,
    mos: f64,
    /// Only where it was asked for; none if nobody speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pesq: Option<Option<Pesq>>,
}

#[derive(serde::Serialize)]
struct Quantiles {
    p50: f64,
    p99: f64,
    max: f64,
}

/// One RTP packet, as it came.
struct Packet {
    sequence: u16,
    timestamp: u32,
    arrival: Time,
    recovered: bool,
    payload: Vec<u8>,
}

/// Longer calls are cut here: four hours, as the audio files are.
const MAX_PACKETS: usize = 4 * 3600 * 50;

pub fn run(args: &Args) -> Result<(), Error> {
    let stop = Signals::block()
        .map_err(|source| Error::Io { what: "take over SIGTERM and SIGINT", source })?;
    // An unwritable file is better known before the call.
    if let Some(path) = &args.out {
        write_wav(path, &[])?;
    }
    let said = args.score.as_deref().map(read_wav).transpose()?;
    let open = args.carrier.open(SocketAddr::new(args.listen, args.port), args.port)?;
    open.line.set_patience(Duration::from_millis(100))?;
    errln!("listening on {}", open.local);
    let (law, packets) = listen(args, &open.line, &stop)?;
    if packets.is_empty() {
        outln!("{}", if args.json { "{\"packets\":0}" } else { "nothing came" });
        return Ok(());
    }
    let (mut report, pcm) = play(args, law, &packets);
    report.pesq = said.map(|said| compare(&said, &pcm));
    if let Some(path) = &args.out {
        write_wav(path, &pcm)?;
    }
    print(args, &report);
    Ok(())
}

/// Takes packets of the first caller until it falls silent.
fn listen(args: &Args, line: &super::Line, stop: &Signals) -> Result<(Law, Vec<Packet>), Error> {
    let mut packets: Vec<Packet> = Vec::new();
    let mut caller: Option<(u32, Law)> = None;
    let mut buf = [0; 9_000];
    let mut last = clock::now();
    while packets.len() < MAX_PACKETS && !stop.wait(Duration::ZERO) {
        // Strangers' packets do not keep a call alive.
        if !packets.is_empty() && clock::now().since(last) > args.idle.0 {
            break;
        }
        let Some(got) = line.recv(&mut buf)? else { continue };
        let arrival = clock::now();
        let Ok(view) = rtp::parse(&buf[..got.len.min(buf.len())]) else { continue };
        let law = match view.payload_type {
            rtp::PCMU => Law::Mu,
            rtp::PCMA => Law::A,
            _ => continue,
        };
        if view.payload.len() > SAMPLES
            || *caller.get_or_insert((view.ssrc, law)) != (view.ssrc, law)
        {
            continue;
        }
        last = arrival;
        packets.push(Packet {
            sequence: view.sequence,
            timestamp: view.timestamp,
            arrival,
            recovered: got.recovered,
            payload: view.payload.to_vec(),
        });
    }
    Ok((caller.map_or(Law::Mu, |c| c.1), packets))
}

fn play(args: &Args, law: Law, packets: &[Packet]) -> (Report, Vec<i16>) {
    let mut clock = RelativeDelay::new(8_000);
    // Twice: the fastest packet may not be the first.
    for p in packets {
        clock.observe(p.timestamp, p.arrival);
    }
    let mut delays = Vec::with_capacity(packets.len());
    let mut playout =
        Playout::new(playout::Config { deadline: args.deadline.0, ..playout::Config::default() });
    for p in packets {
        let delay = clock.observe(p.timestamp, p.arrival);
        delays.push(delay.as_secs_f64() * 1e3);
        // A packet that no playout can place is counted as lost.
        let _ = playout.receive(p.sequence, delay, p.recovered, &p.payload);
    }
    let played = playout.finish(None, &mut Concealing::new(law));
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| quantile(&delays, share).unwrap_or(0.0);
    let share = played.missed_share();
    let heard = Parameters::default()
        .with_delay(args.deadline.0 + Duration::from_millis(20))
        .with_codec(Codec::G711_PLC)
        .with_loss(share, burst_ratio(played.missed()));
    let rating = rate(&heard);
    let report = Report {
        packets: played.fates.len(),
        played: played.count(Fate::Played),
        recovered: played.count(Fate::Recovered),
        late: played.count(Fate::Late),
        lost: played.count(Fate::Lost),
        missed_percent: share * 100.0,
        delay_above_fastest_ms: Quantiles { p50: at(0.5), p99: at(0.99), max: at(1.0) },
        // Below 0 the scale has no meaning left.
        r: rating.r.max(0.0),
        mos: rating.mos(),
        pesq: None,
    };
    (report, played.pcm)
}

/// Scores a call that says `said`, once or again and again, in whole packets as
/// `call send` does.
fn compare(said: &[i16], heard: &[i16]) -> Option<Pesq> {
    let silence = said.len().next_multiple_of(SAMPLES) - said.len();
    let packets = said.iter().copied().chain(std::iter::repeat_n(0, silence));
    let reference: Vec<i16> = packets.cycle().take(heard.len()).collect();
    match pesq::segments(&reference, heard, pesq::SEGMENT) {
        Ok(scores) => summarize(scores).map(Pesq::from),
        Err(e) => {
            errln!("no PESQ: {e}");
            None
        }
    }
}

fn print(args: &Args, r: &Report) {
    if args.json {
        // Numbers and fixed names: this cannot fail.
        outln!("{}", serde_json::to_string(r).unwrap_or_default());
        return;
    }
    let d = &r.delay_above_fastest_ms;
    outln!(
        "{} packets: {} played, {} of them recovered; {} late, {} lost: {:.2} % missed",
        r.packets,
        r.played + r.recovered,
        r.recovered,
        r.late,
        r.lost,
        r.missed_percent
    );
    outln!(
        "delay above the fastest: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        d.p50,
        d.p99,
        d.max
    );
    outln!("E-model at {:?} playout: R {:.1}, MOS {:.2}", args.deadline.0, r.r, r.mos);
    if let Some(pesq) = r.pesq {
        outln!("{}", score::line(pesq));
    }
}
