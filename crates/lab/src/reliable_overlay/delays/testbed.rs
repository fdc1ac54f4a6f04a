//! The same messages between daemons, and over the kernel's TCP.

#![expect(
    clippy::disallowed_methods,
    reason = "the programs on a testbed's hosts use sockets and time"
)]

use super::{HOP_BY_HOP, HOP_BY_HOP_SEALED, LIVE_TCPS, RATES, STREAM, STREAM_SEALED, row};
use crate::experiment::{Cells, Size};
use crate::reliable_overlay::daemon_network::{self, DaemonNetwork};
use crate::reliable_overlay::delay_figures;
use crate::reliable_overlay::messages::{Due, receive, send, took};
use crate::reliable_overlay::network::{DELAY, HOPS, MESSAGE, Stream, links};
use crate::scenario::testbed::process::Owned;
use crate::scenario::testbed::{Effort, Error, cannot, clock_ns};
use crate::table::Cell;
use crate::testbed::{PLACES, Round, Sample, Stage, Testbed};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use trunkline_client::{
    Address, DatagramSocket, Error as ClientError, SocketOption, StreamListener, StreamSocket,
};
use trunkline_overlay::wire::Service;

const PORT: u16 = 7_600;
/// Time until the first message is due, for daemons to find each other and connections to be made.
const SETTLED: Duration = Duration::from_secs(4);
/// Packets still in flight when the last message is sent arrive within this time.
const DRAIN: Duration = Duration::from_secs(10);
/// A stream that delivers nothing for this long is broken.
const SILENCE: Duration = Duration::from_secs(30);
/// Interval at which a receiver checks whether its time has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Chains that are measured at the same time: their loss, and whether nodes are sealed.
type Part = (u32, bool);

/// How the delays of messages are measured with daemons.
pub fn testbed() -> Testbed {
    Testbed {
        figure: delay_figures::beside(),
        rounds: Box::new(rounds),
        rows: Box::new(|samples| {
            let mut rows = Cells::new();
            for rate in RATES {
                for tenths in losses(Size::Full) {
                    rows.extend(ways(true).chain(ways(false)).filter_map(|carried| {
                        let (delays, valid) = Sample::pooled(samples, &of(carried, rate, *tenths));
                        let is_here = !delays.is_empty();
                        is_here.then(|| live_row((carried, rate, *tenths), &delays, valid))
                    }));
                }
            }
            rows
        }),
    }
}

/// Transports that are measured in one network, as in the column `carried`.
fn ways(sealed: bool) -> impl Iterator<Item = &'static str> {
    let (ours, tcps) = match sealed {
        true => ([HOP_BY_HOP_SEALED, STREAM_SEALED], &LIVE_TCPS[..0]),
        false => ([HOP_BY_HOP, STREAM], &LIVE_TCPS[..]),
    };
    ours.into_iter().chain(tcps.iter().copied())
}

fn of(carried: &str, rate: u32, tenths: u32) -> String {
    format!("{carried}-{rate}-{tenths}")
}

/// The table's row for these delays in milliseconds, in which NaN is a message that could not be
/// read.
fn live_row((carried, rate, tenths): (&str, u32, u32), delays: &[f64], valid: bool) -> Vec<Cell> {
    let read = delays.iter().filter(|ms| !ms.is_nan());
    let read: Vec<Duration> = read.map(|ms| Duration::from_secs_f64(ms / 1e3)).collect();
    let stream = Stream { rate: u64::from(rate) * 1_000, messages: delays.len() as u32 };
    row((PLACES[1], carried), stream, f64::from(tenths) / 1_000.0, &read, valid)
}

/// Shares of packets lost between C and D, in tenths of a percent.
fn losses(size: Size) -> &'static [u32] {
    size.pick(&[10], &[0, 10], &[0, 5, 10, 20])
}

/// Number of parts with which a machine of two processors keeps up at this rate, in kbit/s.
fn at_once(rate: u32) -> usize {
    (2_000 / rate) as usize
}

/// Rounds of as many parts as can be measured at the same time.
fn rounds(size: Size) -> Vec<Round> {
    let messages = size.pick(100, 2_000, 20_000);
    let both = losses(size).iter().flat_map(|&tenths| [(tenths, false), (tenths, true)]);
    let parts: Vec<Part> = both.collect();
    let round = |(rate, parts): (u32, &[Part])| {
        let (stream, parts) = (Stream { rate: u64::from(rate) * 1_000, messages }, parts.to_vec());
        Round {
            name: format!("{rate}-from-{}", parts[0].0),
            seconds: (stream.spacing() * messages + SETTLED + DRAIN).as_secs() as usize,
            parts: parts.len(),
            run: Box::new(move |stage, chosen| {
                daemon_network::side_by_side(stage, chosen, |n| measure(stage, stream, parts[n]))
            }),
        }
    };
    let of_rate = |rate| parts.chunks(at_once(rate)).map(move |parts| (rate, parts));
    RATES.into_iter().flat_map(of_rate).map(round).collect()
}

