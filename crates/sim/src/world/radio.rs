//! Cells of 802.11e that connect hosts.

use super::{Wire, World};
use crate::endpoints::{HostId, LinkEnd, WireId};
use crate::error::WorldError;
use trunkline_base::link_model::LinkModel;
use trunkline_net::MediumId;
use trunkline_net::wifi::{Cell, Config};

/// Handle of a cell in its world: see [`World::cell`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellId(MediumId);

impl World {
    /// Adds a cell of 802.11e with a host or a router as access point, and a wire over it to each
    /// of `stations`, in their order. Their number overrides the one in `config`. The DSCP of a
    /// packet selects its priority
    /// ([`priority_of_tos`](trunkline_net::wifi::edca::priority_of_tos)). The wires' ledgers work
    /// as for others ([`World::class_ledgers`]), but a cell's wire has no model: reading or
    /// changing it panics.
    ///
    /// # Errors
    ///
    /// [`WorldError::Cell`]; then nothing has changed.
    pub fn cell(
        &mut self,
        access_point: impl Into<LinkEnd>,
        stations: &[HostId],
        config: Config,
    ) -> Result<(CellId, Vec<WireId>), WorldError> {
        let count = u16::try_from(stations.len()).unwrap_or(u16::MAX);
        let stream = 2 * self.wires.len() as u64;
        let cell = Cell::new(Config { stations: count, ..config }, self.seed, stream)?;
        let medium = self.net.medium(cell);
        let center = self.vertex(access_point);
        let wire = |(number, host): (u16, &HostId)| {
            let vertices = [center, self.vertex(*host)];
            let [a, b] = vertices;
            self.net.connect_over(a, b, medium, Cell::lanes(number), Cell::HOP);
            self.net.tap_mut().edge(false);
            let originals = [LinkModel::default(), LinkModel::default()];
            self.wires.push(Wire { vertices, originals, stream, link: None });
            WireId(self.wires.len() as u32 - 1)
        };
        let wires = (0..).zip(stations).map(wire).collect();
        Ok((CellId(medium), wires))
    }

    /// Reads or changes a cell now. The cell's methods need the current time, which is
    /// [`World::now`].
    pub fn with_cell<R>(&mut self, cell: CellId, look: impl FnOnce(&mut Cell) -> R) -> R {
        let seen = self.net.with_medium(self.now, cell.0, look);
        seen.expect("an id of a cell is given out for a cell alone")
    }
}
