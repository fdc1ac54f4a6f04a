//! A cell as a medium of a network.

use super::cell::Cell;
use super::edca::priority_of_tos;
use super::types::{Direction, Msdu};
use crate::medium::{Done, Frame, Medium, PacketKey};
use core::time::Duration;
use trunkline_base::Time;
use trunkline_base::link_model::Cause;

impl Cell {
    /// Routing delay of a hop within a cell, for shortest-delay routes.
    pub const HOP: Duration = Duration::from_millis(1);

    /// The lanes of a station for [`Network::connect_over`](crate::Network::connect_over), where
    /// the access point is the first vertex and the station the second.
    pub const fn lanes(station: u16) -> [u32; 2] {
        [2 * station as u32, 2 * station as u32 + 1]
    }
}

/// The user priority of a packet is that of its DSCP ([`priority_of_tos`]). Every rejected packet
/// counts as dropped by its queue, and every other loss as a loss on the wire.
impl Medium for Cell {
    fn offer(&mut self, now: Time, frame: &Frame) -> Result<(), Cause> {
        let way = if frame.lane.is_multiple_of(2) { Direction::Down } else { Direction::Up };
        let msdu = Msdu {
            // No station has number 65,535.
            station: u16::try_from(frame.lane / 2).unwrap_or(u16::MAX),
            way,
            priority: priority_of_tos(frame.tos),
            bytes: frame.bytes,
            handle: u64::from(frame.tos) << 32 | u64::from(frame.key.0),
        };
        self.enqueue(now, &msdu).map_err(|_| Cause::Queue)
    }

    fn next_timeout(&self) -> Time {
        Cell::next_timeout(self)
    }

    fn poll(&mut self, now: Time) -> Option<Done> {
        let outcome = self.advance(now)?;
        let tos = (outcome.handle >> 32) as u8;
        let result = outcome.result.map(|()| tos).map_err(|_| Cause::Loss);
        Some(Done { key: PacketKey(outcome.handle as u32), outcome: result })
    }
}
