//! Files named by users, read without blocking on them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading. A pipe without a writer would block forever.
///
/// # Errors
///
/// The file cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
///
/// The errors of [`open`], or the file is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= most {
        return Ok(bytes);
    }
    let what = format!("it has more than {most} bytes");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn nobody_is_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let [pipe, file] = ["pipe", "file"].map(|name| dir.path().join(name));
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        std::fs::write(&file, "four").expect("written");
        let said = |path: &Path| read(path, 4).map_err(|e| e.to_string());
        assert_eq!(said(&file), Ok(b"four".to_vec()));
        for none in [&pipe, dir.path()] {
            assert!(said(none).expect_err("no file").contains("no regular file"));
        }
        std::fs::write(&file, "more").expect("written");
        assert!(read(&file, 3).expect_err("too long").to_string().contains("more than 3 bytes"));
    }
}
