//! Programs of the scenario's author, each at a host.

use super::super::model::{Program, Scenario};
use super::emulator::Emulator;
use super::{Error, cannot};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long one may take to end once it is told to.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program that runs.
pub struct Running {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    Ok(Running { name, child, log })
}

/// A word with the addresses of the hosts that it names in braces.
fn filled(word: &str, scenario: &Scenario, emulator: &Emulator) -> String {
    let hosts = scenario.hosts.iter().enumerate();
    hosts.fold(word.to_owned(), |word, (n, host)| {
        word.replace(&format!("{{{}}}", host.name), &emulator.addresses(n).1.to_string())
    })
}

impl Running {
    /// Has it end, if it has not by itself.
    ///
    /// # Errors
    ///
    /// It has failed before.
    pub fn finish(mut self) -> Result<(), Error> {
        let look = |child: &mut Child| child.try_wait().map_err(cannot("look at a program"));
        if let Some(status) = look(&mut self.child)? {
            let log = self.log.display();
            return match status.success() {
                true => Ok(()),
                false => Err(Error::Process(format!("{} failed, {status}: see {log}", self.name))),
            };
        }
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let until = Instant::now() + PATIENCE;
        while look(&mut self.child)?.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}
