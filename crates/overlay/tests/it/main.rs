//! The integration tests, in one program: one file a subject.

mod allocations;
mod doors;
mod outage;
mod roaming;
mod routing;
