use super::peer::Counters;
use super::wire::{DATAGRAM_HEAD, Token};
use core::time::Duration;
use trunkline_base::Time;

/// After this silence, a client sends a ping over TCP to check that its node is there. A call is
/// never silent that long, so only idle clients do.
const QUIET: Duration = Duration::from_secs(2);
/// Interval between two such pings.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Silence after the first ping that ends the connection: enough for a second retransmission of TCP
/// at its initial timeout of 1 s (RFC 6298).
const DEAD: Duration = Duration::from_secs(4);

/// Interval between two datagrams that only keep a NAT's mapping alive: ICE's default (RFC 8445,
/// section 11). RFC 4787 requires two minutes of NATs; many allow 30 s.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time for which packets may be sent over UDP with nothing received before the path is checked.
const ONE_WAY: Duration = Duration::from_secs(1);
/// Number of unanswered UDP pings after which packets take TCP …
const TRIES: u32 = 4;
/// … this far apart while UDP is not known to work: half a second in total …
const PROBE: Duration = Duration::from_millis(125);
/// … and once it has worked: a second, since a shorter outage is not worth the change.
const RECHECK: Duration = Duration::from_millis(250);
/// If UDP does not work, it is tried again after this time, doubling up to [`KEEP_ALIVE`].
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Actions that a client must perform now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Due {
    /// Whether to ping over TCP.
    pub ping_tcp: bool,
    /// Whether to ping over UDP.
    pub ping_udp: bool,
    /// Notify the node whether packets should arrive over UDP.
    pub switch: Option<bool>,
    /// The node or the network is unreachable: give up the connection.
    pub dead: bool,
}

/// A client's view of its node and of the two paths to it, from the start of the connection.
#[derive(Debug)]
pub struct Liveness {
    /// Time since when the node has not answered.
    asked: Option<Time>,
    ask_at: Time,
    udp: Option<Udp>,
}

#[derive(Debug)]
struct Udp {
    counters: Counters,
    /// Whether packets take UDP.
    works: bool,
    /// Whether the node was notified of that.
    told: bool,
    /// Whether packets were sent since a datagram last arrived.
    talked: bool,
    unanswered: u32,
    ping_at: Time,
    retry: Duration,
}

impl Liveness {
    /// State of a connection that is being made at `now`.
    pub fn new(now: Time) -> Liveness {
        Liveness { asked: None, ask_at: now + QUIET, udp: None }
    }

    /// Handles any input over TCP.
    pub fn heard_tcp(&mut self, now: Time) {
        (self.asked, self.ask_at) = (None, now + QUIET);
    }

    /// Handles the node's `token`: checks whether UDP works.
    pub fn try_udp(&mut self, now: Time, token: Token) {
        self.udp = Some(Udp {
            counters: Counters::new(token),
            works: false,
            told: false,
            talked: false,
            unanswered: 0,
            ping_at: now,
            retry: FIRST_RETRY,
        });
    }

    /// Whether a datagram belongs to this connection and is not a copy of an earlier one: check
    /// this before opening it.
    pub fn is_news(&self, token: Token, counter: u64) -> bool {
        let ours = self.udp.as_ref().filter(|udp| udp.counters.token == token);
        ours.is_some_and(|udp| udp.counters.may_be_fresh(counter))
    }

    /// Handles a datagram. False if it doesn't belong to this connection, or is a copy.
    pub fn heard_udp(&mut self, now: Time, token: Token, counter: u64) -> bool {
        let Some(udp) = self.udp.as_mut().filter(|udp| udp.counters.token == token) else {
            return false;
        };
        if udp.counters.fresh(counter).is_none() {
            return false;
        }
        (udp.works, udp.talked, udp.unanswered) = (true, false, 0);
        (udp.ping_at, udp.retry) = (now + KEEP_ALIVE, FIRST_RETRY);
        self.heard_tcp(now);
        true
    }

    /// Whether packets take UDP now.
    pub fn udp_works(&self) -> bool {
        self.udp.as_ref().is_some_and(|udp| udp.works)
    }

    /// The bytes before the next packet on UDP; `None` if it takes TCP.
    pub fn packet_head(&mut self, now: Time) -> Option<[u8; DATAGRAM_HEAD]> {
        let udp = self.udp.as_mut().filter(|udp| udp.works)?;
        if !udp.talked {
            udp.talked = true;
            udp.ping_at = udp.ping_at.min(now + ONE_WAY);
        }
        Some(udp.counters.next_head())
    }

    /// The bytes before a ping on UDP.
    pub fn ping_head(&mut self) -> Option<[u8; DATAGRAM_HEAD]> {
        self.udp.as_mut().map(|udp| udp.counters.next_head())
    }

    /// Time of the next call of [`Liveness::handle_timeout`].
    pub fn next_timeout(&self) -> Time {
        let dead_at = self.asked.map_or(Time::NEVER, |asked| asked + DEAD);
        let udp_at = self.udp.as_ref().map_or(Time::NEVER, |udp| match udp.works == udp.told {
            true => udp.ping_at,
            false => Time::ZERO,
        });
        self.ask_at.min(dead_at).min(udp_at)
    }

    /// The actions that are due at `now`. All input that has arrived must have been handled before:
    /// an application that slept has not lost its node.
    pub fn handle_timeout(&mut self, now: Time) -> Due {
        let mut due = self.udp.as_mut().map_or(Due::default(), |udp| udp.handle_timeout(now));
        due.dead = self.asked.is_some_and(|asked| now >= asked + DEAD);
        if now >= self.ask_at && !due.dead {
            due.ping_tcp = true;
            self.asked.get_or_insert(now);
            self.ask_at = now + ASK_AGAIN;
        }
        due
    }
}

