//! Recovery policies: what is done about lost packets.
//!
//! The mechanics are everybody's: numbers, gaps with their tolerance of
//! reordering, what is missing, the ring of sent packets, budgets, deadlines, and
//! the bounds against a hostile neighbour. A policy only chooses. It can neither
//! ask for a missing packet that would come too late, nor break a bound, nor have
//! more repeated than the link's shares allow. Each end of a link has its own.
//!
//! A policy of your own is a file here (and its `mod`) and its line in the table;
//! `twice` is an example, and the guide in `docs/recovery.md` tells it step by step.

mod off;
mod once;
mod twice;
mod until_deadline;

use super::receiver::{Gap, Requests};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use trunkline_base::Time;

/// Every policy: its name in configuration, what it does in a line, and how one
/// is made.
const POLICIES: &[Registration] = &[
    ("off", "nothing is asked for, to measure what recovery costs", || Box::new(off::Off)),
    ("once", "each is asked for once (Amir et al. 2005, IV-A)", || Box::new(once::Once)),
    ("twice", "each is asked for once, in two envelopes at once", || Box::new(twice::Twice)),
    (
        "until-deadline",
        "each is asked for until it comes or would come too late, and the last \
      answer is sent in several copies",
        || Box::<until_deadline::UntilDeadline>::default(),
    ),
];

type Registration = (&'static str, &'static str, fn() -> Box<dyn Policy>);

/// What one end of a link decides about lost packets. A packet that shows no gap is
/// one call. None may allocate.
pub(super) trait Policy: fmt::Debug + Send + Sync {
    // The receiving end, which lacks packets.

    /// Whether it asks for anything at all: else it is told of no gap.
    fn asks(&self) -> bool {
        true
    }

    /// Packets have turned out to be missing, and the answer to a request would be
    /// in time.
    fn missing(&mut self, gap: Gap, requests: &mut Requests);

    /// A packet has come that had not before.
    fn arrived(&mut self, _came: ArrivalKind, _requests: &mut Requests) {}

    /// The moment that it set by [`Requests::wake_at`] has come.
    fn handle_timeout(&mut self, _requests: &mut Requests) {}

    /// Numbers count no more: nothing is missing, no moment is set.
    fn forget(&mut self) {}

    /// Another start of the neighbour speaks; comes after [`Policy::forget`].
    fn restart(&mut self) {}

    // The sending end, which keeps them.

    /// How to answer a request for a packet that is kept and can still be in time,
    /// if at all. It is no repetition of a request that has just been answered.
    fn answer(&mut self, _request: &Request) -> Option<Answer> {
        Some(Answer::default())
    }
}

/// How a packet has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ArrivalKind {
    /// Sent the first time, no number missing before it, or late.
    InOrder,
    /// Sent the first time, behind missing numbers.
    AfterGap,
    /// Sent again by somebody.
    Retransmitted,
}

/// A neighbour's request for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// When it came.
    pub now: Time,
    /// The link's round trip.
    pub rtt: Duration,
    /// From here on an answer would come too late.
    pub send_by: Time,
}

/// One repetition, and so many further copies of it as the budget can pay, 0 to 3,
/// spread evenly over so much time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Answer {
    pub copies: u32,
    pub within: Duration,
}

/// What is done about lost packets: the name of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recovery(usize);

impl Recovery {
    /// Nothing, for measuring what recovery costs.
    pub const OFF: Recovery = Recovery::of("off");
    /// The paper's: each is asked for once.
    pub const ONCE: Recovery = Recovery::of("once");
    /// Each is asked for until it comes or would come too late, and the last
    /// answer is sent several times, within [`Config::recovery_budget`](super::Config).
    pub const UNTIL_DEADLINE: Recovery = Recovery::of("until-deadline");

    /// The names of all policies, in the order of their table.
    pub const NAMES: [&'static str; POLICIES.len()] = {
        let mut names = [""; POLICIES.len()];
        let mut n = 0;
        while n < names.len() {
            names[n] = Recovery(n).name();
            n += 1;
        }
        names
    };

    /// Every policy, in the order of their table.
    pub fn all() -> impl ExactSizeIterator<Item = Recovery> {
        (0..POLICIES.len()).map(Recovery)
    }

    /// The name that configurations give it.
    pub const fn name(self) -> &'static str {
        POLICIES[self.0].0
    }

    /// What it does about a lost packet, in less than a sentence.
    pub const fn about(self) -> &'static str {
        POLICIES[self.0].1
    }

    /// One end's instance of it.
    pub(super) fn policy(self) -> Box<dyn Policy> {
        (POLICIES[self.0].2)()
    }

    /// At compile time.
    const fn of(name: &str) -> Recovery {
        let mut n = 0;
        while n < POLICIES.len() {
            if is_same(POLICIES[n].0.as_bytes(), name.as_bytes()) {
                return Recovery(n);
            }
            n += 1;
        }
        panic!("a policy of this name is in the table")
    }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut n = 0;
    while n < a.len() && n < b.len() && a[n] == b[n] {
        n += 1;
    }
    n == a.len() && n == b.len()
}

impl Default for Recovery {
    fn default() -> Recovery {
        Recovery::UNTIL_DEADLINE
    }
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no recovery policy has this name")]
pub struct UnknownRecovery;

impl FromStr for Recovery {
    type Err = UnknownRecovery;

    fn from_str(name: &str) -> Result<Recovery, UnknownRecovery> {
        Recovery::all().find(|policy| policy.name() == name).ok_or(UnknownRecovery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Recovery::all() {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert!(!policy.about().is_empty() && !policy.about().ends_with('.'));
        }
        assert_eq!("one-strike".parse::<Recovery>(), Err(UnknownRecovery));
        assert_eq!([Recovery::OFF, Recovery::ONCE].map(Recovery::name), ["off", "once"]);
    }
}
