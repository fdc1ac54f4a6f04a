//! Programs of the scenario's author, each at a host.

use super::super::model::{Program, Scenario};
use super::emulator::Emulator;
use super::process::{Owned, last_words};
use super::{Error, cannot};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long one may take to end once it is told to.
const PATIENCE: Duration = Duration::from_secs(5);

/// The end of its log that is looked at for what it said last, in bytes.
const LAST: usize = 4_096;

/// A program that runs.
pub struct Running {
    name: String,
    child: Owned,
    log: PathBuf,
}

/// Starts program `n`; what it prints goes to a file in `folder`.
///
/// # Errors
///
/// The file can't be written, or the system refused.
pub fn start(
    scenario: &Scenario,
    n: usize,
    emulator: &Emulator,
    folder: &Path,
) -> Result<Running, Error> {
    let Program { host, command, .. } = &scenario.programs[n];
    let log = folder.join(format!("program-{}.log", n + 1));
    let failed = || cannot(format!("write {}", log.display()));
    std::fs::create_dir_all(folder).map_err(failed())?;
    let out = File::create(&log).map_err(failed())?;
    let words: Vec<String> = command.iter().map(|word| filled(word, scenario, emulator)).collect();
    let name = format!("program {} (`{}`)", n + 1, words.join(" "));
    let child = emulator
        .bound(*host, &words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(failed())?)
        .stderr(out)
        .spawn()
        .map_err(cannot(format!("start {name}")))?;
    Ok(Running { name, child: Owned(child), log })
}

/// A word with the addresses of the hosts that it names in braces.
fn filled(word: &str, scenario: &Scenario, emulator: &Emulator) -> String {
    let hosts = scenario.hosts.iter().enumerate();
    hosts.fold(word.to_owned(), |word, (n, host)| {
        word.replace(&format!("{{{}}}", host.name), &emulator.addresses(n).1.to_string())
    })
}

impl Running {
    /// Whether it has ended, which it may where it has not failed.
    ///
    /// # Errors
    ///
    /// It has failed: how, and what it said last.
    pub fn has_ended(&mut self) -> Result<bool, Error> {
        let Some(status) = self.child.0.try_wait().map_err(cannot("look at a program"))? else {
            return Ok(false);
        };
        if status.success() {
            return Ok(true);
        }
        let said = std::fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(LAST)..]).into_owned();
        let last = last_words(said.trim_end().lines().last().unwrap_or_default());
        let log = self.log.display();
        Err(Error::Process(format!("{} failed, {status}{last} ({log})", self.name)))
    }

    /// Has it end, if it has not by itself.
    ///
    /// # Errors
    ///
    /// It has failed before.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.has_ended()? {
            return Ok(());
        }
        let _ = kill(Pid::from_raw(self.child.0.id().cast_signed()), Signal::SIGTERM);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            // What it makes of the signal is no failure.
            if self.child.0.try_wait().map_err(cannot("look at a program"))?.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
