//! One end of one stream: both halves, its opening and its end.

use super::OPENING_WINDOW;
use super::buffer::Memory;
use super::receiver::{Receiver, SegmentOutcome};
use super::segment::{ACK_HEAD, Body, Broken, Data, HEAD, MAX_RANGES, NUMBER_LEN, Number, Segment};
use super::sender::Sender;
use crate::session::SessionId;
use crate::session::wire::stream::Reset;
use crate::wire::{FlowHeader, Metric, NodeId};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::wire::Writer;

/// After this much silence the other end is asked to answer (keep-alive).
const IDLE: Duration = Duration::from_secs(15);

/// Silence after which an end that was asked to answer is considered gone. It is long enough for
/// any outage that routing recovers from.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time for which opening a stream is tried, and interval between tries. On a thin link, a request
/// waits behind the streams of other nodes.
const OPENING: Duration = Duration::from_secs(30);
const TRY: Duration = Duration::from_secs(1);

/// Time for which an application that reads nothing may block the other one.
const STALLED: Duration = Duration::from_secs(600);

/// Time for which an ended stream is remembered, so that a retransmitted last segment is still
/// answered: as long as the other end retransmits it. An application that has its complete stream
/// is thus never notified of its loss.
const REMEMBERED: Duration = PATIENCE;

/// Identifies a stream at one of its nodes: the other node, and the ports at both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The node of the other end.
    pub peer: NodeId,
    /// The virtual port at the other end.
    pub peer_port: u16,
    /// The virtual port at this end.
    pub port: u16,
}

impl Key {
    /// The stream that a packet for this node belongs to.
    pub fn of(header: &FlowHeader) -> Key {
        let &FlowHeader { source, source_port, destination_port, .. } = header;
        Key { peer: source, peer_port: source_port, port: destination_port }
    }
}

/// Owner of a stream at this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Session(SessionId),
    /// No owner yet: it waits to be accepted under this token by the session that listens at its
    /// port.
    Backlog {
        token: u64,
    },
    /// Its application has gone; the data it wrote is still delivered.
    Nobody,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The other end is asked to open the stream: again at `again`, and until `until`. An opener
    /// that was put off already has the stream's number, and shows that instead of asking.
    Opening {
        until: Time,
        again: Time,
    },
    Open,
    /// Both directions have ended. The stream is remembered until `until`, to answer retransmitted
    /// segments.
    Over {
        until: Time,
    },
}

/// One end of one stream: both halves, its opening and its end.
#[derive(Debug)]
pub struct End {
    pub key: Key,
    /// Random number from the opener, which distinguishes late packets of an earlier stream between
    /// the same ports.
    pub tag: u16,
    pub metric: Metric,
    pub messages: bool,
    pub owner: Owner,
    pub tx: Sender,
    pub rx: Receiver,
    phase: Phase,
    is_opener: bool,
    /// The opener's number, as long as its segments carry it: until it knows that the accepting end
    /// has the stream.
    opener: Option<u32>,
    /// The stream's number, from the accepting end; `None` at the opener before the first answer.
    instance: Option<u32>,
    /// Time at which this end came into being.
    begun: Time,
    /// Whether the next segment requests an acknowledgement.
    ask: bool,
    /// Times of the last input and of the last request to answer, and the time since when the other
    /// end's receive window has been closed while data waited.
    heard: Time,
    asked: Time,
    stalled: Option<Time>,
    /// Notifications that the application has received: that the stream is open (or, while it waits
    /// to be accepted, that it is incoming), that the other end sends no more, and that both
    /// directions have ended.
    pub told_open: bool,
    pub told_end: bool,
    pub told_finished: bool,
    /// Bytes of credit granted to the application but not yet notified.
    pub credit_owed: u32,
    /// Time of the next try to send, if nothing could be sent.
    held_until: Option<Time>,
    /// The reason that the other end gave for refusing to open the stream for now, unless it is
    /// known to have the stream.
    refused: Option<Reset>,
}

impl End {
    /// Creates the opener's end of a stream. It sends a request to open every second, for thirty
    /// seconds at most. The first of `numbers` is the stream's tag, the second the opener's number,
    /// both drawn at random.
    pub fn opening(
        now: Time,
        key: Key,
        numbers: (u16, u32),
        owner: Owner,
        tx: Sender,
        rx: Receiver,
    ) -> End {
        let phase = Phase::Opening { until: now + OPENING, again: now };
        let mut end = End::new(now, key, numbers.0, owner, (tx, rx), phase);
        end.opener = Some(numbers.1);
        end
    }

