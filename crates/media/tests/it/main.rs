//! The integration tests, in one program: one file a subject.

mod allocations;
mod g711_reference;
mod g726_reference;
mod plc_reference;
mod speech_reference;
