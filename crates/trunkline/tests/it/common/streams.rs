//! Chains of nodes with control sockets, and commands that use streams there.

use crate::common::{Chain, Node, Process, Setup, run, trunkline, wait_for};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

pub fn control(node: &Node) -> PathBuf {
    node.socket.with_extension("ctl")
}

/// Starts a chain of nodes with control sockets.
pub fn start(setup: &Setup<'_>) -> Chain {
    let mut chain = Chain::prepare(setup);
    chain.nodes.iter().for_each(add_control);
    chain.nodes.iter_mut().for_each(Node::start);
    chain.wait_until_up();
    chain
}

pub fn add_control(node: &Node) {
    let text = fs::read_to_string(&node.config).expect("written before");
    let line = format!("[node]\ncontrol = {:?}", control(node).to_str().expect("text"));
    fs::write(&node.config, text.replacen("[node]", &line, 1)).expect("written");
}

/// Streams of a node, as listed by `trunkline streams`.
#[track_caller]
pub fn streams(node: &Node) -> Vec<Value> {
    serde_json::from_str(&operate(node, &["streams", "--json"])).expect("a list")
}

#[track_caller]
pub fn operate(node: &Node, args: &[&str]) -> String {
    let ended = run(trunkline(args).arg("--control").arg(control(node)));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}: {}", ended.stdout);
    ended.stdout
}

pub fn cat(node: &Node, args: &[&str]) -> Command {
    let mut command = trunkline(["cat", "--json", "--socket"]);
    command.arg(&node.socket).args(args);
    command
}

/// A running `trunkline cat` process.
pub struct Cat {
    child: Child,
    said: PathBuf,
}

impl Cat {
    /// Starts a process with its standard output in the file at `to`.
    pub fn start(command: &mut Command, from: Stdio, to: &Path) -> Cat {
        let said = to.with_extension("said");
        let create = |path: &Path| File::create(path).expect("created");
        let command = command.stdin(from).stdout(create(to)).stderr(create(&said));
        Cat { child: command.spawn().expect("it starts"), said }
    }

    /// Starts a process that accepts a stream at `port` and sends nothing.
    pub fn listen(node: &Node, port: &str, to: &Path) -> Cat {
        Cat::answer(node, port, Stdio::null(), to)
    }

    /// Starts a process that accepts a stream at `port` and sends `from`.
    pub fn answer(node: &Node, port: &str, from: Stdio, to: &Path) -> Cat {
        let cat = Cat::start(&mut cat(node, &["--stats", "--listen", port]), from, to);
        wait_for("a listener", || cat.said().contains("listening at").then_some(()));
        cat
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).expect("created")
    }

    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("piped")
    }

    /// Waits for the end, and returns the exit code and the stream's statistics.
    #[track_caller]
    pub fn end(&mut self) -> (i32, Value) {
        let status = wait_for("cat to end", || self.child.try_wait().expect("a child"));
        let said = self.said();
        let line = said.lines().find(|line| line.starts_with('{'));
        let summary = line.map_or(Value::Null, |line| serde_json::from_str(line).expect("JSON"));
        (status.code().expect("no signal"), summary)
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns `len` pseudorandom bytes.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> =
        std::iter::repeat_with(&mut next).take(len / 8 + 1).flatten().collect();
    bytes.truncate(len);
    bytes
}

/// SHA-256 of a file, computed by an independent program.
pub fn sha256(path: &Path) -> String {
    let ended = run(Command::new("sha256sum").arg(path));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.stdout.split(' ').next().expect("a sum").to_owned()
}

/// Number of open descriptors of a process.
pub fn descriptors(process: &Process) -> usize {
    fs::read_dir(format!("/proc/{}/fd", process.id())).expect("Linux").count()
}
