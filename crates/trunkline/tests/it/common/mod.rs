//! Runs the real binary as a user would: configuration files, processes, signals, HTTP. Everything
//! that a test starts ends with it.

pub mod cases;
pub mod emulator;
pub mod keys;
pub mod on_time;
pub mod proxy;
pub mod raw;
pub mod relay;
pub mod streams;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trunkline_client::{
    Address, Attachment, DatagramSocket, Error, NodeId, Received, SocketOption, Transport,
};

/// Timeout beyond any operation here, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn temp_dir() -> TempDir {
    tempfile::Builder::new().prefix("trunkline-test-").tempdir().expect("a temporary folder")
}

/// A port that is free for UDP and TCP on `ip`, below the range from which the kernel assigns
/// ports.
pub fn free_port(ip: IpAddr) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = std::process::id() % 200 * 100;
    loop {
        let n = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::new(ip, 12_000 + ((base + n) % 20_000) as u16);
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Waits until `done` returns a value; fails with `what` after a timeout.
pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain for {what}");
        thread::sleep(ms(10));
    }
}

/// Makes a node support the protocol versions of another build.
const NEWEST_VERSION: &str = "TRUNKLINE_TEST_NEWEST_VERSION";

/// Command that runs the binary with these arguments.
pub fn trunkline<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(args).env_remove("TRUNKLINE_LOG").env_remove(NEWEST_VERSION).stdin(Stdio::null());
    command
}

/// Result of a finished command.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command and waits for its end.
pub fn run(command: &mut Command) -> Ended {
    let mut process = Process::start(command);
    let code = process.wait().code();
    let (stdout, stderr) = process.rest();
    Ended { code, stdout, stderr }
}

impl Ended {
    /// Checks that the command failed with `code` and a one-line message, which is returned.
    #[track_caller]
    pub fn one_line(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert_eq!(self.stdout, "");
        let line = self.stderr.trim_end();
        assert!(line.starts_with("trunkline: "), "{line}");
        line
    }
}

/// Whether a program has said one thing: a line, followed, for a mistake in a file, by the line
/// there and a marker below it.
pub fn is_message(said: &str) -> bool {
    match said.lines().collect::<Vec<_>>()[..] {
        [_] => true,
        [what, line, marker] => {
            what.contains(".toml:") && line.contains(" | ") && marker.trim_start() == "^"
        }
        _ => false,
    }
}

/// A child process, killed when dropped. Its standard input is our pipe, so that with
/// `--until-stdin-closes` it never outlives us.
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    readers: Vec<JoinHandle<()>>,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    pub fn start(command: &mut Command) -> Process {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stdin = child.stdin.take();
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().expect("piped"), &stdout),
            collect(child.stderr.take().expect("piped"), &stderr),
        ];
        Process { child, stdin, readers, stdout, stderr }
    }

    /// Waits for `word` on its standard error.
    #[track_caller]
    pub fn wait_for_word(&mut self, word: &str) {
        wait_for(word, || {
            if self.stderr().contains(word) {
                return Some(());
            }
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "it ended without saying \"{word}\": {}", self.stderr());
            None
        });
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("text").clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.lock().expect("text").clone()
    }

    /// Writes a line to its standard input.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("open");
        writeln!(stdin, "{line}").expect("it reads");
    }

    pub fn close_stdin(&mut self) {
        self.stdin.take();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Kills it like `kill -9`.
    pub fn crash(&mut self) {
        self.child.kill().expect("it runs");
        self.wait();
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_for("a process to end", || self.child.try_wait().expect("a child"))
    }

    /// Its complete standard output and standard error, once it has ended.
    pub fn rest(&mut self) -> (String, String) {
        for reader in self.readers.drain(..) {
            reader.join().expect("text");
        }
        (self.stdout.lock().expect("text").clone(), self.stderr())
    }
}

fn collect(from: impl Read + Send + 'static, to: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let to = Arc::clone(to);
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            to.lock().expect("text").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("process {} said:\n{}", self.child.id(), self.stderr());
        }
    }
}

/// Performs an HTTP GET, and returns the status line and the body.
pub fn get(http: SocketAddr, path: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&http, ms(2_000))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {http}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