    /// Creates the accepting end of a stream whose opener has shown the stream's number. The first
    /// of `numbers` is the stream's tag, the second its number.
    pub fn opened(
        now: Time,
        key: Key,
        numbers: (u16, u32),
        owner: Owner,
        tx: Sender,
        rx: Receiver,
    ) -> End {
        let mut end = End::new(now, key, numbers.0, owner, (tx, rx), Phase::Open);
        end.instance = Some(numbers.1);
        // The answer to the request has announced it.
        end.rx.announce(OPENING_WINDOW);
        end.rx.on_ask(now);
        end
    }

    fn new(
        now: Time,
        key: Key,
        tag: u16,
        owner: Owner,
        (tx, rx): (Sender, Receiver),
        phase: Phase,
    ) -> End {
        End {
            key,
            tag,
            metric: Metric::default(),
            messages: false,
            owner,
            tx,
            rx,
            is_opener: matches!(phase, Phase::Opening { .. }),
            opener: None,
            instance: None,
            phase,
            begun: now,
            ask: false,
            heard: now,
            asked: now,
            stalled: None,
            told_open: false,
            told_end: false,
            told_finished: false,
            credit_owed: 0,
            held_until: None,
            refused: None,
        }
    }

    /// The stream's number, if this end has given it.
    pub fn number_given(&self) -> Option<u32> {
        self.instance.filter(|_| !self.is_opener)
    }

    /// Time at which this end came into being.
    pub fn begun(&self) -> Time {
        self.begun
    }

