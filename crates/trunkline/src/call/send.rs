use super::line::{LineError, News, Target};
use super::{Carrier, Error, GOODBYES, LawName, SAMPLES, read_wav, seconds, sleep_until};
use crate::clock;
use crate::stop::Signals;
use crate::units::Span;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_client::{self as client, RefusalReason, Service, SocketOption, Status, Unreachable};
use trunkline_media::codec::g711::Law;
use trunkline_media::rtcp;
use trunkline_media::rtp::{self, Packetizer, Stream};

/// Play a WAV file into a call
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline call send --socket /run/trunkline/a.sock --to 6:5004 speech.wav
  trunkline call send --node a.toml --to 6:5004 speech.wav     # node included
  trunkline call send --udp --to 192.0.2.6:5004 speech.wav     # without the overlay

Sender reports and, at the end, a goodbye (RTCP) go to the same port, so that the
listener knows the number of packets. Exit code 1 if the node reports that
packets do not arrive (no route, or no listener) or must not be sent ([access] to),
if the listener hangs up (it was stopped, or is in another call), if it answers reports as `call recv` does, but
not the goodbye, or if the goodbye could not be sent. SIGINT hangs up.")]
pub struct Args {
    #[command(flatten)]
    carrier: Carrier,
    /// Callee: NODE:PORT on the overlay, IP:PORT over UDP
    #[arg(long)]
    to: Target,
    /// Any WAV file; it is converted to 8 kHz and one channel
    file: PathBuf,
    /// Encoding of the samples: µ-law or A-law
    #[arg(long, value_enum, default_value = "mu")]
    law: LawName,
    /// Send each packet once, without recovery
    #[arg(long)]
    best_effort: bool,
    /// Age up to which a packet can be played, 1 to 255 ms
    #[arg(long, default_value = "100ms")]
    deadline: Span,
    /// Stop after this time, repeating the file if it is shorter
    #[arg(long)]
    duration: Option<Span>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let stop = Signals::block()
        .map_err(|source| Error::Io { what: "take over SIGTERM and SIGINT", source })?;
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
        let set = |option| socket.set_option(option).map_err(LineError::from);
        set(SocketOption::Service(service))?;
        set(SocketOption::Deadline(args.deadline.0))?;
    }
    open.line.set_patience(Duration::ZERO)?;
    let law = Law::from(args.law);
    let mut codes = Vec::with_capacity(pcm.len());
    law.encode_to(&pcm, &mut codes);
    let whole = codes.len().div_ceil(SAMPLES);
    let count = args.duration.map_or(whole, |d| (seconds(d) * 50.0).ceil() as usize);
    errln!("calling {} from {}: {} s", args.to, open.local, count as f64 / 50.0);
    let mut call = Call::new(args, &open.line);
    call.talk(&codes, count, &stop)?;
    call.hang_up()?;
    call.conclude()
}

/// An outgoing call in progress.
struct Call<'a> {
    args: &'a Args,
    line: &'a super::Line,
    ssrc: u32,
    packetizer: Packetizer,
    octets: u32,
    /// Packets that could not be sent.
    unsent: u32,
    /// Packets that were sent while the other end was unreachable.
    unreachable: u32,
    reach: Reach,
    /// Time and reason of the node's refusal to send to the listener.
    barred: Option<(Time, RefusalReason)>,
    listener: Listener,
    /// Whether any goodbye could be sent.
    farewell: bool,
}

/// State of the listener, from its RTCP answers.
#[derive(Default)]
struct Listener {
    /// Whether the listener answers reports at once, as `call recv` does.
    answers: bool,
    /// NTP stamps of the goodbyes that were sent.
    goodbyes: Vec<u32>,
    /// Whether the listener has confirmed a goodbye.
    confirmed: bool,
    /// Time that the listener hung up.
    hung_up: Option<Time>,
}

impl Listener {
    /// Handles `bytes` that the listener sent to the caller `ssrc`.
    fn says(&mut self, ssrc: u32, bytes: &[u8]) {
        let Some(control) = rtcp::parse(bytes).ok().filter(|_| rtcp::is_rtcp(bytes)) else {
            return;
        };
        // After the caller's goodbye, a goodbye from the listener is expected.
        if control.bye && self.goodbyes.is_empty() {
            self.hung_up.get_or_insert(clock::now());
        }
        if let Some(heard) = control.reception.filter(|r| r.source == ssrc && r.report != 0) {
            match self.goodbyes.contains(&heard.report) {
                true => self.confirmed = true,
                // Other listeners report in their own time, and may never confirm the end.
                false => self.answers |= heard.since == 0,
            }
        }
    }

