//! The integration tests, in one program: one file per subject.

mod allocations;
mod outage;
mod path_validation;
mod roaming;
mod routing;
