//! Temporary folders that are removed when this program ends, even by a signal.

use super::{Error, cannot};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tempfile::TempDir;

/// Paths of all temporary folders that exist.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static SIGNALS: Once = Once::new();

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A temporary folder, removed when this is dropped and on SIGINT or SIGTERM, but not on
/// SIGKILL.
pub struct Folder(TempDir);

impl Folder {
    /// Makes a temporary folder.
    ///
    /// # Errors
    ///
    /// If the folder can't be created.
    pub fn new() -> Result<Folder, Error> {
        SIGNALS.call_once(|| {
            // Without a handler a folder may be left behind, which is no reason to stop.
            if let Ok(mut signals) =
                Signals::new([SIGHUP, SIGINT, SIGTERM].into_iter().filter(|&s| !is_ignored(s)))
            {
                std::thread::spawn(move || signals.forever().for_each(end));
            }
        });
        // Under the lock, so that the signal handler misses no folder.
        let mut all = folders();
        let dir = tempfile::Builder::new().prefix("trunkline-lab-").tempdir();
        let dir = dir.map_err(cannot("make a temporary folder"))?;
        all.push(dir.path().to_owned());
        Ok(Folder(dir))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        folders().retain(|path| path != self.0.path());
    }
}

/// Removes all folders, then lets `signal` take its default action.
fn end(signal: i32) {
    let all = folders();
    for folder in all.iter() {
        // Tried twice: daemons that end meanwhile remove their sockets, so that a file may be
        // gone.
        if std::fs::remove_dir_all(folder).is_err() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    let _ = emulate_default_handler(signal);
}

/// Whether this process was started with a signal ignored, as nohup does: it stays so.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
