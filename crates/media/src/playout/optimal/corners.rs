//! The choice for each talkspurt that maximises R.
//!
//! Only the smallest sum S of Id over n packets played matters, for each n. If a talkspurt could be
//! played in proportions of its choices, the smallest S would be a convex polygon over n, starting
//! from no packets played: below the true one, and equal to it at its corners, where the cheapest
//! packets are played. **The best corner is the optimum**, so the S between corners, which would
//! need dynamic programming over talkspurts and drops, are never needed:
//!
//! R ≥ r means S ≤ b(n) = n (R0 − Ie(n) − r). Ie is γ1 + γ2 ln(1 + γ3 (1 − n / N)) for N packets
//! sent: falling and concave in n, so that b'' = −2 Ie' − n Ie'' is not negative and b is convex.
//! If both corners of an edge are worse than r, S lies above b at both (where nothing is played, on
//! it); then the straight edge lies above the convex b throughout, and so does every S between
//! them, which is not below the edge.

use core::time::Duration;

use crate::quality::reduced::{Codec, Rating};

/// One way to play a talkspurt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    /// Number of packets that arrive in time.
    pub played: usize,
    /// Sum of Id over the played packets.
    pub cost: f64,
    /// The playout delay; `None` if nothing is played.
    pub delay: Option<Duration>,
}

impl Choice {
    pub const SILENCE: Choice = Choice { played: 0, cost: 0.0, delay: None };

    /// Cost of each additional packet from this choice to `next`.
    fn slope(self, next: Choice) -> f64 {
        (next.cost - self.cost) / (next.played - self.played) as f64
    }
}

/// The best delay for each talkspurt. The `choices` of a talkspurt begin with [`Choice::SILENCE`],
/// and each plays more packets than the one before; `sent` packets were sent.
pub(super) fn best(choices: &[Vec<Choice>], sent: usize, codec: Codec) -> Vec<Option<Duration>> {
    let mut edges = Vec::new();
    for (talkspurt, choices) in choices.iter().enumerate() {
        let hull = hull(choices);
        edges.extend(hull.windows(2).map(|pair| (talkspurt, pair[0], pair[1])));
    }
    // The sort is stable, so a talkspurt's edges keep their order.
    edges.sort_by(|a, b| a.1.slope(a.2).total_cmp(&b.1.slope(b.2)));

    let r = |played: usize, cost: f64| {
        let missed = (sent - played) as f64 / sent.max(1) as f64;
        Rating::of(cost / played.max(1) as f64, codec.impairment(missed)).r
    };
    let (mut played, mut cost) = (0, 0.0);
    let (mut best, mut taken) = (r(0, 0.0), 0);
    for (i, (_, from, to)) in edges.iter().enumerate() {
        played += to.played - from.played;
        cost += to.cost - from.cost;
        let r = r(played, cost);
        if r >= best {
            (best, taken) = (r, i + 1);
        }
    }
    let mut delays = vec![None; choices.len()];
    for &(talkspurt, _, to) in &edges[..taken] {
        delays[talkspurt] = to.delay;
    }
    delays
}

/// The choices on the lower convex hull of cost over packets played.
fn hull(choices: &[Choice]) -> Vec<Choice> {
    let mut hull: Vec<Choice> = Vec::new();
    for &choice in choices {
        while let [.., a, b] = hull[..] {
            if a.slope(b) < b.slope(choice) {
                break;
            }
            hull.pop();
        }
        hull.push(choice);
    }
    hull
}
