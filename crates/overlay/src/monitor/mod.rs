//! What a node knows of a link's state: whether the other end is there, and
//! how far away it is.

mod hello;
mod loss;
mod rtt;

pub use hello::{HelloClock, Liveness};
pub use loss::{LossEstimate, LossMeter, LossMode};
pub use rtt::Rtt;