/// Metrics of a node, by series.
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub fn parse(text: &str) -> Metrics {
        let series = text.lines().filter(|l| l.starts_with("trunkline_"));
        Metrics(
            series
                .filter_map(|l| l.rsplit_once(' '))
                .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
                .collect(),
        )
    }

    /// Sums all series of `trunkline_NAME` that have `label` among their labels (as in
    /// `reason="malformed"`); fails if there is no such metric.
    #[track_caller]
    pub fn sum(&self, name: &str, label: &str) -> u64 {
        let name = format!("trunkline_{name}");
        let of_name = |s: &&String| s.split('{').next() == Some(&name);
        assert!(self.0.keys().any(|s| of_name(&s)), "there is no metric {name}");
        let fits = |s: &String| of_name(&s) && s.contains(label);
        self.0.iter().filter(|(s, _)| fits(s)).map(|(_, v)| *v as u64).sum()
    }

    /// Drops of the node and its links for `reason`.
    #[track_caller]
    pub fn drops(&self, reason: &str) -> u64 {
        let label = format!("reason=\"{reason}\"");
        self.sum("node_drops_total", &label) + self.sum("link_drops_total", &label)
    }

    /// Whether every link is up and measured.
    fn links_ready(&self) -> bool {
        let count = |prefix: &str, up: bool| {
            self.0.iter().filter(|(s, v)| s.starts_with(prefix) && (!up || **v == 1.0)).count()
        };
        let links = count("trunkline_link_up", false);
        links == count("trunkline_link_up", true)
            && links == count("trunkline_link_rtt_seconds", false)
    }
}

/// A node: its files, and its process while it runs.
pub struct Node {
    pub id: u32,
    pub udp: SocketAddr,
    pub http: SocketAddr,
    pub remote: SocketAddr,
    pub socket: PathBuf,
    pub config: PathBuf,
    /// Whether links are sealed, which remote applications require.
    pub sealed: bool,
    /// The newest protocol version that it supports, if not that of the binary.
    pub newest_version: Option<u8>,
    pub process: Option<Process>,
}

impl Node {
    /// A node without links, with its files in `dir`; see [`Node::write`].
    pub fn new(dir: &Path, id: u32, ip: IpAddr) -> Node {
        Node {
            id,
            udp: free_port(ip),
            http: free_port(Ipv4Addr::LOCALHOST.into()),
            remote: free_port(ip),
            socket: dir.join(format!("{id}.sock")),
            config: dir.join(format!("{id}.toml")),
            sealed: false,
            newest_version: None,
            process: None,
        }
    }

    /// Writes the configuration file: `[node]`, then `rest`.
    pub fn write(&self, rest: &str) {
        let (protection, clients) = self.protection();
        let text = format!(
            "[node]\nid = {}\n{protection}listen = [\"{}\"]\nsocket = {:?}\nhttp = \"{}\"\n{rest}\n{clients}",
            self.id,
            self.udp,
            self.socket.to_str().expect("text"),
            self.http
        );
        std::fs::write(&self.config, text).expect("written");
    }

    /// The command that runs it.
    pub fn command(&self) -> Command {
        let mut command = trunkline(["node", "--until-stdin-closes", "--config"]);
        if let Some(version) = self.newest_version {
            command.env(NEWEST_VERSION, version.to_string());
        }
        command.arg(&self.config);
        command
    }

