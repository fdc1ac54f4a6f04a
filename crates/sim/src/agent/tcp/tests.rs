//! Two ends of a connection with a channel between them that does its worst.

use super::profile::{DelayedAck, Profile};
use super::wire::{Flags, Options, SackBlocks, Segment};
use super::{Connection, Stats};
use core::time::Duration;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use trunkline_base::Time;
