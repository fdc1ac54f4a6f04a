//! Real telephones, headless, at two sites: baresip calls baresip over the daemon's gateways, in
//! network namespaces connected by a path that loses packets. The speech that each phone received
//! is reconstructed and scored (Amir, Danilov, Goose, Hedqvist, Terzis 2005, section VI).

mod agent;
mod demo;
mod heard;
pub mod load;
mod network;
mod proxy;
mod sniff;

pub use agent::{Phone, PhoneSetup};
pub use demo::{Demo, Direction, play};
pub use heard::{Heard, hear};
pub use network::{Network, PhoneHost, SITE_A, SITE_B, missing};
pub use proxy::{Gateways, Kamailio, Options, Sipp};
pub use sniff::{Rtp, Sniffer};

/// Why a run with phones failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is not installed, or not permitted.
    #[error("{0}")]
    Missing(String),
    /// A program failed, or did not behave as expected.
    #[error("{0}")]
    Program(String),
    /// The system returned an error.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// Error that the system returned.
        source: std::io::Error,
    },
}

/// Path of the daemon: the one `given`, or the one next to this program, or in PATH.
///
/// # Errors
///
/// If it isn't found.
pub fn find(given: Option<&std::path::Path>) -> Result<std::path::PathBuf, Error> {
    let found = crate::scenario::testbed::process::find_default(given);
    found.map_err(|error| Error::Missing(error.to_string()))
}

/// Runs a command to its end and returns its output. Errors include the command's name.
fn run(command: &mut std::process::Command) -> Result<String, Error> {
    let line = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    };
    let line = line();
    let output = command.output().map_err(cannot(format!("run `{line}`")))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            Err(Error::Program(format!("`{line}` failed: {}{said}", why.trim())))
        }
    }
}

fn cannot(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}
