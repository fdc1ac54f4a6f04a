//! When a node's certificate ends, and how often to say so.

use std::fmt;

const DAY: u64 = 24 * 60 * 60;
/// From when on the end is near: time for a reminder, a weekend and a second
/// try. A certificate does not say when it began, so no share of its life.
const SOON: u64 = 14 * DAY;

/// How a certificate stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// For ever, or long enough.
    Holds,
    /// For so many seconds only.
    EndsSoon(u64),
    /// For so many seconds it has been of no use.
    Over(u64),
}

impl Validity {
    /// Of a certificate that holds until `not_after` (seconds since 1970; 0 =
    /// for ever), at `now`.
    pub fn of(not_after: u64, now: u64) -> Validity {
        match not_after.checked_sub(now) {
            _ if not_after == 0 => Validity::Holds,
            None => Validity::Over(now - not_after),
            Some(left) if left < SOON => Validity::EndsSoon(left),
            Some(_) => Validity::Holds,
        }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |s: u64| crate::operate::span(s as f64);
        match self {
            Validity::Holds => f.write_str("the node's certificate holds"),
            Validity::EndsSoon(left) => write!(
                f,
                "the node's certificate ends in {}: certify it anew, and reload",
                span(*left)
            ),
            Validity::Over(since) => write!(
                f,
                "the node's certificate has been OVER for {}: nobody who knows this node by it \
                 believes it any more; certify it anew, and reload",
                span(*since)
            ),
        }
    }
}

/// Says so in the log: at first, once a day, and when the end has come.
#[derive(Default)]
pub struct ExpiryMonitor {
    said: Option<(u64, Validity, u64)>,
}

impl ExpiryMonitor {
    /// What is to be said at `now` of a certificate that ends at `not_after`.
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
        // Within the minute that is looked at.
        assert!((end - SOON..=end - SOON + 60).contains(&said[0].0), "{said:?}");
        let over = said.iter().find(|(_, s)| matches!(s, Validity::Over(_))).expect("it came");
        assert!((end..=end + 60).contains(&over.0), "{said:?}");
        // Renewed in time it is no longer a matter; for ever, never.
        assert_eq!(watch.look(end + 365 * DAY, end + 3 * DAY), None);
        assert_eq!(Validity::of(0, end), Validity::Holds);
        assert!(watch.look(end + 370 * DAY, end + 369 * DAY).is_some(), "another one");
    }
}
