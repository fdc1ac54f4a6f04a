//! The connections that calls and requests need.

use super::Gateway;
use std::collections::BTreeSet;

impl Gateway {
    /// The connections that an unanswered request or a call uses: closing one of them would end it, or
    /// keep it from its ends.
    pub fn connections_in_use(&self) -> BTreeSet<u64> {
        let sides = self.calls.iter().flat_map(|(_, call)| &call.sides);
        let of_calls = sides.filter_map(|side| side.hop?.connection);
        of_calls.chain(self.transactions.connections()).collect()
    }
}
