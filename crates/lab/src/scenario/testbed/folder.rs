//! Temporary folders that are gone when this program is, also if a signal ends it.

use super::{Error, cannot};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tempfile::TempDir;

/// Those that there are.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static SIGNALS: Once = Once::new();

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A temporary folder, as long as this is there. SIGKILL alone leaves it behind.
pub struct Folder(TempDir);

impl Folder {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn new() -> Result<Folder, Error> {
        SIGNALS.call_once(|| {
            // Where there is no handler, a folder may be left behind: no reason to stop.
            if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) {
                std::thread::spawn(move || signals.forever().for_each(end));
            }
        });
        // With the lock, so that a signal finds each that is there.
        let mut all = folders();
        let dir = tempfile::Builder::new().prefix("trunkline-lab-").tempdir();
        let dir = dir.map_err(cannot("make a temporary folder"))?;
        all.push(dir.path().to_owned());
        Ok(Folder(dir))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        folders().retain(|path| path != self.0.path());
    }
}

/// Removes all folders, and lets the signal do what it would have done.
fn end(signal: i32) {
    let all = folders();
    for folder in all.iter() {
        // Daemons that end meanwhile remove their sockets, so that a file may be gone.
        if std::fs::remove_dir_all(folder).is_err() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    let _ = emulate_default_handler(signal);
}
