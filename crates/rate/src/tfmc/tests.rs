mod hostile;

use super::*;
use std::collections::VecDeque;
use trunkline_base::Time;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Time {
    Time::from_millis(n)
}

/// A sender of 200 calls of G.729 with synthetic reports, on a path of 40 ms.
struct Trunk {
    sender: Sender,
    now: Time,
}

/// K is 200 · 50 = 10,000 packets/s: ten per millisecond.
const PER_MS: usize = 10;
const RTT: Duration = Duration::from_millis(40);

impl Trunk {
    fn new(config: Config) -> Trunk {
        Trunk { sender: Sender::new(config, Time::ZERO), now: Time::ZERO }
    }

    /// Sends all packets of `millis` milliseconds, one datagram per millisecond; returns the number
    /// of the last.
    fn send(&mut self, millis: u64) -> u32 {
        let one = |_| {
            self.now += ms(1);
            self.sender.sent(self.now, PER_MS, 20 * PER_MS)
        };
        (0..millis).map(one).last().expect("some time passes")
    }

    /// Reports on all but the last 40 ms, 200 ms after the previous report; returns m.
    fn report(&mut self, loss: f64) -> usize {
        let number = self.send(200) - RTT.as_millis() as u32;
        self.hear(number, loss).unwrap();
        self.sender.multiplex()
    }

    fn hear(&mut self, number: u32, loss: f64) -> Result<(), FeedbackError> {
        self.sender.feedback(self.now, &Feedback { number, elapsed: Duration::ZERO, loss })
    }
}

fn nominal() -> Config {
    Config { segment: Segment::Nominal(1_460.0), ..Config::default() }
}

/// Before the first loss a datagram holds one packet, at any rate.
#[test]
fn without_loss_packets_go_singly() {
    let mut trunk = Trunk::new(Config::default());
    assert_eq!((trunk.sender.multiplex(), trunk.sender.share()), (1, None));
    assert_eq!(trunk.report(0.0), 1);
    assert_eq!((trunk.sender.rtt(), trunk.sender.over_share()), (Some(RTT), false));
}

/// R = 0.04 s, t_RTO = 0.16 s, p = 0.001: √(2p/3) = √0.00066667 = 0.02581989, times R 0.001032796.
/// 3 √(3p/8) = 3 √0.000375 = 0.05809475, times p (1 + 32p²) = 0.001000032: 0.0000580966, times
/// 0.16: 0.00000929546. Sum f = 0.001042091 s per segment.
///
/// With segments of 1,460 bytes T₂ = 1,401,029 bytes/s; 10,000 packets take 320,000 without
/// headers, and 280,000 / 1,081,029 = 0.26: one packet per datagram.
///
/// p = 0.01, for which the test of `equation` has f = 0.00890217 s at R = 0.1: 0.4 of it is
/// 0.003560868. T₂ = 1,460 / 0.003560868 = 410,013, and 280,000 / 90,013 = 3.11: four.
///
/// p = 0.1: f = 0.4 · 0.0564939 = 0.02259756, T₂ = 64,609 < 320,000: over its share, and as many as
/// fit, (1,500 − 28) / 32 = 46.
#[test]
fn packets_for_a_nominal_segment_by_hand() {
    let mut trunk = Trunk::new(nominal());
    for (loss, share, packets, over) in
        [(0.001, 1_401_029.0, 1, false), (0.01, 410_013.0, 4, false), (0.1, 64_609.0, 46, true)]
    {
        assert_eq!(trunk.report(loss), packets, "{loss}");
        assert_eq!((trunk.sender.over_share(), trunk.sender.loss()), (over, loss));
        let got = trunk.sender.share().unwrap();
        assert!((got - share).abs() < 1e-4 * share, "{got} is not {share}");
    }
    assert_eq!(trunk.report(0.0), 1, "the loss is over");
    assert_eq!((trunk.sender.share(), trunk.sender.over_share()), (None, false));
}

/// p = 0.001 again, with f = 0.001042091 s. For single packets S = 60 and T₂ = 57,577 < 320,000: as
/// many as fit. Then S = 1,500 and T₂ = 1,439,414, where 280,000 / 1,119,414 is less than 1: single
/// packets again. The rate allowed for the paper's segment rises with m.
#[test]
fn the_papers_segment_swings() {
    let mut trunk = Trunk::new(Config::default());
    let swings: Vec<usize> = (0..6).map(|_| trunk.report(0.001)).collect();
    assert_eq!(swings, [46, 1, 46, 1, 46, 1]);
}

