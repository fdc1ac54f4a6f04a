//! Streams between the two nodes of a pair and within each of them, and their invariants.

use super::Step;
use super::driver::{Message, check_no_streams, check_streams};
use super::pair::{self, World, id};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use trunkline_overlay::node::StreamPhase;
use trunkline_overlay::session::SessionId;
use trunkline_overlay::session::stream::Config;
use trunkline_overlay::session::wire::stream::{MAX_DATA, Notice, Request, Reset};
use trunkline_overlay::session::wire::{SESSION_VERSION, ToClient, ToNode};

/// Port of the listeners, and the first of the ports from which streams are opened. Each stream has
/// its own port, which identifies it to both ends.
const LISTEN: u16 = 7;
const FIRST: u16 = 1_000;

/// Maximum number of streams in a script.
const MAX_STREAMS: usize = 24;

/// Seconds after the end of all outages by which every stream has ended: a stream times out after a
/// minute of silence, and a waiting sender probes at least every five seconds.
const PATIENCE: u64 = 90;

/// Seconds that a stream is remembered after its end.
const REMEMBERED: u64 = 70;

/// Configures few streams, with so little memory that some find none.
pub fn config(setting: u8) -> Config {
    let buffer = 64 << 10;
    let memory = [4 * buffer, 64 * buffer][usize::from(setting % 2)];
    Config { max: 12, backlog: 4, buffer, memory, ..Config::default() }
}

/// One end of a stream, from its application's view.
#[derive(Default, Debug)]
struct End {
    side: usize,
    session: Option<SessionId>,
    /// Number of bytes written, and the credit for more.
    written: u64,
    credit: u64,
    /// Whether it has written beyond its credit; the node may have accepted a part.
    overran: bool,
    /// Whether its output has ended.
    shut: bool,
    /// Number of bytes read, and the total credit granted.
    read: u64,
    given: u64,
    connected: bool,
    /// Whether the end of the other's output has been read.
    ended: bool,
    reset: Option<Reset>,
    /// Whether its application has reset it or gone, or its node has failed.
    left: bool,
}

impl End {
    fn is_live(&self) -> bool {
        self.session.is_some() && !self.left && self.reset.is_none()
    }
}

#[derive(Debug)]
struct Stream {
    /// The connecting and the accepting end.
    ends: [End; 2],
    messages: bool,
}

#[derive(Default)]
struct Side {
    listener: Option<SessionId>,
    /// Streams pending to be accepted.
    incoming: VecDeque<(u64, usize)>,
    ends: BTreeMap<SessionId, (usize, usize)>,
}

#[derive(Default)]
pub struct Streams {
    all: Vec<Stream>,
    sides: [Side; 2],
}

