//! The event loop of the SIP thread.

use super::connections::{Connections, Place};
use super::ledger::{self, Ledger};
use super::port_board::PortBoard;
use super::stream::{self, Activity, Line, OUTBOX};
use super::tls::Tls;
use super::{Bound, GatewayReport, Input, Stopped, until};
use crate::clock;
use crate::datapath::media::MediaStats;
use crate::rate_limited_log::RateLimitedLog;
use crate::resolver::{self, Answer, FOR_PHONES, Resolver};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use trunkline_base::Time;
use trunkline_gateway::{CallOutcome, CallView, Event, Farewell, Found, Gateway, Transport};
use trunkline_sip::transaction::{Hop, Output};

/// Maximum number of inputs processed before the resulting output is sent.
const BATCH: usize = 64;

/// Buffer size in bytes for the longest datagram.
const DATAGRAM: usize = 65_535;

/// Interval between requests for the packet thread's view of the media.
const LOOK: Duration = Duration::from_secs(1);

/// Interval between requests for the current routes, which calls are set up with.
const WAYS: Duration = Duration::from_millis(100);

/// The gateway with its sockets, connections and records.
pub struct Driver {
    gateway: Gateway,
    board: PortBoard,
    ledger: Ledger,
    resolver: Resolver,
    tls: Tls,
    inbox: mpsc::Sender<Input>,
    udp: BTreeMap<u32, Arc<UdpSocket>>,
    connections: Connections,
    media: MediaStats,
    limited_logs: LimitedLogs,
    stopping: Option<Stopping>,
}

/// A stop that has been requested.
struct Stopping {
    /// Receiver of the stop notification.
    reply: SyncSender<Stopped>,
    /// The calls at the time.
    calls: Stopped,
    /// Time until which the ends of calls may answer that they have been told.
    until: Time,
}

/// Maximum number of calls that the message about a stop names.
const NAMED: usize = 10;

/// Time for the ends of calls to answer when the gateway stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Rate-limited logs about the behaviour of others, by kind.
#[derive(Default)]
struct LimitedLogs {
    connections: RateLimitedLog,
    descriptions: RateLimitedLog,
    refusals: RateLimitedLog,
    forbidden: RateLimitedLog,
    malformed: RateLimitedLog,
    full: RateLimitedLog,
}

impl Driver {
    /// Creates a driver that has received nothing yet.
    pub fn new(
        gateway: Gateway,
        board: PortBoard,
        ledger: Ledger,
        tls: Tls,
        inbox: mpsc::Sender<Input>,
    ) -> Driver {
        let (udp, connections) = (BTreeMap::new(), Connections::default());
        let has = |v6| gateway.config().sockets.iter().any(|s| s.address.is_ipv6() == v6);
        let (resolver, media) =
            (Resolver::new(has(false), has(true), FOR_PHONES / 2), MediaStats::default());
        let limited_logs = LimitedLogs::default();
        Driver {
            gateway,
            board,
            ledger,
            resolver,
            tls,
            inbox,
            udp,
            connections,
            media,
            limited_logs,
            stopping: None,
        }
    }

