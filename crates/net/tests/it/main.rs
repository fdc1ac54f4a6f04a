//! The integration tests, in one program: one file a subject.

mod allocations;
mod common;
mod network;
mod properties;
mod wifi;
