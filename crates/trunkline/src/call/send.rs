use super::line::{News, Target};
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
use trunkline_client::{Service, SocketOption, Status, Unreachable};
use trunkline_media::codec::g711::Law;
use trunkline_media::rtcp;
use trunkline_media::rtp::{self, Packetizer, Stream};

/// Play a WAV file into a call
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline call send --socket /run/trunkline/a.sock --to 6:5004 speech.wav
  trunkline call send --node a.toml --to 6:5004 speech.wav     # node included
  trunkline call send --udp --to 192.0.2.6:5004 speech.wav     # past the overlay

Sender reports and, at the end, a goodbye (RTCP) go to the same port, so that the
listener knows how many packets there were. Exit status 1 if the node says that
packets don't get there (no route, or nobody listens), if the listener hangs up (it
was stopped, or is in another call), if it answers reports as `call recv` does, but
not the goodbye, or if the goodbye could not leave. SIGINT hangs up.")]
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
    /// Print what was sent as JSON
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
        let set = |option| socket.set_option(option).map_err(super::LineError::from);
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

/// A call to be made.
struct Call<'a> {
    args: &'a Args,
    line: &'a super::Line,
    ssrc: u32,
    packetizer: Packetizer,
    octets: u32,
    /// Packets that could not leave.
    unsent: u32,
    /// Packets that left while the other end could not be reached.
    unreachable: u32,
    reach: Reach,
    listener: Listener,
    /// Whether a goodbye could leave.
    farewell: bool,
}

/// What the other end says.
#[derive(Default)]
struct Listener {
    /// Whether it answers reports at once, as `call recv` does.
    answers: bool,
    /// The stamps of the goodbyes that it was sent.
    goodbyes: Vec<u32>,
    /// Whether it has heard one of them.
    confirmed: bool,
    /// When it hung up.
    hung_up: Option<Time>,
}

impl Listener {
    /// It has sent `bytes` to the caller `ssrc`.
    fn says(&mut self, ssrc: u32, bytes: &[u8]) {
        let Some(control) = rtcp::parse(bytes).ok().filter(|_| rtcp::is_rtcp(bytes)) else {
            return;
        };
        // After the caller's goodbye it may well say its own.
        if control.bye && self.goodbyes.is_empty() {
            self.hung_up.get_or_insert(clock::now());
        }
        if let Some(heard) = control.reception.filter(|r| r.source == ssrc && r.report != 0) {
            match self.goodbyes.contains(&heard.report) {
                true => self.confirmed = true,
                // Others say it in their own time, and may say nothing in the end.
                false => self.answers |= heard.since == 0,
            }
        }
    }

    /// Whether it should have heard the end, and has not said so.
    fn has_missed_the_end(&self) -> bool {
        self.answers && !self.goodbyes.is_empty() && !self.confirmed
    }
}

/// What the node says of the other end.
struct Reach {
    start: Time,
    /// Since when it can't be reached, and why.
    lost: Option<(Time, Status)>,
    /// When the node said so last.
    told: Time,
    /// For how long it could not be reached before.
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

    /// When it could not be reached any more, if it can't be.
    fn lost_after(&self) -> Option<(Duration, Status)> {
        let (since, mut status) = self.lost?;
        if let Status::Unreachable { why: Unreachable::Since(ago), .. } = &mut status {
            // As it is now, not as it was when the node said so.
            *ago += clock::now().since(self.told);
        }
        Some((since.since(self.start), status))
    }

    /// Whether the call has not come about.
    fn is_hopeless(&self) -> bool {
        let Some((since, Status::Unreachable { why, .. })) = self.lost else { return false };
        let lasting = match why {
            Unreachable::NoRoute => true,
            Unreachable::NoPort => clock::now().since(since) >= RINGING,
            Unreachable::Since(_) => false,
        };
        lasting && since.since(self.start) < AT_ONCE && self.before.is_zero()
    }
}

/// A call is given up if it turns out so early that no route is known, or nobody
/// listens. A way that was lost, and all that comes later, may heal.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a caller waits for somebody to listen; a listener says that it is there.
const RINGING: Duration = Duration::from_secs(2);

/// Packets between two sender reports: 5 s (RFC 3550, 6.2), at first half of it.
const REPORT_EVERY: u32 = 250;

/// How long a caller waits for the answer to its goodbyes: longer than any way there
/// and back.
const CONFIRMING: Duration = Duration::from_secs(2);

