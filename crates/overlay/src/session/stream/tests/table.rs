//! Many streams in one table: their timers, their memory, and the choice of the one to forget.

use super::super::segment::Ack;
use super::*;

/// Each stream has one timer, and a removed one has none.
#[test]
fn there_are_no_more_timers_than_streams() {
    let mut table = Streams::new(Config::default());
    let config = window::Config::new(ROOM + 84);
    for n in 0..10_000u16 {
        let key = Key { peer: NodeId(2), peer_port: n, port: 1 };
        let (tx, rx) = (Sender::new(MAX, config), Receiver::new(MAX, 0));
        let id = table.insert(End::opened(Time::ZERO, key, NUMBERS, Owner::Nobody, tx, rx));
        table.arm(id);
        assert_eq!(table.timers(), 1);
        table.remove(id);
        assert_eq!(table.timers(), 0);
    }
}

/// When a table is full, the stream that ended longest ago is forgotten: one with the node that
/// needs room if possible, otherwise any other, unless that node has its maximum number.
#[test]
fn the_oldest_that_is_only_remembered_gives_way() {
    let mut table = Streams::new(Config { max: 8, ..Config::default() });
    let config = window::Config::new(ROOM + 84);
    let open = |peer, n, table: &mut Streams| {
        assert!(table.has_room(NodeId(peer)));
        let key = Key { peer: NodeId(peer), peer_port: n, port: 1 };
        let (tx, rx) = (Sender::new(MAX, config), Receiver::new(MAX, 0));
        table.insert(End::opened(Time::ZERO, key, NUMBERS, Owner::Nobody, tx, rx))
    };
    let finish = |id, table: &mut Streams| {
        let (end, mut memory) = table.get_mut(id).unwrap();
        end.tx.shut();
        end.poll(Time::ZERO, ROOM, &mut [0; ROOM]).unwrap();
        let ack = Some(Ack::new(1, 0, 0, 0));
        let data = Some(Data { position: 0, end: true, retransmitted: false, bytes: &[] });
        let body = Body { ack, data, ..of_stream() };
        end.on_segment(Time::ZERO, &body, false, &mut memory).unwrap();
        table.touch(id);
        assert!(table.get(id).unwrap().is_left());
    };
    let of_two: Vec<_> = (0..4).map(|n| open(2, n, &mut table)).collect();
    assert_eq!(table.to_forget(NodeId(2)), None, "all are open");
    for at in [2, 0, 3] {
        finish(of_two[at], &mut table);
    }
    assert!(!table.has_room(NodeId(2)), "that node has half of all");
    assert_eq!(table.to_forget(NodeId(2)), Some(of_two[2]));
    let of_three: Vec<_> = (0..2).map(|n| open(3, n, &mut table)).collect();
    assert!(!table.has_room(NodeId(3)), "it leaves half of the rest");
    assert!(table.has_room(NodeId(4)));
    assert_eq!(table.to_forget(NodeId(3)), Some(of_two[2]), "the oldest of all");
    finish(of_three[1], &mut table);
    assert_eq!(table.to_forget(NodeId(3)), Some(of_three[1]));
    // A slot is reused, and its new stream is not the oldest because of that.
    table.remove(of_three[1]);
    table.remove(of_two[2]);
    assert_eq!(open(2, 9, &mut table), of_two[2]);
    finish(of_two[2], &mut table);
    assert_eq!(table.to_forget(NodeId(2)), Some(of_two[0]));
}

/// Senders that have taken all memory leave each receiver room for one segment after the
/// other.
#[test]
fn a_receiver_always_has_some_memory() {
    let config = Config { memory: 4 * MAX as usize, buffer: MAX as usize, ..Config::default() };
    let mut table = Streams::new(config);
    let window = window::Config::new(ROOM + 84);
    let mut ids = Vec::new();
    for n in 0.. {
        if !table.has_room(NodeId(2)) {
            break;
        }
        let key = Key { peer: NodeId(2), peer_port: n, port: 1 };
        let (tx, rx) = (Sender::new(MAX, window), Receiver::new(MAX, 1 << 20));
        let id = table.insert(End::opened(Time::ZERO, key, NUMBERS, Owner::Nobody, tx, rx));
        let (end, mut memory) = table.get_mut(id).unwrap();
        end.tx.grant(&mut memory);
        end.rx.ack(0);
        ids.push(id);
    }
    assert!(ids.len() > 4, "{} streams", ids.len());
    for id in ids {
        let (end, mut memory) = table.get_mut(id).unwrap();
        for k in 0..100 {
            let data =
                Data { position: k * 1_000, end: false, retransmitted: false, bytes: &[7; 1_000] };
            assert_eq!(
                end.rx.on_data(Time::ZERO, &data, &mut memory),
                Ok(SegmentOutcome::New),
                "{k}"
            );
            end.rx.took(Time::ZERO, 1_000);
        }
    }
}

