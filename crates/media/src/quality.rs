//! What a listener would say of a call.
//!
//! [`emodel`] and [`reduced`] reckon it from the network's delay and loss,
//! [`pesq`] listens. Both forms of the E-model give a rating R;
//! [`emodel::mos`] and [`emodel::r`] take it to a mean opinion score and back.

pub mod emodel;
pub mod pesq;
pub mod reduced;
