//! Log lines on standard error, by a filter that can change while a node runs.

use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The environment's filter, which goes before any file's.
const VARIABLE: &str = "TRUNKLINE_LOG";
/// Without any.
const DEFAULT: &str = "info";

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Begins to log.
pub fn init() {
    let filter = from_environment().unwrap_or_else(|| EnvFilter::new(DEFAULT));
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
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

/// A filter as `[log] filter` has it; or why it is none.
pub fn parse(filter: &str) -> Result<EnvFilter, String> {
    // To `EnvFilter` a lone word that is no level is a module, and all others are
    // silent: a slip would cost the whole log.
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

/// Logs by `filter` from now on, or by the default; the environment's stays.
pub fn set(filter: Option<&str>) {
    if from_environment().is_some() {
        return;
    }
    let filter = filter.unwrap_or(DEFAULT);
    // `config` has parsed it before.
    if let (Some(handle), Ok(filter)) = (FILTER.get(), parse(filter)) {
        let _ = handle.reload(filter);
    }
}
