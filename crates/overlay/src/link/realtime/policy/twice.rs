use super::{Gap, Policy, Requests};

/// Sends each request in two envelopes at once, and never again: a packet stays lost if both
/// requests are lost, or its one retransmission is. With independent loss p in each direction that
/// is p (1 − (1 − p²)(1 − p)) = p² + p³ − p⁴ of all packets, where one request leaves 2p² − p³.
#[derive(Debug)]
pub(super) struct Twice;

impl Policy for Twice {
    fn missing(&mut self, gap: Gap, requests: &mut Requests) {
        requests.request(gap, 2);
    }
}