    /// Whether the stream has been opened: at the opener, whether the other end has answered.
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Opening { .. })
    }

    /// Whether both directions have ended, and each end has all data of the other.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over { .. })
    }

    /// Whether the stream has ended, and its application has read everything and been notified, or
    /// has gone: it is only remembered then.
    pub fn is_left(&self) -> bool {
        self.is_over() && (self.told_finished || self.owner == Owner::Nobody)
    }

    /// Whether a segment with these numbers may be from the other end: a node that isn't on the
    /// path knows neither.
    pub fn is_from_peer(&self, body: &Body<'_>) -> bool {
        match (self.instance, body.instance) {
            (Some(ours), Some(theirs)) => ours == theirs,
            (None, Some(_)) => self.is_opener && body.opener == self.opener,
            (_, None) => false,
        }
    }

    /// Whether a reset is believed: it shows the stream's number, and a position within a window.
    pub fn believes(&self, broken: &Broken) -> bool {
        match (broken.number, self.instance) {
            (Number::Stream(theirs), Some(ours)) if ours != theirs => return false,
            (Number::Opener(theirs), None) => return self.opener == Some(theirs),
            (Number::Opener(_), Some(_)) | (Number::Stream(_), None) => return false,
            _ => {}
        }
        match broken.is_of_recipient {
            true => self.tx.is_under_way(broken.position),
            false => self.rx.is_in_window(broken.position),
        }
    }

    /// The reset that tells the other end that this one has broken the stream off; none if that
    /// doesn't know the stream yet.
    pub fn broken(&self, why: Reset) -> Option<Broken> {
        let number = Number::Stream(self.instance?);
        Some(Broken { why, number, position: self.tx.position(), is_of_recipient: false })
    }

    /// Processes a segment [from the other end](End::is_from_peer), which arrived with a congestion
    /// mark if `marked`. An error ends the stream: the other end has violated the protocol, or
    /// sends to an application that has gone.
    pub fn on_segment(
        &mut self,
        now: Time,
        body: &Body<'_>,
        marked: bool,
        memory: &mut Memory<'_>,
    ) -> Result<SegmentOutcome, Reset> {
        if let Phase::Opening { .. } = self.phase {
            if self.instance.is_some() && body.opener.is_some() {
                // A copy of the answer doesn't say that there is room by now.
                return Ok(SegmentOutcome::Copy);
            }
            self.phase = Phase::Open;
            self.instance = body.instance;
            // Only then does the application at the other end learn of the stream.
            self.rx.on_ask(now);
        }
        self.heard = now;
        match (body.opener, self.is_opener) {
            // The accepting end has the stream.
            (None, true) => (self.opener, self.refused) = (None, None),
            // The opener doesn't know that this end has it.
            (Some(_), false) => self.rx.on_ask(now),
            _ => {}
        }
        if marked {
            self.rx.on_mark();
        }
        if let Some(ack) = &body.ack {
            self.tx.on_ack(now, ack)?;
            // A window that was open for a moment counts, whether or not a timer notices.
            if !self.tx.is_stalled() {
                self.stalled = None;
            }
        }
        let mut taken = SegmentOutcome::Copy;
        if let Some(data) = &body.data {
            taken = self.rx.on_data(now, data, memory)?;
            // Data received before may be retransmitted.
            if self.owner == Owner::Nobody && !self.is_over() && self.rx.holds_data() {
                return Err(Reset::Closed);
            }
        }
        if body.ask {
            self.rx.on_ask(now);
        }
        self.note_end(now, memory);
        Ok(taken)
    }

    fn note_end(&mut self, now: Time, memory: &mut Memory<'_>) {
        if self.phase == Phase::Open && self.tx.is_done() && self.rx.is_complete() {
            self.phase = Phase::Over { until: now + REMEMBERED };
            self.tx.release(memory);
            self.note_read(memory);
        }
    }

    /// The application has read some data. If the stream has ended and that was the last of it, its
    /// memory is released.
    pub fn note_read(&mut self, memory: &mut Memory<'_>) {
        if self.is_over() && !self.rx.holds_data() {
            self.rx.release(memory);
        }
    }

    /// Asks the other end whether it still has this stream, because its node, or an attacker on its
    /// behalf, has requested another one between the same ports.
    pub fn challenge(&mut self) {
        self.ask = true;
    }

    /// Writes the next segment that may leave now into `out`, and returns its length: at most
    /// `room` bytes. `None` if there is nothing to send, or windows or pacing delay it.
    pub fn poll(&mut self, now: Time, room: usize, out: &mut [u8]) -> Option<usize> {
        self.held_until = None;
        if let Phase::Opening { .. } = self.phase {
            return self.poll_control(now, out);
        }
        // Ranges get a separate segment: they would change the size of others.
        let rides = self.rx.owes_ack() && !self.rx.has_gaps();
        let fixed = HEAD + self.opener.map_or(0, |_| NUMBER_LEN);
        let head = fixed + if rides { ACK_HEAD } else { 0 };
        // A segment that was sent without an acknowledgement is retransmitted as it was.
        let (fresh, again) = (room.checked_sub(head)?, room.checked_sub(fixed)?);
        if let Some(cut) = self.tx.next(now, fresh, again) {
            let rides = rides && head + cut.len <= room;
            let ack = rides.then(|| self.rx.ack(0));
            let (position, end) = (cut.position, cut.is_end);
            let data = Data { position, end, retransmitted: cut.is_retransmitted(), bytes: &[] };
            let body = Body { ask: cut.ask, ack, data: Some(data), ..self.body() };
            let mut w = Writer::new(out);
            Segment::Body(body).emit_head(&mut w).ok()?;
            let head = w.len();
            self.tx.copy(&cut, out.get_mut(head..head + cut.len)?);
            self.tx.sent(now, &cut);
            return Some(head + cut.len);
        }
        self.poll_control(now, out)
    }

    /// Writes the next segment that is due without data into `out`, if there is one, and returns
    /// its length: at most [`super::MAX_CONTROL`].
    pub fn poll_control(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if let Phase::Opening { until, again } = self.phase {
            if again > now {
                return None;
            }
            self.phase = Phase::Opening { until, again: now + TRY };
            // Sent before this end was put off, if anything.
            self.tx.refused(now);
            return self.emit_control(out);
        }
        (self.ask || self.rx.due() <= now).then(|| self.emit_control(out))?
    }

    /// Writes a segment without data: an acknowledgement, and the flags that are due. As long as the
    /// stream has no number, it is a request to open it.
    fn emit_control(&mut self, out: &mut [u8]) -> Option<usize> {
        let ack = Some(self.rx.ack(MAX_RANGES));
        let ask = core::mem::take(&mut self.ask);
        let body = Body { ask, ack, ..self.body() };
        let mut w = Writer::new(out);
        Segment::Body(body).emit_head(&mut w).ok()?;
        Some(w.len())
    }

    /// A segment of this end, without content.
    fn body(&self) -> Body<'static> {
        let messages = self.messages && self.opener.is_some();
        Body { opener: self.opener, instance: self.instance, messages, ..Body::default() }
    }

    /// Suspends sending until `at`, because there is no route or its link is full.
    pub fn wait_until(&mut self, at: Time) {
        self.held_until = Some(at);
    }

    /// Whether a reset for this reason does not end the stream. A full node is asked again until it
    /// has the stream. Once it is known to have it, such a reset may be a late answer to an earlier
    /// segment, so the node is asked whether the stream is still there.
    pub fn is_put_off(&mut self, why: Reset) -> bool {
        if why != Reset::Full || !self.is_opener {
            return false;
        }
        self.refused = Some(why);
        match self.phase {
            Phase::Open if self.opener.is_some() => {
                // The node became full after its answer. Another segment on its way may still find
                // room and create the stream, so this end keeps the number.
                let (until, again) = (self.begun + OPENING, self.heard + TRY);
                self.phase = Phase::Opening { until, again };
            }
            Phase::Open => self.challenge(),
            Phase::Opening { .. } | Phase::Over { .. } => {}
        }
        true
    }

    /// The reason to report to the application when a reset for the reason `why` has ended the
    /// stream: the other end gives none for a stream that it has broken off before.
    pub fn reason(&self, why: Reset) -> Reset {
        self.refused.filter(|_| why == Reset::Unknown).unwrap_or(why)
    }

    /// Time of the next call of [`End::poll`] or [`End::handle_timeout`] if nothing arrives before.
    pub fn next_timeout(&self) -> Time {
        self.held_until.unwrap_or_else(|| self.due_at())
    }

    fn due_at(&self) -> Time {
        match self.phase {
            Phase::Opening { until, again } => return until.min(again),
            Phase::Over { until } if self.is_left() => return until.min(self.rx.due()),
            Phase::Over { .. } => return self.rx.due(),
            Phase::Open => {}
        }
        let alive = if self.asked > self.heard { self.heard + PATIENCE } else { Time::NEVER };
        let idle = self.heard.max(self.asked) + IDLE;
        let stalled = self.stalled.map_or(Time::NEVER, |since| since + STALLED);
        self.tx.next_timeout().min(self.rx.due()).min(alive).min(idle).min(stalled)
    }

    /// Performs the actions that are due at `now`. An error ends the stream: the other end is
    /// silent, or has not read for too long.
    pub fn handle_timeout(&mut self, now: Time, memory: &mut Memory<'_>) -> Result<(), Reset> {
        if let Phase::Opening { until, .. } = self.phase {
            let why = self.refused.unwrap_or(Reset::Timeout);
            return if until <= now { Err(why) } else { Ok(()) };
        }
        // The other end may have forgotten it, and its application here may still have to read.
        if self.is_over() {
            return Ok(());
        }
        if self.tx.handle_timeout(now) {
            self.ask = true;
            self.asked = now;
        }
        if now.since(self.heard.max(self.asked)) >= IDLE {
            self.ask = true;
            self.asked = now;
            self.rx.shrink(memory);
        }
        let silent = now.since(self.heard) >= PATIENCE;
        if silent && (self.asked > self.heard || self.tx.is_waiting()) {
            return Err(Reset::Timeout);
        }
        // The other end responds, but acknowledges nothing that was sent: it is not the one that
        // this stream was opened with, but one created by a late request to open.
        if self.tx.is_stuck_since().is_some_and(|since| now.since(since) >= PATIENCE) {
            return Err(Reset::Timeout);
        }
        self.stalled = match self.stalled {
            _ if !self.tx.is_stalled() => None,
            since => Some(since.unwrap_or(now)),
        };
        // If the application has gone, the shorter limit applies.
        let patience = if self.owner == Owner::Nobody { PATIENCE } else { STALLED };
        if self.stalled.is_some_and(|since| now.since(since) >= patience) {
            return Err(Reset::Stalled);
        }
        Ok(())
    }

    /// Whether this node has opened the stream.
    pub fn is_opener(&self) -> bool {
        self.is_opener
    }

    /// Whether the stream has ended and no longer needs to be remembered.
    pub fn is_forgotten(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Over { until } if until <= now) && self.is_left()
    }

    /// Handles an application's acceptance of the stream, with `credit` bytes to begin with. From
    /// now on, up to `max` bytes may wait for it.
    pub fn accept(&mut self, now: Time, max: u64, credit: u64) {
        self.told_open = false;
        self.rx.give_credit(credit);
        self.rx.widen(now, max);
    }

    /// Handles the end of the stream's application. If the stream has ended, data left unread is
    /// dropped. If the application has ended its own direction and left nothing unread, the data it
    /// wrote is still delivered. Otherwise the stream is reset for the reason returned, so that the
    /// other end doesn't mistake incomplete data for all of it.
    pub fn abandon(&mut self, memory: &mut Memory<'_>) -> Result<(), Reset> {
        if self.is_over() {
            self.rx.release(memory);
            return Ok(());
        }
        // An opener that was put off has told its application that it may write.
        match self.instance.is_some() {
            true if !self.tx.is_shut() => Err(Reset::Aborted),
            true if self.rx.holds_data() => Err(Reset::Closed),
            true => Ok(()),
            false => Err(Reset::Aborted),
        }
    }
}