/// The byte that end `from` of stream `number` writes at a position.
fn byte_at((number, from): (usize, usize), position: u64) -> u8 {
    let of = (2 * number + from) as u64 + 1;
    ((position.wrapping_add(of << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl World {
    pub(super) fn stream_step(&mut self, step: &Step) {
        match *step {
            Step::Connect { node, to, credit, messages } => {
                self.connect(node, to, credit, messages);
            }
            Step::Listen { node, backlog } => self.listen(node, backlog),
            Step::Accept { node, credit, .. } => self.accept(node, credit),
            Step::Write { node, pick, len } => self.write(node, pick, len, true),
            Step::Overrun { node, pick, len } => self.write(node, pick, len, false),
            Step::Credit { node, pick, bytes, .. } => self.give_credit(node, pick, bytes),
            Step::End { node, pick, how } => match how % 4 {
                0 => self.shut(node, pick),
                1 => self.leave(node, pick, true),
                _ => self.leave(node, pick, false),
            },
            _ => {}
        }
    }

    fn open_stream_session(&mut self, side: usize, port: u16) -> Option<SessionId> {
        let session = self.sides[side].node.session_open()?;
        self.say(side, session, &ToNode::Bind { version: SESSION_VERSION, port });
        Some(session)
    }

    fn request(&mut self, side: usize, session: SessionId, request: Request<'_>) {
        self.say(side, session, &ToNode::Stream(request));
    }

    fn connect(&mut self, side: u8, to: u8, credit: u16, messages: u8) {
        let (side, to) = (usize::from(side % 2), usize::from(to % 2));
        let number = self.streams.all.len();
        if number == MAX_STREAMS {
            return;
        }
        let port = FIRST + number as u16;
        let Some(session) = self.open_stream_session(side, port) else { return };
        let messages = messages % 2 == 1;
        let own = End { side, session: Some(session), given: credit.into(), ..End::default() };
        let other = End { side: to, ..End::default() };
        self.streams.all.push(Stream { ends: [own, other], messages });
        self.streams.sides[side].ends.insert(session, (number, 0));
        let credit = credit.into();
        self.request(
            side,
            session,
            Request::Connect { to: id(to), port: LISTEN, messages, credit },
        );
    }

    /// Listens, or stops if it already does.
    fn listen(&mut self, side: u8, backlog: u16) {
        let side = usize::from(side % 2);
        self.streams.sides[side].incoming.clear();
        if let Some(session) = self.streams.sides[side].listener.take() {
            return self.sides[side].node.session_close(self.now, session);
        }
        let Some(session) = self.open_stream_session(side, LISTEN) else { return };
        self.streams.sides[side].listener = Some(session);
        self.request(side, session, Request::Listen { backlog });
    }

    fn accept(&mut self, side: u8, credit: u16) {
        let side = usize::from(side % 2);
        let Some((token, number)) = self.streams.sides[side].incoming.pop_front() else { return };
        let Some(session) = self.sides[side].node.session_open() else { return };
        self.streams.sides[side].ends.insert(session, (number, 1));
        let given = credit.into();
        // An earlier end here belonged to a node that has failed since.
        self.streams.all[number].ends[1] =
            End { side, session: Some(session), given, ..End::default() };
        let (version, credit) = (SESSION_VERSION, credit.into());
        self.request(side, session, Request::Accept { version, token, credit });
    }

    /// Picks one of the ends at `side` that have their application.
    fn pick(&self, side: usize, pick: u8) -> Option<(usize, usize, SessionId)> {
        let ends = &self.streams.sides[side].ends;
        let nth = usize::from(pick).checked_rem(ends.len())?;
        ends.iter().nth(nth).map(|(&session, &(number, end))| (number, end, session))
    }

    /// Writes `len` bytes. If `minds` is set, at most the credit is written.
    fn write(&mut self, side: u8, pick: u8, len: u16, minds: bool) {
        let side = usize::from(side % 2);
        let Some((number, at, session)) = self.pick(side, pick) else { return };
        let end = &mut self.streams.all[number].ends[at];
        let allowed = if minds { end.credit } else { u64::MAX };
        let len = u64::from(len).min(MAX_DATA as u64).min(allowed);
        if len == 0 || (minds && (end.shut || !end.is_live())) {
            return;
        }
        let begin = end.written;
        let data: Vec<u8> = (begin..begin + len).map(|p| byte_at((number, at), p)).collect();
        if end.credit >= len && !end.shut && end.is_live() {
            end.written += len;
            end.credit -= len;
        } else {
            end.overran = true;
        }
        self.request(side, session, Request::Data(&data));
    }

    fn give_credit(&mut self, side: u8, pick: u8, bytes: u16) {
        let side = usize::from(side % 2);
        let Some((number, end, session)) = self.pick(side, pick) else { return };
        self.streams.all[number].ends[end].given += u64::from(bytes);
        self.request(side, session, Request::Credit(bytes.into()));
    }

    fn shut(&mut self, side: u8, pick: u8) {
        let side = usize::from(side % 2);
        let Some((number, end, session)) = self.pick(side, pick) else { return };
        self.streams.all[number].ends[end].shut = true;
        self.request(side, session, Request::Shut);
    }

    /// Resets a stream, or closes its session: output that ended before is still delivered.
    fn leave(&mut self, side: u8, pick: u8, abort: bool) {
        let side = usize::from(side % 2);
        let Some((number, end, session)) = self.pick(side, pick) else { return };
        let end = &mut self.streams.all[number].ends[end];
        end.left = true;
        if abort {
            self.request(side, session, Request::Reset);
        }
        self.streams.sides[side].ends.remove(&session);
        self.sides[side].node.session_close(self.now, session);
    }

    pub(super) fn streams_failed(&mut self, side: usize) {
        self.streams.sides[side] = Side::default();
        for end in self.streams.all.iter_mut().flat_map(|s| &mut s.ends) {
            end.left |= end.side == side;
        }
    }

    pub(super) fn look_at_notice(&mut self, side: usize, message: &Message, notice: Notice<'_>) {
        if let Notice::Incoming { token, from, port, messages } = notice {
            assert_eq!(Some(message.to), self.streams.sides[side].listener);
            let number = usize::from(port.wrapping_sub(FIRST));
            match self.streams.all.get(number) {
                Some(stream) if stream.ends[1].side == side => {
                    assert!(self.alters() || stream.messages == messages);
                    assert!(self.alters() || from == id(stream.ends[0].side));
                    self.streams.sides[side].incoming.push_back((token, number));
                }
                _ => assert!(self.alters(), "nobody has opened one from {port}"),
            }
            return;
        }
        let Some(&(number, at)) = self.streams.sides[side].ends.get(&message.to) else {
            // The listener could not listen.
            assert!(matches!(notice, Notice::Reset(_)), "{notice:?} for nobody");
            return;
        };
        let messages = self.streams.all[number].messages;
        let End { written, shut, overran, .. } = self.streams.all[number].ends[1 - at];
        let alters = self.alters() || overran;
        let end = &mut self.streams.all[number].ends[at];
        assert!(end.reset.is_none(), "{notice:?} after the end of {end:?}");
        match notice {
            Notice::Connected { node, credit, messages: said, .. } => {
                assert!(!end.connected && node == id(side));
                assert!(alters || said == messages, "the boundaries of messages");
                (end.connected, end.credit) = (true, credit.into());
            }
            Notice::Credit(more) => end.credit += u64::from(more),
            Notice::Data(data) => {
                assert!(end.connected && !end.ended && !data.is_empty());
                for &byte in data {
                    assert!(alters || byte == byte_at((number, 1 - at), end.read), "{end:?}");
                    end.read += 1;
                }
                assert!(alters || end.read <= written, "read what was never written");
                assert!(end.read <= end.given, "beyond the credit: {end:?}");
            }
            Notice::Shut => {
                assert!(end.connected && !end.ended);
                assert!(alters || shut && end.read == written, "an end too early: {end:?}");
                end.ended = true;
            }
            Notice::Finished => assert!(end.ended && end.shut, "nothing has ended: {end:?}"),
            Notice::Reset(why) => end.reset = Some(why),
            Notice::Incoming { .. } => unreachable!(),
        }
    }

    /// Restores the network, makes applications behave, and checks that each stream ends and no
    /// stream state remains.
    pub(super) fn finish_streams(&mut self) {
        if self.streams.all.is_empty() && self.streams.sides.iter().all(|s| s.listener.is_none()) {
            return;
        }
        for second in 0.. {
            for side in [0, 1] {
                while !self.streams.sides[side].incoming.is_empty() {
                    self.accept(side as u8, 0);
                }
                for pick in 0..self.streams.sides[side].ends.len() as u8 {
                    self.end_one(side, pick);
                }
            }
            self.run_calmly(Duration::from_secs(1));
            let done = |end: &End| !end.is_live() || end.ended;
            if self.streams.all.iter().flat_map(|s| &s.ends).all(done) {
                break;
            }
            assert!(second < PATIENCE, "a stream hangs: {:#?}", self.streams.all);
        }
        self.check_ends();
    }

    /// Ends all applications, and checks that no stream remains.
    pub(super) fn end_streams(&mut self) {
        for side in 0..2 {
            while !self.streams.sides[side].ends.is_empty() {
                self.leave(side as u8, 0, false);
            }
            if self.streams.sides[side].listener.is_some() {
                self.listen(side as u8, 0);
            }
        }
        let over = |side: &pair::Side| side.node.streams().all(|s| s.state == StreamPhase::Over);
        for second in 0.. {
            self.run_calmly(Duration::from_secs(1));
            if self.sides.iter().all(over) {
                break;
            }
            assert!(second < PATIENCE, "a stream does not end");
        }
        self.now += Duration::from_secs(REMEMBERED);
        self.settle(0);
        self.settle(1);
        for side in &self.sides {
            check_no_streams(&side.node);
        }
    }

    fn end_one(&mut self, side: usize, pick: u8) {
        let Some((number, at, _)) = self.pick(side, pick) else { return };
        let End { connected, shut, .. } = self.streams.all[number].ends[at];
        let end = &self.streams.all[number].ends[at];
        if connected && !shut && end.is_live() {
            self.shut(side as u8, pick);
        }
        let end = &self.streams.all[number].ends[at];
        if end.is_live() && end.given - end.read < 1 << 20 {
            for _ in 0..16 {
                self.give_credit(side as u8, pick, u16::MAX);
            }
        }
    }

    /// Checks that an end without a reset has received everything that the other wrote, and that a
    /// reset reached both ends that were still present.
    fn check_ends(&self) {
        for stream in &self.streams.all {
            for (at, end) in stream.ends.iter().enumerate() {
                let other = &stream.ends[1 - at];
                if end.session.is_none() || end.left {
                    continue;
                }
                let whole = end.ended && (end.read == other.written || other.overran);
                assert!(end.reset.is_some() || whole, "{stream:#?}");
                let told = other.left || other.session.is_none() || other.reset.is_some();
                assert!(end.reset.is_none() || told, "only one was told: {stream:#?}");
            }
        }
    }

    /// Checks the limits on streams, which hold at all times.
    pub(super) fn check_streams(&self) {
        for side in &self.sides {
            check_streams(&side.node, &config(self.settings[0] / 2), &[id(0), id(1)]);
        }
    }
}

/// Whether a message binds a session of streams, the only kind besides notices.
pub fn is_bound(message: &ToClient<'_>) -> bool {
    matches!(message, ToClient::Bound { port, .. } if *port == LISTEN || *port >= FIRST)
}
