use super::{Gap, Policy, Requests};

/// What is lost stays lost. A neighbour that asks gets its answer all the same.
#[derive(Debug)]
pub(super) struct Off;

impl Policy for Off {
    fn asks(&self) -> bool {
        false
    }

    fn missing(&mut self, _gap: Gap, _requests: &mut Requests) {}
}
