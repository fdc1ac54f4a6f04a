//! The integration tests, in one program: one file a subject.

#[cfg(feature = "tokio")]
mod async_streams;
mod common;
mod in_process;
mod streams;
mod unix;
