use super::*;
use crate::datapath::record;
use crate::datapath::thread::uplinks::*;
use crate::datapath::udp::Udp;
use nix::sys::epoll::EpollCreateFlags;
use trunkline_overlay::wire::NodeId;

/// The uplinks of a node with one listener.
struct Bench {
    uplinks: Uplinks,
    udp: Udp,
    epoll: Epoll,
    arena: TxArena,
}

fn bench() -> Bench {
    let udp = Udp::bind("127.0.0.1:0".parse().expect("an address"), false).expect("bound");
    let epoll = Epoll::new(EpollCreateFlags::empty()).expect("epoll");
    let (mut arena, mut sockets) = (record::arena(), [udp]);
    let uplinks = Uplinks::new(&mut sockets, [].into(), &epoll, &mut arena).expect("uplinks");
    let [udp] = sockets;
    Bench { uplinks, udp, epoll, arena }
}

impl Bench {
    fn add(&mut self, interface: u32, sharing: Sharing) -> UplinkId {
        let departure = Departure { listener: 0, interface, egress: Egress::default(), sharing };
        self.uplinks.add(self.udp.sibling().expect("a socket"), departure, &mut self.arena)
    }

    /// Lets link 7 race for `uplink`.
    fn join(&mut self, uplink: UplinkId) -> GroupId {
        let queues = &mut self.uplinks.own_queues;
        queues.set_apart(vec![LinkId(7)], Apart::Races(uplink));
        queues.last_group
    }

    fn slot(&mut self, uplink: UplinkId) -> &mut Slot {
        self.uplinks.slots[usize::from(uplink.0) - 1].as_mut().expect("open")
    }
}

fn name(node: u32) -> LinkName {
    (NodeId(node), String::new())
}

#[test]
fn an_uplink_that_has_room_after_a_race_is_not_full() {
    let mut bench = bench();
    let uplink = bench.add(2, Sharing::Links);
    let (began, now) = (Time::from_millis(1_000), Time::from_millis(1_100));
    let slot = bench.slot(uplink);
    (slot.room, slot.full_since, slot.paused) = (0, Some(began), true);
    let Bench { uplinks, arena, epoll, .. } = &mut bench;
    uplinks.resume(now, uplink, arena, epoll).expect("resumed");
    assert!(arena.room(uplink) > 0);
    assert_eq!(uplinks.full_since(uplink), None);
}

/// A link is new in the same change in which another one, whose number it takes, is removed.
#[test]
fn a_link_inherits_nothing_from_the_former_one_with_its_number() {
    let (mut uplinks, id, now) = (bench().uplinks, LinkId(0), Time::from_millis(1_000));
    uplinks.identify(id, Some(name(2)));
    uplinks.own_queues.suspect(now, &[id]);
    uplinks.output.errors.hold(now, id, Some(libc::ENODEV));
    uplinks.identify(id, Some(name(2)));
    assert!(uplinks.own_queues.group_of(id).is_some() && uplinks.error_of(id).is_some());
    uplinks.identify(id, Some(name(3)));
    assert!(uplinks.own_queues.group_of(id).is_none() && uplinks.error_of(id).is_none());
    uplinks.own_queues.suspect(now, &[id]);
    uplinks.identify(id, None);
    assert!(uplinks.own_queues.group_of(id).is_none());
}

/// The default route moves to another interface during a race: what leaves there says nothing of what
/// waits here.
#[test]
fn a_link_that_leaves_elsewhere_doesnt_race() {
    let mut bench = bench();
    let raced = bench.add(2, Sharing::Links);
    let group = bench.join(raced);
    let [here, there] = [2, 3].map(|interface| bench.add(interface, Sharing::Own(group)));
    let of_group = |uplink| bench.uplinks.is_of_group(uplink, group, Apart::Races(raced));
    assert!(of_group(here) && !of_group(there));
}

/// A link that is down sends handshakes whether or not there is room.
#[test]
fn nothing_enters_a_socket_that_is_raced_for() {
    let mut bench = bench();
    let uplink = bench.add(2, Sharing::Links);
    let to = "127.0.0.1:9".parse().expect("an address");
    bench.arena.envelope(uplink, to, 0, 100).expect("room");
    let way = |bench: &Bench| bench.uplinks.way_of(&bench.arena.runs()[0]).map(|(i, _)| i);
    assert_eq!(way(&bench), Some(1));
    bench.slot(uplink).paused = true;
    assert_eq!(way(&bench), Some(0), "by the listener's socket");
    // That of a link that races takes the one packet that it has room for.
    let group = bench.join(uplink);
    let own = bench.add(2, Sharing::Own(group));
    bench.arena.clear();
    bench.arena.envelope(own, to, 0, 100).expect("room");
    assert_eq!(way(&bench), Some(2));
}

/// A neighbour whose queue hangs may have another address, behind another queue.
#[test]
fn a_packet_to_another_address_wins_no_race() {
    let mut bench = bench();
    let raced = bench.add(2, Sharing::Links);
    let group = bench.join(raced);
    let own = bench.add(2, Sharing::Own(group));
    let [address, other] =
        ["127.0.0.1:9", "127.0.0.2:9"].map(|to| Some(to.parse().expect("an address")));
    bench.arena.envelope(own, other.expect("set"), 0, 100).expect("room");
    bench.uplinks.send(Time::from_millis(1_000), &bench.arena);
    let wins = |to| bench.uplinks.has_passed((LinkId(7), to), own, &bench.arena);
    assert!(wins(other) && !wins(address) && !wins(None));
}
