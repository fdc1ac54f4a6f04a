use super::{Gap, Policy, Requests};

/// Lost packets stay lost. Requests of the neighbour are still answered.
#[derive(Debug)]
pub(super) struct Off;

impl Policy for Off {
    fn asks(&self) -> bool {
        false
    }

    fn missing(&mut self, _gap: Gap, _requests: &mut Requests) {}
}
