//! Log lines on standard error, with a filter that can change while a node runs.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// Environment variable with a filter that overrides any file's.
const VARIABLE: &str = "TRUNKLINE_LOG";
/// Filter used if none is configured. Others can make the resolver warn at any rate.
const DEFAULT: &str = "info,hickory_net=error,hickory_proto=error,hickory_resolver=error";

/// Number of lines that may be queued for standard error: some hundred kilobytes.
const WAITING: usize = 1_024;
/// Time allowed for writing the last lines when the process ends.
const PARTING: Duration = Duration::from_millis(500);

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Initialises logging to standard error.
pub fn init() {
    let filter = from_environment().unwrap_or_else(|| EnvFilter::new(DEFAULT));
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer()
        .with_writer(|| Out)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry().with(filter).with(lines).init();
    let _ = FILTER.set(handle);
    if let Some(Err(why)) = std::env::var(VARIABLE).ok().map(|filter| parse(&filter)) {
        tracing::warn!("{VARIABLE} is ignored: {why}");
    }
}

fn from_environment() -> Option<EnvFilter> {
    parse(&std::env::var(VARIABLE).ok()?).ok()
}

/// Parses a filter as in `[log] filter`, or describes its mistake.
pub fn parse(filter: &str) -> Result<EnvFilter, String> {
    // To `EnvFilter`, a lone word that is no level is a module, and all other modules are silenced:
    // a typing error would cost the whole log.
    let slip = |part: &&str| {
        let level = !part.is_empty() && part.parse::<LevelFilter>().is_ok();
        !level && !part.contains(['=', '['])
    };
    if let Some(part) = filter.split(',').map(str::trim).find(slip) {
        return Err(format!(
            "\"{part}\" is no level: write error, warn, info or debug, or MODULE=LEVEL"
        ));
    }
    EnvFilter::builder().parse(filter).map_err(|why| format!("is not understood: {why}"))
}

/// Sets the filter, or the default for `None`. A filter from the environment stays.
pub fn set(filter: Option<&str>) {
    if from_environment().is_some() {
        return;
    }
    let filter = filter.unwrap_or(DEFAULT);
    // `config` has already validated it.
    if let (Some(handle), Ok(filter)) = (FILTER.get(), parse(filter)) {
        let _ = handle.reload(filter);
    }
}

/// An entry in the queue to standard error.
enum Entry {
    Line(Vec<u8>),
    /// Signals to the sender that everything before it has been written.
    Mark(SyncSender<()>),
}

static QUEUE: OnceLock<SyncSender<Entry>> = OnceLock::new();
/// Number of lines dropped because the queue was full.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Writer of log lines: directly to standard error, or through the thread of [`detach`].
struct Out;

impl Write for Out {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Some(queue) = QUEUE.get() else { return io::stderr().write(line) };
        if queue.try_send(Entry::Line(line.to_vec())).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Allows the queued lines some time to be written, when dropped.
pub struct Detached;

/// Moves the writing of the log to a separate thread, so that a slow reader of standard error
/// blocks no other thread: a terminal stopped by Ctrl-S, or a service manager that hangs, must not
/// stop packets. Lines that find the queue full are counted, and the log reports their number.
pub fn detach() -> io::Result<Detached> {
    let (queue, lines) = sync_channel(WAITING);
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || write_out(&lines, &mut io::stderr(), &LOST))?;
    let _ = QUEUE.set(queue);
    Ok(Detached)
}

impl Drop for Detached {
    fn drop(&mut self) {
        let (mark, written) = sync_channel(1);
        if QUEUE.get().is_some_and(|queue| queue.try_send(Entry::Mark(mark)).is_ok()) {
            let _ = written.recv_timeout(PARTING);
        }
    }
}

/// Writes entries to `to`. Lines that cannot be written, for example to a full disk, are lost.
fn write_out(entries: &Receiver<Entry>, to: &mut impl Write, lost: &AtomicU64) {
    for entry in entries {
        match entry {
            Entry::Line(line) => drop(to.write_all(&line)),
            Entry::Mark(mark) => drop(mark.try_send(())),
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let what = "log lines were lost here: the reader of the log was too slow";
            let _ = writeln!(to, "{lost} {what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_said_once_where_it_was_lost() {
        let (queue, entries) = sync_channel(3);
        let (mark, written) = sync_channel(1);
        for line in ["one\n", "two\n"] {
            queue.send(Entry::Line(line.into())).expect("room");
        }
        queue.send(Entry::Mark(mark)).expect("room");
        drop(queue);
        let mut text = Vec::new();
        write_out(&entries, &mut text, &AtomicU64::new(7));
        let text = String::from_utf8(text).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert!(
            matches!(lines[..], ["one", lost, "two"] if lost.starts_with("7 log lines")),
            "{text}"
        );
        assert_eq!(written.try_recv(), Ok(()));
    }
}
