use super::answers::Answers;
use super::line::Target;
use super::{Carrier, Error, LINGER, SAMPLES, read_wav, seconds, write_wav};
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
use trunkline_media::{rtcp, rtp};

/// Answer a call: play it out, conceal missing packets, record and measure it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline call recv --socket /run/trunkline/f.sock --port 5004 --out heard.wav
  trunkline call recv --udp --port 5004 --json

The caller reports at the start, at intervals and at the end how many packets it
has sent (RTCP, to the same port), and the listener confirms that. A call that ends
in silence has broken off: exit code 1. So has one that is shorter than
--expect (required for a caller without RTCP), or a longer one that had sent RTCP.

A listener accepts one call. It sends other callers a goodbye, and also its own
caller when the listener is stopped.

Without a common clock, a packet's delay is counted from the fastest packet of
the call; a packet is `late` if it exceeds that by more than the deadline.")]
pub struct Args {
    #[command(flatten)]
    carrier: Carrier,
    /// Virtual port, or UDP port with --udp; 0 is any
    #[arg(long, default_value_t = 5004)]
    port: u16,
    /// Address to listen on, with --udp
    #[arg(long, default_value = "0.0.0.0")]
    listen: std::net::IpAddr,
    /// Record the call to this WAV file
    #[arg(long)]
    out: Option<PathBuf>,
    /// Play each packet this long after the delay of the fastest one
    #[arg(long, default_value = "100ms")]
    deadline: Span,
    /// Treat the call as broken off after this much silence
    #[arg(long, default_value = "2 s")]
    idle: Span,
    /// Expected length of the call: packets missing up to it count as lost, and a shorter call is a
    /// failure
    #[arg(long, value_name = "TIME")]
    expect: Option<Span>,
    /// Compute the PESQ score of the recording against this WAV file, the original. The call must
    /// begin at the start of the file, and may repeat it
    #[arg(long, value_name = "REF.wav")]
    score: Option<PathBuf>,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

/// Result of a call.
#[derive(serde::Serialize)]
struct Report {
    packets: usize,
    /// Number of packets sent, as the caller reported at its goodbye.
    sent: Option<u32>,
    ended: Ending,
    /// Length of the call up to the last packet known, in seconds.
    heard_s: f64,
    played: usize,
    recovered: usize,
    late: usize,
    lost: usize,
    // Undefined for a call without packets.
    missed_percent: Option<f64>,
    delay_above_fastest_ms: Quantiles,
    r: Option<f64>,
    mos: Option<f64>,
    /// Present only if requested; the inner option is `None` if the recording has no speech.
    #[serde(skip_serializing_if = "Option::is_none")]
    pesq: Option<Option<Pesq>>,
}

/// End of a call, by cause.
#[derive(serde::Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
enum Ending {
    /// The caller hung up.
    Bye,
    /// The caller fell silent without a goodbye.
    BrokeOff,
    /// This end hung up, on a signal or because the call was too long.
    Stopped,
}

#[derive(serde::Serialize)]
struct Quantiles {
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// One RTP packet, as received.
struct Packet {
    sequence: u16,
    timestamp: u32,
    arrival: Time,
    recovered: bool,
    payload: Vec<u8>,
}

/// Time that the listener blocks for a packet before it checks whether the call has ended.
const PATIENCE: Duration = Duration::from_millis(100);

/// Silence after which a sender no longer counts as being in the call. It exceeds any burst of
/// losses.
const SPEAKING: Duration = Duration::from_secs(1);

/// Length at which a call is cut: four hours, like the audio files.
const MAX_PACKETS: usize = 4 * 3600 * 50;

pub fn run(args: &Args) -> Result<(), Error> {
    let stop = Signals::block()
        .map_err(|source| Error::Io { what: "take over SIGTERM and SIGINT", source })?;
    // Find out before the call whether the file can be written.
    if let Some(path) = &args.out {
        write_wav(path, &[])?;
    }
    let said = args.score.as_deref().map(read_wav).transpose()?;
    let open = args.carrier.open(SocketAddr::new(args.listen, args.port), args.port)?;
    open.line.set_patience(PATIENCE)?;
    errln!("listening on {}", open.local);
    let call = listen(args, &open.line, &stop)?;
    let extent = call.extent();
    let (mut report, pcm) = play(args, &call, extent);
    report.pesq = said.map(|said| if pcm.is_empty() { None } else { compare(&said, &pcm) });
    if let Some(path) = &args.out {
        write_wav(path, &pcm)?;
    }
    print(args, &report, is_whole(args, &call, extent));
    verdict(args, &call, extent)
}

/// Everything received of a call.
struct Call {
    law: Law,
    packets: Vec<Packet>,
    /// Last report of the caller.
    report: Option<rtcp::SenderInfo>,
    ending: Ending,
}

/// Range of the packets that the call had, as far as is known.
#[derive(Clone, Copy)]
struct Extent {
    /// Sequence number of the first packet.
    first: u16,
    count: usize,
}

impl Call {
    /// Keeps the newest report; reports may be reordered.
    fn reported(&mut self, report: rtcp::SenderInfo) {
        if self.report.is_none_or(|old| report.packets >= old.packets) {
            self.report = Some(report);
        }
    }

