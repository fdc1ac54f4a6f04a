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

/// Answer a call: play it out, conceal what is missing, write what was heard
/// and count
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline call recv --socket /run/trunkline/f.sock --port 5004 --out heard.wav
  trunkline call recv --udp --port 5004 --json

The caller says at the beginning, now and then, and at the end, how many packets it
has sent (RTCP, to the same port), and is told that this was heard. A call that ends
in silence instead broke off: exit status 1. The same for one that is shorter than
--expect, which a caller without RTCP needs; and for a longer one that had sent RTCP.

A listener takes one call. Others who call meanwhile are told that it hung up, as the
caller is when the listener is stopped.

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
    /// Believe that the call broke off after this much silence
    #[arg(long, default_value = "2 s")]
    idle: Span,
    /// How long the call is: packets that are missing up to there count as lost,
    /// and a shorter call is a failure
    #[arg(long, value_name = "TIME")]
    expect: Option<Span>,
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
    /// As the caller said when it hung up.
    sent: Option<u32>,
    ended: Ending,
    /// Up to where it was heard of.
    heard_s: f64,
    played: usize,
    recovered: usize,
    late: usize,
    lost: usize,
    // Of no packets there is nothing to say.
    missed_percent: Option<f64>,
    delay_above_fastest_ms: Quantiles,
    r: Option<f64>,
    mos: Option<f64>,
    /// Only where it was asked for; none if nobody speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pesq: Option<Option<Pesq>>,
}

/// How a call ended.
#[derive(serde::Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
enum Ending {
    /// The caller hung up.
    Bye,
    /// In silence.
    BrokeOff,
    /// This end hung up, by a signal or because it was too long.
    Stopped,
}

#[derive(serde::Serialize)]
struct Quantiles {
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// One RTP packet, as it came.
struct Packet {
    sequence: u16,
    timestamp: u32,
    arrival: Time,
    recovered: bool,
    payload: Vec<u8>,
}

/// How long it waits for a packet before it looks whether the call is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// A sender heard this recently is still in the call: longer than any burst of losses.
const SPEAKING: Duration = Duration::from_secs(1);

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

/// What came of a call.
struct Call {
    law: Law,
    packets: Vec<Packet>,
    /// The caller's last report.
    report: Option<rtcp::SenderInfo>,
    ending: Ending,
}

/// Which packets there were, as far as is known.
#[derive(Clone, Copy)]
struct Extent {
    /// Number of the first.
    first: u16,
    count: usize,
}

impl Call {
    /// Reports may overtake each other.
    fn reported(&mut self, report: rtcp::SenderInfo) {
        if self.report.is_none_or(|old| report.packets >= old.packets) {
            self.report = Some(report);
        }
    }

