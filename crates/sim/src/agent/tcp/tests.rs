//! Two ends of a connection, with an adverse channel in between.

mod channel;
mod handshake;
mod hostile;
mod repair;
mod timing;
