//! The integration tests, in one program: one file per subject.

mod allocations;
mod local_address;
mod outage;
mod path_validation;
mod roaming;
mod routing;
