//! Connections from other hosts that have yet to authenticate. They take no session and, whatever
//! they send, little processing time.

use super::{HANDSHAKES, Session};
use crate::datapath::sessions::Read;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::session::Client;
use trunkline_overlay::session::remote::{FromClient, HANDSHAKE_TIMEOUT, Responder, Token};
use trunkline_overlay::session::wire::RefusalReason;

/// Maximum number of handshakes answered in one wake-up: each takes up to 0.6 ms, which delays
/// packets.
const AT_ONCE: usize = 2;
/// Pause before trying again when there are more handshakes than the node permits.
const PAUSE: Duration = Duration::from_millis(2);

/// Connections that have yet to authenticate.
#[derive(Default)]
pub struct PendingConnections {
    /// `None` if no client is configured, in which case no connection arrives.
    responder: Option<Responder>,
    connections: Vec<Option<PendingConnection>>,
    /// Deadlines for authentication, in order; some connections have already completed it.
    deadlines: VecDeque<(Time, PendingKey)>,
    /// Connections with a handshake that is to be answered.
    queue: VecDeque<PendingKey>,
    answer_at: Time,
}

/// A slot for a pending connection, and the connection's token.
#[derive(Clone, Copy)]
struct PendingKey(u32, Token);

struct PendingConnection {
    session: Session,
    from: SocketAddr,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// Has sent nothing yet.
    New,
    /// Waits for the answer to its handshake initiation.
    Asking,
    /// Authenticated as this client if its next message can be opened.
    Answered(u16),
}

/// Outcome for a pending connection.
pub enum Admission {
    /// It stays pending, and its next message is awaited.
    Stays,
    /// It stays pending, and nothing is read from it for now.
    Waits,
    /// It is admitted; its first message has already been read.
    In(Session),
    /// It is rejected, and the refusal is sent to it.
    Out(Session, RefusalReason),
    /// The client has disconnected.
    Gone(Session),
    /// It sent an invalid message.
    Broken(Session),
}

impl PendingConnections {
    /// Admits the clients that `responder` recognises; none without one.
    pub fn new(responder: Option<Responder>) -> PendingConnections {
        PendingConnections { responder, ..PendingConnections::default() }
    }

    /// Adds a connection from `from`. Returns its slot and the connection evicted to make room, if
    /// any.
    pub fn enter(
        &mut self,
        now: Time,
        session: Session,
        from: SocketAddr,
    ) -> (u32, Option<Session>) {
        let free = self.connections.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.connections.len());
        let place = PendingKey(slot as u32, session.token());
        let connection = Some(PendingConnection { session, from, state: State::New });
        match self.connections.get_mut(slot) {
            Some(seat) => *seat = connection,
            None => self.connections.push(connection),
        }
        self.deadlines.push_back((now + HANDSHAKE_TIMEOUT, place));
        let mut evicted = None;
        if self.deadlines.len() > HANDSHAKES
            && let Some((_, oldest)) = self.deadlines.pop_front()
        {
            evicted = self.leave(oldest);
        }
        (place.0, evicted)
    }

    /// Descriptor of the connection at `slot`, to poll.
    pub fn descriptor(&self, slot: u32) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        Some(self.connections.get(slot as usize)?.as_ref()?.session.as_fd())
    }

    /// Reads and processes input from the pending connection at `slot`.
    pub fn hear(&mut self, now: Time, slot: u32) -> Admission {
        let Some(seat) = self.connections.get_mut(slot as usize) else { return Admission::Stays };
        let Some(connection) = seat else { return Admission::Stays };
        let place = PendingKey(slot, connection.session.token());
        if matches!(connection.state, State::Asking) {
            return Admission::Waits;
        }
        let fetched = connection.session.fetch();
        let state = connection.state;
        let verdict: fn(Session) -> Admission = match (fetched, state) {
            (Ok(()), State::Answered(client)) => return self.let_in(place, client),
            (Ok(()), _) => return self.first_word(now, place),
            (Err(Read::Closed), _) => Admission::Gone,
            (Err(Read::Broken), _) => Admission::Broken,
            (Err(_), _) => return Admission::Stays,
        };
        self.leave(place).map_or(Admission::Stays, verdict)
    }

    fn first_word(&mut self, now: Time, place: PendingKey) -> Admission {
        let Some(Some(connection)) = self.connections.get_mut(place.0 as usize) else {
            return Admission::Stays;
        };
        let message = connection.session.message();
        let (Ok(FromClient::Initiation(initiation)), Some(responder)) =
            (FromClient::parse(message), &mut self.responder)
        else {
            return self.refuse(place, RefusalReason::Unauthenticated);
        };
        if let Err(refusal) = responder.check(now, connection.from, initiation) {
            return self.refuse(place, refusal);
        }
        connection.state = State::Asking;
        if self.queue.is_empty() {
            self.answer_at = now;
        }
        self.queue.push_back(place);
        Admission::Waits
    }

    /// Answers the handshakes that are due, and passes each connection's outcome to `tell`.
    pub fn answer(&mut self, now: Time, mut tell: impl FnMut(u32, Admission)) {
        for _ in 0..AT_ONCE {
            if self.queue.is_empty() || now < self.answer_at {
                return;
            }
            let Some(responder) = &mut self.responder else { return };
            if !responder.is_free(now) {
                self.answer_at = now + PAUSE;
                return;
            }
            let Some(place) = self.queue.pop_front() else { return };
            let Some(connection) =
                self.connections.get_mut(place.0 as usize).and_then(Option::as_mut)
            else {
                continue;
            };
            if connection.session.token() != place.1 {
                continue;
            }
            let verdict = match responder.answer(connection.session.message(), place.1) {
                Ok(answered) => {
                    connection.session.send(&answered.response, &[]);
                    connection.session.seal(answered.keys);
                    connection.state = State::Answered(answered.client);
                    Admission::Stays
                }
                Err(refusal) => self.refuse(place, refusal),
            };
            tell(place.0, verdict);
        }
    }

    /// Time at which to call [`PendingConnections::answer`] and [`PendingConnections::overdue`].
    pub fn next_timeout(&self) -> Time {
        let overdue = self.deadlines.front().map_or(Time::NEVER, |(at, _)| *at);
        if self.queue.is_empty() { overdue } else { overdue.min(self.answer_at) }
    }

    /// Removes and returns a connection that has passed its deadline at `now`, if it is still
    /// pending.
    pub fn overdue(&mut self, now: Time) -> Option<Session> {
        while self.deadlines.front().is_some_and(|(at, _)| *at <= now) {
            let (_, place) = self.deadlines.pop_front()?;
            if let Some(session) = self.leave(place) {
                return Some(session);
            }
        }
        None
    }

    fn let_in(&mut self, place: PendingKey, client: u16) -> Admission {
        match self.leave(place) {
            Some(mut session) => {
                session.let_in(Client::Known(client));
                Admission::In(session)
            }
            None => Admission::Stays,
        }
    }

    fn refuse(&mut self, place: PendingKey, refusal: RefusalReason) -> Admission {
        self.leave(place).map_or(Admission::Stays, |session| Admission::Out(session, refusal))
    }

    fn leave(&mut self, place: PendingKey) -> Option<Session> {
        let seat = self.connections.get_mut(place.0 as usize)?;
        let connection = seat.take_if(|connection| connection.session.token() == place.1)?;
        Some(connection.session)
    }
}
