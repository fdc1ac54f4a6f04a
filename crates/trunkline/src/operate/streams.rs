//! `trunkline streams`: the streams that end at a running node, as a table or JSON.

use super::client::Client;
use super::protocol::{Request, Stream, Streams};
use super::table::{Align, NOTHING, lines, number};
use super::{Error, StreamsArgs, print_json};

/// Runs `trunkline streams`: prints the streams of a node, sorted by peer and port.
pub fn streams(args: &StreamsArgs) -> Result<(), Error> {
    let mut streams = all(&mut args.at.connect()?, args.peer)?;
    streams.sort_by_key(|s| (s.peer, s.peer_port, s.port));
    let none = streams.is_empty();
    streams.truncate(args.limit.unwrap_or(usize::MAX));
    if args.json {
        return print_json(&streams);
    }
    if none {
        match args.peer {
            None => outln!("no streams: no application here has one open"),
            Some(peer) => outln!("no streams with node {peer}"),
        }
        return Ok(());
    }
    let rows: Vec<_> = streams.iter().map(row).collect();
    lines(&COLUMNS, &rows).into_iter().for_each(|line| outln!("{line}"));
    Ok(())
}

/// Fetches all streams that end at a node, or only those with node `peer`.
fn all(client: &mut Client, peer: Option<u32>) -> Result<Vec<Stream>, Error> {
    let (mut streams, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let page: Streams = client.ask(&Request::Streams { peer, from })?;
        streams.extend(page.streams);
        next = page.next;
    }
    Ok(streams)
}

const COLUMNS: [(&str, Align); 11] = [
    ("peer", Align::Left),
    ("port", Align::Right),
    ("state", Align::Left),
    ("application", Align::Left),
    ("rtt ms", Align::Right),
    ("window", Align::Right),
    ("sent", Align::Right),
    ("unacknowledged", Align::Right),
    ("received", Align::Right),
    ("unread", Align::Right),
    ("retransmitted", Align::Right),
];

fn row(s: &Stream) -> Vec<String> {
    vec![
        format!("{}:{}", s.peer, s.peer_port),
        s.port.to_string(),
        s.state.clone(),
        // A process may give itself any name.
        s.application.as_deref().map_or(NOTHING.into(), |name| name.escape_debug().to_string()),
        number(s.rtt_ms, 2),
        s.window.to_string(),
        s.sent.to_string(),
        s.unacknowledged.to_string(),
        s.received.to_string(),
        s.unread.to_string(),
        s.retransmitted.to_string(),
    ]
}
