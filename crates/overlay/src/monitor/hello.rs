use super::{LossMode, Rtt};
use crate::wire::Hello;
use core::time::Duration;
use trunkline_base::Time;

/// Settings of the hello protocol: when to send hellos, when to consider the neighbour dead, and
/// how to estimate losses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Interval between two hellos. The paper's second makes a link cost a hundred bytes a second,
    /// and its failures last ten seconds; a fifth of it finds them ten times faster.
    pub interval: Duration,
    /// The link is down after this time without any envelope, or without a sign that the neighbour
    /// has received one. At least three intervals: the neighbour's report is up to two intervals
    /// old.
    pub dead_after: Duration,
    /// Whether an overdue hello is requested, every 10 ms, or when queues are building up at
    /// intervals of up to half of the hello interval: a burst of losses must then be long to look
    /// like a death. Also whether hellos are requested while a test suspects that the link loses
    /// more than before.
    pub probes: bool,
    /// Method of loss estimation.
    pub loss: LossMode,
    /// Whether a hello that is due soon goes in the envelope of a real-time packet: 22 bytes
    /// instead of 74 on the link. Its content is the same, so no information is delayed.
    pub piggyback: bool,
}

impl Default for Liveness {
    fn default() -> Liveness {
        Liveness {
            interval: Duration::from_millis(200),
            dead_after: Duration::from_secs(1),
            probes: true,
            loss: LossMode::Changes,
            piggyback: true,
        }
    }
}

impl Liveness {
    /// Settings of the paper (III-A): one hello a second, "under 10 seconds" to detect a failure,
    /// no probes, the last 50 loss-free intervals, each hello in its own envelope. If a call shows
    /// life until the failure, all of `dead_after` is still to pass, and then the time until the
    /// nodes concerned are notified: nine missing hellos are the maximum if all traffic is to leave
    /// the link within 10 s.
    pub const PAPER: Liveness = Liveness {
        interval: Duration::from_secs(1),
        dead_after: Duration::from_secs(9),
        probes: false,
        loss: LossMode::Paper,
        piggyback: false,
    };
}

/// Minimum interval between two hellos, whatever their cause.
const MIN_SPACING: Duration = Duration::from_millis(10);

/// State of the hello protocol on one link.
#[derive(Debug)]
pub(super) struct HelloClock {
    liveness: Liveness,
    overdue_after: Overdue,
    /// Minimum time from a hello to a probe.
    probe_spacing: Duration,
    due: Time,
    last_sent: Option<Time>,
    before_last: Option<Time>,
    seq: u16,
    /// When any envelope last arrived, and when a hello did.
    heard: Option<Time>,
    greeted: Option<Time>,
    /// Latest time at which the neighbour certainly received this end's envelopes.
    confirmed: Option<Time>,
    /// Whether the neighbour misses this end's hellos, by its last report.
    missed: bool,
    up: bool,
    /// The neighbour's last timestamp, and when it arrived.
    theirs: Option<(u32, Time)>,
    rtt: Rtt,
}

/// Time that a neighbour may be silent before it is probed. Computed once, since a node needs it
/// for each packet.
#[derive(Clone, Copy, Debug)]
struct Overdue {
    /// Time without any envelope.
    silent: Duration,
    /// Time without a hello.
    ungreeted: Duration,
}

impl Overdue {
    fn after(liveness: &Liveness) -> Overdue {
        let silent = liveness.interval * 5 / 4;
        Overdue { silent, ungreeted: silent + 2 * liveness.interval }
    }
}

impl HelloClock {
    pub fn new(liveness: Liveness, first: Time) -> HelloClock {
        HelloClock {
            overdue_after: Overdue::after(&liveness),
            liveness,
            probe_spacing: MIN_SPACING,
            due: first,
            last_sent: None,
            before_last: None,
            seq: 0,
            heard: None,
            greeted: None,
            confirmed: None,
            missed: false,
            up: false,
            theirs: None,
            rtt: Rtt::default(),
        }
    }

    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Changes the settings; a hello that is due already stays due.
    pub fn set_liveness(&mut self, liveness: Liveness) {
        self.overdue_after = Overdue::after(&liveness);
        self.liveness = liveness;
        self.space_probes();
    }

    /// Records any envelope that arrived from the neighbour.
    pub fn heard(&mut self, at: Time) {
        self.heard = self.heard.max(Some(at));
    }

    /// The neighbour has restarted: introduces this node soon.
    pub fn fresh_peer(&mut self, now: Time) {
        self.theirs = None;
        self.expedite(now);
    }

