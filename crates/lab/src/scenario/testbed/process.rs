//! Processes that end with this one, however that ends.

use super::{Error, cannot};
use nix::sys::resource::{UsageWho, getrusage};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// The program: the one that is `given`, else the one in `folder`, else the
/// first in the folders of `path`.
///
/// # Errors
///
/// [`Error::Missing`].
pub fn find(given: Option<&Path>, folder: Option<&Path>, path: &OsStr) -> Result<PathBuf, Error> {
    let missing = || Error::Missing { given: given.map(Path::to_owned) };
    if let Some(given) = given {
        return given.is_file().then(|| given.to_owned()).ok_or_else(missing);
    }
    let folders = folder.map(Path::to_owned).into_iter().chain(std::env::split_paths(path));
    folders.map(|f| f.join("trunkline")).find(|p| p.is_file()).ok_or_else(missing)
}

/// A running subcommand of `trunkline`.
pub struct Process {
    name: String,
    child: Child,
    /// As long as it is open, the process runs.
    stdin: Option<ChildStdin>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts it with `args` and `config`, and waits until it is ready.
    pub fn start(
        trunkline: &Path,
        name: String,
        args: &[&str],
        config: &Path,
    ) -> Result<Process, Error> {
        let mut child = Command::new(trunkline)
            .args(args)
            .arg(config)
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot(format!("start {}", trunkline.display())))?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let process = Process { name, child, stdin };
        let mut lines = stderr.into_iter().flat_map(|s| BufReader::new(s).lines());
        let mut said = String::new();
        for line in lines.by_ref().map_while(Result::ok) {
            if line.contains("ready") {
                let warns = |line: &String| line.contains("WARN") || line.contains("ERROR");
                std::thread::spawn(move || {
                    lines.map_while(Result::ok).filter(warns).for_each(|line| eprintln!("{line}"));
                });
                return Ok(process);
            }
            said = line;
        }
        Err(Error::Process(format!("{} ended at once: {said}", process.name)))
    }

    /// Tells it to end.
    pub fn close(&mut self) {
        self.stdin.take();
    }

    /// Ends it; what it printed, and its processor time.
    pub fn finish(mut self) -> Result<(String, Duration), Error> {
        self.close();
        let what = || format!("see how {} ended", self.name);
        let mut text = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut text).map_err(cannot(what()))?;
        }
        // Children count when they are waited for, which only this does.
        let before = children()?;
        let status = self.child.wait().map_err(cannot(what()))?;
        if !status.success() {
            return Err(Error::Process(format!("{} ended before its time: {status}", self.name)));
        }
        Ok((text, children()?.saturating_sub(before)))
    }
}

/// The processor time of all children so far.
fn children() -> Result<Duration, Error> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|e| cannot("read the processor time of a child")(e.into()))?;
    let micros = [usage.user_time(), usage.system_time()]
        .map(|t| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64);
    Ok(Duration::from_micros(micros.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_given_one_then_the_one_beside_then_that_in_path() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [beside, other] = dirs.each_ref().map(|d| d.path());
        let found = |given| find(given, Some(beside), other.as_os_str());
        for says in ["--trunkline PATH", "cargo build"] {
            assert!(found(None).unwrap_err().to_string().contains(says));
        }
        for dir in [other, beside] {
            std::fs::write(dir.join("trunkline"), "").unwrap();
            assert_eq!(found(None).unwrap(), dir.join("trunkline"));
        }
        let given = other.join("trunkline");
        assert_eq!(found(Some(&given)).unwrap(), given);
        let nowhere = found(Some(Path::new("/nowhere/t"))).unwrap_err().to_string();
        assert!(nowhere.starts_with("/nowhere/t: ") && !nowhere.contains('\n'), "{nowhere}");
    }
}
