//! Drop tail: rejects a packet that arrives when the buffer is full.

use super::{Backlog, Unit};

/// Whether a packet of `bytes` bytes is sent at once or has room to wait.
pub fn admit(limit: usize, unit: Unit, bytes: usize, backlog: &Backlog) -> bool {
    let takes = match unit {
        Unit::Packets => 1,
        Unit::Bytes => bytes,
    };
    backlog.idle_since.is_some() || backlog.in_unit(unit).saturating_add(takes) <= limit
}
