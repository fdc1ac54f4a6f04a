//! Two ends of a connection, with an adverse channel in between.

mod channel;
mod hostile;
mod repair;
mod timing;
