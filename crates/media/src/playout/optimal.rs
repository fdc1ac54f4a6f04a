//! The best playout that a call could have had.
//!
//! An adaptive receiver may change its delay between talkspurts, where the change is inaudible, so
//! a call has one delay per talkspurt. [`optimal`] chooses all of them together, with knowledge of
//! the whole call, so as to maximise R of the reduced E-model: no playout does better, and any
//! remaining impairment is due to the network. Balan, Eggert, Niccolini and Brunner 2007, §III-E,
//! judge transports by it, after Moon, Kurose and Towsley, *Packet audio playout delay adjustment:
//! performance bounds and algorithms*, Multimedia Systems 6(1), 1998. They find the smallest mean
//! delay for each number of drops by dynamic programming; R alone is found faster, as `corners.rs`
//! proves, and the tests compare both.
//!
//! Id is the mean over the played packets, each at the mouth-to-ear delay of its talkspurt; the
//! share missed, which gives Ie, counts lost packets and packets dropped because they arrived too
//! late.
//!
//! If the delay falls from one talkspurt to the next by more than the pause between them, the two
//! overlap, which no receiver could play. That is not forbidden here, so R is an upper bound and
//! not always reachable.

mod corners;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeMap;

use crate::quality::reduced::{self, Codec, Rating};
use corners::Choice;

/// Arrival of one packet at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The talkspurt that the packet belongs to.
    pub talkspurt: u32,
    /// Time from when the packet was ready to be sent to its arrival, including time in the
    /// sender's buffer; `None` if it never arrived, because the network lost it or the sender's
    /// buffer rejected it.
    pub delay: Option<Duration>,
}

/// Playout of one talkspurt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// The number of the talkspurt.
    pub talkspurt: u32,
    /// Time from when a packet was ready to be sent to its playout: the network's delay and the
    /// wait in the playout buffer together. A packet that took exactly this long is still played.
    /// `None` if none of its packets is played.
    pub delay: Option<Duration>,
    /// Number of packets played.
    pub played: usize,
    /// Packets that arrived too late.
    pub dropped: usize,
    /// Packets that never arrived.
    pub lost: usize,
}

/// Playout of a call, and its rating.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayoutOutcome {
    /// R, and the impairments by delay and loss in it. Id is 0 if nothing is played.
    pub rating: Rating,
    /// The talkspurts, in the order of their numbers.
    pub talkspurts: Vec<Played>,
}

impl PlayoutOutcome {
    /// Number of packets of the call that are played.
    pub fn played(&self) -> usize {
        self.talkspurts.iter().map(|t| t.played).sum()
    }

    /// Number of packets that arrived too late.
    pub fn dropped(&self) -> usize {
        self.talkspurts.iter().map(|t| t.dropped).sum()
    }

    /// Number of packets that never arrived.
    pub fn lost(&self) -> usize {
        self.talkspurts.iter().map(|t| t.lost).sum()
    }
}

/// Plays the call with the best delay for each talkspurt. `fixed` is the mouth-to-ear delay in
/// addition to network and playout, such as filling a packet. `None` for a call without packets.
///
/// The order of the packets does not matter. γ2 and γ3 of the codec must not be negative. If
/// several playouts are equally good, any of them may be returned.
///
/// R is never less than that of silence, 94.2 − γ1 − γ2 ln(1 + γ3), because dropping everything is
/// a playout too and has no delay: 11.0 with [`Codec::G711`], less than 0 with [`Codec::G729`].
///
/// Takes time proportional to n log n for n packets.
pub fn optimal(
    packets: impl IntoIterator<Item = Packet>,
    fixed: Duration,
    codec: Codec,
) -> Option<PlayoutOutcome> {
    let talkspurts = Arrivals::collect(packets);
    let choices: Vec<_> = talkspurts.values().map(|t| t.choices(fixed)).collect();
    let sent = talkspurts.values().map(|t| t.delays.len() + t.lost).sum();
    let mut delays = corners::best(&choices, sent, codec).into_iter();
    outcome(&talkspurts, |_| delays.next().flatten(), fixed, codec)
}

/// Plays the call with these delays, one for each talkspurt, measured as in [`Played::delay`];
/// `None` plays no packet of the talkspurt. `fixed` is the mouth-to-ear delay in addition to them.
/// `None` for a call without packets.
///
/// The order of the packets does not matter.
pub fn play(
    packets: impl IntoIterator<Item = Packet>,
    delay: impl FnMut(u32) -> Option<Duration>,
    fixed: Duration,
    codec: Codec,
) -> Option<PlayoutOutcome> {
    outcome(&Arrivals::collect(packets), delay, fixed, codec)
}

/// The packets of one talkspurt.
#[derive(Debug, Default)]
struct Arrivals {
    /// Delays of the packets that arrived, shortest first.
    delays: Vec<Duration>,
    lost: usize,
}

impl Arrivals {
    fn collect(packets: impl IntoIterator<Item = Packet>) -> BTreeMap<u32, Arrivals> {
        let mut talkspurts = BTreeMap::<u32, Arrivals>::new();
        for packet in packets {
            let talkspurt = talkspurts.entry(packet.talkspurt).or_default();
            match packet.delay {
                Some(delay) => talkspurt.delays.push(delay),
                None => talkspurt.lost += 1,
            }
        }
        for talkspurt in talkspurts.values_mut() {
            talkspurt.delays.sort_unstable();
        }
        talkspurts
    }

    /// All delays worth considering, in ascending order of packets played: none, and the delays of
    /// its packets, since between two of them a shorter delay plays the same packets.
    fn choices(&self, fixed: Duration) -> Vec<Choice> {
        let mut choices = vec![Choice::SILENCE];
        for (i, &delay) in self.delays.iter().enumerate() {
            if self.delays.get(i + 1) == Some(&delay) {
                continue;
            }
            let (id, played) = (reduced::delay_impairment(delay.saturating_add(fixed)), i + 1);
            choices.push(Choice { played, cost: id * played as f64, delay: Some(delay) });
        }
        choices
    }
}

/// Plays the call; requests the delays in the order of the talkspurts.
fn outcome(
    talkspurts: &BTreeMap<u32, Arrivals>,
    mut delay: impl FnMut(u32) -> Option<Duration>,
    fixed: Duration,
    codec: Codec,
) -> Option<PlayoutOutcome> {
    let mut outcome = PlayoutOutcome {
        rating: Rating::of(0.0, 0.0),
        talkspurts: Vec::with_capacity(talkspurts.len()),
    };
    let mut sum = 0.0;
    for (&talkspurt, arrivals) in talkspurts {
        let chosen = delay(talkspurt);
        let played = chosen.map_or(0, |c| arrivals.delays.partition_point(|&d| d <= c));
        let delay = chosen.filter(|_| played > 0);
        if let Some(delay) = delay {
            sum += reduced::delay_impairment(delay.saturating_add(fixed)) * played as f64;
        }
        outcome.talkspurts.push(Played {
            talkspurt,
            delay,
            played,
            dropped: arrivals.delays.len() - played,
            lost: arrivals.lost,
        });
    }
    let (played, missed) = (outcome.played(), outcome.dropped() + outcome.lost());
    let all = played + missed;
    if all == 0 {
        return None;
    }
    let id = sum / played.max(1) as f64;
    outcome.rating = Rating::of(id, codec.impairment(missed as f64 / all as f64));
    Some(outcome)
}
