//! Figures and claims on voice next to background traffic. All bounds were set before the first
//! measurement.

use super::super::{BEFORE, claim};
use super::{ACCESSES, FIGURES, OF_DRAFT, OWN, POLLS, STATIONS_TABLE, TURNS};
use crate::beyond::means;
use crate::claim::{Bound, Claim, Measured, OWN_TARGET};
use crate::experiment::Figure;
use crate::plot::{Axis, Mark, Panel, Panels, Series, Style};
use crate::table::{Record, Table};

/// The figure by the number of stations.
pub fn stations() -> Figure {
    Figure {
        name: FIGURES[0],
        title: "Voice and background traffic in an 802.11e cell, by stations",
        section: "5, beyond",
        says: "A G.711 call (200 bytes every 20 ms, user priority 6) and 4 Mbit/s of background \
               traffic (1,500 bytes, user priority 1) from the access point to each of 1 to 23 \
               stations at 36 Mbit/s, for 20 s: mean delay and 99th percentile of voice, and \
               throughput of background traffic. The access point contends with its own parameters \
               of IEEE 802.11e-2005, with its stations', or with the draft's as simulated in 2004; \
               or voice is sent in turns of the hybrid coordinator, without polls and with. Black: \
               the capacity that calls leave to background traffic, by arithmetic.",
        chart: Box::new(|table| panels(table, "stations", &by_stations())),
        claims: vec![
            first("first-own", OWN),
            first("first-stations", STATIONS_TABLE),
            first("first-draft", OF_DRAFT),
            tail(),
            turns_are_in_time(),
            room("room-own", OWN),
            room("room-stations", STATIONS_TABLE),
            room("room-draft", OF_DRAFT),
            turns_leave_more(),
        ],
    }
}

/// The figure by the rate of background traffic.
pub fn rates() -> Figure {
    Figure {
        name: FIGURES[1],
        title: "Voice and background traffic in an 802.11e cell, by the rate of background traffic",
        section: "5, beyond",
        says: "The same with 8 stations, one of them the access point, and 1 to 6 Mbit/s of \
               background traffic for each of the others: the paper doesn't give its rate.",
        chart: Box::new(|table| panels(table, "offered_mbit_s", &by_rate())),
        claims: vec![hardly_depends(), whole()],
    }
}

fn by_stations() -> Axis {
    Axis::linear("stations, including the access point", (0.0, 24.0), 4.0)
}

fn by_rate() -> Axis {
    Axis::linear("background traffic offered (Mbit/s)", (0.0, 45.0), 5.0)
}

fn panels(table: &Table, x: &str, axis: &Axis) -> Panels {
    let series = |quantity: &str| -> Vec<Series> {
        let one = |(n, access): (usize, &super::Access)| {
            let mark = |r: Record<'_>| {
                let Measured { estimate, interval, .. } = means::of(&r, quantity);
                Mark { x: r.number(x), y: estimate, interval: Some(interval) }
            };
            let points = rows(table, access.name).map(mark).collect();
            // The fifth style is black, which is kept for curves.
            let style = Style::nth(if n < 4 { n } else { 5 });
            Series { name: access.name.to_owned(), style, points }
        };
        ACCESSES.iter().enumerate().map(one).collect()
    };
    let mut background = series("background_mbit_s");
    for (access, style) in [(OWN, Style::CURVE), (OF_DRAFT, Style::SECOND_CURVE)] {
        let room = |r: Record<'_>| Mark { x: r.number(x), y: expected(&r), interval: None };
        let points = rows(table, access).map(room).collect();
        background.push(Series { name: format!("capacity, {access}"), style, points });
    }
    Panels {
        title: "Voice and background traffic".to_owned(),
        x: axis.clone(),
        panels: vec![
            Panel::new(Axis::log("voice, mean (ms)", (0.05, 100.0)), series("voice_ms")),
            Panel::new(Axis::log("voice, 99th percentile (ms)", (0.05, 100.0)), series("p99_ms")),
            Panel::new(Axis::linear("background (Mbit/s)", (0.0, 25.0), 5.0), background),
        ],
        guides: Vec::new(),
    }
}

