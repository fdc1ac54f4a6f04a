//! Speech codecs: G.711 and G.726.

pub mod g711;
pub mod g726;
