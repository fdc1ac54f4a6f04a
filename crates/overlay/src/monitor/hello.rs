use super::{LossMode, Rtt};
use crate::wire::Hello;
use core::time::Duration;
use trunkline_base::Time;

/// When to say hello, when to believe that the neighbour is gone, and how to
/// reckon what is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Between two hellos. The paper's second makes a link's cost a hundred
    /// bytes a second and its failures ten seconds long; a fifth of it finds
    /// them ten times faster.
    pub interval: Duration,
    /// Without any envelope for this long, or without a sign that the neighbour
    /// has heard one, the link is down. At least three intervals: what the
    /// neighbour says is up to two old.
    pub dead_after: Duration,
    /// Whether an overdue hello is asked for, every 10 ms, or at a queue up to half
    /// an interval apart: a burst of losses then takes many to look like a death. Also
    /// whether hellos are asked for while a test is in doubt whether the link loses
    /// more than before.
    pub probes: bool,
    /// How losses are reckoned.
    pub loss: LossMode,
    /// Whether a hello that is soon due goes in the envelope of a real-time
    /// packet: 22 bytes instead of 74 on the link. It says what it always says, so
    /// nothing is known later.
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
    /// The paper's (III-A): a hello a second, "under 10 seconds" to notice a
    /// failure, no probes, the last 50 loss-free intervals, hellos by themselves.
    /// Where a call shows life until the failure, the whole of `dead_after` is still
    /// to come, and then the way to those who must hear of it: nine hellos are the
    /// most that may be missing if all has left the link within 10 s.
    pub const PAPER: Liveness = Liveness {
        interval: Duration::from_secs(1),
        dead_after: Duration::from_secs(9),
        probes: false,
        loss: LossMode::Paper,
        piggyback: false,
    };
}

/// Two hellos are at least this far apart, whatever provokes them.
const MIN_SPACING: Duration = Duration::from_millis(10);

/// The hello protocol of one link.
#[derive(Debug)]
pub(super) struct HelloClock {
    liveness: Liveness,
    overdue_after: Overdue,
    /// How long after a hello a probe may follow.
    probe_spacing: Duration,
    due: Time,
    last_sent: Option<Time>,
    before_last: Option<Time>,
    seq: u16,
    /// When any envelope came last, and a hello.
    heard: Option<Time>,
    greeted: Option<Time>,
    /// When the neighbour certainly heard this end.
    confirmed: Option<Time>,
    /// Whether the neighbour misses this end's hellos, by its last word.
    missed: bool,
    up: bool,
    /// The neighbour's last timestamp and when it came.
    theirs: Option<(u32, Time)>,
    rtt: Rtt,
}

/// How long a neighbour may be silent before it is asked; reckoned once, since a node
/// asks for it at each packet.
#[derive(Clone, Copy, Debug)]
struct Overdue {
    /// Without any envelope.
    silent: Duration,
    /// Without a hello.
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

    /// The hello that is due stays so.
    pub fn set_liveness(&mut self, liveness: Liveness) {
        self.overdue_after = Overdue::after(&liveness);
        self.liveness = liveness;
        self.space_probes();
    }

    /// Any envelope of the neighbour arrived.
    pub fn heard(&mut self, at: Time) {
        self.heard = self.heard.max(Some(at));
    }

    /// The neighbour is a new one: introduce this node soon.
    pub fn fresh_peer(&mut self, now: Time) {
        self.theirs = None;
        self.expedite(now);
    }

    /// Sets how far two probes are apart: twice as far as the round trip is longer than
    /// it was at its shortest, so that on a line that has hardly room for its calls they
    /// do not feed the queue that they measure; but never so far that a queue could look
    /// like a death.
    fn space_probes(&mut self) {
        let widest = self.liveness.interval / 2;
        self.probe_spacing = (2 * self.rtt.excess()).min(widest).max(MIN_SPACING);
    }