/// How often it looks for it.
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
            reach: Reach { start, lost: None, told: start, before: Duration::ZERO },
        }
    }

    fn send(&mut self, packet: &[u8]) -> Result<bool, Error> {
        let Call { args, line, reach, .. } = self;
        let left = line.send(packet, &args.to, &mut |status| reach.told(&args.to, status))?;
        self.listen();
        Ok(left)
    }

    /// Takes what the node and the other end have said.
    fn listen(&mut self) {
        let Call { args, line, ssrc, reach, listener, .. } = self;
        line.listen(|news| match news {
            News::Status(status) => reach.told(&args.to, status),
            News::Packet(bytes, from) if from == args.to => listener.says(*ssrc, bytes),
            News::Packet(..) => {}
        });
    }

    /// Whether there is nobody to talk to.
    fn is_over(&self) -> bool {
        self.reach.is_hopeless() || self.listener.hung_up.is_some()
    }

    /// Sends `count` packets, unless it is stopped or over.
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
            // From the first packet on the listener knows that it will hear the end.
            let packets = self.packetizer.packets();
            if packets == 1 || packets % REPORT_EVERY == REPORT_EVERY / 2 {
                self.report(false)?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Says how many packets there were: also those that could not leave, since
    /// the listener misses them like the others.
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

    /// Says that this was all, and waits until somebody has heard it.
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
            self.listen();
            let waited = clock::now().since(said);
            // Where it can't be reached, or nothing was said, nothing more need be known.
            let said = self.farewell && self.reach.lost.is_none();
            let missed = said && self.listener.has_missed_the_end();
            let wait = if missed { CONFIRMING } else { Duration::ZERO };
            // At least this, for a node in this process: the last packets may be asked
            // for again.
            if waited >= wait.max(self.args.deadline.0) {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Says what the call was like.
    fn conclude(&self) -> Result<(), Error> {
        let packets = self.packetizer.packets();
        // Of a call that didn't come about the first ones are lost as well, which left
        // before the node said so.
        let unreachable = match self.reach.is_hopeless() {
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
                let _ = write!(line, "; {n} could not leave because {}", self.why_unsent());
            }
            if !unreachable_for.is_zero() && !self.reach.is_hopeless() {
                let s = unreachable_for.as_secs_f64();
                let _ = write!(line, "; for {s:.1} s {} could not be reached", self.args.to);
            }
            outln!("{line}");
        }
        failure.map_or(Ok(()), |failure| Err(Error::Broken(failure.complaint)))
    }

    /// What keeps packets from leaving.
    fn why_unsent(&self) -> &'static str {
        match self.line {
            super::Line::Overlay(_) => "the node was away or busy",
            super::Line::Udp(_) => "this host would not send there",
        }
    }

    /// Why the call was not whole, as far as is known.
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
        // What is said of the other end later, by whomever, changes nothing.
        if let Some((after, status)) = self.reach.lost_after().filter(|_| !listener.confirmed) {
            let after = after.as_secs_f64();
            let what = match self.reach.is_hopeless() {
                true => "the call did not come about".to_owned(),
                false => format!("the call broke off after {after:.1} s"),
            };
            return Some(Failure {
                complaint: format!("{what}: {status}; {}", advice(&status)),
                why: status.to_string(),
                after_s: Some(after),
            });
        }
        if !listener.goodbyes.is_empty() && !self.farewell {
            let why = "the end of the call could not be told".to_owned();
            let complaint =
                format!("{why}: {}; who listens must believe that it broke off", self.why_unsent());
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

/// Why a call was not whole.
struct Failure {
    /// For people, with what to do about it.
    complaint: String,
    why: String,
    /// How long it was then, where that is known.
    after_s: Option<f64>,
}

fn advice(status: &Status) -> &'static str {
    match status {
        Status::Unreachable { why: Unreachable::NoPort, .. } => {
            "does anybody listen there (`trunkline call recv --port`)?"
        }
        _ => "`trunkline routes` and `trunkline links` say what is known here",
    }
}

/// The time as RTCP writes it.
fn ntp() -> u64 {
    /// From 1900 to 1970, in seconds (RFC 868).
    const TO_UNIX: u64 = 2_208_988_800;
    let now = Duration::from_nanos(clock::since_epoch());
    let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    now.as_secs().wrapping_add(TO_UNIX) << 32 | fraction
}

/// A bar that shows itself only to people, and only if it takes long enough.
pub fn progress(packets: usize) -> indicatif::ProgressBar {
    if packets < 100 || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    indicatif::ProgressBar::new(packets as u64)
}
