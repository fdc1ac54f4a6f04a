//! Many routers in one network that loses, delays and reorders.

mod agreement;
mod figure11;
mod formulas;
mod liars;
mod loops;
mod net;
mod new_links;
mod slow_acks;
mod spf;
