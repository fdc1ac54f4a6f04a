//! A slow reference for contention: slot by slot, each backoff decremented one by one, as in IEEE
//! 802.11e-2005, 9.9.1.3. Draws and their order differ, so only means can agree.

use super::{cell_of, up};
use rand::Rng as _;
use trunkline_base::{Rng, Time, rng};
use trunkline_net::wifi::edca::{AccessTable, DRAFT, STATION_2005};
use trunkline_net::wifi::{Config, MsduOutcome};

struct Function {
    station: usize,
    category: usize,
    backoff: u32,
    window: u32,
    attempts: u32,
}

/// Results of 20 s: packets per category, collisions between stations and within.
#[derive(Default, Debug)]
struct Totals {
    arrived: [u32; 4],
    dropped: [u32; 4],
    collisions: u32,
    internal: u32,
}

const END: u64 = 20_000_000;
const BYTES: [u64; 4] = [1_500, 1_500, 1_000, 200];
/// Air times of the frames; for the third, 22 + 8·1,038 bits are 57.8 symbols.
const TIMES: [u64; 4] = [364, 364, 20 + 58 * 4, 76];
/// One packet at a time, so that the reference stays simple.
const fn one_at_a_time(mut table: AccessTable) -> AccessTable {
    let mut k = 0;
    while k < 4 {
        table[k].txop_limit = std::time::Duration::ZERO;
        k += 1;
    }
    table
}

impl Function {
    fn back_off(&mut self, rng: &mut Rng) {
        self.backoff = rng.next_u32() % (self.window + 1);
    }

    /// Counts a failed attempt; returns whether the packet was dropped.
    fn failed(&mut self, table: &AccessTable, rng: &mut Rng) -> bool {
        self.attempts += 1;
        let dropped = self.attempts == 7;
        let access = table[self.category];
        (self.attempts, self.window) = match dropped {
            true => (0, access.cw_min.into()),
            false => (self.attempts, (2 * self.window + 1).min(access.cw_max.into())),
        };
        self.back_off(rng);
        dropped
    }
}

/// Simulates `stations`, each with a packet in each of `categories` at all times.
fn slot_by_slot(stations: usize, categories: &[usize], table: &AccessTable) -> Totals {
    let (mut rng, mut totals, mut now) = (rng(7, 7), Totals::default(), 0);
    let each = |station| categories.iter().map(move |&category| (station, category));
    let mut functions: Vec<Function> = (0..stations)
        .flat_map(each)
        .map(|(station, category)| Function {
            station,
            category,
            backoff: 0,
            window: table[category].cw_min.into(),
            attempts: 0,
        })
        .collect();
    functions.iter_mut().for_each(|f| f.back_off(&mut rng));
    while now < END {
        // The medium is idle from now on; slots are counted from the end of the SIFS.
        let mut slot = 0;
        let ready = loop {
            slot += 1;
            let waits = |f: &Function| u64::from(table[f.category].aifsn) <= slot;
            let ready: Vec<usize> = (0..functions.len())
                .filter(|&k| waits(&functions[k]) && functions[k].backoff == 0)
                .collect();
            for f in functions.iter_mut().filter(|f| waits(f) && f.backoff > 0) {
                f.backoff -= 1;
            }
            if !ready.is_empty() {
                break ready;
            }
        };
        let beaten = |k: usize| {
            let f = &functions[k];
            ready
                .iter()
                .any(|&o| functions[o].station == f.station && functions[o].category > f.category)
        };
        let (losers, senders): (Vec<usize>, Vec<usize>) = ready.iter().partition(|&&k| beaten(k));
        totals.internal += losers.len() as u32;
        now += 16 + 9 * slot;
        let longest = senders.iter().map(|&k| TIMES[functions[k].category]).max().unwrap();
        let alone = senders.len() == 1;
        now += longest + if alone { 16 + 28 } else { 50 };
        totals.collisions += u32::from(!alone);
        let failed = if alone { losers } else { ready };
        for k in failed {
            let f = &mut functions[k];
            totals.dropped[f.category] += u32::from(f.failed(table, &mut rng));
        }
        if let [k] = senders[..] {
            let f = &mut functions[k];
            (f.attempts, f.window) = (0, table[f.category].cw_min.into());
            f.back_off(&mut rng);
            totals.arrived[f.category] += 1;
        }
    }
    totals
}

fn by_the_cell(stations: u16, categories: &[usize], table: &AccessTable) -> Totals {
    const PRIORITIES: [u8; 4] = [1, 0, 5, 6];
    let mut cell = cell_of(Config { stations, station: *table, ..Config::default() });
    let packet = |station: u16, category: usize| {
        let handle = u64::from(station) * 4 + category as u64;
        up(station, PRIORITIES[category], BYTES[category] as u32, handle)
    };
    let each = (0..stations).flat_map(|s| categories.iter().map(move |&c| (s, c)));
    for (station, category) in each.clone().chain(each) {
        cell.enqueue(Time::ZERO, &packet(station, category)).unwrap();
    }
    let mut totals = Totals::default();
    while let Some(MsduOutcome { at, handle, result }) = cell.advance(Time::from_micros(END)) {
        let category = (handle % 4) as usize;
        let count = if result.is_ok() { &mut totals.arrived } else { &mut totals.dropped };
        count[category] += 1;
        cell.enqueue(at, &packet((handle / 4) as u16, category)).unwrap();
    }
    let counters = cell.counters();
    totals.collisions = counters.collisions as u32;
    totals.internal = counters.internal_collisions as u32;
    totals
}

/// Asserts agreement within 3 %, plus five standard deviations of a count.
fn agree(stations: u16, categories: &[usize], table: AccessTable) {
    let table = one_at_a_time(table);
    let slow = slot_by_slot(stations.into(), categories, &table);
    let fast = by_the_cell(stations, categories, &table);
    println!("{stations} stations with {categories:?}:\n  {slow:?}\n  {fast:?}");
    let pairs = |t: &Totals| [&t.arrived[..], &t.dropped[..], &[t.collisions, t.internal]].concat();
    for (a, b) in pairs(&slow).into_iter().zip(pairs(&fast)) {
        let (a, b) = (f64::from(a), f64::from(b));
        let more = a.max(b);
        assert!((a - b).abs() <= 0.03 * more + 5.0 * more.sqrt(), "{a} and {b}");
    }
}

#[test]
fn one_category_agrees_slot_by_slot() {
    agree(8, &[1], STATION_2005);
}

#[test]
fn two_categories_agree_slot_by_slot() {
    // Voice from five stations leaves nothing to background.
    agree(5, &[0, 3], STATION_2005);
    agree(4, &[1, 2], STATION_2005);
    agree(3, &[0, 3], DRAFT);
}

#[test]
fn four_categories_agree_slot_by_slot() {
    agree(1, &[0, 1, 2, 3], STATION_2005);
    agree(2, &[0, 1, 2, 3], DRAFT);
}
