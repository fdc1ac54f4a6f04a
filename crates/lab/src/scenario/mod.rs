//! A network of the user's: hosts, routers, links, calls and streams from a file, without any Rust,
//! in the simulator and with real daemons.

mod build;
mod draw;
mod faults;
mod file;
mod flows;
mod ledger;
mod mistake;
mod model;
mod options;
mod results;
mod rows;
mod simulate;
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real daemons need real time, sockets and processes"
)]
pub mod testbed;
#[cfg(test)]
mod tests;
mod units;
mod ways;
mod wire;

use std::time::Duration;

pub use file::{load, parse};
pub use ledger::LINK_COLUMNS;
pub use mistake::Mistake;
pub use model::{
    Call, Carrier, Fault, FaultKind, Host, Link, Program, Scenario, Stream, Transfer, Vertex,
};
pub use results::Results;
pub use rows::{COLUMNS, STREAM_COLUMNS, TRANSFER_COLUMNS, agree};
pub use simulate::simulate;
pub use units::share;

/// Nodes find each other and measure round trips for this long before the first packet.
const WARM_UP: Duration = Duration::from_secs(5);
/// Packets still in flight when the last one is sent arrive within this time.
const DRAIN: Duration = Duration::from_secs(3);
/// Largest length of the calls.
const MAX_LENGTH: Duration = Duration::from_secs(7_200);
/// Interval between two packets of a call.
const SPACING: Duration = Duration::from_millis(20);
/// Port of the first call; the others use the ports that follow.
const FIRST_PORT: u16 = 5_000;

/// One call of a [`Call`].
#[derive(Clone, Copy, Debug)]
struct CallInstance<'a> {
    /// The `[[call]]` that it belongs to.
    call: &'a Call,
    /// Port on which it is answered.
    port: u16,
    /// Send time of its first packet, after [`WARM_UP`].
    offset: Duration,
}

impl Scenario {
    /// Every call, in the order of the file. The calls of a `[[call]]` divide [`SPACING`] evenly,
    /// whatever others there are; those of another one fall in between.
    fn placed(&self) -> impl Iterator<Item = CallInstance<'_>> {
        let kinds = self.calls.len() as u32;
        let place = move |(call, kind)| {
            let call: &Call = call;
            (0..call.count)
                .map(move |n| (call, SPACING * (n * kinds + kind) / (call.count * kinds)))
        };
        let each = self.calls.iter().zip(0..).flat_map(place);
        each.zip(0..).map(|((call, offset), n)| CallInstance { call, port: FIRST_PORT + n, offset })
    }

    /// Number of packets of each call.
    fn packets(&self) -> u64 {
        (self.length.as_nanos() / SPACING.as_nanos()) as u64
    }
}
