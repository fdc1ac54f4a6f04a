//! Results as Markdown, for docs/results/daemon.md.

use std::fs;

/// A table under its title.
pub struct Table<'a> {
    pub title: &'a str,
    /// The arguments behind `trunkline bench`.
    pub command: String,
    pub columns: &'a [&'a str],
    pub rows: Vec<Vec<String>>,
    /// Sentences below the table.
    pub notes: Vec<String>,
}

impl Table<'_> {
    /// Prints the table, the command that gives it, and the machine that it was measured on.
    pub fn print(&self) {
        outln!("## {}\n", self.title);
        outln!("```sh\n{}\n```\n", format!("trunkline bench {}", self.command).trim_end());
        outln!("{}\n", machine());
        outln!("| {} |\n|{}", self.columns.join(" | "), "---|".repeat(self.columns.len()));
        for row in &self.rows {
            outln!("| {} |", row.join(" | "));
        }
        for note in &self.notes {
            outln!("\n{note}");
        }
        outln!("");
    }
}

/// Version, processor and kernel in a sentence. No date and no host name: the same machine
/// gives the same line.
fn machine() -> String {
    let file = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = file("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |text| text.trim_start_matches([' ', '\t', ':']));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = file("/proc/sys/kernel/osrelease");
    format!(
        "Version {}, {processors} × {model}, Linux {}.",
        env!("CARGO_PKG_VERSION"),
        kernel.trim_end()
    )
}
