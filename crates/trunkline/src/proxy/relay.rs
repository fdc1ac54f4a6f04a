//! The main loop of a proxy: forwards packets from the listening end to the destination, and
//! answers back to their senders.

use super::opener::{Opener, Ticket};
use super::port::{Memory, Packet, Port, Terms};
use super::share::Origin;
use super::signalling::CallDetector;
use super::table::Table;
use super::tally::{Reason, Tally};
use super::{Forward, Limits, Overlay};
use crate::call::line::Target;
use crate::clock;
use crate::datapath::mmsg::TxBatch;
use crate::stop::Signals;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_client::Error;

/// Packets of a flow that are queued until its virtual port is bound: a third of a second of a
/// call, while a local node answers in microseconds.
const WAITING: usize = 16;

/// Interval between searches for idle flows.
const SWEEP: Duration = Duration::from_secs(1);

/// Maximum number of events per wake-up.
const EVENTS: usize = 64;

/// Tokens of events: below [`FLOWS`], a listening end; from there on, the slot of a flow.
const STOP: u64 = u64::MAX;
const OPENED: u64 = u64::MAX - 1;
const FLOWS: u64 = 1 << 32;

/// Index of the listening end, and the sender there.
type Key = (usize, Target);

/// Destination side of a flow.
enum Far {
    /// The virtual port has been requested.
    Opening {
        ticket: Ticket,
        waiting: Vec<Box<[u8]>>,
    },
    Open(Port),
}

/// The state of a running proxy for UDP.
pub struct Relay {
    epoll: Epoll,
    forwards: Vec<Forward>,
    watch: CallDetector,
    flows: Table<Key, Origin, Far>,
    limits: Limits,
    opener: Opener,
    next_ticket: Ticket,
    memory: Memory,
    tx: TxBatch,
    tally: Tally,
}

