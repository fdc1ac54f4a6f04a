//! The event loop of a world.

use super::World;
use crate::agent::Received;
use crate::agent::overlay::AFTER_DATAGRAMS;
use crate::endpoints::SOCKET_BUFFER;
use crate::queue::Event;
use trunkline_base::Time;
use trunkline_net::{Delivery, Moment};

impl World {
    /// Processes all events up to and including `end`.
    pub fn run_until(&mut self, end: Time) {
        let end_of = Moment::end_of(end);
        loop {
            let timer = self.timers.next().min(end_of);
            if let Some(delivery) = self.net.poll_before(timer) {
                self.now = delivery.at;
                self.arrive(delivery);
            } else if timer == end_of {
                break;
            } else if let Some((moment, event)) = self.timers.pop() {
                self.now = moment.at;
                self.happen(event);
            }
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake { agent, token } => {
                let host = self.agents[agent as usize].host;
                match self.stalled(host) {
                    Some(until) => {
                        let moment = self.net.moment(until + AFTER_DATAGRAMS);
                        self.timers.push(moment, event);
                    }
                    None => self.call(agent, |a, io| a.wake(token, io)),
                }
            }
            Event::Held(place) => {
                if let Some(delivery) = self.held.take(place) {
                    self.arrive(delivery);
                }
            }
        }
    }

    /// End of a host's stall, if it is stalled now.
    fn stalled(&mut self, host: u32) -> Option<Time> {
        let stall = &mut self.places.hosts[host as usize].stall;
        if self.now < stall.until {
            return Some(stall.until);
        }
        stall.waiting = 0;
        None
    }

    /// Delivers a datagram that arrived at its `at`, which is before now if its host was stalled.
    fn arrive(&mut self, delivery: Delivery) {
        let (header, mut payload) = self.net.open(&delivery);
        let iface = self.places.ifaces[header.to.vertex.0 as usize];
        if let Some(host) = iface.host {
            if let Some(until) = self.stalled(host) {
                return self.hold(host, until, delivery, payload);
            }
            let here = &self.places.hosts[host as usize];
            let bound = iface.only.or_else(|| here.bound(header.protocol, header.to.port));
            if let Some(agent) = bound.filter(|_| !here.down) {
                let datagram = Received { at: delivery.at, header, payload: &mut payload };
                self.call(agent, |a, io| a.receive(datagram, io));
            }
        }
        self.net.release(delivery, payload);
    }

    /// Stores a datagram for a stalled host, if its socket's buffer has room.
    fn hold(&mut self, host: u32, until: Time, delivery: Delivery, payload: Vec<u8>) {
        let stall = &mut self.places.hosts[host as usize].stall;
        if stall.waiting == SOCKET_BUFFER {
            stall.overflowed += 1;
            return self.net.release(delivery, payload);
        }
        stall.waiting += 1;
        let moment = self.net.moment(until);
        self.net.close(&delivery, payload);
        self.timers.push(moment, Event::Held(self.held.put(delivery)));
    }
}