fn rows<'a>(table: &'a Table, access: &'static str) -> impl Iterator<Item = Record<'a>> {
    table.iter().filter(move |r| r.is("access", access))
}

/// The expected throughput of background traffic, in Mbit/s.
fn expected(r: &Record<'_>) -> f64 {
    r.number("room_mbit_s").min(r.number("offered_mbit_s"))
}

/// The largest or smallest value of some rows, with a note that says where it occurs.
fn extreme<'a>(
    all: impl Iterator<Item = (Measured, Record<'a>)>,
    of: fn(Vec<Measured>) -> Measured,
) -> Measured {
    let all: Vec<(Measured, Record<'a>)> = all.collect();
    let found = of(all.iter().map(|(m, _)| m.clone()).collect());
    let here = all.iter().find(|(m, _)| m.estimate == found.estimate);
    let note = here.map_or(String::new(), |(_, r)| {
        let [access, stations] = ["access", "stations"].map(|c| r.text(c));
        format!("With {access} and {stations} stations.")
    });
    found.noting(note)
}

fn largest(all: Vec<Measured>) -> Measured {
    Measured::maximum(all)
}

fn smallest(all: Vec<Measured>) -> Measured {
    Measured::minimum(all)
}

/// The claim that voice doesn't wait for background traffic.
fn first(id: &'static str, access: &'static str) -> Claim {
    let says = match access {
        OWN => {
            "with the access point's own table voice takes less than 1 ms on average, whatever the \
             number of stations"
        }
        STATIONS_TABLE => "with the stations' table, too, voice takes less than 1 ms on average",
        _ => "with the draft's, too, voice takes less than 1 ms on average",
    };
    Claim {
        unit: "ms",
        decimals: 3,
        measure: Box::new(move |table| {
            extreme(rows(table, access).map(|r| (means::of(&r, "voice_ms"), r)), largest)
        }),
        ..claim(id, says, Bound::below(1.0, OWN_TARGET), "one-queue")
    }
}

fn tail() -> Claim {
    Claim {
        unit: "ms",
        decimals: 3,
        measure: Box::new(|table| {
            extreme(rows(table, OWN).map(|r| (means::of(&r, "p99_ms"), r)), largest)
        }),
        ..claim(
            "tail",
            "with the access point's own table 99 of 100 voice packets take at most 2 ms",
            Bound::at_most(
                2.0,
                "a background packet that has just begun, 0.46 ms, and ten voice packets of 0.15 ms",
            ),
            "one-queue",
        )
    }
}

/// The claim that the scheduler meets the delays of the streams that it has admitted.
fn turns_are_in_time() -> Claim {
    Claim {
        unit: "of the time allowed",
        measure: Box::new(|table| {
            // 102.4 ms / 6 is the longest part of a beacon interval below 20 ms. A turn is 16 +
            // 76 + 16 + 28 µs, or 32 more with a poll, and an exchange that has begun ends within
            // 408 µs and a PIFS of 25.
            let longest = |(access, turn): (&'static str, f64)| {
                let allowed = move |r: &Record<'_>| {
                    102.4 / 6.0 + turn * (r.number("stations") - 1.0) + 0.408 + 0.025
                };
                rows(table, access).map(move |r| (r.number("longest_ms") / allowed(&r), r))
            };
            let all = [(TURNS, 0.136), (POLLS, 0.140)].into_iter().flat_map(longest);
            extreme(all.map(|(share, r)| (Measured::census(share), r)), largest)
        }),
        why: "It has a price: packets wait for half a service interval on average, 8.6 ms, \
              compared with 0.3 ms by contention.",
        ..claim(
            "turns-in-time",
            "in turns no voice packet takes longer than a service interval, the turns of the \
             others and a background packet that has begun",
            Bound::at_most(1.0, "17.07 ms, 136 or 140 µs for each station, 433 µs"),
            "twice-the-interval",
        )
    }
}

