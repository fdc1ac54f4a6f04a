//! Transfers by the kernel's TCP, with iperf3 on both hosts.

use super::super::model::Transfer;
use super::super::rows::transfer_row;
use super::emulator::Emulator;
use super::process::Owned;
use super::run_monitor::RunMonitor;
use super::{Error, cannot};
use crate::table::Row;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use std::ffi::OsString;
use std::io::{Read as _, Seek as _};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Port of the first transfer; the ports of the others follow.
const FIRST_PORT: u16 = 5_201;
/// Time that iperf3 may take until it listens, and to end after the transfer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whether this kernel has the congestion control `congestion`, or loads it on demand.
pub fn has(congestion: &str) -> bool {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP));
    let tried = |s: &Socket| setsockopt(s, sockopt::TcpCongestion, &OsString::from(congestion));
    // Another error, such as EPERM, means that it exists.
    !socket.is_ok_and(|socket| tried(&socket) == Err(Errno::ENOENT))
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferResult {
    /// Payload that arrived during the measured time, in bits per second.
    pub goodput_bps: f64,
    /// Number of retransmitted segments.
    pub retransmitted: f64,
    /// Mean round-trip time at the sender, in milliseconds.
    pub rtt_ms: f64,
}

/// A transfer whose server is listening, before it begins.
pub struct Prepared<'a> {
    transfer: &'a Transfer,
    emulator: &'a Emulator,
    server: Owned,
    port: u16,
}

fn failed(transfer: &Transfer, why: &str) -> Error {
    Error::Process(format!("iperf3, for stream {}: {why}", transfer.name))
}

impl<'a> Prepared<'a> {
    /// Starts the server of transfer `n`, and waits until it listens.
    ///
    /// # Errors
    ///
    /// If iperf3 can't be started, or does not listen in time.
    pub fn new(
        transfer: &'a Transfer,
        n: u16,
        emulator: &'a Emulator,
    ) -> Result<Prepared<'a>, Error> {
        let port = FIRST_PORT + n;
        let server = emulator
            .bound(transfer.ends.1, "iperf3")
            .args(["-s", "-1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(cannot("start iperf3"))?;
        let mut prepared = Prepared { transfer, emulator, server: Owned(server), port };
        prepared.wait()?;
        Ok(prepared)
    }

    /// Waits until the server listens, according to its host's `/proc/self/net/tcp`.
    fn wait(&mut self) -> Result<(), Error> {
        let listens = format!(":{:04X} ", self.port);
        let until = Instant::now() + PATIENCE;
        loop {
            let mut cat = self.emulator.bound(self.transfer.ends.1, "cat");
            let said = cat.args(["/proc/self/net/tcp", "/proc/self/net/tcp6"]).output();
            let said = said.map_err(cannot("look at a host's sockets"))?;
            if String::from_utf8_lossy(&said.stdout).contains(&listens) {
                return Ok(());
            }
            let ended = self.server.0.try_wait().map_err(cannot("look at iperf3"))?;
            if ended.is_some() || Instant::now() > until {
                return Err(failed(self.transfer, "it does not listen; is it installed?"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs the transfer when it is due; its first `before` is not measured.
    ///
    /// # Errors
    ///
    /// If iperf3 fails or does not end in time; [`Error::Halted`] if another part of the run
    /// has failed.
    pub fn carry(self, watch: &RunMonitor, before: Duration) -> Result<TransferResult, Error> {
        watch.sleep_until(watch.begun() + self.transfer.from)?;
        let Transfer { ends, from, until, congestion, .. } = self.transfer;
        let to = self.emulator.address(ends.1);
        let seconds = (*until - *from).as_secs_f64().round().max(1.0);
        let omitted = before.as_secs_f64().round();
        let mut client = self.emulator.bound(ends.0, "iperf3");
        client.args(["-J", "-c", &to.to_string(), "-p", &self.port.to_string()]);
        client.args(["-t", &(seconds - omitted).to_string(), "-C", congestion]);
        client.args(["-O", &omitted.to_string()]);
        // A file, since a pipe that is read only at the end would fill up.
        let mut out = tempfile::tempfile().map_err(cannot("make a temporary file"))?;
        let stdout = out.try_clone().map_err(cannot("make a temporary file"))?;
        let client = client.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
        let client = Owned(client.spawn().map_err(cannot("start iperf3"))?);
        let limit = Duration::from_secs_f64(seconds) + PATIENCE;
        let status = self.ends_within(client, limit, watch)?;
        let mut said = Vec::new();
        out.rewind().and_then(|()| out.read_to_end(&mut said)).map_err(cannot("read a file"))?;
        let said: Value = serde_json::from_slice(&said).map_err(|e| {
            failed(self.transfer, &format!("{status}, and its output is not JSON: {e}"))
        })?;
        carried(&said).map_err(|why| failed(self.transfer, &why))
    }

    /// Waits until the client ends on its own, which it must do within `limit`.
    fn ends_within(
        &self,
        mut client: Owned,
        limit: Duration,
        watch: &RunMonitor,
    ) -> Result<ExitStatus, Error> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = client.0.try_wait().map_err(cannot("look at iperf3"))? {
                return Ok(status);
            }
            if client.is_stopped() || self.server.is_stopped() {
                return Err(failed(self.transfer, "it was stopped by a signal"));
            }
            if Instant::now() > until {
                return Err(failed(self.transfer, "it does not end: is the path cut for good?"));
            }
            watch.sleep_until(Instant::now() + Duration::from_millis(20))?;
        }
    }
}

/// Reads the result of a transfer from iperf3's JSON.
fn carried(said: &Value) -> Result<TransferResult, String> {
    if let Some(why) = said["error"].as_str() {
        return Err(why.to_owned());
    }
    let number = |value: &Value| value.as_f64().ok_or("its output has no result");
    let end = &said["end"];
    Ok(TransferResult {
        goodput_bps: number(&end["sum_received"]["bits_per_second"])?,
        retransmitted: number(&end["sum_sent"]["retransmits"])?,
        rtt_ms: number(&end["streams"][0]["sender"]["mean_rtt"])? / 1e3,
    })
}

/// The table's rows for all transfers.
pub fn rows(transfers: &[Transfer], carried: &[TransferResult], is_valid: bool) -> Vec<Row> {
    let each = transfers.iter().zip(carried);
    each.map(|(transfer, carried)| {
        let TransferResult { goodput_bps, retransmitted, rtt_ms } = *carried;
        transfer_row("testbed", transfer, (goodput_bps, retransmitted, rtt_ms), is_valid)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_reno_and_none_what_there_is_not() {
        assert_eq!((has("reno"), has("renno")), (true, false));
    }

    #[test]
    fn what_iperf3_says_is_read() {
        let said = serde_json::json!({ "end": {
            "sum_received": { "bits_per_second": 9.5e6 }, "sum_sent": { "retransmits": 7 },
            "streams": [{ "sender": { "mean_rtt": 20_500 } }],
        }});
        let carried_ = TransferResult { goodput_bps: 9.5e6, retransmitted: 7.0, rtt_ms: 20.5 };
        assert_eq!(carried(&said), Ok(carried_));
        let failed = serde_json::json!({ "error": "unable to connect" });
        assert_eq!(carried(&failed), Err("unable to connect".into()));
        assert!(carried(&serde_json::json!({})).is_err());
    }
}