    /// Range from the first to the last packet that arrived, extended by those that the caller
    /// reports as sent before or after.
    fn extent(&self) -> Extent {
        let Some(first) = self.packets.first() else { return Extent { first: 0, count: 0 } };
        let (mut highest, mut last) = (i64::from(first.sequence), first.timestamp);
        let mut lowest = highest;
        for p in &self.packets {
            // The distance from the highest must fit in 16 bits (RFC 3550, A.1).
            let number = highest + i64::from(p.sequence.wrapping_sub(highest as u16) as i16);
            lowest = lowest.min(number);
            if number > highest {
                (highest, last) = (number, p.timestamp);
            }
        }
        let heard = usize::try_from(highest - lowest).unwrap_or(0) + 1;
        let sent = self.report.map_or(0, |r| r.packets as usize).min(MAX_PACKETS);
        let missing = sent.saturating_sub(heard);
        // A report carries the timestamp of the next packet.
        let ahead = self.report.map_or(0, |r| r.timestamp.wrapping_sub(last) as i32);
        let behind = usize::try_from(ahead / SAMPLES as i32 - 1).unwrap_or(0).min(missing);
        let before = missing - behind;
        Extent { first: (lowest - before as i64) as u16, count: heard + missing }
    }
}

/// Packets at the end of a call that may be lost without making the call incomplete, if the caller
/// never reported its total: without a later packet, the loss of the last ones goes unnoticed.
const TAIL: usize = 5;

/// Whether the call reached its expected length.
fn is_whole(args: &Args, call: &Call, extent: Extent) -> bool {
    let silent = call.ending == Ending::BrokeOff;
    match args.expect.map(packets_in) {
        // Without RTCP, silence may be the end of the call. A caller that sends reports would have
        // sent a goodbye.
        Some(expected) if silent && call.report.is_some() => extent.count == expected,
        Some(expected) if silent => extent.count + TAIL >= expected,
        Some(expected) => extent.count >= expected,
        None => !silent,
    }
}

fn verdict(args: &Args, call: &Call, extent: Extent) -> Result<(), Error> {
    if is_whole(args, call, extent) {
        return Ok(());
    }
    if call.packets.is_empty() {
        return Err(Error::Broken("no call arrived".into()));
    }
    let (ending, after) = (call.ending, length(extent.count));
    let of = match args.expect.map(packets_in).filter(|n| *n > extent.count) {
        Some(expected) => format!(" of {:.1} s", length(expected)),
        None => String::new(),
    };
    Err(Error::Broken(match ending {
        Ending::BrokeOff => format!(
            "the call broke off after {after:.1} s{of}: neither packets nor its end (RTCP BYE) \
             came for {} s",
            seconds(args.idle)
        ),
        Ending::Bye => format!("the caller hung up after {after:.1} s{of}"),
        Ending::Stopped => format!("stopped after {after:.1} s{of}"),
    }))
}

/// Duration of this many packets, in seconds.
fn length(packets: usize) -> f64 {
    packets as f64 / 50.0
}

fn packets_in(span: Span) -> usize {
    ((seconds(span) * 50.0).ceil() as usize).min(MAX_PACKETS)
}

/// The accepted caller of this listener.
struct Caller {
    ssrc: u32,
    law: Law,
    /// Its current address, which may change.
    at: Target,
}

/// Receives the packets of the first caller until it hangs up or falls silent.
fn listen(args: &Args, line: &super::Line, stop: &Signals) -> Result<Call, Error> {
    let mut call =
        Call { law: Law::Mu, packets: Vec::new(), report: None, ending: Ending::Stopped };
    let mut caller: Option<Caller> = None;
    let mut answers = Answers::new(line);
    let mut buf = [0; 9_000];
    let (mut last, mut bye, mut others) = (clock::now(), None, false);
    let mut looked = last;
    while call.packets.len() < MAX_PACKETS && !stop.wait(Duration::ZERO) {
        // Only time spent listening counts as silence, not the time that this process was stopped.
        let now = clock::now();
        last += now.since(looked).saturating_sub(2 * PATIENCE);
        looked = now;
        // Packets from other sources do not keep a call alive.
        if let Some(ending) = ended(args, caller.is_some(), last, bye) {
            call.ending = ending;
            break;
        }
        let Some(got) = line.recv(&mut buf)? else { continue };
        let (arrival, bytes) = (clock::now(), &buf[..got.len.min(buf.len())]);
        if rtcp::is_rtcp(bytes) {
            let Ok(control) = rtcp::parse(bytes) else { continue };
            match &caller {
                Some(caller) if caller.ssrc == control.ssrc => last = arrival,
                Some(_) => continue,
                // A report may overtake the first packet and is kept, since it gives the packet
                // count.
                None => {
                    call.report = control.report.filter(|_| !control.bye);
                    continue;
                }
            }
            if let Some(report) = control.report {
                answers.report(&report, &got.from);
                call.reported(report);
            }
            if control.bye {
                bye.get_or_insert(arrival);
            }
            continue;
        }
        let Some((view, law)) = voice(bytes) else { continue };
        let first = || Caller { ssrc: view.ssrc, law, at: got.from };
        let caller = caller.get_or_insert_with(first);
        if (caller.ssrc, caller.law) != (view.ssrc, law) {
            // A packet from the caller's own address is not from another caller, or is forged: a
            // rejection sent there would end the call.
            if got.from != caller.at || arrival.since(last) > SPEAKING {
                answers.turn_away(&got.from);
            }
            if !std::mem::replace(&mut others, true) {
                errln!("rejecting another caller: a listener accepts one call at a time");
            }
            continue;
        }
        (caller.at, last, call.law) = (got.from, arrival, law);
        call.report = call.report.filter(|report| report.ssrc == view.ssrc);
        answers.packet(view.sequence, view.timestamp, arrival, &got.from);
        call.packets.push(Packet {
            sequence: view.sequence,
            timestamp: view.timestamp,
            arrival,
            recovered: got.recovered,
            payload: view.payload.to_vec(),
        });
    }
    match (bye, caller) {
        // A signal that arrives after the end changes nothing.
        (Some(_), _) => call.ending = Ending::Bye,
        (None, Some(caller)) => answers.hang_up(&caller.at),
        (None, None) => {}
    }
    Ok(call)
}

/// Parses a voice packet, and returns its companding law.
fn voice(bytes: &[u8]) -> Option<(rtp::RtpView<'_>, Law)> {
    let view = rtp::parse(bytes).ok().filter(|view| view.payload.len() <= SAMPLES)?;
    let law = match view.payload_type {
        rtp::PCMU => Law::Mu,
        rtp::PCMA => Law::A,
        _ => return None,
    };
    Some((view, law))
}

/// Checks whether a call that has begun, and was last heard at `last`, has ended.
fn ended(args: &Args, begun: bool, last: Time, bye: Option<Time>) -> Option<Ending> {
    let now = clock::now();
    match bye {
        // Packets may still be in flight.
        Some(bye) => (now.since(bye) > LINGER).then_some(Ending::Bye),
        None => (begun && now.since(last) > args.idle.0).then_some(Ending::BrokeOff),
    }
}

fn play(args: &Args, call: &Call, extent: Extent) -> (Report, Vec<i16>) {
    let Call { law, packets, report, ending } = call;
    let any = !packets.is_empty();
    let mut clock = RelativeDelay::new(8_000);
    // Observe all packets before the second pass: the fastest may not be the first.
    for p in packets {
        clock.observe(p.timestamp, p.arrival);
    }
    let mut delays = Vec::with_capacity(packets.len());
    let first_sequence = Some(extent.first);
    let config =
        playout::Config { deadline: args.deadline.0, first_sequence, ..playout::Config::default() };
    let mut playout = Playout::new(config);
    for p in packets {
        let delay = clock.observe(p.timestamp, p.arrival);
        delays.push(delay.as_secs_f64() * 1e3);
        // A packet that playout rejects counts as lost.
        let _ = playout.receive(p.sequence, delay, p.recovered, &p.payload);
    }
    // The expected rest of a call counts as lost only if the caller did not hang up.
    let expected = args.expect.filter(|_| any && *ending != Ending::Bye).map_or(0, packets_in);
    let sent = Some(extent.count.max(expected));
    let played = playout.finish(sent, &mut Concealing::new(*law));
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| quantile(&delays, share);
    let share = played.missed_share();
    let heard = Parameters::default()
        .with_delay(args.deadline.0 + Duration::from_millis(20))
        .with_codec(Codec::G711_PLC)
        .with_loss(share, burst_ratio(played.missed()));
    let rating = rate(&heard);
    let report = Report {
        packets: played.fates.len(),
        sent: report.filter(|_| *ending == Ending::Bye).map(|r| r.packets),
        ended: *ending,
        heard_s: length(extent.count),
        played: played.count(Fate::Played),
        recovered: played.count(Fate::Recovered),
        late: played.count(Fate::Late),
        lost: played.count(Fate::Lost),
        missed_percent: any.then_some(share * 100.0),
        delay_above_fastest_ms: Quantiles { p50: at(0.5), p99: at(0.99), max: at(1.0) },
        // The scale is undefined below 0.
        r: any.then_some(rating.r.max(0.0)),
        mos: any.then_some(rating.mos()),
        pesq: None,
    };
    (report, played.pcm)
}

/// Scores a recording of a call that played `said`, once or repeatedly, in whole packets as `call
/// send` does.
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

fn print(args: &Args, r: &Report, whole: bool) {
    if args.json {
        // Numbers and fixed names always serialise.
        outln!("{}", serde_json::to_string(r).unwrap_or_default());
        return;
    }
    let d = &r.delay_above_fastest_ms;
    let (Some(missed), Some(rating), Some(mos), Some(p50), Some(p99), Some(max)) =
        (r.missed_percent, r.r, r.mos, d.p50, d.p99, d.max)
    else {
        outln!("no packets arrived");
        return;
    };
    // The numbers cover only the part of the call up to here.
    let until = match (r.ended, whole) {
        (Ending::BrokeOff, false) => ", then it broke off",
        (Ending::Bye, false) => ", then the caller hung up too early",
        (Ending::Stopped, _) => ", then it was stopped here",
        (_, true) => "",
    };
    outln!(
        "{} packets{until}: {} played, {} of them recovered; {} late, {} lost: {:.2} % missed",
        r.packets,
        r.played + r.recovered,
        r.recovered,
        r.late,
        r.lost,
        missed
    );
    outln!("delay above the fastest: p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms");
    outln!("E-model at {:?} playout: R {rating:.1}, MOS {mos:.2}", args.deadline.0);
    if let Some(pesq) = r.pesq {
        outln!("{}", score::line(pesq));
    }
}