/// Data of an ended stream has no reader left if its application has gone.
#[test]
fn what_nobody_will_read_takes_no_memory() {
    let config = Config { memory: 4 * MAX as usize, buffer: MAX as usize, ..Config::default() };
    let mut table = Streams::new(config);
    let window = window::Config::new(ROOM + 84);
    for n in 0..20 {
        assert!(table.has_room(NodeId(2)), "{n} streams that are only remembered");
        let key = Key { peer: NodeId(2), peer_port: n, port: 1 };
        let (tx, rx) = (Sender::new(MAX, window), Receiver::new(MAX, 0));
        let owner = Owner::Session(SessionId(n.into()));
        let id = table.insert(End::opened(Time::ZERO, key, NUMBERS, owner, tx, rx));
        let (end, mut memory) = table.get_mut(id).unwrap();
        end.rx.ack(0);
        end.tx.shut();
        end.poll(Time::ZERO, ROOM, &mut [0; ROOM]).unwrap();
        for k in 0..100 {
            let data = Some(Data {
                position: k * 1_000,
                end: k == 99,
                retransmitted: false,
                bytes: &[7; 1_000],
            });
            let body = Body { ack: Some(Ack::new(1, 0, 0, 0)), data, ..of_stream() };
            end.on_segment(Time::ZERO, &body, false, &mut memory).unwrap();
        }
        assert!(end.is_over() && end.rx.holds_data());
        assert_eq!(end.abandon(&mut memory), Ok(()));
        table.set_owner(id, Owner::Nobody);
        table.touch(id);
        assert!(table.get(id).unwrap().is_left());
    }
}

/// Streams that wait for an outlet get their turns in the order in which they began to wait,
/// whatever else happens to them, and each outlet has its own queue.
#[test]
fn each_outlet_has_those_that_wait_for_it_in_their_order() {
    let mut table = Streams::new(Config::default());
    let config = window::Config::new(ROOM + 84);
    let ids: Vec<_> = (0..5)
        .map(|n| {
            let key = Key { peer: NodeId(2), peer_port: n, port: 1 };
            let (tx, rx) = (Sender::new(MAX, config), Receiver::new(MAX, 0));
            table.insert(End::opened(Time::ZERO, key, NUMBERS, Owner::Nobody, tx, rx))
        })
        .collect();
    while table.next_to_send().is_some() {}
    let (near, far) = (1, 7);
    for (id, link) in [(4, near), (2, far), (0, near), (1, near), (3, far)] {
        table.hold(ids[id], link);
    }
    table.hold(ids[4], near);
    table.touch(ids[1]);
    assert_eq!(table.senders(), 0, "they wait");
    assert_eq!((table.awaited(0), table.awaited(2)), (Some(near), Some(far)));
    assert_eq!(table.next_held(near), Some(ids[4]));
    table.hold(ids[4], near);
    assert_eq!(table.next_held(near), Some(ids[0]));
    table.remove(ids[1]);
    table.unhold(ids[2]);
    table.will_send(ids[2]);
    assert_eq!(table.next_to_send(), Some(ids[2]));
    assert_eq!(table.next_held(near), Some(ids[4]));
    assert_eq!((table.next_held(near), table.held(ids[3])), (None, Some(far)));
    assert_eq!(table.next_held(far), Some(ids[3]));
    assert_eq!(table.awaited(0), None);
}

/// A listener leaves: the streams that wait at its port go with it, and those at others stay.
#[test]
fn the_streams_that_wait_at_a_port_leave_it_together() {
    let mut table = Streams::new(Config::default());
    let config = window::Config::new(ROOM + 84);
    for port in [1, 2] {
        table.listen(SessionId(port.into()), port, 4);
    }
    let ids: Vec<_> = (0..4)
        .map(|n| {
            let port = 1 + n % 2;
            let key = Key { peer: NodeId(2), peer_port: n, port };
            assert!(table.listener(port).unwrap().may_wait(key.peer));
            let (tx, rx) = (Sender::new(MAX, config), Receiver::new(MAX, 0));
            let owner = Owner::Backlog { token: n.into() };
            table.insert(End::opened(Time::ZERO, key, NUMBERS, owner, tx, rx))
        })
        .collect();
    let listener = table.listener(2).unwrap();
    assert!(!listener.may_wait(NodeId(2)) && listener.may_wait(NodeId(3)));
    table.set_owner(ids[3], Owner::Nobody);
    assert!(table.listener(2).unwrap().may_wait(NodeId(2)));
    assert_eq!(table.unlisten(1), [ids[0], ids[2]]);
    assert_eq!((table.unlisten(2), table.unlisten(3)), (vec![ids[1]], vec![]));
}