/// With the chosen datagram as the segment, the same f of 0.001042091 s allows 959.6 datagrams/s,
/// and 10,000 / 959.6 = 10.4: eleven, and no swing. T₂ = 959.6 (28 + 11 · 32) = 364,651. At 1 %, f
/// is 0.003560868: 280.8 datagrams/s and 35.6, so 36. At 10 %, f is 0.02259756: 226 are needed, and
/// 46 fit.
#[test]
fn packets_for_the_datagram_to_come_by_hand() {
    let mut trunk = Trunk::new(Config { segment: Segment::Chosen, ..Config::default() });
    assert_eq!([0.001; 3].map(|loss| trunk.report(loss)), [11; 3]);
    let share = trunk.sender.share().unwrap();
    assert!((share - 364_651.0).abs() < 40.0 && !trunk.sender.over_share(), "{share}");
    assert_eq!(trunk.report(0.01), 36);
    assert_eq!(trunk.report(0.1), 46);
    assert!(trunk.sender.over_share());
    assert_eq!(trunk.report(0.0), 1);
}

/// The payload is the mean since the last report: (20 + 160) / 2 = 90 bytes. With 12 of RTP, 14
/// packets of 102 bytes fit: (1,500 − 28) / 102 = 14.4.
#[test]
fn the_payload_is_the_mean_of_what_was_sent() {
    let mut trunk = Trunk::new(nominal());
    trunk.report(0.0);
    for _ in 0..50 {
        trunk.now += ms(1);
        trunk.sender.sent(trunk.now, PER_MS, 20 * PER_MS);
        trunk.sender.sent(trunk.now, PER_MS, 160 * PER_MS);
    }
    // 200 + 100 datagrams so far; the one 80 before the last was sent 40 ms ago.
    trunk.hear(299 - 80, 0.5).unwrap();
    assert_eq!((trunk.sender.multiplex(), trunk.sender.over_share()), (14, true));
}

/// Without reports, m rises after 4 R and keeps rising, until a report lowers it.
#[test]
fn without_reports_m_rises_and_nothing_stops() {
    let mut trunk = Trunk::new(nominal());
    trunk.report(0.0);
    let mut seen = vec![trunk.sender.multiplex()];
    for _ in 0..3_000 {
        trunk.send(1);
        if trunk.sender.next_timeout() <= trunk.now {
            trunk.sender.expire(trunk.now);
            seen.push(trunk.sender.multiplex());
        }
    }
    // K is 10,000, so 600,000 bytes/s are halved: 300,000 are less than 320,000.
    assert_eq!(seen[..2], [1, 46]);
    // Each takes eight datagrams and then four round trips: 168 ms.
    assert_eq!(seen.len(), 1 + 3_000 / 168);
    assert!(trunk.sender.over_share() && trunk.sender.share().unwrap() > 0.0);
    assert_eq!(trunk.report(0.0), 1);
}

/// Before the first report the sender waits for 2 s; a trunk that sends nothing, or too little for
/// a report, does not wait.
#[test]
fn only_what_was_sent_can_go_unreported() {
    let mut trunk = Trunk::new(Config::default());
    assert_eq!(trunk.sender.next_timeout(), Time::NEVER);
    trunk.send(7);
    trunk.sender.expire(at(60_000));
    assert_eq!((trunk.sender.next_timeout(), trunk.sender.multiplex()), (Time::NEVER, 1));
    trunk.send(1);
    assert_eq!(trunk.sender.next_timeout(), at(8 + 2_000));
    trunk.sender.expire(at(8 + 1_999));
    assert_eq!(trunk.sender.share(), None);
    trunk.send(2_000);
    trunk.sender.expire(trunk.now);
    assert!(trunk.sender.multiplex() > 1);
}

/// K follows the calls: it is 0 after a pause, and half as large with half of the calls.
#[test]
fn the_rate_of_packets_is_that_of_the_last_tenth_of_a_second() {
    let mut trunk = Trunk::new(nominal());
    // T₂ = 410,013 at 1 %: with K = 10,000, m is 4.
    assert_eq!(trunk.report(0.01), 4);
    // With K = 5,000, 140,000 / 250,013 is less than 1.
    for n in 0..300u64 {
        trunk.now += ms(1);
        trunk.sender.sent(trunk.now, PER_MS * (n % 2) as usize, 20 * PER_MS * (n % 2) as usize);
    }
    trunk.hear(499 - 40, 0.01).unwrap();
    assert_eq!(trunk.sender.multiplex(), 1);
    // Calls whose packets coincide every 20 ms are 10,000 packets/s, too.
    for _ in 0..15 {
        trunk.now += ms(20);
        trunk.sender.sent(trunk.now, 20 * PER_MS, 20 * 20 * PER_MS);
    }
    trunk.hear(514 - 2, 0.01).unwrap();
    assert_eq!(trunk.sender.multiplex(), 4);
}

