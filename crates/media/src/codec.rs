//! Speech codecs.

pub mod g711;
