use super::*;
use std::ops::Range;

const UP: UplinkId = UplinkId(2);
const EMPTY: Seen = Seen { empty: true, left: Some(0) };
const STUCK: Seen = Seen { empty: false, left: Some(0) };
const BUSY: Seen = Seen { empty: false, left: Some(5_000) };

fn waiting(urgent: Range<u16>, shared: Range<u16>) -> Waiting {
    let links = urgent.len() + shared.len();
    let [urgent, shared] = [urgent, shared].map(|ids| ids.map(LinkId).collect());
    Waiting { links, urgent, shared }
}

fn ids(chosen: &[LinkId]) -> Vec<u16> {
    chosen.iter().map(|id| id.0).collect()
}

fn links(ids: Range<u16>) -> Vec<LinkId> {
    ids.map(LinkId).collect()
}

/// Lets links race for an uplink.
fn join(queues: &mut OwnQueues, uplink: UplinkId, links: &[LinkId]) {
    links.iter().for_each(|link| queues.set_apart(vec![*link], Apart::Races(uplink)));
}

#[test]
fn links_race_in_turn_and_rest_after_they_have_lost() {
    let (mut queues, at) = (OwnQueues::new(), Time::from_millis);
    let all = waiting(1..40, 50..60);
    let first = queues.choose(at(0), UP, &all);
    assert_eq!(ids(&first), (1..17).collect::<Vec<_>>());
    queues.rest(at(0), first.into_iter());
    let second = queues.choose(at(10), UP, &all);
    assert_eq!(ids(&second), (17..33).collect::<Vec<_>>());
    queues.rest(at(10), second.into_iter());
    let third = queues.choose(at(20), UP, &all);
    assert_eq!(ids(&third), (33..40).collect::<Vec<_>>());
    queues.rest(at(20), third.into_iter());
    // Few of those that wait with other packets only.
    assert_eq!(ids(&queues.choose(at(30), UP, &all)), [50, 51]);
    assert_eq!(ids(&queues.choose(at(30), UP, &waiting(0..0, 50..60))), [52, 53]);
    // The first ones may again after a second, then after two.
    assert_eq!(ids(&queues.choose(at(1_000), UP, &waiting(1..3, 0..0))), [1, 2]);
    queues.rest(at(1_000), [LinkId(1)].into_iter());
    assert_eq!(ids(&queues.choose(at(2_500), UP, &waiting(1..3, 0..0))), [2]);
    assert_eq!(ids(&queues.choose(at(3_000), UP, &waiting(1..2, 0..0))), [1]);
}

#[test]
fn few_links_have_a_socket_of_their_own() {
    let (mut queues, now) = (OwnQueues::new(), Time::from_millis(1_000));
    queues.suspect(now, &links(0..MAX_OWN as u16 - 3));
    let chosen = queues.choose(now, UP, &waiting(0..100, 0..0));
    assert_eq!(ids(&chosen), [29, 30, 31], "not those that have one");
    queues.suspect(now, &chosen);
    assert_eq!(queues.choose(now, UP, &waiting(0..100, 100..200)), []);
    queues.forget(LinkId(7));
    assert_eq!(queues.choose(now, UP, &waiting(0..100, 0..0)).len(), 1);
}

/// A race on an interface that hangs as a whole lasts for up to a second.
#[test]
fn a_race_on_one_interface_holds_up_none_on_another() {
    let (mut queues, now) = (OwnQueues::new(), Time::from_millis(1_000));
    let first = queues.choose(now, UP, &waiting(0..40, 0..0));
    join(&mut queues, UP, &first);
    assert_eq!(queues.choose(now, UP, &waiting(0..40, 0..0)), []);
    let other = UplinkId(3);
    assert_eq!(queues.choose(now, other, &waiting(100..140, 0..0)).len(), URGENT_AT_ONCE);
}