impl Relay {
    pub fn new(forwards: Vec<Forward>, overlay: Overlay, limits: Limits) -> io::Result<Relay> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let opener = Opener::start(overlay, limits.max_flows)?;
        epoll.add(&opener, EpollEvent::new(EpollFlags::EPOLLIN, OPENED))?;
        for (i, forward) in forwards.iter().enumerate() {
            epoll.add(&forward.listen, EpollEvent::new(EpollFlags::EPOLLIN, i as u64))?;
        }
        Ok(Relay {
            epoll,
            watch: CallDetector::new(&forwards),
            forwards,
            flows: Table::new(limits.max_flows, limits.max_flows_each),
            limits,
            opener,
            next_ticket: 0,
            memory: Memory::new(),
            tx: TxBatch::new(),
            tally: Tally::default(),
        })
    }

    /// Relays until a signal arrives.
    pub fn run(&mut self, stop: &Signals) -> io::Result<()> {
        self.epoll.add(stop.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut next_sweep = clock::now() + SWEEP;
        loop {
            let timeout = EpollTimeout::try_from(SWEEP).unwrap_or(EpollTimeout::ZERO);
            let n = match self.epoll.wait(&mut events, timeout) {
                Ok(n) => n,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let now = clock::now();
            for event in &events[..n] {
                match event.data() {
                    STOP => return Ok(()),
                    OPENED => self.opened(),
                    // A slot that has been reused in the meantime has nothing to receive.
                    slot @ FLOWS.. => self.answered((slot - FLOWS) as usize, now),
                    i => self.listened(i as usize, now),
                }
            }
            if now >= next_sweep {
                next_sweep = now + SWEEP;
                let tally = &mut self.tally;
                self.flows.expire(now, self.limits.idle, |far| {
                    tally.flows.expired += 1;
                    give_up(&far, tally);
                });
            }
        }
    }

    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Forwards packets received at a listening end.
    fn listened(&mut self, i: usize, now: Time) {
        let Relay {
            epoll,
            forwards,
            watch: calls,
            flows,
            limits,
            opener,
            next_ticket,
            memory,
            tx,
            tally,
        } = self;
        let Some(Forward { listen, to, .. }) = forwards.get(i) else { return };
        let packets = listen.recv(memory, tally);
        calls.look(&packets);
        // Packets of a sender arrive in runs, and are sent in runs too.
        for run in packets.chunk_by(|(a, _), (b, _)| a == b) {
            let key = (i, run[0].0);
            let slot = match flows.find(&key) {
                Some(slot) => slot,
                None => match open(to, limits.terms, opener, next_ticket) {
                    Ok(far) => {
                        let origin = Origin::from(&key.1);
                        let (slot, displaced) = flows.insert(key, origin, far, now);
                        if let Some(far) = displaced {
                            tally.displaced(limits);
                            give_up(&far, tally);
                        }
                        if let Some((_, Far::Open(port))) = flows.at(slot) {
                            watch(epoll, port, slot, tally);
                        }
                        slot
                    }
                    Err(error) => {
                        tally.drop(
                            Reason::Unopened,
                            run.len(),
                            format_args!("no socket for another sender: {error}{MORE_FILES}"),
                        );
                        continue;
                    }
                },
            };
            match flows.touch(slot, now) {
                Some((_, Far::Open(port))) => port.send(to, run, tx, tally),
                Some((_, Far::Opening { waiting, .. })) => wait(waiting, run, limits, tally),
                None => {}
            }
        }
    }

    /// Returns answers received by a flow to its sender.
    fn answered(&mut self, slot: usize, now: Time) {
        let Relay { forwards, watch: calls, flows, memory, tx, tally, .. } = self;
        let Some(((i, peer), Far::Open(port))) = flows.at(slot) else { return };
        let Some(Forward { listen, to, .. }) = forwards.get(i) else { return };
        let mut packets = port.recv(memory, tally);
        calls.look(&packets);
        // A connected UDP socket receives only from the far end.
        if let Target::Overlay(_) = to {
            let all = packets.len();
            packets.retain(|(from, _)| from == to);
            tally.drop(
                Reason::UnknownPeer,
                all - packets.len(),
                format_args!("packets from elsewhere than {to} were dropped"),
            );
        }
        if !packets.is_empty() {
            listen.send(&peer, &packets, tx, tally);
            // Answers keep a flow alive, as its sender's packets do.
            flows.touch(slot, now);
        }
    }

    /// Takes over the virtual ports that have been bound.
    fn opened(&mut self) {
        self.opener.clear();
        while let Some((ticket, result)) = self.opener.next() {
            // The flow was displaced or expired meanwhile; the port is dropped too.
            let Some(slot) = self.slot_of(ticket) else { continue };
            match result {
                Ok(socket) => self.begin(slot, socket.into()),
                Err(error) => {
                    let Some(Far::Opening { waiting, .. }) = self.flows.remove(slot) else {
                        continue;
                    };
                    let (reason, advice) = match &error {
                        Error::Io { .. } => (Reason::Unopened, MORE_FILES),
                        Error::NoFreePort | Error::Refused(_) => (Reason::Unopened, ""),
                        _ => (Reason::NodeAway, ""),
                    };
                    self.tally.drop(
                        reason,
                        waiting.len(),
                        format_args!("no virtual port for a sender: {error}{advice}"),
                    );
                }
            }
        }
    }

    /// Finds the flow of a ticket by a linear search, which happens once per flow.
    fn slot_of(&mut self, ticket: Ticket) -> Option<usize> {
        self.flows.position(|far| matches!(far, Far::Opening { ticket: t, .. } if *t == ticket))
    }

    /// Assigns `port` to a flow, and sends the packets queued for it.
    fn begin(&mut self, slot: usize, port: Port) {
        let Relay { epoll, forwards, flows, tx, tally, .. } = self;
        let Some(((i, peer), far)) = flows.at(slot) else { return };
        watch(epoll, &port, slot, tally);
        let waited = std::mem::replace(far, Far::Open(port));
        if let (Far::Opening { waiting, .. }, Far::Open(port)) = (waited, far) {
            for bytes in &waiting {
                port.send(&forwards[i].to, &[(peer, bytes)], tx, tally);
            }
        }
    }
}

const MORE_FILES: &str = "; if it is for want of open files, raise the limit (ulimit -n)";

/// Opens the far side of a new flow.
fn open(to: &Target, terms: Terms, opener: &Opener, next_ticket: &mut Ticket) -> io::Result<Far> {
    match to {
        Target::Udp(address) => Ok(Far::Open(Port::towards(*address, terms)?)),
        Target::Overlay(_) => {
            *next_ticket += 1;
            let ticket = *next_ticket;
            if opener.ask(ticket) {
                Ok(Far::Opening { ticket, waiting: Vec::new() })
            } else {
                Err(io::Error::other("too many wait for one"))
            }
        }
    }
}

/// Counts the packets queued in a flow that has been removed.
fn give_up(far: &Far, tally: &mut Tally) {
    if let Far::Opening { waiting, .. } = far {
        let why = "a sender was forgotten before the node gave it a port";
        tally.drop(Reason::Waiting, waiting.len(), why);
    }
}

fn watch(epoll: &Epoll, port: &Port, slot: usize, tally: &mut Tally) {
    tally.flows.opened += 1;
    let added = epoll.add(port, EpollEvent::new(EpollFlags::EPOLLIN, FLOWS + slot as u64));
    if let Err(errno) = added {
        tracing::warn!("answers to one sender will not come back: epoll: {errno}");
    }
}

/// Queues packets until their flow has a port.
fn wait(waiting: &mut Vec<Box<[u8]>>, run: &[Packet<'_>], limits: &Limits, tally: &mut Tally) {
    for (_, bytes) in run {
        if bytes.len() > limits.max_payload {
            tally.overlay(&Error::TooLarge { len: bytes.len(), max: limits.max_payload }, 1);
        } else if waiting.len() < WAITING {
            waiting.push((*bytes).into());
        } else {
            let why = "a new sender's packets were dropped: the node has not given it a port yet";
            tally.drop(Reason::Waiting, 1, why);
        }
    }
}
