//! Many routers in one network that loses, delays and reorders.

mod agreement;
mod formulas;
mod liars;
mod loops;
mod net;
mod spf;