    /// Whether the listener is expected to confirm the end but has not done so.
    fn has_missed_the_end(&self) -> bool {
        self.answers && !self.goodbyes.is_empty() && !self.confirmed
    }
}

/// Reachability of the other end, from the node's statuses.
struct Reach {
    start: Time,
    /// Start of the current outage and its reason.
    lost: Option<(Time, Status)>,
    /// Time of the node's last status.
    told: Time,
    /// Total time of earlier outages.
    before: Duration,
}

impl Reach {
    fn told(&mut self, to: &Target, status: Status) {
        let now = clock::now();
        if *to != Target::Overlay(status.to()) {
            return;
        }
        self.told = now;
        match status {
            Status::Unreachable { .. } => {
                let since = self.lost.map_or(now, |(since, _)| since);
                self.lost = Some((since, status));
            }
            Status::Reachable { .. } => {
                self.before += self.lost.take().map_or(Duration::ZERO, |(at, _)| now.since(at));
            }
        }
    }

    /// Start of the current outage since the beginning of the call, and its reason.
    fn lost_after(&self) -> Option<(Duration, Status)> {
        let (since, mut status) = self.lost?;
        if let Status::Unreachable { why: Unreachable::Since(ago), .. } = &mut status {
            // Count the age of the status up to now.
            *ago += clock::now().since(self.told);
        }
        Some((since.since(self.start), status))
    }

    /// Whether the call could not be established.
    fn is_hopeless(&self) -> bool {
        let Some((since, Status::Unreachable { why, .. })) = self.lost else { return false };
        let lasting = match why {
            Unreachable::NoRoute => true,
            Unreachable::NoPort => clock::now().since(since) >= RINGING,
            Unreachable::Since(_) => false,
        };
        lasting && self.was_never_there()
    }

    /// Whether the other end has been unreachable since the call began.
    fn was_never_there(&self) -> bool {
        let Some((since, Status::Unreachable { why, .. })) = self.lost else { return false };
        let from_the_start = match why {
            Unreachable::NoRoute | Unreachable::NoPort => since.since(self.start) < AT_ONCE,
            // The route was lost before the first packet.
            Unreachable::Since(ago) => ago >= self.told.since(self.start),
        };
        from_the_start && self.before.is_zero()
    }
}

/// Time within which a missing route or listener ends the call. A route that is lost, and any
/// failure that comes later, may recover.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Time that a caller waits for a listener, which answers the first packets.
const RINGING: Duration = Duration::from_secs(2);

/// Packets between two sender reports: 5 s (RFC 3550, 6.2). The first report comes after half of
/// that.
const REPORT_EVERY: u32 = 250;

/// Time that a caller waits for an answer to its goodbyes. It exceeds any round-trip time.
const CONFIRMING: Duration = Duration::from_secs(2);

