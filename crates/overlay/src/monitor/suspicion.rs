//! Limits the cost of checking whether a link has become worse.

/// Maximum budget of extra hellos: three seconds of them, every 10 ms, in which most worsenings are
/// found.
const MAX_CREDIT: f64 = 300.0;
/// Credit earned per received envelope: a limit on the share of extra hellos, whatever the link
/// does.
const SHARE: f64 = 0.01;

/// Evidence that justifies an extra hello while the budget is full. Evidence that would justify the
/// last one is believed without it.
const MIN_EVIDENCE: f64 = 2.0;
const BELIEVED: f64 = 16.0;

/// Budget of extra hellos, requested because a link may have become worse: [`MAX_CREDIT`], and one
/// for every hundred envelopes received.
///
/// The more is spent, the stronger the evidence must be. A link with steady loss often shows weak
/// evidence, and soon spends no more than it earns; the evidence for one that is getting worse
/// grows with each packet.
#[derive(Debug)]
pub(super) struct Doubt {
    credit: f64,
}

impl Default for Doubt {
    fn default() -> Doubt {
        Doubt { credit: MAX_CREDIT }
    }
}

impl Doubt {
    /// Earns credit for one received envelope.
    pub fn earn(&mut self) {
        self.credit = (self.credit + SHARE).min(MAX_CREDIT);
    }

    /// Whether `evidence`, a log-likelihood ratio, justifies an extra hello.
    pub fn asks(&self, evidence: Option<f64>) -> bool {
        let spent = 1.0 - self.credit / MAX_CREDIT;
        let enough = MIN_EVIDENCE + (BELIEVED - MIN_EVIDENCE) * spent * spent;
        self.credit >= 1.0 && evidence.is_some_and(|evidence| evidence > enough)
    }

    /// Pays for one extra hello.
    pub fn spend(&mut self) {
        self.credit -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_asked_than_was_earned_whatever_is_in_doubt() {
        let mut doubt = Doubt::default();
        let mut asked = 0;
        for envelope in 0..100_000u32 {
            doubt.earn();
            while doubt.asks(Some(15.999)) {
                doubt.spend();
                asked += 1;
            }
            assert!(f64::from(asked) <= MAX_CREDIT + SHARE * f64::from(envelope + 1));
        }
        assert!(
            f64::from(asked) > 0.9 * (MAX_CREDIT + 1_000.0),
            "{asked}: else nothing was limited"
        );
    }

    #[test]
    fn little_evidence_leaves_something_for_much() {
        let mut doubt = Doubt::default();
        assert!(!doubt.asks(None) && !doubt.asks(Some(1.9)) && doubt.asks(Some(2.1)));
        while doubt.asks(Some(4.0)) {
            doubt.spend();
        }
        assert!(doubt.credit > MAX_CREDIT / 2.0 && doubt.asks(Some(6.0)), "{}", doubt.credit);
    }
}