    /// Takes a hello: true if the link has come up. It does when both hear each
    /// other; a neighbour that is heard but does not hear is of no use.
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
            // What it heard before this end said anything was another's.
            if self.last_sent.is_some() {
                self.confirmed = self.confirmed.max(Some(moment));
            }
        }
        let came_up = !self.up && self.dead_moment().is_some_and(|dead| at < dead);
        self.up |= came_up;
        // One that is heard should know soon: its link may be down until it does.
        if hello.probe || !self.up || came_up {
            self.expedite(at);
        }
        came_up
    }

    /// Whether this hello, arrived at `at`, echoes the latest hello that it can:
    /// then nothing is missing, however long ago that one was.
    fn is_latest(&self, at: Time, hello: &Hello) -> bool {
        let Some((echo, _)) = hello.echo else { return false };
        let is = |sent: Option<Time>| sent.is_some_and(|t| micros(t) == echo);
        let rtt = self.rtt.get().unwrap_or_default();
        let under_way = self.last_sent.is_some_and(|t| at.since(t) <= rtt + rtt / 8);
        is(self.last_sent) || under_way && is(self.before_last)
    }

    /// Brings the next hello forward, as far as the spacing allows.
    pub fn expedite(&mut self, now: Time) {
        self.bring_forward(now, MIN_SPACING);
    }

    /// Brings a hello forward that is to ask for one, as far as the spacing of probes
    /// allows.
    pub fn expedite_probe(&mut self, now: Time) {
        self.bring_forward(now, self.probe_spacing);
    }

    fn bring_forward(&mut self, now: Time, spacing: Duration) {
        let soonest = self.last_sent.map_or(now, |t| t + spacing);
        self.due = self.due.min(soonest.max(now));
    }

    /// Whether the neighbour, which was there, is overdue: then probes go out as
    /// fast as they may, so that a burst of losses, which takes a few hellos, does
    /// not look like a death, which takes all. Any envelope shows that it lives;
    /// but whether this end is heard, only hellos say, and three in a row must not
    /// be missing.
    /// And an end that is missed does not wait for each probe to come through:
    /// where both directions lose, that would be half of its chances.
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

    /// Whether the next hello may leave at `now` in an envelope that leaves
    /// anyway: a sixth of the interval early, in which time a call has a packet.
    pub fn rides(&self, now: Time) -> bool {
        let early = self.liveness.interval / 6;
        let spaced = self.last_sent.is_none_or(|at| now >= at + MIN_SPACING);
        self.liveness.piggyback && spaced && now + early >= self.due_at()
    }

    /// The hello to send at `now`, without what is measured; `in_doubt` asks
    /// for one in return as an overdue one does.
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
                // Rounded up: to be thought deaf too early does less harm.
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

    /// Declares the link down if either end has been silent for too long; true
    /// if that is news.
    pub fn check(&mut self, now: Time) -> bool {
        let dead = self.dead_at().is_some_and(|at| now >= at);
        if dead {
            self.up = false;
            self.theirs = None;
        }
        dead
    }

    /// The neighbour stops: the link is down until it has heard this end again,
    /// as if neither had ever heard the other.
    pub fn on_goodbye(&mut self) {
        (self.up, self.missed, self.theirs) = (false, false, None);
        (self.heard, self.greeted, self.confirmed) = (None, None, None);
    }

    /// When the neighbour has been silent for too long; or when it said that
    /// this end has. What it heard is news only while it speaks: between two
    /// hellos it ages without meaning anything.
    fn dead_moment(&self) -> Option<Time> {
        let (silent, deaf) = (self.heard?, self.confirmed?);
        let [silent, deaf] = [silent, deaf].map(|at| at + self.liveness.dead_after);
        Some(self.greeted.filter(|&at| at >= deaf).map_or(silent, |at| at.min(silent)))
    }

    /// When the link goes down if nothing is heard; `None` if it is down.
    pub fn dead_at(&self) -> Option<Time> {
        self.dead_moment().filter(|_| self.up)
    }

    /// When the next hello is due: an overdue one is asked for without waiting
    /// for the next of this end's own.
    pub fn due_at(&self) -> Time {
        let probe = self.overdue_at().filter(|_| self.liveness.probes && self.up);
        let soonest = self.last_sent.map_or(self.due, |at| at + self.probe_spacing);
        probe.map_or(self.due, |at| self.due.min(at.max(soonest)))
    }

    /// Whether both ends have heard each other lately.
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

    /// A hello that says the other end heard this one `ago` ms before.
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

    /// The neighbour's link is not up before it knows that it is heard again.
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
        assert!(!paper.rides(ms(0)), "the paper's go by themselves");
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
        assert!(!receive(&mut h, ms(5), &hears(0)), "nothing was said that it could hear");
    }
}
