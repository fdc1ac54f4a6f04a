//! Real telephones, headless, at two sites: baresip calls baresip over the daemon's
//! gateways, in network namespaces whose path loses packets, and what each of them got
//! is heard and scored (Amir, Danilov, Goose, Hedqvist, Terzis 2005, section VI).

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
pub use network::{Network, Place, SITE_A, SITE_B, missing};
pub use proxy::{Gateways, Kamailio, Options, Sipp};
pub use sniff::{Rtp, Sniffer};

/// Why phones could not be played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is not installed, or not permitted.
    #[error("{0}")]
    Missing(String),
    /// A program failed, or did not do what it should.
    #[error("{0}")]
    Program(String),
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The daemon's program: the one that is `given`, or beside this one, or in PATH.
///
/// # Errors
///
/// That it isn't there.
pub fn find(given: Option<&std::path::Path>) -> Result<std::path::PathBuf, Error> {
    let found = crate::scenario::testbed::process::find_default(given);
    found.map_err(|error| Error::Missing(error.to_string()))
}

/// Runs a command to its end: what it says. Its name is in what went wrong.
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
