use super::{Gap, Policy, Requests};

/// The paper's policy (Amir et al. 2005, IV-A): one request, one answer, no timeouts. A packet
/// stays lost if its request or its retransmission is lost: 2p² − p³ of all packets.
#[derive(Debug)]
pub(super) struct Once;

impl Policy for Once {
    fn missing(&mut self, gap: Gap, requests: &mut Requests) {
        requests.request(gap, 1);
    }
}
