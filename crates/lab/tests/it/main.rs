//! The integration tests in one program, with one file per subject.

mod common;
mod index;
mod intervals;
mod phones;
mod recovery_guide;
mod runs;
mod scenarios;
mod snapshots;
mod testbed;
