//! Quality of a call as a listener would rate it.
//!
//! [`emodel`] and [`reduced`] compute it from the network's delay and loss, [`pesq`] from the
//! sound. Both forms of the E-model give a rating R; [`emodel::mos`] and [`emodel::r`] convert it
//! to a mean opinion score and back.

pub mod emodel;
pub mod pesq;
pub mod reduced;