    /// Sets the interval between probes to twice the excess of the round trip over its minimum, so
    /// that on a nearly saturated link probes do not feed the queue that they measure; but never so
    /// long that a queue could look like a death.
    fn space_probes(&mut self) {
        let widest = self.liveness.interval / 2;
        self.probe_spacing = (2 * self.rtt.excess()).min(widest).max(MIN_SPACING);
    }

    /// Handles a hello; true if the link has come up. That needs both directions: a neighbour that
    /// does not receive this end's envelopes is useless.
    pub fn on_hello(&mut self, at: Time, hello: &Hello) -> bool {
        if let Some((echo, held)) = hello.echo {
            let elapsed = micros(at).wrapping_sub(echo);
            if let Some(rtt) = elapsed.checked_sub(held) {
                self.rtt.sample(at, Duration::from_micros(u64::from(rtt)));
                self.space_probes();
            }
        }
        self.theirs = Some((hello.sent_us, at));
        self.greeted = self.greeted.max(Some(at));
        self.missed = hello
            .heard_ms
            .is_some_and(|ago| Duration::from_millis(u64::from(ago)) > self.overdue_after.silent);
        if let Some(ago) = hello.heard_ms {
            let moment = if self.is_latest(at, hello) {
                at
            } else {
                at - Duration::from_millis(u64::from(ago))
            };
            // Anything that the neighbour received before this end sent its first hello came from
            // another sender.
            if self.last_sent.is_some() {
                self.confirmed = self.confirmed.max(Some(moment));
            }
        }
        let came_up = !self.up && self.dead_moment().is_some_and(|dead| at < dead);
        self.up |= came_up;
        // A neighbour that gets through should learn of it soon: its link may be down until it
        // does.
        if hello.probe || !self.up || came_up {
            self.expedite(at);
        }
        came_up
    }

    /// Whether this hello, which arrived at `at`, echoes the latest hello that it could: then none
    /// is missing, however long ago that one was sent.
    fn is_latest(&self, at: Time, hello: &Hello) -> bool {
        let Some((echo, _)) = hello.echo else { return false };
        let is = |sent: Option<Time>| sent.is_some_and(|t| micros(t) == echo);
        let rtt = self.rtt.get().unwrap_or_default();
        let under_way = self.last_sent.is_some_and(|t| at.since(t) <= rtt + rtt / 8);
        is(self.last_sent) || under_way && is(self.before_last)
    }

    /// Brings the next hello forward, as far as the minimum interval allows.
    pub fn expedite(&mut self, now: Time) {
        self.bring_forward(now, MIN_SPACING);
    }

    /// Brings a probe forward, as far as the interval between probes allows.
    pub fn expedite_probe(&mut self, now: Time) {
        self.bring_forward(now, self.probe_spacing);
    }

    fn bring_forward(&mut self, now: Time, spacing: Duration) {
        let soonest = self.last_sent.map_or(now, |t| t + spacing);
        self.due = self.due.min(soonest.max(now));
    }

    /// Whether a neighbour that was present is overdue. Probes are then sent as fast as allowed, so
    /// that a burst of losses, which takes a few hellos, does not look like a death, which takes
    /// all. Any envelope shows that the neighbour lives, but only hellos report whether it receives
    /// this end's envelopes, and three in a row must not be missing.
    /// If the neighbour misses this end, probing does not wait for a probe from the other side:
    /// where both directions lose packets, that would halve its chances.
    fn is_overdue(&self, now: Time) -> bool {
        self.missed || self.overdue_at().is_some_and(|at| now >= at)
    }

    fn overdue_at(&self) -> Option<Time> {
        let silent = self.heard? + self.overdue_after.silent;
        Some(silent.min(self.greeted? + self.overdue_after.ungreeted))
    }

