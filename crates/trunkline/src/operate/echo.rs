//! The `ping` and `trace` commands.

use super::client::Client;
use super::protocol::{Echo, Request};
use super::table::{count, number};
use super::{Error, Packet, PingArgs, TraceArgs, print_json};
use serde::Serialize;
use std::time::{Duration, Instant};

impl Packet {
    fn send(&self, client: &mut Client, to: u32, hops: u8) -> Result<Echo, Error> {
        let timeout_ms = u64::try_from(self.timeout.0.as_millis()).unwrap_or(u64::MAX);
        client.ask(&Request::Echo { to, service: self.service, size: self.size, hops, timeout_ms })
    }
}

/// Result of the `ping` command.
#[derive(Serialize, Default)]
struct Ping {
    node: u32,
    sent: u32,
    answered: u32,
    /// Share of the packets sent that were lost, 0 to 1.
    loss: f64,
    hops: Option<u8>,
    min_ms: Option<f64>,
    avg_ms: Option<f64>,
    max_ms: Option<f64>,
    rtt_ms: Vec<Option<f64>>,
    /// Reason why nothing was sent: most likely this node has no route there.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

impl Ping {
    fn of(node: u32, echoes: &[Echo]) -> Ping {
        // Only the target itself answers a ping; a relay only reports that the target is farther
        // away.
        let rtt = |e: &Echo| e.rtt_ms.filter(|_| e.reached);
        let times: Vec<f64> = echoes.iter().filter_map(rtt).collect();
        let (sent, answered) = (echoes.len(), times.len());
        let least = |pick: fn(f64, f64) -> f64| times.iter().copied().reduce(pick);
        Ping {
            node,
            sent: u32::try_from(sent).unwrap_or(u32::MAX),
            answered: u32::try_from(answered).unwrap_or(u32::MAX),
            loss: (sent - answered) as f64 / sent.max(1) as f64,
            hops: echoes.iter().rev().find(|e| e.reached).and_then(|e| e.hops),
            min_ms: least(f64::min),
            avg_ms: least(|a, b| a + b).map(|sum| sum / answered as f64),
            max_ms: least(f64::max),
            rtt_ms: echoes.iter().map(rtt).collect(),
            refused: None,
        }
    }
}

/// Runs the `trunkline ping` command.
pub fn ping(args: &PingArgs) -> Result<(), Error> {
    let mut client = args.at.connect()?;
    let mut echoes = Vec::new();
    for n in 1..=args.count {
        let next = Instant::now() + args.interval.0;
        let echo = match args.packet.send(&mut client, args.to, super::DEFAULT_HOPS) {
            Err(Error::Refused(why)) if n == 1 => {
                if args.json {
                    print_json(&Ping {
                        refused: Some(why.message.clone()),
                        ..Ping::of(args.to, &[])
                    })?;
                }
                return Err(Error::Refused(why));
            }
            // There was a route, and it may return: showing that is the purpose of a ping.
            Err(Error::Refused(why)) => {
                if !args.json {
                    outln!("{n}: {}", why.message);
                }
                Echo { from: None, reached: false, hops: None, rtt_ms: None }
            }
            echo => {
                let echo = echo?;
                if !args.json {
                    outln!("{}", ping_line(n, args, &echo));
                }
                echo
            }
        };
        echoes.push(echo);
        if n < args.count {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    let result = Ping::of(args.to, &echoes);
    if args.json {
        print_json(&result)?;
    } else if result.answered > 0 {
        outln!(
            "{} of {} answered, {} % lost; rtt min {} avg {} max {} ms",
            result.answered,
            result.sent,
            number(Some(result.loss * 100.0), 1),
            number(result.min_ms, 2),
            number(result.avg_ms, 2),
            number(result.max_ms, 2)
        );
    }
    if result.answered > 0 {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "node {} does not answer: `trunkline trace {0}` shows how far packets get",
        args.to
    )))
}

fn ping_line(n: u32, args: &PingArgs, echo: &Echo) -> String {
    match (echo.from, echo.rtt_ms) {
        (Some(from), Some(rtt)) if echo.reached => format!(
            "{n}: node {from}, {} bytes, {}, {rtt:.2} ms",
            args.packet.size,
            count(echo.hops.unwrap_or(0).into(), "hop")
        ),
        (Some(from), _) => format!("{n}: hop limit exceeded at node {from}: a loop, most likely"),
        _ => format!("{n}: no answer within {:?}", args.packet.timeout.0),
    }
}

/// Result of the `trace` command.
#[derive(Serialize)]
struct Trace {
    node: u32,
    reached: bool,
    hops: Vec<Hop>,
    /// Reason why no more was sent: most likely this node has no route there.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Serialize)]
struct Hop {
    hop: u8,
    /// Nodes that answered: several if the route changed meanwhile.
    from: Vec<u32>,
    rtt_ms: Vec<Option<f64>>,
}

/// Number of consecutive silent hops after which the trace ends.
const SILENT: u8 = 5;

/// Runs the `trunkline trace` command.
pub fn trace(args: &TraceArgs) -> Result<(), Error> {
    let mut client = args.at.connect()?;
    let mut result = Trace { node: args.to, reached: false, hops: Vec::new(), refused: None };
    let mut silent = 0;
    'hops: for hop in 1..=args.max_hops {
        let mut found = Hop { hop, from: Vec::new(), rtt_ms: Vec::new() };
        for probe in 0..args.probes {
            if probe > 0 {
                // Spaces the packets, so that one burst of losses does not hit them all.
                std::thread::sleep(Duration::from_millis(20));
            }
            let echo = match args.packet.send(&mut client, args.to, hop) {
                // Also possible in the middle of a trace, when the route is lost.
                Err(Error::Refused(why)) => {
                    result.refused = Some(why.message);
                    break 'hops;
                }
                echo => echo?,
            };
            result.reached |= echo.reached;
            found.from.extend(echo.from.filter(|n| !found.from.contains(n)));
            found.rtt_ms.push(echo.rtt_ms);
        }
        silent = if found.from.is_empty() { silent + 1 } else { 0 };
        if !args.json {
            outln!("{}", hop_line(&found));
        }
        result.hops.push(found);
        if result.reached || silent == SILENT {
            break;
        }
    }
    if args.json {
        print_json(&result)?;
    }
    if let Some(why) = result.refused {
        return Err(Error::Failed(why));
    }
    if result.reached {
        return Ok(());
    }
    let last = result.hops.iter().rev().flat_map(|h| h.from.last()).next();
    let last = last.map_or("no node on the path answers".into(), |n| {
        format!("node {n} is the last that answers")
    });
    Err(Error::Failed(format!("node {} was not reached: {last}", args.to)))
}

fn hop_line(hop: &Hop) -> String {
    let from: Vec<_> = hop.from.iter().map(u32::to_string).collect();
    let from = if from.is_empty() { "*".into() } else { from.join(" or ") };
    let times: Vec<_> = hop
        .rtt_ms
        .iter()
        .map(|rtt| rtt.map_or("       *".into(), |ms| format!("{ms:>8.2}")))
        .collect();
    format!("{:>2}  node {from:<10}{} ms", hop.hop, times.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_a_relay_is_no_answer_to_a_ping() {
        let echo = |from, reached, rtt_ms| Echo { from, reached, hops: Some(2), rtt_ms };
        let echoes = [
            echo(Some(3), true, Some(20.0)),
            echo(None, false, None),
            echo(Some(2), false, Some(1.0)),
            echo(Some(3), true, Some(30.0)),
        ];
        let p = Ping::of(3, &echoes);
        assert_eq!((p.sent, p.answered, p.loss), (4, 2, 0.5));
        assert_eq!((p.min_ms, p.avg_ms, p.max_ms), (Some(20.0), Some(25.0), Some(30.0)));
        assert_eq!(p.rtt_ms, [Some(20.0), None, None, Some(30.0)]);
        assert_eq!(Ping::of(3, &[]).loss, 0.0);
    }
}
