//! The integration tests, in one program: one file a subject.

mod torture;
