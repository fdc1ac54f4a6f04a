//! The integration tests, in one program: one file a subject.

mod addresses;
mod admission;
mod bodies;
mod calls;
mod challenge;
mod common;
mod connections;
mod ending;
mod forking;
mod hostile;
mod large;
mod late;
mod offers;
mod pauses;
mod quality;
mod refused_bye;
mod unexpected_source;
mod ways;
