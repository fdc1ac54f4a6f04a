//! Two ends of a connection, with a channel between them that does its worst.

mod channel;
mod hostile;
mod repair;
mod timing;
