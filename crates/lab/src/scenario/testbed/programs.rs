//! The programs of a scenario, each running on a host.

use super::super::mistake::printable;
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

/// How long a program may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much of the end of a program's log is searched for its last line, in bytes.
const LAST: usize = 4_096;

/// A program that has been started.
pub struct Running {
    name: String,
    child: Owned,
    log: PathBuf,
}

/// Starts program `n` of the scenario; its output goes to a file in `folder`.
///
/// # Errors
///
/// If the file can't be created, or the program can't be started.
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
    let name = format!("program {} (`{}`)", n + 1, printable(&words.join(" ")));
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

/// Replaces each host's name in braces in `word` by the host's address.
fn filled(word: &str, scenario: &Scenario, emulator: &Emulator) -> String {
    let hosts = scenario.hosts.iter().enumerate();
    hosts.fold(word.to_owned(), |word, (n, host)| {
        word.replace(&format!("{{{}}}", host.name), &emulator.address(n).to_string())
    })
}

impl Running {
    /// Whether the program has ended, with success.
    ///
    /// # Errors
    ///
    /// If it has failed; the error has its exit status and the last line that it printed.
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

    /// Ends the program with SIGTERM if it still runs, and with SIGKILL if that does not help.
    ///
    /// # Errors
    ///
    /// If it has already failed on its own.
    pub fn finish(mut self) -> Result<(), Error> {
        if self.has_ended()? {
            return Ok(());
        }
        let _ = kill(Pid::from_raw(self.child.0.id().cast_signed()), Signal::SIGTERM);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            // After the signal, no exit status counts as a failure.
            if self.child.0.try_wait().map_err(cannot("look at a program"))?.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
