//! What commands print, without the panic of `println!` where standard output
//! or standard error takes no more: the disk behind it is full, or who read it
//! has gone.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Prints a line on standard output; [`failure`] says later whether that failed.
macro_rules! outln {
    ($($text:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line on standard error, if that takes any.
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::print_error(format_args!($($text)*)) };
}

static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// See [`outln`].
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

/// Why standard output did not take what was printed; who closed its pipe has
/// seen enough.
pub fn failure() -> Option<&'static io::Error> {
    FAILURE.get()
}

/// See [`errln`].
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}
