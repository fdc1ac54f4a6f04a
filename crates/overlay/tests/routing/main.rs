//! Many routers in one network that loses, delays and reorders.

mod agreement;
mod liars;
mod loops;
mod net;
mod spf;
