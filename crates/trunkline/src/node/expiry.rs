//! Expiry of a node's certificates, and the frequency of warnings about it.

const DAY: u64 = 24 * 60 * 60;
/// Time before expiry from which warnings are given: enough for a reminder, a weekend and a second
/// attempt. A certificate does not state its start, so this is not a share of its lifetime.
const SOON: u64 = 14 * DAY;

/// State of a certificate's validity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// Valid for ever, or for long enough.
    Holds,
    /// Valid for only this many seconds more.
    EndsSoon(u64),
    /// Expired this many seconds ago.
    Over(u64),
}

impl Validity {
    /// State at `now` of a certificate valid until `not_after` (seconds since 1970; 0 means for
    /// ever).
    pub fn of(not_after: u64, now: u64) -> Validity {
        match not_after.checked_sub(now) {
            _ if not_after == 0 => Validity::Holds,
            None => Validity::Over(now - not_after),
            Some(left) if left < SOON => Validity::EndsSoon(left),
            Some(_) => Validity::Holds,
        }
    }
}

/// Certificates that a node presents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The node's own, for other nodes.
    Node,
    /// The gateway's, for phones and proxies.
    Sip,
}

impl Owner {
    /// The certificate's state, and what to do about it.
    pub fn told(self, validity: Validity) -> String {
        let span = |s: u64| crate::operate::span(s as f64);
        let (name, consequence) = match self {
            Owner::Node => (
                "the node's certificate",
                "nodes that know this node by it don't trust it any more",
            ),
            Owner::Sip => ("the [sip] certificate", "phones that verify it refuse to connect"),
        };
        match validity {
            Validity::Holds => format!("{name} holds"),
            Validity::EndsSoon(left) => {
                format!("{name} expires in {}: renew it, and reload", span(left))
            }
            Validity::Over(since) => {
                format!("{name} EXPIRED {} ago: {consequence}; renew it, and reload", span(since))
            }
        }
    }
}

/// Decides when to log a certificate's state: at first, once a day, and on expiry.
#[derive(Default)]
pub struct ExpiryMonitor {
    said: Option<(u64, Validity, u64)>,
}

impl ExpiryMonitor {
    /// State to log at `now` of a certificate that expires at `not_after`, if it is due.
    pub fn look(&mut self, not_after: u64, now: u64) -> Option<Validity> {
        let standing = Validity::of(not_after, now);
        let same = std::mem::discriminant::<Validity>;
        let known = self.said.is_some_and(|(until, was, at)| {
            until == not_after && same(&was) == same(&standing) && now < at + DAY
        });
        if known {
            return None;
        }
        self.said = Some((not_after, standing, now));
        (standing != Validity::Holds).then_some(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_announced_once_a_day_and_when_it_comes() {
        let end = 1_800_000_000;
        let mut watch = ExpiryMonitor::default();
        let mut said = Vec::new();
        for now in (end - 20 * DAY..end + 3 * DAY).step_by(60) {
            said.extend(watch.look(end, now).map(|s| (now, s)));
        }
        assert_eq!(said.len(), 14 + 3, "{said:?}");
        // Within the minute of the check.
        assert!((end - SOON..=end - SOON + 60).contains(&said[0].0), "{said:?}");
        let over = said.iter().find(|(_, s)| matches!(s, Validity::Over(_))).expect("it came");
        assert!((end..=end + 60).contains(&over.0), "{said:?}");
        // A certificate renewed in time needs no warning; one without expiry never does.
        assert_eq!(watch.look(end + 365 * DAY, end + 3 * DAY), None);
        assert_eq!(Validity::of(0, end), Validity::Holds);
        assert!(watch.look(end + 370 * DAY, end + 369 * DAY).is_some(), "another one");
    }
}