    /// Whether a hello is to be sent at `now`.
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.due_at()
    }

    /// Whether the next hello may ride at `now` in an envelope that is sent anyway: up to a sixth
    /// of the interval early, in which time a call has a packet.
    pub fn rides(&self, now: Time) -> bool {
        let early = self.liveness.interval / 6;
        let spaced = self.last_sent.is_none_or(|at| now >= at + MIN_SPACING);
        self.liveness.piggyback && spaced && now + early >= self.due_at()
    }

    /// The hello to send at `now`, without measurements; `in_doubt` requests one in return, as when
    /// the neighbour is overdue.
    pub fn next(&mut self, now: Time, in_doubt: bool) -> Hello {
        let wanted = in_doubt || self.is_overdue(now);
        let probe = self.liveness.probes && self.up && wanted;
        let since = |at: Time| now.since(at);
        let hello = Hello {
            probe,
            seq: self.seq,
            sent_us: micros(now),
            echo: self
                .theirs
                .map(|(sent, at)| (sent, u32::try_from(since(at).as_micros()).unwrap_or(u32::MAX))),
            heard_ms: self.heard.map(|at| {
                // Rounded up: reporting a long silence too early does less harm.
                let ms = since(at).as_micros().div_ceil(1_000);
                u16::try_from(ms).unwrap_or(u16::MAX).min(Hello::LONG_AGO)
            }),
            ..Hello::default()
        };
        self.seq = self.seq.wrapping_add(1);
        self.before_last = self.last_sent.replace(now);
        self.due = now + if probe { self.probe_spacing } else { self.liveness.interval };
        hello
    }

    /// Declares the link down if either end has been silent for too long; true if it has just gone
    /// down.
    pub fn check(&mut self, now: Time) -> bool {
        let dead = self.dead_at().is_some_and(|at| now >= at);
        if dead {
            self.up = false;
            self.theirs = None;
        }
        dead
    }

    /// Takes the link down until both ends have received each other's envelopes again, as if they
    /// had never done so.
    pub fn stop(&mut self) {
        (self.up, self.missed, self.theirs) = (false, false, None);
        (self.heard, self.greeted, self.confirmed) = (None, None, None);
    }

    /// When the neighbour has been silent for too long, or when it has reported that this end has.
    /// Its report counts only at the time of a hello: between two hellos it ages without
    /// significance.
    fn dead_moment(&self) -> Option<Time> {
        let (silent, deaf) = (self.heard?, self.confirmed?);
        let [silent, deaf] = [silent, deaf].map(|at| at + self.liveness.dead_after);
        Some(self.greeted.filter(|&at| at >= deaf).map_or(silent, |at| at.min(silent)))
    }

    /// When the link goes down if nothing arrives; `None` if it is down.
    pub fn dead_at(&self) -> Option<Time> {
        self.dead_moment().filter(|_| self.up)
    }

    /// When the next hello is due; an overdue neighbour is probed without waiting for this end's
    /// next regular hello.
    pub fn due_at(&self) -> Time {
        let probe = self.overdue_at().filter(|_| self.liveness.probes && self.up);
        let soonest = self.last_sent.map_or(self.due, |at| at + self.probe_spacing);
        probe.map_or(self.due, |at| self.due.min(at.max(soonest)))
    }

    /// Whether both ends have received each other's envelopes lately.
    pub fn is_up(&self) -> bool {
        self.up
    }

    pub fn probes(&self) -> bool {
        self.liveness.probes
    }

    /// The measured round trip.
    pub fn rtt(&self) -> Rtt {
        self.rtt
    }
}

