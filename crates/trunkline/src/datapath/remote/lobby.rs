//! Connections of other hosts that have yet to show who they are. They cost no
//! session, and whatever they send little time.

use super::{HANDSHAKES, Session};
use crate::datapath::sessions::Read;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use trunkline_base::Time;
use trunkline_overlay::session::Client;
use trunkline_overlay::session::remote::{FromClient, HANDSHAKE_TIMEOUT, Responder, Token};
use trunkline_overlay::session::wire::Refusal;

/// Handshakes that one wake-up answers: 0.6 ms each at most, which packets wait for.
const AT_ONCE: usize = 2;
/// How soon to try again where there are more handshakes than a node allows.
const PAUSE: Duration = Duration::from_millis(2);

/// The connections that have yet to authenticate.
#[derive(Default)]
pub struct Lobby {
    /// None where no client is configured, and nobody connects.
    responder: Option<Responder>,
    guests: Vec<Option<Guest>>,
    /// By when each must be through, in order; some are.
    deadlines: VecDeque<(Time, Place)>,
    /// Whose handshake is to be answered.
    queue: VecDeque<Place>,
    answer_at: Time,
}

/// A place in the lobby, and whose it is.
#[derive(Clone, Copy)]
struct Place(u32, Token);

struct Guest {
    session: Session,
    from: SocketAddr,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// Has said nothing.
    New,
    /// Waits for the answer to its initiation.
    Asking,
    /// Is this client if what it says next can be opened.
    Answered(u16),
}

/// What becomes of a guest.
pub enum Verdict {
    /// It stays, and what it says is awaited.
    Stays,
    /// It stays, and has to wait before it is heard again.
    Waits,
    /// It is let in; its first message has been read already.
    In(Session),
    /// It is told why it may not come in.
    Out(Session, Refusal),
    /// It left.
    Gone(Session),
    /// What it said makes no sense.
    Broken(Session),
}

impl Lobby {
    /// Lets those in whom `responder` knows; nobody without one.
    pub fn new(responder: Option<Responder>) -> Lobby {
        Lobby { responder, ..Lobby::default() }
    }

    /// A connection from `from`: its place; and who has to go for it.
    pub fn enter(
        &mut self,
        now: Time,
        session: Session,
        from: SocketAddr,
    ) -> (u32, Option<Session>) {
        let free = self.guests.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.guests.len());
        let place = Place(slot as u32, session.token());
        let guest = Some(Guest { session, from, state: State::New });
        match self.guests.get_mut(slot) {
            Some(seat) => *seat = guest,
            None => self.guests.push(guest),
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

    /// How to poll the connection at `slot`.
    pub fn descriptor(&self, slot: u32) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        Some(self.guests.get(slot as usize)?.as_ref()?.session.as_fd())
    }

    /// Hears what the guest at `slot` has to say.
    pub fn hear(&mut self, now: Time, slot: u32) -> Verdict {
        let Some(seat) = self.guests.get_mut(slot as usize) else { return Verdict::Stays };
        let Some(guest) = seat else { return Verdict::Stays };
        let place = Place(slot, guest.session.token());
        if matches!(guest.state, State::Asking) {
            return Verdict::Waits;
        }
        let fetched = guest.session.fetch();
        let state = guest.state;
        let verdict: fn(Session) -> Verdict = match (fetched, state) {
            (Ok(()), State::Answered(client)) => return self.let_in(place, client),
            (Ok(()), _) => return self.first_word(now, place),
            (Err(Read::Closed), _) => Verdict::Gone,
            (Err(Read::Broken), _) => Verdict::Broken,
            (Err(_), _) => return Verdict::Stays,
        };
        self.leave(place).map_or(Verdict::Stays, verdict)
    }

    fn first_word(&mut self, now: Time, place: Place) -> Verdict {
        let Some(Some(guest)) = self.guests.get_mut(place.0 as usize) else {
            return Verdict::Stays;
        };
        let message = guest.session.message();
        let (Ok(FromClient::Initiation(initiation)), Some(responder)) =
            (FromClient::parse(message), &mut self.responder)
        else {
            return self.refuse(place, Refusal::Unauthenticated);
        };
        if let Err(refusal) = responder.check(now, guest.from, initiation) {
            return self.refuse(place, refusal);
        }
        guest.state = State::Asking;
        if self.queue.is_empty() {
            self.answer_at = now;
        }
        self.queue.push_back(place);
        Verdict::Waits
    }

    /// Answers the handshakes that are due; what becomes of whom.
    pub fn answer(&mut self, now: Time, mut tell: impl FnMut(u32, Verdict)) {
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
            let Some(guest) = self.guests.get_mut(place.0 as usize).and_then(Option::as_mut) else {
                continue;
            };
            if guest.session.token() != place.1 {
                continue;
            }
            let verdict = match responder.answer(guest.session.message(), place.1) {
                Ok(answered) => {
                    guest.session.send(&answered.response, &[]);
                    guest.session.seal(answered.keys);
                    guest.state = State::Answered(answered.client);
                    Verdict::Stays
                }
                Err(refusal) => self.refuse(place, refusal),
            };
            tell(place.0, verdict);
        }
    }

    /// When to call [`Lobby::answer`] and [`Lobby::overdue`].
    pub fn next_timeout(&self) -> Time {
        let overdue = self.deadlines.front().map_or(Time::NEVER, |(at, _)| *at);
        if self.queue.is_empty() { overdue } else { overdue.min(self.answer_at) }
    }

    /// One whose time is over at `now`, if it is still here.
    pub fn overdue(&mut self, now: Time) -> Option<Session> {
        while self.deadlines.front().is_some_and(|(at, _)| *at <= now) {
            let (_, place) = self.deadlines.pop_front()?;
            if let Some(session) = self.leave(place) {
                return Some(session);
            }
        }
        None
    }

    fn let_in(&mut self, place: Place, client: u16) -> Verdict {
        match self.leave(place) {
            Some(mut session) => {
                session.let_in(Client::Known(client));
                Verdict::In(session)
            }
            None => Verdict::Stays,
        }
    }

    fn refuse(&mut self, place: Place, refusal: Refusal) -> Verdict {
        self.leave(place).map_or(Verdict::Stays, |session| Verdict::Out(session, refusal))
    }

    fn leave(&mut self, place: Place) -> Option<Session> {
        let seat = self.guests.get_mut(place.0 as usize)?;
        let guest = seat.take_if(|guest| guest.session.token() == place.1)?;
        Some(guest.session)
    }
}