    /// Serves `bound`, in the order of the gateway's sockets.
    pub async fn run(
        mut self,
        bound: Vec<Bound>,
        mut inputs: mpsc::Receiver<Input>,
        mut told: mpsc::Receiver<Input>,
    ) -> io::Result<()> {
        for (socket, bound) in (0..).zip(bound) {
            match bound {
                Bound::Udp(udp) => {
                    udp.set_nonblocking(true)?;
                    let udp = Arc::new(UdpSocket::from_std(udp)?);
                    self.udp.insert(socket, Arc::clone(&udp));
                    tokio::spawn(listen(socket, udp, self.inbox.clone()));
                }
                Bound::Tcp(listener) => {
                    listener.set_nonblocking(true)?;
                    let listener = TcpListener::from_std(listener)?;
                    tokio::spawn(accept(socket, listener, self.inbox.clone()));
                }
            }
        }
        let mut looks = tokio::time::interval(LOOK);
        let mut ways = tokio::time::interval(WAYS);
        for often in [&mut looks, &mut ways] {
            often.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                // This task keeps a sender of each channel, so neither ends.
                Some(input) = inputs.recv() => self.take_all(input, &mut inputs),
                Some(input) = told.recv() => self.take_all(input, &mut told),
                () = tokio::time::sleep_until(until(self.gateway.next_timeout())) => {}
                _ = looks.tick() => self.board.poll(),
                _ = ways.tick() => self.board.look_for_ways(),
            }
            if self.is_over() {
                return Ok(());
            }
            let now = clock::now();
            if self.gateway.next_timeout() <= now {
                self.gateway.handle_timeout(now, &mut self.board);
            }
            while let Some(output) = self.gateway.poll() {
                self.send(output);
            }
            self.on_events();
        }
    }

    /// Processes `first` and the inputs queued behind it.
    fn take_all(&mut self, first: Input, inputs: &mut mpsc::Receiver<Input>) {
        self.take(first);
        for _ in 1..BATCH {
            let Ok(input) = inputs.try_recv() else { break };
            self.take(input);
        }
    }

    /// Whether a stop has been requested and all remaining work is done; if so, sends the
    /// notification.
    fn is_over(&mut self) -> bool {
        let Some(stopping) = &self.stopping else { return false };
        let has_told = self.gateway.is_quiet() || clock::now() >= stopping.until;
        if !has_told || !self.ledger.is_settled() {
            return false;
        }
        let farewell = stopping.calls.farewell.map(|_| self.gateway.farewell());
        let calls = Stopped { farewell, ..stopping.calls.clone() };
        let _ = stopping.reply.try_send(calls);
        true
    }

    /// Processes an input and its events before the next one: the ledger must be informed that a
    /// call has ended before its legs end.
    fn take(&mut self, input: Input) {
        self.take_in(input);
        self.on_events();
    }

    fn take_in(&mut self, input: Input) {
        let now = clock::now();
        match input {
            Input::Datagram(hop, bytes) => {
                self.gateway.receive(now, hop, &bytes, &mut self.board);
            }
            Input::Message(hop, message) => {
                self.gateway.take(now, hop, &message, &mut self.board);
            }
            Input::Malformed(hop, is_for_size, why) => {
                self.gateway.malformed(hop.remote, is_for_size, why);
            }
            Input::Accepted(socket, stream, remote) => self.admit(socket, stream, remote),
            Input::Closed(connection, why) => self.closed(connection, why.as_ref()),
            Input::Named(name, found) => {
                self.gateway.named(now, &name, found, &mut self.board);
            }
            Input::Media(snapshot) => {
                // A stopped gateway accepts no more calls, regardless of the node.
                self.gateway.drain(snapshot.is_draining || self.stopping.is_some());
                self.media = snapshot.stats;
                let seen = self.ledger.see(&snapshot.legs);
                seen.alive.into_iter().for_each(|port| self.gateway.heard(now, port));
                seen.too_large.into_iter().for_each(|port| self.too_large(port));
            }
            Input::Ways(ways) => self.board.see(ways),
            Input::LegEnded(counts) => self.ledger.leg_ended(&counts),
            Input::Reconfigure(sip, tls, reply) => {
                let is_new = self.tls != *tls;
                self.tls = *tls;
                self.gateway.reconfigure(&sip.gateway);
                let _ = reply.try_send(is_new);
            }
            Input::Drain(on, reply) => {
                self.gateway.drain(on);
                let _ = reply.try_send(());
            }
            Input::Stop(reply) => {
                let calls = self.to_be_stopped();
                self.gateway.stop(now, &mut self.board);
                self.stopping = Some(Stopping { reply, calls, until: now + FAREWELL });
            }
            Input::HangUp(which, reply) => {
                let ended = self.gateway.hang_up(now, &which, &mut self.board);
                let _ = reply.try_send(ended);
            }
            Input::Ask(from, count, reply) => {
                let (calls, is_more) = self.ledger.rows(&self.gateway, from, count);
                let report = GatewayReport {
                    calls,
                    is_more,
                    stats: self.gateway.stats(),
                    media: self.media,
                    connections: self.connections.stats(),
                    free_ports: self.gateway.free_ports(),
                    certificate_not_after: self.tls.not_after,
                    no_speech: self.gateway.calls().flat_map(|call| call.no_speech).collect(),
                    ended: self.ledger.ended_by_outcome(),
                };
                let _ = reply.try_send(report);
            }
        }
    }

    /// The calls that a stop ends.
    fn to_be_stopped(&self) -> Stopped {
        let tells = self.gateway.config().bye_at_stop;
        let mut stopped = Stopped { farewell: tells.then(Farewell::default), ..Stopped::default() };
        for call in ledger::by_start(&self.gateway) {
            match call.answered {
                Some(_) => stopped.up += 1,
                None => stopped.ringing += 1,
            }
            if stopped.named.len() < NAMED {
                stopped.named.push(format!("{} to {} ({})", call.from, call.to, call.name));
            }
        }
        stopped
    }

    /// TLS settings for connections of this socket, if they are encrypted.
    fn tls_of(&self, socket: u32) -> Option<Tls> {
        let socket = self.gateway.config().sockets.get(socket as usize)?;
        (socket.transport == Transport::Tls).then(|| self.tls.clone())
    }

    fn admit(&mut self, socket: u32, stream: TcpStream, remote: SocketAddr) {
        if !self.gateway.config().admits(remote.ip()) {
            return self.forbidden(remote);
        }
        let connection = self.gateway.connected(socket, remote);
        if !self.has_room(connection) {
            return self.over(connection);
        }
        let hop = Hop { socket, remote, connection: Some(connection) };
        let line = self.line(hop, connection);
        tokio::spawn(stream::serve(self.tls_of(socket), stream, line));
    }

    fn line(&mut self, hop: Hop, connection: u64) -> Line {
        let (sender, outbox) = mpsc::channel(OUTBOX);
        let activity = Activity::begin();
        self.connections.insert(connection, hop.remote, sender, Arc::clone(&activity));
        let patience = Some(stream::FIRST);
        Line { hop, inbox: self.inbox.clone(), outbox, patience, activity }
    }

    fn send(&mut self, Output { to, bytes }: Output) {
        let Some(connection) = to.connection else {
            // A datagram lost here is retransmitted, like any other.
            if let Some(udp) = self.udp.get(&to.socket) {
                let _ = udp.try_send_to(&bytes, to.remote);
            }
            return;
        };
        if self.connections.get(connection).is_none() {
            // A connection that has ended is not reopened under its old number.
            if !self.gateway.is_open(connection) {
                return;
            }
            if !self.has_room(connection) {
                return self.over(connection);
            }
            let line = self.line(to, connection);
            let name = self.gateway.name_of(connection).map(str::to_owned);
            let is_for_length = self.gateway.is_for_length(connection);
            let patience = if is_for_length { stream::BRIEF } else { stream::CONNECT };
            tokio::spawn(stream::connect((self.tls_of(to.socket), name), patience, line));
        }
        if let Some(line) = self.connections.get(connection)
            && !line.write(bytes)
        {
            // A peer that doesn't read must not block the gateway.
            self.over(connection);
        }
    }

    fn closed(&mut self, connection: u64, why: Option<&io::Error>) {
        if let (Some(why), Some(line)) = (why, self.connections.get(connection)) {
            let name = self.gateway.name_of(connection);
            let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
            let then = match self.gateway.is_for_length(connection) {
                true => "its long requests go by UDP for ten minutes",
                false => "its requests are refused",
            };
            let what = format!("no SIP connection to {}{name}: {why}; {then}", line.remote);
            self.limited_logs.connections.warn(clock::now(), what);
            self.connections.remove(connection);
            return self.gateway.unreachable(clock::now(), connection, &mut self.board);
        }
        self.over(connection);
    }

    /// Closes a connection that can't be used any more.
    fn over(&mut self, connection: u64) {
        self.connections.remove(connection);
        self.gateway.disconnected(clock::now(), connection, &mut self.board);
    }

    /// Makes room for a new connection; false if it can't have any.
    fn has_room(&mut self, connection: u64) -> bool {
        let now = clock::now();
        let place = self.connections.place(now, &self.gateway, connection);
        if place == Place::Free {
            return true;
        }
        self.limited_logs.full.warn(now, place);
        let Place::Of(other, ..) = place else { return false };
        self.over(other);
        true
    }

    fn on_events(&mut self) {
        while let Some(event) = self.gateway.event() {
            self.on_event(event);
        }
    }

    /// Says that packets don't leave at a leg's port, because they are larger than the overlay
    /// carries.
    fn too_large(&mut self, port: u16) {
        let has = |call: &CallView| call.ports.iter().flatten().any(|p| *p == port);
        let Some(call) = self.gateway.calls().find(has) else { return };
        if self.ledger.tell(&call.ports) {
            tracing::warn!(
                call = call.name,
                from = call.from,
                to = call.to,
                "packets of a call are dropped as too large for a link: a link carries packets of \
                 up to its `mtu` - 72 bytes over IPv4, `mtu` - 92 over IPv6 (`too_large` in \
                 `trunkline calls --json` counts them)"
            );
        }
    }

    fn forbidden(&mut self, from: SocketAddr) {
        self.limited_logs.forbidden.warn(
            clock::now(),
            format_args!("SIP from {from} is dropped: that address is not in [sip] allow or trust"),
        );
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::LookUp(name) => {
                let (inbox, resolver) = (self.inbox.clone(), self.resolver.current());
                tokio::spawn(async move {
                    let found = match resolver::look_up(resolver, &name, FOR_PHONES).await {
                        Answer::Addresses(all, fresh) => Found::Address(all[0], fresh),
                        Answer::NoName | Answer::Nothing => Found::Nothing,
                        Answer::Silence => Found::NoAnswer,
                    };
                    let _ = inbox.send(Input::Named(name, found)).await;
                });
            }
            Event::Ended(call, outcome) => {
                log_end(&call, outcome);
                self.ledger.ended(*call, outcome);
            }
            Event::Plain(id) => {
                let call = self.gateway.call(id);
                tracing::warn!(
                    call = call.as_ref().map(|call| &call.name),
                    from = call.as_ref().map(|call| &call.from),
                    to = call.as_ref().map(|call| &call.to),
                    "media of a call bypass the overlay: the other side, which [sip] trust \
                     names, has not answered with a virtual port of a node that this one has a \
                     route to; does its `trust` name this gateway, and is the link up (`trunkline \
                     links`)?"
                );
            }
            Event::Refused(name, from, why) => {
                let what = format!(
                    "media of call {name:?}, by a message from {from}, can't be relayed: {why}"
                );
                self.limited_logs.descriptions.warn(clock::now(), what);
            }
            Event::TurnedAway(from, code, why) => {
                self.limited_logs.refusals.warn(
                    clock::now(),
                    format_args!("a request from {from} is refused with {code}: {why}"),
                );
            }
            Event::Silent(remote, connection, by_udp) => {
                let then = match by_udp {
                    true => "its long requests go by UDP for ten minutes",
                    false => "requests there end with 408",
                };
                let what = format!(
                    "{remote} accepts SIP connections, and nothing comes from there: does a SIP \
                     server listen at that port? {then}"
                );
                self.limited_logs.connections.warn(clock::now(), what);
                if !self.gateway.is_open(connection) {
                    self.connections.remove(connection);
                }
            }
            Event::Malformed(from, why, code) => {
                let then = match code {
                    Some(code) => format!("is refused with {code}"),
                    None => "is dropped without an answer".into(),
                };
                self.limited_logs
                    .malformed
                    .warn(clock::now(), format_args!("a SIP message from {from} {then}: {why}"));
            }
            Event::Forbidden(from) => self.forbidden(from),
        }
    }
}

/// Logs a call that none of its ends has ended. Those that stop with the gateway are in one line.
fn log_end(call: &CallView, outcome: CallOutcome) {
    let why = match outcome {
        CallOutcome::Idle => {
            "a call has been ended as idle: no packet and no message came for the time in [sip] idle, \
             or its answer was not acknowledged for a minute"
        }
        CallOutcome::Operator => "a call has been ended by an operator (`trunkline calls hangup`)",
        _ => return,
    };
    tracing::info!(call = call.name, from = call.from, to = call.to, "{why}");
}

async fn listen(socket: u32, udp: Arc<UdpSocket>, inbox: mpsc::Sender<Input>) {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        // This reads and clears an ICMP error of an earlier send.
        let Ok((n, remote)) = udp.recv_from(&mut buffer).await else { continue };
        let hop = Hop { socket, remote, connection: None };
        if inbox.send(Input::Datagram(hop, buffer[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn accept(socket: u32, listener: TcpListener, inbox: mpsc::Sender<Input>) {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                if inbox.send(Input::Accepted(socket, stream, remote)).await.is_err() {
                    return;
                }
            }
            // Most likely out of descriptors: some may be freed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