/// The claim that background traffic gets the time that voice leaves.
fn room(id: &'static str, access: &'static str) -> Claim {
    let says = match access {
        OWN => {
            "with the access point's own table background traffic gets the capacity that voice \
             leaves by arithmetic, or all that is offered"
        }
        STATIONS_TABLE => {
            "with the stations' table, too, background traffic gets the capacity \
                           that voice leaves"
        }
        _ => "with the draft's, too, background traffic gets the capacity that voice leaves",
    };
    Claim {
        unit: "of the capacity",
        decimals: 3,
        measure: Box::new(move |table| {
            let share =
                |r: Record<'_>| means::of(&r, "background_mbit_s").times(1.0 / expected(&r));
            extreme(rows(table, access).map(|r| (share(r), r)), smallest)
        }),
        why: "With the tables of 2005 it gets up to 6 % more: voice that arrived during a \
              background packet begins 25 to 52 µs after it, within the background's AIFS of 79 \
              µs, which is therefore not lost completely.",
        ..claim(id, says, Bound::at_least(0.95, BEFORE), "wide-windows")
    }
}

fn turns_leave_more() -> Claim {
    Claim {
        unit: "Mbit/s more",
        measure: Box::new(|table| {
            let at = |access| {
                let all = rows(table, access).find(|r| r.number("stations") == 24.0);
                all.map_or(Measured::census(f64::NAN), |r| means::of(&r, "background_mbit_s"))
            };
            at(TURNS).minus(&at(OWN))
        }),
        at: &[24.0],
        ..claim(
            "turns-leave-more",
            "with 24 stations turns leave more to background traffic than contention",
            Bound::at_least(
                0.4,
                "half of what it should be: in turns 137 µs for a voice packet, by contention \
                 about 170 with backoff and another AIFS; 33 µs of 1,150 packets a second are 3.8 \
                 % of 21.6 Mbit/s",
            ),
            "no-turns",
        )
    }
}

/// The claim that offering more background traffic than there is room for makes no difference to
/// voice.
fn hardly_depends() -> Claim {
    Claim {
        unit: "ms more",
        decimals: 3,
        measure: Box::new(|table| {
            let more = |access| {
                let at = |rate: f64| {
                    let offered = rate * f64::from(super::STATIONS_FOR_RATES - 1);
                    let row = rows(table, access).find(|r| r.number("offered_mbit_s") == offered);
                    row.map_or(Measured::census(f64::NAN), |r| means::of(&r, "voice_ms"))
                };
                at(6.0).minus(&at(1.0))
            };
            Measured::maximum([OWN, STATIONS_TABLE, OF_DRAFT].map(more))
        }),
        at: &[1.0, 6.0],
        ..claim(
            "hardly-depends",
            "with each table voice takes at most 0.5 ms longer on average with 6 Mbit/s of \
             background traffic for each station than with 1",
            Bound::at_most(0.5, "a background packet with its acknowledgement and AIFS: 0.487 ms"),
            "one-queue",
        )
    }
}

fn whole() -> Claim {
    Claim {
        unit: "of the offered",
        decimals: 4,
        measure: Box::new(|table| {
            let share = |r: Record<'_>| {
                means::of(&r, "background_mbit_s").times(1.0 / r.number("offered_mbit_s"))
            };
            let little = table.iter().filter(|r| r.number("offered_mbit_s") <= 14.0);
            extreme(little.map(|r| (share(r), r)), smallest)
        }),
        at: &[1.0, 2.0],
        ..claim(
            "whole",
            "with 1 and 2 Mbit/s for each station all background traffic arrives, whatever the \
             access of voice",
            Bound::at_least(0.99, OWN_TARGET),
            "wide-windows",
        )
    }
}
