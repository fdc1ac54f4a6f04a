//! What a listener would say of a call.

pub mod emodel;