    /// From the first to the last packet that came, and those around them that the
    /// caller says it has sent.
    fn extent(&self) -> Extent {
        let Some(first) = self.packets.first() else { return Extent { first: 0, count: 0 } };
        let (mut highest, mut last) = (i64::from(first.sequence), first.timestamp);
        let mut lowest = highest;
        for p in &self.packets {
            // As far from the highest as 16 bits can say (RFC 3550, A.1).
            let number = highest + i64::from(p.sequence.wrapping_sub(highest as u16) as i16);
            lowest = lowest.min(number);
            if number > highest {
                (highest, last) = (number, p.timestamp);
            }
        }
        let heard = usize::try_from(highest - lowest).unwrap_or(0) + 1;
        let sent = self.report.map_or(0, |r| r.packets as usize).min(MAX_PACKETS);
        let missing = sent.saturating_sub(heard);
        // A report has the time of the packet that would come next.
        let ahead = self.report.map_or(0, |r| r.timestamp.wrapping_sub(last) as i32);
        let behind = usize::try_from(ahead / SAMPLES as i32 - 1).unwrap_or(0).min(missing);
        let before = missing - behind;
        Extent { first: (lowest - before as i64) as u16, count: heard + missing }
    }
}

/// Packets at a call's end that may be lost without its having broken off, where the
/// caller never says that this was all: the loss of a last packet is noticed by
/// nobody, since nothing comes after it.
const TAIL: usize = 5;

/// Whether the call was as long as it should be.
fn is_whole(args: &Args, call: &Call, extent: Extent) -> bool {
    let silent = call.ending == Ending::BrokeOff;
    match args.expect.map(packets_in) {
        // Without RTCP its silence may be its end, but one that tells has not told it.
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
        return Err(Error::Broken("no call came".into()));
    }
    let (ending, after) = (call.ending, length(extent.count));
    let of = match args.expect.map(packets_in).filter(|n| *n > extent.count) {
        Some(expected) => format!(" of {:.1} s", length(expected)),
        None => String::new(),
    };
    Err(Error::Broken(match ending {
        Ending::BrokeOff => format!(
            "the call broke off after {after:.1} s{of}: neither packets nor its end (RTCP BYE) \
             came for {:?}",
            args.idle.0
        ),
        Ending::Bye => format!("the caller hung up after {after:.1} s{of}"),
        Ending::Stopped => format!("stopped after {after:.1} s{of}"),
    }))
}

/// Seconds of so many packets.
fn length(packets: usize) -> f64 {
    packets as f64 / 50.0
}

fn packets_in(span: Span) -> usize {
    ((seconds(span) * 50.0).ceil() as usize).min(MAX_PACKETS)
}

/// Who is heard.
struct Caller {
    ssrc: u32,
    law: Law,
    /// Where it is; it may move.
    at: Target,
}

/// Takes packets of the first caller until it has hung up or falls silent.
fn listen(args: &Args, line: &super::Line, stop: &Signals) -> Result<Call, Error> {
    let mut call =
        Call { law: Law::Mu, packets: Vec::new(), report: None, ending: Ending::Stopped };
    let mut caller: Option<Caller> = None;
    let mut answers = Answers::new(line);
    let mut buf = [0; 9_000];
    let (mut last, mut bye, mut others) = (clock::now(), None, false);
    let mut looked = last;
    while call.packets.len() < MAX_PACKETS && !stop.wait(Duration::ZERO) {
        // Silence is what was listened to: not the time in which this process was stopped.
        let now = clock::now();
        last += now.since(looked).saturating_sub(2 * PATIENCE);
        looked = now;
        // Strangers' packets do not keep a call alive.
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
                // It may have overtaken the first packet, which tells.
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
            // What comes from where the caller speaks is not somebody else who calls, or
            // only says so: to hang up there would end the call.
            if got.from != caller.at || arrival.since(last) > SPEAKING {
                answers.turn_away(&got.from);
            }
            if !std::mem::replace(&mut others, true) {
                errln!("somebody else calls as well and is not heard: a listener takes one call");
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
        // A signal in the moment after the end changes nothing.
        (Some(_), _) => call.ending = Ending::Bye,
        (None, Some(caller)) => answers.hang_up(&caller.at),
        (None, None) => {}
    }
    Ok(call)
}

/// A packet of voice, by its encoding.
fn voice(bytes: &[u8]) -> Option<(rtp::RtpView<'_>, Law)> {
    let view = rtp::parse(bytes).ok().filter(|view| view.payload.len() <= SAMPLES)?;
    let law = match view.payload_type {
        rtp::PCMU => Law::Mu,
        rtp::PCMA => Law::A,
        _ => return None,
    };
    Some((view, law))
}

/// Whether a call that has begun, of which something was heard `last`, is over.
fn ended(args: &Args, begun: bool, last: Time, bye: Option<Time>) -> Option<Ending> {
    let now = clock::now();
    match bye {
        // What is still under way may come.
        Some(bye) => (now.since(bye) > LINGER).then_some(Ending::Bye),
        None => (begun && now.since(last) > args.idle.0).then_some(Ending::BrokeOff),
    }
}

fn play(args: &Args, call: &Call, extent: Extent) -> (Report, Vec<i16>) {
    let Call { law, packets, report, ending } = call;
    let any = !packets.is_empty();
    let mut clock = RelativeDelay::new(8_000);
    // Twice: the fastest packet may not be the first.
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
        // A packet that no playout can place is counted as lost.
        let _ = playout.receive(p.sequence, delay, p.recovered, &p.payload);
    }
    // What would still have come counts only of a call that was not hung up.
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
        // Below 0 the scale has no meaning left.
        r: any.then_some(rating.r.max(0.0)),
        mos: any.then_some(rating.mos()),
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

fn print(args: &Args, r: &Report, whole: bool) {
    if args.json {
        // Numbers and fixed names: this cannot fail.
        outln!("{}", serde_json::to_string(r).unwrap_or_default());
        return;
    }
    let d = &r.delay_above_fastest_ms;
    let (Some(missed), Some(rating), Some(mos), Some(p50), Some(p99), Some(max)) =
        (r.missed_percent, r.r, r.mos, d.p50, d.p99, d.max)
    else {
        outln!("nothing came");
        return;
    };
    // Beside the numbers, which are those of the part that was heard of.
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