fn micros(t: Time) -> u32 {
    t.as_micros() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// A hello that reports receiving this end `ago` ms earlier.
    fn hears(ago: u16) -> Hello {
        Hello { heard_ms: Some(ago), ..Hello::default() }
    }

    #[test]
    fn two_ends_measure_the_round_trip_whatever_their_clocks_say() {
        let ms = Duration::from_millis;
        // B's clock runs 4,294 s ahead: its microseconds wrap soon.
        let (a0, b0) = (Time::from_millis(5), Time::from_millis(4_294_960));
        let mut a = HelloClock::new(Liveness::default(), a0);
        let mut b = HelloClock::new(Liveness::default(), b0);
        b.on_hello(b0 + ms(10), &a.next(a0, false));
        assert_eq!(b.rtt().get(), None);
        a.on_hello(a0 + ms(100), &b.next(b0 + ms(80), false));
        assert_eq!(a.rtt().get(), Some(ms(30)), "10 there, 20 back, 70 held");
        assert_eq!(a.rtt().one_way(), ms(15));
    }

    fn receive(h: &mut HelloClock, at: Time, hello: &Hello) -> bool {
        h.heard(at);
        h.on_hello(at, hello)
    }

    #[test]
    fn a_silent_neighbour_is_dead_and_its_ear_revives_it() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        assert!(!h.check(ms(5_000)), "never was alive");
        h.next(ms(0), false);
        assert!(!receive(&mut h, ms(50), &Hello::default()), "heard, but deaf");
        assert!(receive(&mut h, ms(100), &hears(10)));
        assert!(!receive(&mut h, ms(200), &hears(0)));
        assert!(!h.check(ms(1_199)));
        assert!(h.check(ms(1_200)));
        assert!(!h.is_up() && !h.check(ms(1_300)));
        assert!(receive(&mut h, ms(1_400), &hears(0)));
    }

    #[test]
    fn a_neighbour_that_speaks_but_hears_no_more_is_dead() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        h.next(ms(0), false);
        assert!(receive(&mut h, ms(100), &hears(0)));
        for t in 2..12 {
            assert!(!h.check(ms(100 * t)), "{t}");
            assert!(!receive(&mut h, ms(100 * t), &hears(100 * (t as u16 - 1))));
        }
        assert_eq!(h.dead_at(), Some(ms(1_100)));
        assert!(h.check(ms(1_100)));
        assert!(!receive(&mut h, ms(1_150), &hears(1_050)), "still deaf");
        assert!(receive(&mut h, ms(1_200), &hears(1)));
    }

    #[test]
    fn an_overdue_neighbour_is_probed_and_answers_at_once() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        h.next(ms(0), false);
        receive(&mut h, ms(0), &hears(0));
        assert!(!h.next(ms(200), false).probe);
        let probes =
            (201..1_000).filter(|&t| h.is_due(ms(t)) && h.next(ms(t), false).probe).count();
        assert_eq!(probes, 75, "from 250 ms to 990 ms, every 10");

        let mut peer = HelloClock::new(Liveness::default(), Time::ZERO);
        peer.next(ms(0), false);
        let probe = Hello { probe: true, ..hears(0) };
        receive(&mut peer, ms(50), &probe);
        assert!(peer.is_due(ms(50)) && peer.due_at() == ms(50));
        peer.next(ms(50), false);
        receive(&mut peer, ms(51), &probe);
        assert_eq!(peer.due_at(), ms(60), "whatever is asked, 10 ms apart");
    }

    #[test]
    fn probes_keep_off_a_queue_but_not_so_far_that_it_looks_like_a_death() {
        let probes = |queue: u64| {
            let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
            for (n, rtt) in [20, 20, 20].into_iter().chain([20 + queue; 60]).enumerate() {
                let sent = Time::from_millis(n as u64 * 200);
                h.next(sent, false);
                let echo = Some((micros(sent), 0));
                let at = sent + Duration::from_millis(rtt);
                receive(&mut h, at, &Hello { echo, ..hears(0) });
            }
            let last = 62 * 200 + 20 + queue;
            (last + 1..last + 1_000)
                .filter(|&t| h.is_due(ms(t)) && h.next(ms(t), false).probe)
                .count()
        };
        assert_eq!(probes(0), 75);
        assert_eq!(probes(4), 75, "as if there were none: 8 ms is within the spacing");
        assert!((18..=20).contains(&probes(20)), "every 40 ms: {}", probes(20));
        assert_eq!(probes(500), 7, "every 100 ms, as half the interval");
    }

    #[test]
    fn any_envelope_shows_life_but_three_hellos_are_not_missed() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        h.next(ms(0), false);
        receive(&mut h, ms(0), &hears(0));
        let mut probes = Vec::new();
        for t in (20..=700).step_by(20) {
            h.heard(ms(t));
            if h.is_due(ms(t)) && h.next(ms(t), false).probe {
                probes.push(t);
            }
        }
        assert_eq!(probes, [660, 680, 700], "650 ms after the last hello");
    }

    /// The neighbour's link does not come up before it learns that it is received again.
    #[test]
    fn who_comes_up_says_so_at_once() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        h.next(ms(0), false);
        assert!(receive(&mut h, ms(40), &hears(0)));
        assert_eq!(h.due_at(), ms(40));
        h.next(ms(40), false);
        assert!(!receive(&mut h, ms(60), &hears(0)));
        assert_eq!(h.due_at(), ms(240));
    }

    #[test]
    fn a_hello_rides_a_sixth_early_and_never_too_often() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        h.next(ms(0), false);
        receive(&mut h, ms(0), &hears(0));
        h.next(ms(0), false);
        assert!(!h.rides(ms(166)) && h.rides(ms(167)) && !h.is_due(ms(167)));
        h.next(ms(167), false);
        receive(&mut h, ms(167), &hears(0));
        assert_eq!(h.due_at(), ms(367), "counted from where it went");
        h.expedite(ms(168));
        assert!(!h.rides(ms(176)) && h.rides(ms(177)));
        let paper = HelloClock::new(Liveness::PAPER, Time::ZERO);
        assert!(!paper.rides(ms(0)), "the paper's hellos have their own envelopes");
    }

    #[test]
    fn without_probes_neither_silence_nor_doubt_hastens_a_hello() {
        let mut h = HelloClock::new(Liveness::PAPER, Time::ZERO);
        h.next(ms(0), false);
        receive(&mut h, ms(20), &hears(0));
        h.next(ms(20), false);
        let hello = h.next(ms(9_000), true);
        assert!(!hello.probe && h.due_at() == ms(10_000));
    }

    #[test]
    fn lies_about_time_are_ignored() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        let lie = |echo| Hello { echo: Some(echo), ..Hello::default() };
        h.on_hello(ms(5), &lie((0, 90_000)));
        h.on_hello(ms(5), &lie((6_000, 0)));
        assert_eq!(h.rtt().get(), None);
        assert!(!receive(&mut h, ms(5), &hears(0)), "nothing was sent that it could receive");
    }
}
