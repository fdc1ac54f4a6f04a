use super::super::setup::Setup as _;
use super::*;
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::time::Duration;
use toml::Spanned;
use trunkline_base::link_model::Cause;
use trunkline_net::{Done, Frame, Medium};

const SLOT_TIME: Duration = Duration::from_millis(20);

/// A channel shared by both directions. It sends one packet per time slot: the smallest of those
/// that have arrived by the end of the slot. It loses packets of one byte.
#[derive(Default)]
struct Channel {
    waiting: VecDeque<Frame>,
    slot_ends: Option<Time>,
}

impl Medium for Channel {
    fn offer(&mut self, now: Time, frame: &Frame) -> Result<(), Cause> {
        if self.waiting.len() == 4 {
            return Err(Cause::Queue);
        }
        self.waiting.push_back(*frame);
        self.slot_ends.get_or_insert(now + SLOT_TIME);
        Ok(())
    }

    fn next_timeout(&self) -> Time {
        self.slot_ends.unwrap_or(Time::NEVER)
    }

    fn poll(&mut self, now: Time) -> Option<Done> {
        let ended = self.slot_ends.filter(|&end| end <= now)?;
        let smallest = (0..self.waiting.len()).min_by_key(|&k| self.waiting[k].bytes)?;
        let Frame { key, bytes, tos, .. } = self.waiting.remove(smallest)?;
        self.slot_ends = (!self.waiting.is_empty()).then_some(ended + SLOT_TIME);
        Some(Done { key, outcome: if bytes == HEADER + 1 { Err(Cause::Loss) } else { Ok(tos) } })
    }
}

/// Length of the IPv4 and UDP headers.
const HEADER: u32 = 28;

/// One link between two nodes.
fn config(nodes: &[UdpSocket; 2]) -> Config {
    let [a, b] = nodes.each_ref().map(|node| node.local_addr().unwrap());
    let link = format!(
        "a = {{ listen = \"127.0.0.1:0\", peer = \"{a}\" }}\n\
         b = {{ listen = \"127.0.0.1:0\", peer = \"{b}\" }}"
    );
    Config::new(1, None, vec![Spanned::new(0..0, toml::from_str(&link).unwrap())]).unwrap()
}

#[test]
fn a_medium_sends_in_its_own_time() {
    let nodes = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let mut relay = Relay::bind(config(&nodes), Stop::new(false).unwrap(), None, false).unwrap();
    let mut net = Network::new(1);
    let (a, b, channel) = (net.host(), net.host(), net.medium(Channel::default()));
    net.connect_over(a, b, channel, [0, 1], SLOT_TIME);
    relay.pump.net = net;
    let ports: Vec<SocketAddr> = relay.addresses().map(|(.., addr)| addr).collect();
    // Four of the six from one end fit into the queue, which then has no room for the other end's.
    for size in [30, 1, 20, 10, 40, 50] {
        nodes[0].send_to(&vec![size; usize::from(size)], ports[0]).unwrap();
    }
    nodes[1].send_to(b"back", ports[1]).unwrap();
    // Loopback delivers at once, so all have arrived.
    (0..2).for_each(|port| relay.pump.receive(port));
    relay.pump.arm().unwrap();
    let mut turns = 0;
    // This does the work of run(), which sleeps until the timer fires.
    while let Some(due) = relay.pump.armed.take() {
        std::thread::sleep(due.since(relay.pump.clock.now()));
        relay.pump.send_due();
        relay.pump.arm().unwrap();
        turns += 1;
    }
    assert!(turns > 0, "nobody would ask the channel");
    let mut bytes = [0; 100];
    let mut next = || nodes[1].recv(&mut bytes).unwrap();
    assert_eq!([next(), next(), next()], [10, 20, 30], "the smallest first");

    let report = serde_json::to_value(relay.report()).unwrap();
    let packets = |key: &str| {
        let of = |way| report["links"][0][way][key]["packets"].as_u64().unwrap();
        [of("forward"), of("reverse")]
    };
    assert_eq!(packets("offered"), [6, 1]);
    assert_eq!((packets("delivered"), packets("lost")), ([3, 0], [1, 0]));
    assert_eq!((packets("queue_dropped"), packets("in_flight")), ([2, 1], [0, 0]));
    assert_eq!(report["lateness_us"]["samples"], 3);
    // No file describes this channel.
    let change = relay.pump.setup.change(config(&nodes)).unwrap();
    assert_eq!(relay.pump.apply(change).0, 0);
}
