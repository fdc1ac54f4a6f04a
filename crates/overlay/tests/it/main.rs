//! The integration tests, in one program: one file per subject.

mod allocations;
mod doors;
mod outage;
mod roaming;
mod routing;
