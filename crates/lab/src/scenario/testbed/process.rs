//! Child processes that end when this process does, however it ends.

use super::super::mistake::printable;
use super::{Error, cannot};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Prefix of the lines in which `impair` prints how to enter each host.
pub const HOST: &str = "impair: host ";

/// How long to wait for the last output of a process that has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long a process may take until it is ready: a daemon needs milliseconds, but many at
/// once on a busy machine may need seconds.
const READY: Duration = Duration::from_secs(30);

/// Time that a process may take to end once requested to: a node first says goodbye to its
/// neighbours.
const END: Duration = Duration::from_secs(10);

/// Finds the daemon's program: `given` if there is one, else the one next to this program, else the
/// first in PATH.
///
/// # Errors
///
/// [`Error::Missing`] if there is none, [`Error::Io`] if this program's path is unknown.
pub fn find_default(given: Option<&Path>) -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(cannot("find this program"))?;
    find(given, own.parent(), &std::env::var_os("PATH").unwrap_or_default())
}

/// Finds the daemon's program: `given` if there is one, else the one in `folder`, else the
/// first in the folders of `path`.
///
/// # Errors
///
/// [`Error::Missing`] if there is no such file.
pub fn find(given: Option<&Path>, folder: Option<&Path>, path: &OsStr) -> Result<PathBuf, Error> {
    let missing = || Error::Missing { given: given.map(Path::to_owned) };
    if let Some(given) = given {
        return given.is_file().then(|| given.to_owned()).ok_or_else(missing);
    }
    let folders = folder.map(Path::to_owned).into_iter().chain(std::env::split_paths(path));
    folders.map(|f| f.join("trunkline")).find(|p| p.is_file()).ok_or_else(missing)
}

/// A child process that is killed when this is dropped.
pub struct Owned(pub Child);

impl Owned {
    /// Whether a signal has stopped the process, as SIGSTOP does.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
        // The state follows the name, which is in parentheses (proc_pid_stat(5)).
        stat.unwrap_or_default().rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running subcommand of `trunkline`, or of this program.
pub struct Process {
    name: String,
    child: Owned,
    /// Standard input of the process, which ends when this is closed.
    stdin: Option<ChildStdin>,
    /// Whether the scenario has stopped it.
    is_stalled: bool,
    /// Standard error of the process, until `reader` reads it.
    stderr: Option<ChildStderr>,
    /// The thread that reads standard error, once it has been started by [`Process::ready`].
    reader: Option<JoinHandle<()>>,
    /// The last line that the process wrote to standard error.
    last: Arc<Mutex<String>>,
}

impl Process {
    /// Starts `program` with `args` and `config`, and waits until it is ready; also returns the
    /// lines that begin with [`HOST`] and came before that.
    pub fn start(
        program: Command,
        name: String,
        args: &[&str],
        config: &Path,
    ) -> Result<(Process, Vec<String>), Error> {
        let mut process = Process::spawn(program, name, args, config)?;
        let said = process.ready()?;
        Ok((process, said))
    }

    /// Starts `program` with `args` and `config`, without waiting until it is ready.
    pub fn spawn(
        mut program: Command,
        name: String,
        args: &[&str],
        config: &Path,
    ) -> Result<Process, Error> {
        let mut child = program
            .args(args)
            .arg(config)
            .arg("--until-stdin-closes")
            // A log filter from outside could hide that it is ready.
            .env_remove("TRUNKLINE_LOG")
            // A Ctrl-C meant for this program, or for one on a host, must not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot(format!("start {}", program.get_program().display())))?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let (child, last) = (Owned(child), Arc::default());
        Ok(Process { name, child, stdin, is_stalled: false, stderr, reader: None, last })
    }

    /// Waits up to [`READY`] until the process is ready; returns the lines that begin with
    /// [`HOST`] and came before that. Its warnings and errors go to standard error.
    pub fn ready(&mut self) -> Result<Vec<String>, Error> {
        self.ready_within(READY)
    }