impl Udp {
    fn handle_timeout(&mut self, now: Time) -> Due {
        let mut due = Due::default();
        if now >= self.ping_at {
            if self.unanswered == TRIES && self.works {
                self.works = false;
            }
            if self.unanswered < TRIES {
                self.ping_at = now + if self.works { RECHECK } else { PROBE };
                self.unanswered += 1;
            } else {
                self.ping_at = now + self.retry;
                self.retry = (self.retry * 2).min(KEEP_ALIVE);
            }
            due.ping_udp = true;
        }
        if self.works != self.told {
            self.told = self.works;
            due.switch = Some(self.works);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token(9);

    /// Runs to `until` with a node that answers as specified; returns the last state, and the
    /// actions with their times (in ms).
    fn run(
        live: &mut Liveness,
        from: u64,
        until: u64,
        answers: (bool, bool),
        counter: &mut u64,
    ) -> Vec<(u64, Due)> {
        let mut done = Vec::new();
        for at in from..until {
            let now = Time::from_millis(at);
            if live.next_timeout() > now {
                continue;
            }
            let due = live.handle_timeout(now);
            done.push((at, due));
            if due.dead {
                break;
            }
            if due.ping_tcp && answers.0 {
                live.heard_tcp(now);
            }
            if due.ping_udp && answers.1 {
                assert!(live.heard_udp(now, TOKEN, *counter));
                *counter += 1;
            }
        }
        done
    }

    fn with_token() -> Liveness {
        let mut live = Liveness::new(Time::ZERO);
        live.try_udp(Time::ZERO, TOKEN);
        live
    }

    #[test]
    fn udp_is_used_once_it_answers_and_the_idle_client_says_little() {
        let (mut live, mut n) = (with_token(), 0);
        assert!(live.packet_head(Time::ZERO).is_none());
        let done = run(&mut live, 0, 60_000, (true, true), &mut n);
        assert!(live.udp_works());
        let switches: Vec<_> = done.iter().filter_map(|(at, d)| Some((*at, d.switch?))).collect();
        assert_eq!(switches, [(1, true)]);
        assert!(done.len() < 40, "{} wake-ups in a minute", done.len());
        assert_eq!(n, 4, "keep-alives in a minute, with the first probe");
    }

    #[test]
    fn without_udp_packets_take_tcp_and_udp_is_tried_again() {
        let (mut live, mut n) = (with_token(), 0);
        let done = run(&mut live, 0, 120_000, (true, false), &mut n);
        assert!(!live.udp_works());
        assert!(done.iter().all(|(_, d)| d.switch.is_none() && !d.dead));
        let pings: Vec<_> = done.iter().filter(|(_, d)| d.ping_udp).map(|(at, _)| *at).collect();
        assert_eq!(pings[..7], [0, 125, 250, 375, 500, 1_500, 3_500]);
        assert!(pings.len() < 17, "{pings:?}");
        run(&mut live, 120_000, 140_000, (true, true), &mut n);
        assert!(live.udp_works());
    }

    #[test]
    fn udp_that_stops_is_noticed_by_who_talks() {
        let (mut live, mut n) = (with_token(), 0);
        run(&mut live, 0, 1_000, (true, true), &mut n);
        assert!(live.packet_head(Time::from_millis(1_000)).is_some());
        let done = run(&mut live, 1_000, 6_000, (true, false), &mut n);
        let switches: Vec<_> = done.iter().filter_map(|(at, d)| Some((*at, d.switch?))).collect();
        assert_eq!(switches, [(3_000, false)]);
        assert!(live.packet_head(Time::from_millis(6_000)).is_none());
        // It returns within seconds, not fifteen.
        run(&mut live, 6_000, 9_000, (true, true), &mut n);
        assert!(live.udp_works());
    }

    #[test]
    fn a_silent_network_ends_the_connection_in_six_seconds() {
        let (mut live, mut n) = (with_token(), 0);
        run(&mut live, 0, 1, (true, true), &mut n);
        let done = run(&mut live, 1, 60_000, (false, false), &mut n);
        let (at, last) = done.last().unwrap();
        assert!(last.dead && *at == 6_000, "{at} {last:?}");
        // UDP alone keeps the connection alive.
        let (mut live, mut n) = (with_token(), 0);
        for at in (0..60_000).step_by(20) {
            assert!(live.heard_udp(Time::from_millis(at), TOKEN, n));
            n += 1;
            assert!(!live.handle_timeout(Time::from_millis(at)).dead);
        }
    }

    #[test]
    fn an_application_that_slept_has_not_lost_its_node() {
        let mut live = Liveness::new(Time::ZERO);
        let late = Time::from_millis(60_000);
        assert!(!live.handle_timeout(late).dead);
        assert!(live.handle_timeout(late + DEAD).dead, "nothing answered");
        let mut live = Liveness::new(Time::ZERO);
        assert!(live.handle_timeout(Time::ZERO + QUIET).ping_tcp);
        live.heard_tcp(late);
        assert!(!live.handle_timeout(late).dead, "the answer had been waiting");
    }

    #[test]
    fn strangers_and_copies_are_not_heard() {
        let mut live = with_token();
        assert!(!live.heard_udp(Time::ZERO, Token(8), 0));
        assert!(!live.udp_works());
        assert!(live.heard_udp(Time::ZERO, TOKEN, 0));
        assert!(!live.heard_udp(Time::ZERO, TOKEN, 0));
        assert!(!Liveness::new(Time::ZERO).heard_udp(Time::ZERO, TOKEN, 0), "no token yet");
    }
}