    /// Starts the node and waits until it is ready.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    pub fn start_with(&mut self, args: &[&str]) {
        let mut process = Process::start(self.command().args(args));
        process.wait_for_word("ready");
        self.process = Some(process);
    }

    /// Kills the node, as a crash would.
    pub fn crash(&mut self) {
        drop(self.process.take());
    }

    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it runs")
    }

    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let (status, body) = get(self.http, "/metrics").expect("metrics");
        assert!(status.ends_with("200 OK"), "{status}");
        Metrics::parse(&body)
    }

    /// Checks that the node runs and answers.
    #[track_caller]
    pub fn assert_healthy(&mut self) {
        assert!(self.process().is_running());
        let (status, body) = get(self.http, "/healthz").expect("an answer");
        assert!(status.ends_with("200 OK") && body == "ok\n", "{status} {body}");
    }

    /// Binds a socket of a local application, with the timeout of a test.
    #[track_caller]
    pub fn bind(&self, port: u16) -> DatagramSocket {
        let socket = DatagramSocket::bind(self.socket.as_path(), port).expect("bound");
        socket.set_option(SocketOption::ReadTimeout(Some(PATIENCE))).expect("in range");
        socket
    }

    /// Binds a socket from another host, to a sealed node.
    #[track_caller]
    pub fn bind_remote(&self, port: u16) -> DatagramSocket {
        attach(self.attachment().as_str(), port)
    }

    pub fn address(&self, port: u16) -> Address {
        Address { node: NodeId(self.id), port }
    }

    /// Processor time used so far.
    pub fn cpu_time(&mut self) -> Duration {
        let path = format!("/proc/{}/stat", self.process().id());
        let text = std::fs::read_to_string(path).expect("Linux");
        // The fields follow the name, which may contain anything: utime and stime are the 12th and
        // 13th, in hundredths of a second (proc(5)).
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        ms(10 * ticks)
    }

    /// Resident memory of the process, in KiB.
    pub fn resident(&mut self) -> u64 {
        let path = format!("/proc/{}/status", self.process().id());
        let text = std::fs::read_to_string(path).expect("Linux");
        let line = text.lines().find(|l| l.starts_with("VmRSS:")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    }
}

/// Binds a socket of a remote application, and waits until its packets use UDP.
#[track_caller]
pub fn attach(at: impl Into<Attachment>, port: u16) -> DatagramSocket {
    let socket = DatagramSocket::bind(at, port).expect("bound");
    settle(&socket, Transport::Udp);
    socket.set_option(SocketOption::ReadTimeout(Some(PATIENCE))).expect("in range");
    socket
}

/// Waits until `transport` carries the packets of `socket`.
#[track_caller]
pub fn settle(socket: &DatagramSocket, transport: Transport) {
    socket.set_option(SocketOption::ReadTimeout(Some(ms(1)))).expect("in range");
    wait_for("the transport", || {
        match try_recv_number(socket) {
            Err(Error::WouldBlock) => {}
            other => panic!("{other:?} while {transport:?} is awaited"),
        }
        (socket.status().transport == Some(transport)).then_some(())
    });
}

/// Parameters of a chain of nodes.
pub struct Setup<'a> {
    pub nodes: u32,
    pub ip: IpAddr,
    /// Sections for every node's configuration.
    pub sections: &'a str,
    /// Keys of every link, as lines.
    pub link: &'a str,
    /// Keys of every link of `trunkline impair`; if empty, it is not used.
    pub impair: &'a str,
    /// Whether links are sealed, which remote applications require.
    pub sealed: bool,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            nodes: 2,
            ip: Ipv4Addr::LOCALHOST.into(),
            sections: "",
            link: "",
            impair: "",
            sealed: false,
        }
    }
}

/// Nodes 1, 2, …, linked to their neighbours, with all links up.
pub struct Chain {
    pub nodes: Vec<Node>,
    pub impair: Option<Process>,
    pub dir: TempDir,
}

impl Chain {
    pub fn of(nodes: u32) -> Chain {
        Chain::start(&Setup { nodes, ..Setup::default() })
    }

    /// Starts a chain with sealed links, which accepts remote applications.
    pub fn sealed(nodes: u32) -> Chain {
        Chain::start(&Setup { nodes, sealed: true, ..Setup::default() })
    }

    pub fn start(setup: &Setup<'_>) -> Chain {
        let mut chain = Chain::prepare(setup);
        chain.nodes.iter_mut().for_each(Node::start);
        chain.wait_until_up();
        chain
    }