/// Reports are due every 5 ms, but not for fewer than four datagrams.
#[test]
fn reports_have_their_distance() {
    for (spacing, every) in [(1u64, 5usize), (2, 4), (20, 4)] {
        let mut receiver = Receiver::new(Config::default());
        let due: Vec<u32> = (0..40u32)
            .filter(|&n| {
                let now = at(spacing * u64::from(n));
                let due = receiver.receive(now, n) == Ok(true);
                assert_eq!(receiver.report(now).is_some(), due);
                due
            })
            .collect();
        assert_eq!(due[0], 3);
        assert!(due.windows(2).all(|two| (two[1] - two[0]) as usize == every), "{due:?}");
    }
}

/// Reports at 5, 15 and 20 ms: none at 10, since nothing has arrived since 5. Each names the last
/// datagram, and the time since then.
#[test]
fn periodic_reports_keep_their_times() {
    let mut receiver = Receiver::new(Config::paper());
    assert_eq!(receiver.next_report(), Time::NEVER);
    let mut reports = Vec::new();
    let arrivals = [(0, 0), (1, 1), (2, 2), (12, 3), (15, 4)].map(|(ms, n)| (at(ms), n));
    for (now, number) in arrivals.into_iter().chain([(at(100), 5)]) {
        while receiver.next_report() < now {
            let tick = receiver.next_report();
            assert_eq!(receiver.report(tick - Duration::from_nanos(1)), None);
            let report = receiver.report(tick).unwrap();
            reports.push((tick, report.number, report.elapsed));
            assert_eq!((receiver.next_report(), receiver.report(tick)), (Time::NEVER, None));
        }
        receiver.receive(now, number).unwrap();
    }
    assert_eq!(reports, [(at(5), 2, ms(3)), (at(15), 4, ms(0))]);
    assert_eq!(receiver.next_report(), at(105));
    let at_once = Config { feedback_interval: Duration::ZERO, ..Config::paper() };
    let mut receiver = Receiver::new(at_once);
    receiver.receive(at(1), 0).unwrap();
    assert_eq!(receiver.next_report(), at(1) + Duration::from_micros(1));
}

/// The trunk's own path: of 1,000 datagrams a second, one in 50 is lost, 20 ms each way. A round
/// trip of 40 ms has 40 datagrams, fewer than lie between two losses, so each loss is an event: p =
/// 1/50. By the numbers of one call of 50, which is in every twentieth datagram, either no loss is
/// seen, or far too many.
#[test]
fn the_loss_of_one_call_is_not_the_trunks() {
    let run = |config: Config, of_call: u32| {
        let mut trunk = (Sender::new(config, Time::ZERO), Receiver::new(config));
        let mut reports: VecDeque<(Time, Feedback)> = VecDeque::new();
        for n in 0..20_000u32 {
            let now = at(n.into());
            let number = trunk.0.sent(now, 1, 20);
            while let Some(&(when, report)) = reports.front()
                && when <= now
            {
                trunk.0.feedback(now, &report).unwrap();
                trunk.1.set_rtt(trunk.0.rtt().unwrap());
                reports.pop_front();
            }
            if n % 50 == 10 {
                continue;
            }
            let there = now + ms(20);
            if n % 20 == of_call {
                trunk.1.receive_of_flow(there, (n / 20) as u16);
            }
            if trunk.1.receive(there, number) == Ok(true) {
                reports.push_back((there + ms(20), trunk.1.report(there).unwrap()));
            }
        }
        trunk.0.loss()
    };
    let own = run(Config::default(), 10);
    assert!((own - 0.02).abs() < 1e-3, "{own}");
    assert_eq!(run(Config::paper(), 11), 0.0, "none of its packets is lost");
    // n = 10 modulo both 50 and 20 is every 100th datagram: one in five of the call's. The open
    // interval has up to nine until the next loss is detected.
    let of_one = run(Config::paper(), 10);
    assert!((0.16..=0.2).contains(&of_one), "{of_one}");
}