/// Interval at which the caller checks for the answer.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Call<'_> {
    fn new<'a>(args: &'a Args, line: &'a super::Line) -> Call<'a> {
        let start = clock::now();
        let ssrc = start.as_nanos() as u32;
        Call {
            args,
            line,
            ssrc,
            packetizer: Packetizer::new(Stream::g711(Law::from(args.law), ssrc)),
            octets: 0,
            unsent: 0,
            unreachable: 0,
            listener: Listener::default(),
            farewell: false,
            barred: None,
            reach: Reach { start, lost: None, told: start, before: Duration::ZERO },
        }
    }

    fn send(&mut self, packet: &[u8]) -> Result<bool, Error> {
        let Call { args, line, reach, .. } = self;
        let left = line.send(packet, &args.to, &mut |status| reach.told(&args.to, status));
        let left = self.unless_barred(left)?.unwrap_or(false);
        self.listen()?;
        Ok(left)
    }

    /// Handles queued statuses of the node and answers of the listener.
    fn listen(&mut self) -> Result<(), Error> {
        let Call { args, line, ssrc, reach, listener, .. } = self;
        let done = line.listen(|news| match news {
            News::Status(status) => reach.told(&args.to, status),
            News::Packet(bytes, from) if from == args.to => listener.says(*ssrc, bytes),
            News::Packet(..) => {}
        });
        self.unless_barred(done).map(|_| ())
    }

    /// Keeps the node's refusal to send to the listener, which ends the call; `None` after it.
    fn unless_barred<T>(&mut self, done: Result<T, LineError>) -> Result<Option<T>, Error> {
        match done {
            Err(LineError::Overlay(client::Error::Refused(why))) => {
                self.barred.get_or_insert((clock::now(), why));
                Ok(None)
            }
            done => Ok(Some(done?)),
        }
    }

    /// Whether the call cannot continue: the listener hung up or was never reached, or the node
    /// refuses to send there.
    fn is_over(&self) -> bool {
        self.reach.is_hopeless() || self.listener.hung_up.is_some() || self.barred.is_some()
    }

    /// Whether the listener, as far as is known, was never in the call.
    fn was_never_established(&self) -> bool {
        let barred = self.barred.is_some_and(|(at, _)| at.since(self.reach.start) < AT_ONCE);
        !self.listener.answers && (barred || self.reach.was_never_there())
    }

    /// Sends `count` packets, unless the call is stopped or ends early.
    fn talk(&mut self, codes: &[u8], count: usize, stop: &Signals) -> Result<(), Error> {
        let bar = progress(count);
        let start = clock::now();
        let mut packet = [0; rtp::HEADER_LEN + SAMPLES];
        for k in 0..count {
            sleep_until(start + self.packetizer.interval() * k as u32);
            if stop.wait(Duration::ZERO) || self.is_over() {
                break;
            }
            let at = k * SAMPLES % codes.len().next_multiple_of(SAMPLES);
            let frame = &codes[at..codes.len().min(at + SAMPLES)];
            // 172 bytes hold the header and a frame.
            let n = self.packetizer.write(frame, &mut packet).unwrap_or(0);
            self.octets = self.octets.wrapping_add(frame.len() as u32);
            match self.send(&packet[..n])? {
                true => self.unreachable += u32::from(self.reach.lost.is_some()),
                false => self.unsent += 1,
            }
            // A report after the first packet announces to the listener that a goodbye will follow.
            let packets = self.packetizer.packets();
            if packets == 1 || packets % REPORT_EVERY == REPORT_EVERY / 2 {
                self.report(false)?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Sends a report with the number of packets so far. It includes those that could not be sent,
    /// since the listener misses them too.
    fn report(&mut self, bye: bool) -> Result<bool, Error> {
        let report = rtcp::SenderInfo {
            ssrc: self.ssrc,
            ntp: ntp(),
            timestamp: self.packetizer.timestamp(),
            packets: self.packetizer.packets(),
            octets: self.octets,
        };
        if bye {
            self.listener.goodbyes.push(report.stamp());
        }
        let mut packet = [0; rtcp::MAX_LEN];
        let n = report.emit(bye, &mut packet).unwrap_or(0);
        self.send(&packet[..n])
    }

    /// Sends the goodbyes, and waits until one is confirmed.
    fn hang_up(&mut self) -> Result<(), Error> {
        let end = clock::now();
        for after in GOODBYES {
            sleep_until(end + after);
            if self.is_over() {
                return Ok(());
            }
            self.farewell |= self.report(true)?;
        }
        let said = clock::now();
        loop {
            self.listen()?;
            let waited = clock::now().since(said);
            // If the listener is unreachable or no goodbye was sent, there is nothing to wait for.
            let said = self.farewell && self.reach.lost.is_none();
            let missed = said && self.listener.has_missed_the_end();
            let wait = if missed { CONFIRMING } else { Duration::ZERO };
            // Wait at least this long, for a node in this process: retransmissions of the last
            // packets may still be requested.
            if waited >= wait.max(self.args.deadline.0) {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Prints the result of the call.
    fn conclude(&self) -> Result<(), Error> {
        let packets = self.packetizer.packets();
        // A call that was never established also lost the packets that left before the node
        // reported it.
        let unreachable = match self.was_never_established() {
            true => packets - self.unsent,
            false => self.unreachable,
        };
        let sent = packets - self.unsent - unreachable;
        let unreachable_for = self.reach.before
            + self.reach.lost.map_or(Duration::ZERO, |(since, _)| clock::now().since(since));
        let failure = self.failure();
        if self.args.json {
            outln!(
                "{}",
                serde_json::json!({
                    "packets": packets,
                    "sent": sent,
                    "unsent": self.unsent,
                    "unreachable": unreachable,
                    "unreachable_s": unreachable_for.as_secs_f64(),
                    "broke_off_after_s": failure.as_ref().and_then(|f| f.after_s),
                    "why": failure.as_ref().map(|f| &f.why),
                })
            );
        } else {
            let mut line = format!("sent {sent} ");
            if sent < packets {
                let _ = write!(line, "of {packets} ");
            }
            line += if packets == 1 { "packet" } else { "packets" };
            if self.unsent > 0 {
                let n = self.unsent;
                let _ = write!(line, "; {n} could not be sent because {}", self.why_unsent());
            }
            if !unreachable_for.is_zero() && !self.was_never_established() {
                let s = unreachable_for.as_secs_f64();
                let _ = write!(line, "; for {s:.1} s {} could not be reached", self.args.to);
            }
            outln!("{line}");
        }
        failure.map_or(Ok(()), |failure| Err(Error::Broken(failure.complaint)))
    }

    /// Reason why packets could not be sent, for a message.
    fn why_unsent(&self) -> &'static str {
        match self.line {
            super::Line::Overlay(_) => "the node was away or busy",
            super::Line::Udp(_) => "this host refused to send there",
        }
    }

    /// Reason why the call was incomplete, if known.
    fn failure(&self) -> Option<Failure> {
        let listener = &self.listener;
        if let Some(at) = listener.hung_up {
            let after = at.since(self.reach.start).as_secs_f64();
            return Some(Failure {
                complaint: format!(
                    "the other end hung up after {after:.1} s: it may be in another call, or \
                     was stopped"
                ),
                why: "the other end hung up".into(),
                after_s: Some(after),
            });
        }
        let broke_off = |after: f64| match self.was_never_established() {
            true => "the call was not established".to_owned(),
            false => format!("the call broke off after {after:.1} s"),
        };
        if let Some((at, refusal)) = self.barred {
            let after = at.since(self.reach.start).as_secs_f64();
            let why = barred(refusal, &self.args.to);
            let complaint = format!("{}: {why}", broke_off(after));
            return Some(Failure { complaint, why, after_s: Some(after) });
        }
        // After the listener's confirmation, later statuses are irrelevant.
        if let Some((after, status)) = self.reach.lost_after().filter(|_| !listener.confirmed) {
            let after = after.as_secs_f64();
            return Some(Failure {
                complaint: format!("{}: {status}; {}", broke_off(after), advice(&status)),
                why: status.to_string(),
                after_s: Some(after),
            });
        }
        if !listener.goodbyes.is_empty() && !self.farewell {
            let why = "the end of the call could not be announced".to_owned();
            let complaint =
                format!("{why}: {}; the listener will report a broken call", self.why_unsent());
            return Some(Failure { complaint, why, after_s: None });
        }
        listener.has_missed_the_end().then(|| {
            let why = "the end of the call was not confirmed".to_owned();
            Failure {
                complaint: format!(
                    "{why}: the listener answered before, but not the {} goodbyes; the last \
                     packets may not have come",
                    listener.goodbyes.len()
                ),
                why,
                after_s: None,
            }
        })
    }
}

/// Reason why a call was incomplete.
struct Failure {
    /// Message for the user, with a remedy.
    complaint: String,
    why: String,
    /// Time into the call, in seconds, if known.
    after_s: Option<f64>,
}

/// Text of the node's refusal to send to `to`.
fn barred(refusal: RefusalReason, to: &Target) -> String {
    match (refusal, to) {
        (RefusalReason::Forbidden, Target::Overlay(to)) => {
            format!("[access] to (or [[client]] to) does not allow node {}", to.node)
        }
        _ => refusal.to_string(),
    }
}

fn advice(status: &Status) -> &'static str {
    match status {
        Status::Unreachable { why: Unreachable::NoPort, .. } => {
            "does anybody listen there (`trunkline call recv --port`)?"
        }
        _ => "`trunkline routes` and `trunkline links` say what is known here",
    }
}

/// Current time in RTCP's NTP format.
fn ntp() -> u64 {
    /// Seconds from 1900 to 1970 (RFC 868).
    const TO_UNIX: u64 = 2_208_988_800;
    let now = Duration::from_nanos(clock::since_epoch());
    let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    now.as_secs().wrapping_add(TO_UNIX) << 32 | fraction
}

/// A progress bar for terminals, hidden if the call is too short.
pub fn progress(packets: usize) -> indicatif::ProgressBar {
    if packets < 100 || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    indicatif::ProgressBar::new(packets as u64)
}