    /// Writes the files and starts only `impair`.
    pub fn prepare(setup: &Setup<'_>) -> Chain {
        let dir = temp_dir();
        let node = |id| Node { sealed: setup.sealed, ..Node::new(dir.path(), id, setup.ip) };
        let nodes: Vec<Node> = (1..=setup.nodes).map(node).collect();
        // Addresses to which the nodes of each link send: each other's, or those of `impair`.
        let mut ends = Vec::new();
        let mut text = "seed = 1\n".to_owned();
        for pair in nodes.windows(2) {
            let (left, right) = (pair[0].udp, pair[1].udp);
            let (a, b) = (free_port(setup.ip), free_port(setup.ip));
            let _ = write!(
                text,
                "[[link]]\na = {{ listen = \"{a}\", peer = \"{left}\" }}\n\
                 b = {{ listen = \"{b}\", peer = \"{right}\" }}\n{}\n",
                setup.impair
            );
            ends.push(if setup.impair.is_empty() { (right, left) } else { (a, b) });
        }
        for (node, i) in nodes.iter().zip(0..) {
            node.write(&links(i, &ends, setup));
        }
        let impair = (!setup.impair.is_empty()).then(|| {
            let file = dir.path().join("impair.toml");
            std::fs::write(&file, text).expect("written");
            let mut process =
                Process::start(trunkline(["impair", "--until-stdin-closes"]).arg(&file));
            process.wait_for_word("ready");
            process
        });
        Chain { nodes, impair, dir }
    }

    pub fn wait_until_up(&self) {
        for node in &self.nodes {
            wait_for("links to come up", || node.metrics().links_ready().then_some(()));
        }
    }

    pub fn first(&mut self) -> &mut Node {
        &mut self.nodes[0]
    }

    pub fn last(&mut self) -> &mut Node {
        self.nodes.last_mut().expect("a chain")
    }
}

/// Configures the links and routes of the node at `i`.
fn links(i: usize, ends: &[(SocketAddr, SocketAddr)], setup: &Setup<'_>) -> String {
    let mut text = String::new();
    let mut link = |neighbour: usize, address: SocketAddr, reaches: Vec<usize>| {
        let keys = setup.link.to_owned() + &keys::of_neighbour(neighbour, setup.sealed);
        let _ = write!(text, "[[link]]\nneighbour = {neighbour}\naddress = \"{address}\"\n{keys}");
        let _ = write!(text, "[[route]]\nto = {reaches:?}\nvia = {neighbour}\n");
    };
    if i > 0 {
        link(i, ends[i - 1].1, (1..=i).collect());
    }
    if i < ends.len() {
        link(i + 2, ends[i].0, (i + 2..=ends.len() + 1).collect());
    }
    text + setup.sections
}

/// Receives a packet and returns the number that it carries.
#[track_caller]
pub fn recv_number(socket: &DatagramSocket) -> (u32, Received) {
    match try_recv_number(socket) {
        Ok(got) => got,
        Err(error) => panic!("{error}"),
    }
}

pub fn try_recv_number(socket: &DatagramSocket) -> Result<(u32, Received), Error> {
    let mut buf = [0; 2_048];
    let got = socket.recv_from(&mut buf)?;
    assert_eq!(got.len, 160);
    Ok((u32::from_be_bytes(buf[..4].try_into().expect("four bytes")), got))
}

/// A packet of a call's size that carries the number `n`.
pub fn numbered(n: u32) -> [u8; 160] {
    let mut packet = [0x5a; 160];
    packet[..4].copy_from_slice(&n.to_be_bytes());
    packet
}

/// Sends packets `numbers`, one per `gap`, and returns the numbers that arrived. Ends when all have
/// arrived, or after a second of silence.
pub fn stream(
    from: &DatagramSocket,
    to: &DatagramSocket,
    numbers: std::ops::Range<u32>,
    gap: Duration,
) -> Vec<(u32, Received)> {
    let address = to.local_addr();
    let count = numbers.len();
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let start = Instant::now();
            for (n, k) in numbers.zip(0..) {
                thread::sleep((start + gap * k).saturating_duration_since(Instant::now()));
                from.send_to(&numbered(n), address).expect("sent");
            }
        });
        let mut got = Vec::with_capacity(count);
        to.set_option(SocketOption::ReadTimeout(Some(ms(1_000)))).expect("in range");
        while got.len() < count {
            match try_recv_number(to) {
                Ok(packet) => got.push(packet),
                Err(Error::WouldBlock) if sender.is_finished() => break,
                Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
        got
    })
}

/// Raises the limit of open files of this process and its children to `n`; false if the system
/// refuses.
pub fn allow_files(n: u64) -> bool {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("Linux");
    soft >= n || (hard >= n && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok())
}
