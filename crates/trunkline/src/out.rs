//! Output of commands, without the panic of `println!` when standard output or standard error
//! cannot be written: the disk is full, or the reader has gone.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Prints a line on standard output; [`failure`] returns an error if that failed.
macro_rules! outln {
    ($($text:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line on standard error, ignoring failures.
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::print_error(format_args!($($text)*)) };
}

static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints text on standard output; used by [`outln`].
pub fn print(text: fmt::Arguments<'_>) {
    bytes(text.to_string().as_bytes());
}

/// Writes `bytes` to standard output, as [`outln`] does.
pub fn bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = FAILURE.set(error);
    }
}

/// Returns the error of standard output, if one occurred. A closed pipe does not count: its reader
/// has seen enough.
pub fn failure() -> Option<&'static io::Error> {
    FAILURE.get()
}

/// Prints a line on standard error; used by [`errln`].
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}