#[test]
fn a_link_that_is_suspected_again_and_again_is_not_believed() {
    let (mut queues, mut now) = (OwnQueues::new(), Time::from_millis(1_000));
    let link = LinkId(1);
    for time in 0..=DOUBTS {
        queues.suspect(now, &[link]);
        let group = queues.group_of(link).unwrap();
        assert_eq!(queues.judge(now + TRIAL_POLL, group, STUCK), []);
        let back = queues.judge(now + 2 * TRIAL_POLL, group, EMPTY);
        assert_eq!(!back.is_empty(), time < DOUBTS, "{time}");
        now += Duration::from_secs(1);
    }
    let group = queues.group_of(link).unwrap();
    assert_eq!(queues.judge(now, group, EMPTY), []);
    assert!(queues.waits_alone(link));
    assert_eq!(queues.judge(now, group, EMPTY), []);
    assert_eq!(queues.judge(now + STAY, group, EMPTY), [link]);
}

/// As often as another one hangs.
#[test]
fn a_link_whose_socket_is_always_empty_is_always_believed() {
    let (mut queues, now) = (OwnQueues::new(), Time::from_millis(1_000));
    for _ in 0..10 {
        queues.suspect(now, &[LinkId(1)]);
        let group = queues.group_of(LinkId(1)).unwrap();
        assert_eq!(queues.judge(now + TRIAL, group, EMPTY), [LinkId(1)]);
    }
}

/// Links in calls on one interface.
struct Hub {
    queues: OwnQueues,
    links: Range<u16>,
    /// Packets of these stay, and those of these leave, but more come at once.
    hung: Vec<u16>,
    busy: Range<u16>,
    ms: u64,
    /// Time since the shared socket takes nothing.
    full_since: Option<u64>,
    /// Milliseconds for which each link was held up by another one.
    held: Vec<u64>,
}

impl Hub {
    fn new(links: Range<u16>) -> Hub {
        let held = vec![0; links.len()];
        let queues = OwnQueues::new();
        Hub { queues, links, hung: Vec::new(), busy: 0..0, ms: 1_000, full_since: None, held }
    }

    fn now(&self) -> Time {
        Time::from_millis(self.ms)
    }

    fn seen(&self, group: GroupId) -> Seen {
        let links = &self.queues.groups[&group].links;
        let any = |is: &dyn Fn(u16) -> bool| links.iter().any(|link| is(link.0));
        match (any(&|id| self.hung.contains(&id)), any(&|id| self.busy.contains(&id))) {
            (true, _) => STUCK,
            (_, true) => BUSY,
            _ => EMPTY,
        }
    }

    /// Links that share the socket of all, and wait if one of them hangs.
    fn together(&self) -> Vec<LinkId> {
        let all = self.links.clone().map(LinkId);
        all.filter(|link| self.queues.group_of(*link).is_none()).collect()
    }

    /// A race, and what follows it.
    fn race(&mut self) {
        if self.queues.free() == 0 {
            self.queues.make_room(URGENT_AT_ONCE);
        }
        let together = self.together();
        let is_busy = |link: &LinkId| self.busy.contains(&link.0);
        let (shared, urgent) = together.iter().copied().partition(is_busy);
        let waiting = Waiting { links: together.len(), urgent, shared };
        let racers = self.queues.choose(self.now(), UP, &waiting);
        if racers.is_empty() {
            return;
        }
        join(&mut self.queues, UP, &racers);
        for racer in racers {
            match self.hung.contains(&racer.0) {
                true => self.queues.suspect_racer(self.now(), racer),
                false => self.queues.release(racer),
            }
        }
        let mut suspects = self.together();
        suspects.retain(|link| waiting.shared.contains(link) || waiting.urgent.contains(link));
        self.queues.suspect(self.now(), &suspects);
        self.full_since = None;
    }

    fn run(&mut self, ms: u64) {
        (0..ms / 2).for_each(|_| self.step(2));
    }

