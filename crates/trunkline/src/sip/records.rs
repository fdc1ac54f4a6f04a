//! The file of call records: one line of JSON for each.

use serde::Serialize;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The file that call records are appended to. When it is moved away, as by `logrotate`, the next
/// record starts a new file.
pub struct Records {
    path: PathBuf,
    file: File,
    /// Number of records lost since the last successful write.
    lost: u64,
}

impl Records {
    /// Opens the file at `path` for appending records.
    pub fn open(path: &Path) -> io::Result<Records> {
        Ok(Records { path: path.into(), file: append(path)?, lost: 0 })
    }

    /// Appends one record, completely or not at all.
    pub fn add(&mut self, record: &impl Serialize) {
        match self.write(record) {
            Ok(()) if self.lost > 0 => {
                tracing::warn!(lost = self.lost, "call records can be written again");
                self.lost = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if self.lost == 0 {
                    let path = self.path.display();
                    tracing::warn!("call records are being lost: cannot write to {path}: {error}");
                }
                self.lost += 1;
            }
        }
    }

    fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let place = |data: &Metadata| (data.dev(), data.ino());
        let now = fs::metadata(&self.path).ok();
        if now.as_ref().map(place) != Some(place(&self.file.metadata()?)) {
            self.file = append(&self.path)?;
        }
        let end = self.file.metadata()?.len();
        self.file.write_all(&line).inspect_err(|_| {
            // Half a line would corrupt the next one.
            let _ = self.file.set_len(end);
        })
    }
}

/// Opens a file for appending lines. If it ends within a line, as a crash of the machine may leave
/// it, that line is ended.
fn append(path: &Path) -> io::Result<File> {
    // A pipe without a reader must not block the gateway.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let mut file = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() && ends_within_a_line(path).unwrap_or(false) {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

fn ends_within_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_each_whatever_becomes_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.jsonl");
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(&path, "{\"half\":").unwrap();
        let mut records = Records::open(&path).unwrap();
        records.add(&1);
        assert_eq!(read(&path), "{\"half\":\n1\n");
        let moved = directory.path().join("calls.jsonl.1");
        fs::rename(&path, &moved).unwrap();
        records.add(&2);
        assert_eq!((read(&path), read(&moved)), ("2\n".into(), "{\"half\":\n1\n".into()));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        records.add(&3);
        records.add(&4);
        assert_eq!(records.lost, 2);
        fs::remove_dir(&path).unwrap();
        records.add(&5);
        assert_eq!((read(&path), records.lost), ("5\n".into(), 0));
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Records::open(&path).is_err());
    }

    #[test]
    fn what_does_not_fit_leaves_no_half() {
        let directory = tempfile::tempdir().unwrap();
        let on_disk = |program: &str, arguments: &[&str]| {
            let mut command = std::process::Command::new(program);
            let done = command.args(arguments).arg(directory.path()).output();
            done.is_ok_and(|output| output.status.success())
        };
        if !on_disk("mount", &["-t", "tmpfs", "-o", "size=8k", "records"]) {
            eprintln!("skipped: a file system that is full has to be mounted, by root");
            return;
        }
        let path = directory.path().join("calls.jsonl");
        let mut records = Records::open(&path).unwrap();
        records.add(&1);
        records.add(&"x".repeat(10_000));
        records.add(&"x".repeat(10_000));
        let lost = records.lost;
        records.add(&2);
        let read = fs::read_to_string(&path).unwrap();
        drop(records);
        assert!(on_disk("umount", &[]));
        assert_eq!((lost, &read[..]), (2, "1\n2\n"));
    }
}
