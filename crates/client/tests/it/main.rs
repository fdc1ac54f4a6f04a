//! Integration tests in one program, with one file for each subject.

#[cfg(feature = "tokio")]
mod async_streams;
mod common;
mod in_process;
mod streams;
mod unix;
