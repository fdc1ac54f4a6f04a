use super::Rtt;
use crate::wire::Hello;
use core::time::Duration;
use trunkline_base::Time;

/// When to say hello, and when to believe that the neighbour is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Between two hellos. The paper's second makes a link's cost a hundred
    /// bytes a second and its failures ten seconds long; a fifth of it finds
    /// them ten times faster.
    pub interval: Duration,
    /// Without any envelope for this long, the link is down.
    pub dead_after: Duration,
    /// Whether an overdue hello is asked for, every 20 ms: a burst of losses
    /// then takes many to look like a death.
    pub probes: bool,
}

impl Default for Liveness {
    fn default() -> Liveness {
        Liveness {
            interval: Duration::from_millis(200),
            dead_after: Duration::from_secs(1),
            probes: true,
        }
    }
}

impl Liveness {
    /// The paper's (III-A): a hello a second, "under 10 seconds" to notice a
    /// failure, no probes.
    pub const PAPER: Liveness = Liveness {
        interval: Duration::from_secs(1),
        dead_after: Duration::from_secs(10),
        probes: false,
    };
}

/// Two hellos are at least this far apart, whatever provokes them.
const MIN_SPACING: Duration = Duration::from_millis(20);

/// The hello protocol of one link.
#[derive(Debug)]
pub struct HelloClock {
    liveness: Liveness,
    due: Time,
    last_sent: Option<Time>,
    seq: u16,
    heard: Option<Time>,
    up: bool,
    /// The neighbour's last timestamp and when it came.
    theirs: Option<(u32, Time)>,
    rtt: Rtt,
}

impl HelloClock {
    pub(crate) fn new(liveness: Liveness, first: Time) -> HelloClock {
        HelloClock {
            liveness,
            due: first,
            last_sent: None,
            seq: 0,
            heard: None,
            up: false,
            theirs: None,
            rtt: Rtt::default(),
        }
    }

    /// Any envelope of the neighbour arrived: true if the link was down.
    pub(crate) fn heard(&mut self, at: Time) -> bool {
        self.heard = self.heard.max(Some(at));
        !core::mem::replace(&mut self.up, true)
    }

    /// The neighbour is a new one: introduce this node soon.
    pub(crate) fn fresh_peer(&mut self, now: Time) {
        self.theirs = None;
        self.hasten(now);
    }

    pub(crate) fn on_hello(&mut self, at: Time, hello: &Hello) {
        if let Some((echo, held)) = hello.echo {
            let elapsed = micros(at).wrapping_sub(echo);
            if let Some(rtt) = elapsed.checked_sub(held) {
                self.rtt.sample(Duration::from_micros(u64::from(rtt)));
            }
        }
        self.theirs = Some((hello.sent_us, at));
        if hello.probe {
            self.hasten(at);
        }
    }

    /// Brings the next hello forward, as far as the spacing allows.
    fn hasten(&mut self, now: Time) {
        let soonest = self.last_sent.map_or(now, |t| t + MIN_SPACING);
        self.due = self.due.min(soonest.max(now));
    }

    /// Whether a hello is overdue from a neighbour that was there: then probes
    /// go out as fast as they may, so that a burst of losses, which takes a few
    /// hellos, does not look like a death, which takes all.
    fn is_suspect(&self, now: Time) -> bool {
        let patience = self.liveness.interval * 3 / 2;
        let overdue = self.heard.is_some_and(|at| now.since(at) > patience);
        self.liveness.probes && self.up && overdue
    }

    /// Whether a hello is to be sent at `now`.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// The hello to send at `now`.
    pub(crate) fn next(&mut self, now: Time) -> Hello {
        let probe = self.is_suspect(now);
        let hello = Hello {
            probe,
            seq: self.seq,
            sent_us: micros(now),
            echo: self.theirs.map(|(sent, at)| {
                (sent, u32::try_from(now.since(at).as_micros()).unwrap_or(u32::MAX - 1))
            }),
        };
        self.seq = self.seq.wrapping_add(1);
        self.last_sent = Some(now);
        self.due = now + if probe { MIN_SPACING } else { self.liveness.interval };
        hello
    }

    /// Declares the link down if it has been silent for too long; true if that
    /// is news.
    pub(crate) fn check(&mut self, now: Time) -> bool {
        let dead = self.dead_at().is_some_and(|at| now >= at);
        if dead {
            self.up = false;
            self.theirs = None;
        }
        dead
    }

    /// When the link goes down if nothing is heard; `None` if it is down.
    pub(crate) fn dead_at(&self) -> Option<Time> {
        self.heard.filter(|_| self.up).map(|at| at + self.liveness.dead_after)
    }

    pub(crate) fn due_at(&self) -> Time {
        self.due
    }

    /// Whether the neighbour has been heard lately.
    pub fn is_up(&self) -> bool {
        self.up
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

    #[test]
    fn two_ends_measure_the_round_trip_whatever_their_clocks_say() {
        let ms = Duration::from_millis;
        // B's clock runs 4,294 s ahead: its microseconds wrap soon.
        let (a0, b0) = (Time::from_millis(5), Time::from_millis(4_294_960));
        let mut a = HelloClock::new(Liveness::default(), a0);
        let mut b = HelloClock::new(Liveness::default(), b0);
        b.on_hello(b0 + ms(10), &a.next(a0));
        assert_eq!(b.rtt().get(), None);
        a.on_hello(a0 + ms(100), &b.next(b0 + ms(80)));
        assert_eq!(a.rtt().get(), Some(ms(30)), "10 there, 20 back, 70 held");
        assert_eq!(a.rtt().one_way(), ms(15));
    }

    #[test]
    fn a_silent_neighbour_is_dead_and_a_word_revives_it() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        assert!(!h.check(Time::from_millis(5_000)), "never was alive");
        assert!(h.heard(Time::from_millis(100)));
        assert!(!h.heard(Time::from_millis(200)));
        assert!(!h.check(Time::from_millis(1_199)));
        assert!(h.check(Time::from_millis(1_200)));
        assert!(!h.is_up() && !h.check(Time::from_millis(1_300)));
        assert!(h.heard(Time::from_millis(1_400)));
    }

    #[test]
    fn an_overdue_neighbour_is_probed_and_answers_at_once() {
        let ms = Time::from_millis;
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        h.heard(ms(0));
        assert!(!h.next(ms(200)).probe);
        let probes = (201..1_000).filter(|&t| h.is_due(ms(t)) && h.next(ms(t)).probe).count();
        assert_eq!(probes, 30, "from 400 ms to 980 ms, every 20");

        let mut peer = HelloClock::new(Liveness::default(), Time::ZERO);
        peer.next(ms(0));
        peer.on_hello(ms(50), &Hello { probe: true, seq: 0, sent_us: 0, echo: None });
        assert!(peer.is_due(ms(50)) && peer.due_at() == ms(50));
        peer.next(ms(50));
        peer.on_hello(ms(51), &Hello { probe: true, seq: 1, sent_us: 0, echo: None });
        assert_eq!(peer.due_at(), ms(70), "whatever is asked, 20 ms apart");
    }

    #[test]
    fn lies_about_time_are_ignored() {
        let mut h = HelloClock::new(Liveness::default(), Time::ZERO);
        let lie = |echo| Hello { probe: false, seq: 0, sent_us: 0, echo: Some(echo) };
        h.on_hello(Time::from_millis(5), &lie((0, 90_000)));
        h.on_hello(Time::from_millis(5), &lie((6_000, 0)));
        assert_eq!(h.rtt().get(), None);
    }
}
