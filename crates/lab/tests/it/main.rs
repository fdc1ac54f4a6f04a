//! The integration tests, in one program: one file a subject.

mod common;
mod phones;
mod recovery_guide;
mod runs;
mod scenarios;
mod snapshots;
mod testbed;