fn measure(
    stage: &Stage<'_>,
    stream: Stream,
    (tenths, sealed): Part,
) -> Result<(Vec<Sample>, Effort), Error> {
    let mut network = daemon_network::network(sealed);
    let links = links(HOPS, DELAY, f64::from(tenths) / 1_000.0);
    let [hops, whole] = [(), ()].map(|()| daemon_network::add_nodes(&mut network, &links));
    let tcps = match sealed {
        true => Vec::new(),
        false => {
            LIVE_TCPS.map(|tcp| (tcp, daemon_network::add_routers(&mut network, &links))).into()
        }
    };
    // No two parts share randomness.
    let seed = stage.seed.wrapping_add(u64::from(2 * tenths) + u64::from(sealed));
    let testbed = DaemonNetwork::start(stage.trunkline, seed, network)?;
    let spacing_ns = stream.spacing().as_nanos() as u64;
    let begin_ns = clock_ns() + SETTLED.as_nanos() as u64;
    let due = Due { begin_ns, spacing_ns, count: stream.messages.into() };
    let delays = std::thread::scope(|scope| {
        let mut all = vec![
            scope.spawn(|| over_links(&testbed, hops, &due)),
            scope.spawn(|| over_stream(&testbed, whole, &due)),
        ];
        for (tcp, ends) in &tcps {
            let (testbed, due) = (&testbed, &due);
            all.push(scope.spawn(move || over_tcp(testbed, tcp, *ends, due)));
        }
        let ended = all.into_iter().map(|one| one.join().expect("no end panics"));
        ended.collect::<Result<Vec<_>, Error>>()
    })?;
    let rate = (stream.rate / 1_000) as u32;
    let sample = |(carried, delays): (&'static str, Vec<u64>)| {
        let mut ms: Vec<f64> = delays.into_iter().map(|ns| ns as f64 / 1e6).collect();
        ms.resize(stream.messages as usize, f64::NAN);
        Sample::new(of(carried, rate, tenths), ms)
    };
    Ok((ways(sealed).zip(delays).map(sample).collect(), testbed.finish()?))
}

/// Sends over reliable links between neighbours; messages that overtake others wait for them.
fn over_links(
    testbed: &DaemonNetwork,
    (first, last): (usize, usize),
    due: &Due,
) -> Result<Vec<u64>, Error> {
    let listener = DatagramSocket::bind(testbed.socket(last).as_path(), PORT)?;
    listener.set_option(SocketOption::ReadTimeout(Some(LOOK)))?;
    let sender = DatagramSocket::bind(testbed.socket(first).as_path(), 0)?;
    sender.set_option(SocketOption::Service(Service::Reliable))?;
    sender.set_option(SocketOption::Blocking(true))?;
    let over_ns = due.begin_ns + due.count * due.spacing_ns + DRAIN.as_nanos() as u64;
    std::thread::scope(|scope| {
        let to = Address { node: daemon_network::node(last), port: PORT };
        let sender = scope.spawn(move || send(due, |message| sender.send_to(message, to)));
        let (mut came, mut buf) = (BTreeMap::new(), [0; 2 * MESSAGE]);
        while clock_ns() < over_ns && (came.len() as u64) < due.count {
            match listener.recv_from(&mut buf) {
                Ok(got) => came.extend(took(&buf[..got.len])),
                Err(ClientError::WouldBlock | ClientError::Status(_)) => (),
                Err(why) => return Err(why.into()),
            }
        }
        sender.join().expect("no sender panics")?;
        let mut readable_ns = 0;
        let in_order = came.into_iter().zip(0..).take_while(|((number, _), n)| number == n);
        let delays = in_order.map(|((number, took_ns), _)| {
            let due_ns = due.begin_ns + number * due.spacing_ns;
            readable_ns = readable_ns.max(due_ns + took_ns);
            readable_ns - due_ns
        });
        Ok(delays.collect())
    })
}

fn over_stream(
    testbed: &DaemonNetwork,
    (first, last): (usize, usize),
    due: &Due,
) -> Result<Vec<u64>, Error> {
    let listener = StreamListener::bind(testbed.socket(last).as_path(), PORT)?;
    listener.set_accept_timeout(Some(SILENCE))?;
    // Waits until the nodes have a route.
    std::thread::sleep(SETTLED / 2);
    std::thread::scope(|scope| {
        let to = Address { node: daemon_network::node(last), port: PORT };
        let sender = scope.spawn(move || {
            let stream = StreamSocket::connect(testbed.socket(first).as_path(), to)?;
            let write = |message: &[u8]| std::io::Write::write_all(&mut &stream, message);
            send(due, write).map_err(cannot("write to a stream"))?;
            stream.shutdown()?;
            Ok::<StreamSocket, Error>(stream)
        });
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(SILENCE))?;
        let delays = receive(&stream, due.count).map_err(cannot("read from a stream"))?;
        sender.join().expect("no sender panics")?;
        Ok(delays)
    })
}

/// Sends with a program at each end, with this congestion control.
fn over_tcp(
    testbed: &DaemonNetwork,
    tcp: &str,
    (first, last): (usize, usize),
    due: &Due,
) -> Result<Vec<u64>, Error> {
    let own = std::env::current_exe().map_err(cannot("find this program"))?;
    let congestion = tcp.strip_prefix("tcp-").unwrap_or(tcp);
    let numbers = [due.begin_ns, due.spacing_ns, due.count].map(|n| n.to_string());
    let start = |host: usize, to: &[String]| {
        let mut program = testbed.emulator.bound(host, Path::new(&own));
        program.args(["messages", congestion, &PORT.to_string()]).args(&numbers).args(to);
        let program = program.stdin(Stdio::null()).stdout(Stdio::piped());
        program.spawn().map(Owned).map_err(cannot("start a program"))
    };
    let mut receiver = start(last, &[])?;
    let to = testbed.emulator.address(last);
    let _sender = start(first, &["--to".into(), format!("{to}:{PORT}")])?;
    let (mut text, pipe) = (String::new(), receiver.0.stdout.take());
    let read = pipe.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text));
    read.map_err(cannot("read the output of a program"))?;
    serde_json::from_str(&text)
        .map_err(|why| Error::Process(format!("the output of {tcp} is not JSON: {why}")))
}
