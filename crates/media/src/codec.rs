//! Speech codecs.

pub mod g711;
pub mod g726;