    fn step(&mut self, ms: u64) {
        self.ms += ms;
        for group in self.queues.groups.keys().copied().collect::<Vec<_>>() {
            if self.queues.groups.contains_key(&group) {
                let seen = self.seen(group);
                self.queues.judge(self.now(), group, seen);
            }
        }
        let is_hung = |link: &LinkId| self.hung.contains(&link.0);
        let together = self.together();
        let groups = self.queues.groups.values().map(|group| &group.links);
        for held in groups.chain([&together]).filter(|links| links.iter().any(is_hung)) {
            held.iter().for_each(|link| self.held[usize::from(link.0)] += ms);
        }
        match together.iter().any(is_hung) {
            true => drop(self.full_since.get_or_insert(self.ms)),
            false => self.full_since = None,
        }
        if self.full_since.is_some_and(|since| self.ms - since >= 40) {
            self.race();
        }
    }

    /// The longest time in milliseconds for which a link that doesn't hang was held up.
    fn longest(&self) -> u64 {
        let others = self.links.clone().filter(|id| !self.hung.contains(id));
        others.map(|id| self.held[usize::from(id)]).max().unwrap_or(0)
    }
}

#[test]
fn a_link_that_hangs_is_found_among_hundreds() {
    for (n, longest) in [(2, 44), (33, 100), (200, 100), (1_000, 160)] {
        for hung in [0, n / 2, n - 1] {
            let mut hub = Hub::new(0..n);
            // Each time as the first.
            for time in 0..4 {
                hub.hung = vec![hung];
                hub.run(400);
                assert!(hub.queues.waits_alone(LinkId(hung)), "{hung} of {n}, time {time}");
                assert_eq!(hub.queues.groups.len(), 1, "{hung} of {n}: the others are together");
                assert!(hub.longest() <= longest, "{hung} of {n}: {} ms", hub.longest());
                hub.hung.clear();
                (0..400).for_each(|_| hub.step(100));
                assert_eq!(hub.queues.groups.len(), 0, "{hung} of {n}, time {time}");
                hub.held.fill(0);
            }
        }
    }
}

#[test]
fn more_links_hang_than_there_are_sockets() {
    let mut hub = Hub::new(0..200);
    hub.hung = (100..140).collect();
    hub.run(2_000);
    let together = hub.together();
    assert!(together.iter().all(|link| !hub.hung.contains(&link.0)), "{together:?}");
    assert_eq!(hub.queues.groups.len(), MAX_OWN);
    assert!(together.len() > 150, "{} of 160 others", together.len());
}

/// Transfers to many neighbours fill a socket each for as long as they last.
#[test]
fn links_that_are_busy_keep_none_from_being_found() {
    let mut hub = Hub::new(0..100);
    hub.busy = 20..60;
    hub.race();
    hub.run(1_000);
    assert_eq!(hub.queues.free(), 0, "else nothing is tested");
    for hung in [5, 70, 99] {
        hub.hung.push(hung);
        hub.run(1_000);
        assert!(hub.queues.waits_alone(LinkId(hung)), "{hung}");
        assert!(hub.longest() <= 250, "{hung}: {} ms", hub.longest());
        hub.held.fill(0);
    }
}

#[test]
fn bytes_that_left_are_counted_over_a_while() {
    let at = Time::from_millis;
    let mut outflow = Outflow::new(at(0));
    outflow.took_bytes(3_000);
    assert_eq!(outflow.look(at(50), 2_000), None, "too early to say");
    assert_eq!(outflow.look(at(100), 2_000), Some(1_000));
    assert_eq!(outflow.look(at(150), 0), Some(1_000));
    // Two packets wait, which the kernel counts as more than their own bytes.
    outflow.took_bytes(500);
    assert_eq!(outflow.look(at(200), 2_500), Some(0));
    assert_eq!(outflow.look(at(300), 2_500), Some(0));
}