    fn ready_within(&mut self, limit: Duration) -> Result<Vec<String>, Error> {
        let Some(stderr) = self.stderr.take() else { return Ok(Vec::new()) };
        let (tell, told) = mpsc::channel();
        let last = Arc::clone(&self.last);
        self.reader = Some(std::thread::spawn(move || {
            let mut all = Vec::new();
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.starts_with(HOST) {
                    all.push(line);
                    continue;
                }
                // A whole word, unlike in "already".
                if line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "ready") {
                    let _ = tell.send(Ok(std::mem::take(&mut all)));
                } else if (["WARN", "ERROR"].iter().any(|w| line.contains(w))
                    || line.starts_with("error: "))
                    // Expected here: these nodes are for measurements only.
                    && !line.contains("UNSEALED")
                {
                    // If standard error is closed, these lines can't be shown.
                    drop(writeln!(io::stderr(), "{line}"));
                }
                *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
            }
            let _ = tell.send(Err(()));
        }));
        let name = &self.name;
        Err(Error::Process(match told.recv_timeout(limit) {
            Ok(Ok(said)) => return Ok(said),
            Ok(Err(())) => format!("{name} ended at once: {}", printable(&self.last())),
            Err(_) => format!(
                "{name} was not ready after {} s: this machine is too busy, or --trunkline is \
                 another program",
                limit.as_secs()
            ),
        }))
    }

    fn last(&self) -> String {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks that the process still runs.
    ///
    /// # Errors
    ///
    /// If it has ended; the error has its exit status and the last line that it wrote.
    pub fn check(&mut self) -> Result<(), Error> {
        let name = &self.name;
        let looked = self.child.0.try_wait().map_err(cannot(format!("look at {name}")))?;
        let Some(status) = looked else {
            return match !self.is_stalled && self.child.is_stopped() {
                true => Err(Error::Process(format!("{name} was stopped by a signal"))),
                false => Ok(()),
            };
        };
        let until = Instant::now() + LAST_WORDS;
        while self.reader.as_ref().is_some_and(|r| !r.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(Error::Process(format!("{name} has ended, {status}{}", last_words(&self.last()))))
    }

    /// Sends SIGHUP, so that the process reads its configuration again.
    pub fn hang_up(&self) -> Result<(), Error> {
        self.signal(Signal::SIGHUP)
    }

    /// Writes a line to the standard input of the process.
    pub fn tell(&mut self, line: &str) -> Result<(), Error> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        writeln!(stdin, "{line}").map_err(cannot(format!("write to {}", self.name)))
    }

    /// Stops the process, or lets it continue.
    pub fn stall(&mut self, is_stalled: bool) -> Result<(), Error> {
        self.is_stalled = is_stalled;
        self.signal(if is_stalled { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    /// Sends a signal to the process.
    fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill(Pid::from_raw(self.child.0.id().cast_signed()), signal)
            .map_err(|e| cannot(format!("send {signal} to {}", self.name))(e.into()))
    }

    /// Makes the process end by closing its standard input.
    pub fn close(&mut self) {
        self.stdin.take();
    }

    /// Ends the process, which may take up to [`END`]; returns its standard output and its
    /// processor time.
    pub fn finish(self) -> Result<(String, Duration), Error> {
        self.finish_within(END)
    }

    fn finish_within(mut self, limit: Duration) -> Result<(String, Duration), Error> {
        self.close();
        // A process stopped by SIGSTOP would not notice that its standard input is closed.
        let _ = self.signal(Signal::SIGCONT);
        let what = || format!("determine how {} ended", self.name);
        let (tell, told) = mpsc::channel();
        if let Some(mut stdout) = self.child.0.stdout.take() {
            std::thread::spawn(move || {
                let mut text = String::new();
                let _ = tell.send(stdout.read_to_string(&mut text).map(|_| text));
            });
        }
        let text = match told.recv_timeout(limit) {
            Ok(text) => text.map_err(cannot(what()))?,
            Err(_) => {
                let (name, seconds) = (&self.name, limit.as_secs());
                let why = format!("{name} did not end within {seconds} s, and was killed");
                return Err(Error::Process(why));
            }
        };
        // A child's processor time is added when it is waited for.
        let before = children()?;
        let status = self.child.0.wait().map_err(cannot(what()))?;
        if !status.success() {
            let last = last_words(&self.last());
            return Err(Error::Process(format!("{} failed, {status}{last}", self.name)));
        }
        Ok((text, children()?.saturating_sub(before)))
    }
}

/// The last line of a process that has ended, as the end of an error message.
pub fn last_words(last: &str) -> String {
    match last.trim() {
        "" => ", without a message".to_owned(),
        last => format!("; its last line was: {}", printable(last)),
    }
}

/// Processor time, user and system, of all child processes waited for so far.
pub fn children() -> Result<Duration, Error> {
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

    #[test]
    fn what_a_signal_has_stopped_is_noticed() {
        let args = ["-c", "echo ready >&2; read x; true", "sh"];
        let mut process =
            Process::start(Command::new("sh"), "node 7".into(), &args, Path::new("x")).unwrap().0;
        let stopped = |process: &mut Process| {
            let until = Instant::now() + Duration::from_secs(20);
            while !process.child.is_stopped() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            process.check().map_err(|why| why.to_string())
        };
        process.check().unwrap();
        // As requested by the scenario.
        process.stall(true).unwrap();
        assert_eq!(stopped(&mut process), Ok(()));
        process.stall(false).unwrap();
        process.signal(Signal::SIGSTOP).unwrap();
        assert_eq!(stopped(&mut process), Err("node 7 was stopped by a signal".into()));
        process.finish().unwrap();
    }

    #[test]
    fn what_a_program_says_is_printable_and_short() {
        assert_eq!(last_words(" \u{1b}[2J done\n"), "; its last line was: \\u{1b}[2J done");
        assert!(last_words(&"x".repeat(9_000)).len() < 600);
    }

    #[test]
    fn what_never_ends_is_killed() {
        let spawn = |script: &str| {
            let args = ["-c", script, "sh"];
            Process::spawn(Command::new("sh"), "node 7".into(), &args, Path::new("x.toml")).unwrap()
        };
        let deaf = spawn("exec sleep 99");
        let pid = deaf.child.0.id();
        let why = deaf.finish_within(Duration::from_millis(200)).unwrap_err().to_string();
        assert!(why.contains("node 7 did not end within 0 s"), "{why}");
        assert!(!Path::new("/proc").join(pid.to_string()).exists());
        let (said, _) = spawn("read x; echo good").finish_within(END).unwrap();
        assert_eq!(said, "good\n");
        let why = spawn("read x; exit 3").finish_within(END).unwrap_err().to_string();
        assert!(why.contains("node 7 failed, exit status: 3"), "{why}");
    }

    #[test]
    fn what_never_gets_ready_is_not_waited_for() {
        let spawn = |script: &str| {
            let args = ["-c", script, "sh"];
            Process::spawn(Command::new("sh"), "node 7".into(), &args, Path::new("x.toml")).unwrap()
        };
        let limit = Duration::from_secs(2);
        let why = |script| spawn(script).ready_within(limit).map_err(|e| e.to_string());
        assert_eq!(why("echo INFO ready >&2; exec sleep 9"), Ok(vec![]));
        let hosts = why("echo impair: host ready: x >&2; echo impair: ready, >&2; exec sleep 9");
        assert_eq!(hosts, Ok(vec!["impair: host ready: x".into()]));
        assert!(why("echo no file >&2").unwrap_err().contains("node 7 ended at once: no file"));
        let mut ends = spawn("echo ready >&2; read x; echo too full >&2; exit 3");
        ends.ready_within(limit).unwrap();
        ends.check().unwrap();
        ends.close();
        let until = Instant::now() + limit;
        let why_it_ended = loop {
            match ends.check() {
                Ok(()) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                checked => break checked.unwrap_err().to_string(),
            }
        };
        let wanted = "node 7 has ended, exit status: 3; its last line was: too full";
        assert_eq!(why_it_ended, wanted);
        let hangs = why("echo starting >&2; exec sleep 9").unwrap_err();
        assert!(hangs.contains("node 7 was not ready after 2 s"), "{hangs}");
    }
}
