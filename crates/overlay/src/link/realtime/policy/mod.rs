//! Recovery policies: how lost packets are recovered.
//!
//! The mechanics are common to all policies: numbers, gaps with their tolerance of reordering, the
//! missing list, the ring of sent packets, budgets, deadlines, and the bounds against a hostile
//! neighbour. A policy only chooses. It can neither request a missing packet that would arrive too
//! late, nor exceed a bound, nor cause more retransmissions than the link's shares allow. Each end
//! of a link has its own policy.
//!
//! To add a policy, add a file here (and its `mod`) and its line in the table; `twice` is an
//! example, and the guide in `docs/recovery.md` covers it step by step.

mod off;
mod once;
mod twice;
mod until_deadline;

use super::receiver::{Gap, Requests};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use trunkline_base::Time;

/// Every policy: its name in configuration, a one-line description, and its constructor.
const POLICIES: &[Registration] = &[
    ("off", "no packet is requested, to measure the cost of recovery", || Box::new(off::Off)),
    ("once", "a lost packet is requested once (Amir et al. 2005, IV-A)", || Box::new(once::Once)),
    ("twice", "a lost packet is requested once, in two envelopes", || Box::new(twice::Twice)),
    (
        "until-deadline",
        "a lost packet is requested until it arrives or would be too late, and the last \
      answer is sent in several copies",
        || Box::<until_deadline::UntilDeadline>::default(),
    ),
];

type Registration = (&'static str, &'static str, fn() -> Box<dyn Policy>);

/// Decisions of one end of a link about lost packets. A packet that shows no gap costs one call.
/// Implementations must not allocate.
pub(super) trait Policy: fmt::Debug + Send + Sync {
    // The receiving end, where packets are missing.

    /// Whether it makes requests at all; if not, it is not notified of gaps.
    fn asks(&self) -> bool {
        true
    }

    /// Packets have been found missing, and the answer to a request would still be in time.
    fn missing(&mut self, gap: Gap, requests: &mut Requests);

    /// A packet has arrived that is not a duplicate.
    fn arrived(&mut self, _came: ArrivalKind, _requests: &mut Requests) {}

    /// The time set with [`Requests::wake_at`] has been reached.
    fn handle_timeout(&mut self, _requests: &mut Requests) {}

    /// The numbering is void: nothing is missing, and no wake-up time is set.
    fn forget(&mut self) {}

    /// The neighbour has restarted; called after [`Policy::forget`].
    fn restart(&mut self) {}

    // The sending end, which stores packets.

    /// Chooses the answer, if any, to a request for a packet that is stored and can still be in
    /// time. A request for a packet that was only just retransmitted is ignored before this call.
    fn answer(&mut self, _request: &Request) -> Option<Answer> {
        Some(Answer::default())
    }
}

/// How a packet arrived, relative to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ArrivalKind {
    /// An original without missing numbers before it, or a late one.
    InOrder,
    /// An original after missing numbers.
    AfterGap,
    /// Retransmitted, on this link or an earlier one.
    Retransmitted,
}

/// A neighbour's request for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    /// When the request arrived.
    pub now: Time,
    /// The link's round-trip time.
    pub rtt: Duration,
    /// From this time on an answer would arrive too late.
    pub send_by: Time,
}

/// One retransmission, and 0 to 3 further copies as far as the budget can pay for them, spread
/// evenly over `within`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Answer {
    pub copies: u32,
    pub within: Duration,
}

/// The name of a recovery policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Recovery(usize);

impl Recovery {
    /// No recovery, for measuring its cost.
    pub const OFF: Recovery = Recovery::of("off");
    /// The paper's policy: each missing packet is requested once.
    pub const ONCE: Recovery = Recovery::of("once");
    /// Requests each packet until it arrives or would be too late; the last
    /// answer is sent several times, within [`Config::recovery_budget`](super::Config).
    pub const UNTIL_DEADLINE: Recovery = Recovery::of("until-deadline");

    /// Names of all policies, in the order of their table.
    pub const NAMES: [&'static str; POLICIES.len()] = {
        let mut names = [""; POLICIES.len()];
        let mut n = 0;
        while n < names.len() {
            names[n] = Recovery(n).name();
            n += 1;
        }
        names
    };

    /// Iterates over all policies, in the order of their table.
    pub fn all() -> impl ExactSizeIterator<Item = Recovery> {
        (0..POLICIES.len()).map(Recovery)
    }

    /// The policy's name in configuration.
    pub const fn name(self) -> &'static str {
        POLICIES[self.0].0
    }

    /// A phrase that describes how the policy treats a lost packet.
    pub const fn about(self) -> &'static str {
        POLICIES[self.0].1
    }

    /// Creates one end's instance of the policy.
    pub(super) fn policy(self) -> Box<dyn Policy> {
        (POLICIES[self.0].2)()
    }

    /// Looks up a policy by name at compile time.
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

/// The error for a name that no policy has.
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
