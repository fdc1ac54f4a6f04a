//! Loss traces of a configuration, each read once.

use super::{TraceError, read_file};
use crate::files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trunkline_base::link_model::{BadTrace, MAX_TRACE, parse_trace};

/// Maximum number of packets in all traces of a configuration: four times the longest.
pub const MAX_TRACES: usize = 4 * MAX_TRACE;

/// The traces of one configuration, by the paths of their files.
#[derive(Debug)]
pub struct Traces {
    read: BTreeMap<PathBuf, Arc<[bool]>>,
    /// Number of packets that further traces may have.
    room: usize,
}

impl Default for Traces {
    fn default() -> Traces {
        Traces { read: BTreeMap::new(), room: MAX_TRACES }
    }
}

impl Traces {
    /// Returns the trace in a file, which is read only once.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a regular file or not a trace, or exceeds the remaining
    /// room.
    pub fn get(&mut self, path: &Path) -> Result<Arc<[bool]>, TraceError> {
        if let Some(trace) = self.read.get(path) {
            return Ok(trace.clone());
        }
        // Bytes of the longest trace, with as much white space again.
        let limit = 2 * MAX_TRACE as u64;
        let text = read_file(files::open(path)?, limit)?.ok_or(BadTrace::TooLong)?;
        let trace = parse_trace(&text)?;
        self.room = self.room.checked_sub(trace.len()).ok_or(TraceError::TooManyTogether)?;
        self.read.insert(path.to_owned(), trace.clone());
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_once_and_all_have_an_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        std::fs::write(&first, "001").expect("written");
        std::fs::write(&second, "01").expect("written");
        let mut traces = Traces { room: 4, ..Traces::default() };
        let one = traces.get(&first).expect("a trace");
        assert!(Arc::ptr_eq(&one, &traces.get(&first).expect("the same")));
        let why = traces.get(&second).expect_err("five are too many").to_string();
        assert!(why.contains("packets together: shorten one"), "{why}");
        assert!(traces.get(dir.path()).expect_err("a folder").to_string().contains("regular"));
    }
}
