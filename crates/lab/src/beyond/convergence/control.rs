//! The part of the daemons' control protocol that is needed here: one JSON object per line, a
//! request and its response.

use super::script::{NODES, Table, bit};
use serde::Deserialize;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Timeout of a request. A daemon that takes longer to answer is stalled.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest accepted answer, in bytes: the answers of four nodes are much shorter.
const MAX_ANSWER: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ok(Vec<Route>),
    Error(Refused),
}

#[derive(Deserialize)]
struct Refused {
    message: String,
}

#[derive(Deserialize)]
struct Route {
    destination: Option<usize>,
    next_hop: usize,
    up: bool,
}

/// A connection to a daemon.
pub struct Control(BufReader<UnixStream>);

impl Control {
    /// Connects to the daemon that listens on the socket at `path`.
    pub fn connect(path: &Path) -> io::Result<Control> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Control(BufReader::new(stream)))
    }

    /// The daemon's forwarding table.
    pub fn table(&mut self) -> io::Result<Table> {
        self.0.get_mut().write_all(b"{\"do\":\"routes\"}\n")?;
        let mut line = Vec::new();
        (&mut self.0).take(MAX_ANSWER).read_until(b'\n', &mut line)?;
        parse(&line)
    }
}

fn parse(line: &[u8]) -> io::Result<Table> {
    let routes = match serde_json::from_slice(line)? {
        Answer::Ok(routes) => routes,
        Answer::Error(refused) => return Err(io::Error::other(refused.message)),
    };
    let mut table = Table::default();
    for route in routes.iter().filter(|r| r.up) {
        let index = |id: usize| {
            let stranger =
                || io::Error::new(ErrorKind::InvalidData, format!("there is no node {id}"));
            (1..=NODES).contains(&id).then(|| id - 1).ok_or_else(stranger)
        };
        if let Some(to) = route.destination {
            table[index(to)?] = bit(index(route.next_hop)?);
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ways_that_are_up_are_in_the_table() {
        let line = br#"{"ok":[{"destination":2,"next_hop":2,"path":"","up":false,"cost":null,"onward_ms":0.0},
            {"destination":4,"next_hop":3,"path":"","up":true,"cost":24.0,"onward_ms":12.0}]}"#;
        assert_eq!(parse(line).unwrap(), [0, 0, 0, bit(2)]);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for bad in [
            &b""[..],
            b"{}\n",
            br#"{"error":{"message":"16 others are connected","code":1}}"#,
            br#"{"ok":[{"destination":9,"next_hop":2,"up":true}]}"#,
            br#"{"ok":[{"destination":1,"next_hop":0,"up":true}]}"#,
        ] {
            assert!(parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
