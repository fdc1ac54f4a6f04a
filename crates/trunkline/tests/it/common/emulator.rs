//! Runs `trunkline impair --hosts`, and programs in its hosts.

use super::{ms, wait_for};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;

/// A running emulator, which is killed if the test fails.
pub struct Emulator {
    pub child: Child,
    pub stderr: BufReader<ChildStderr>,
    pub hosts: Vec<Host>,
}

/// A host, as the emulator announces it.
pub struct Host {
    /// The file of its network namespace.
    pub net: PathBuf,
    /// The options for `nsenter`.
    pub enter: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

/// The path of the program that is tested.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_trunkline");

/// Whether the user is root. If not, prints that the test is skipped.
pub fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("skipped: a test can't enter the namespaces of another's user namespace");
    }
    is_root
}

/// Prints that a test is skipped and why. In CI this is a failure.
pub fn skip(why: &str) {
    assert!(["namespace", "iproute2"].iter().any(|word| why.contains(word)), "{why}");
    assert!(std::env::var_os("CI").is_none(), "in CI nothing may be missing: {why}");
    println!("skipped: {why}");
}

impl Emulator {
    /// Starts an emulator from a file with this text. Returns `None` where hosts cannot be created,
    /// and prints that.
    pub fn start(dir: &Path, text: &str, more: &[&str]) -> Option<Emulator> {
        if !is_root() {
            return None;
        }
        let file = dir.join("net.toml");
        fs::write(&file, text).expect("written");
        let mut command = Command::new(PROGRAM);
        command.args(["impair", "--hosts"]).arg(file).args(more);
        let started = Emulator::run(&mut command);
        started.map_err(|why| skip(&why)).ok()
    }

    /// Runs a command until it is ready. Fails with its output if hosts cannot be created.
    pub fn run(command: &mut Command) -> Result<Emulator, String> {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("it starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut emulator = Emulator { child, stderr, hosts: Vec::new() };
        loop {
            let line = emulator.line();
            assert_ne!(line, "", "it ended at once");
            if line.contains("impair: ready") {
                return Ok(emulator);
            }
            let Some((_, host)) = line.split_once(": nsenter ") else { return Err(line) };
            let words: Vec<&str> = host.split_whitespace().collect();
            let net = words.iter().find_map(|word| word.strip_prefix("--net=")).expect(&line);
            let addresses = words.iter().filter_map(|word| word.parse().ok()).collect();
            let enter = words.iter().take_while(|word| word.starts_with("--"));
            let enter = enter.map(|word| (*word).to_owned()).collect();
            emulator.hosts.push(Host { net: net.into(), enter, addresses });
        }
    }

    /// Runs `work` on a thread inside a host.
    pub fn within<T: Send + 'static>(
        &self,
        host: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let net = File::open(&self.hosts[host].net).expect("a namespace");
        thread::spawn(move || {
            setns(&net, CloneFlags::CLONE_NEWNET).expect("entered");
            work()
        })
    }

    /// Command that runs inside a host, entered with the announced options.
    pub fn enter(&self, host: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.args(&self.hosts[host].enter);
        command
    }

    /// Runs `ip` inside a host.
    pub fn ip(&self, host: usize, arguments: &str) {
        let done = self.enter(host).arg("ip").args(arguments.split(' ')).status();
        assert!(done.expect("it runs").success(), "{arguments}");
    }

    /// Reads the next line of its standard error.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("text");
        line
    }

    /// Number of packets that it has read from this host's device so far.
    pub fn read_from(&self, host: usize) -> u64 {
        let count = || {
            let text = fs::read_to_string("/proc/thread-self/net/dev").expect("read");
            let counts = text.lines().find_map(|line| line.trim().strip_prefix("tl0:"));
            // The eight receive counters of the host precede its transmitted bytes and packets.
            let sent = counts.and_then(|c| c.split_whitespace().nth(9)?.parse().ok());
            sent.expect("a count")
        };
        self.within(host, count).join().expect("it ends")
    }

    /// Makes it read its file again; fails unless `directions` directions change.
    pub fn reread(&mut self, directions: usize) {
        self.signal(Signal::SIGHUP);
        let s = if directions == 1 { "" } else { "s" };
        assert_eq!(self.line(), format!("impair: {directions} direction{s} changed\n"));
    }

    /// Processor time that it has used so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let after_name = stat.rsplit(") ").next().expect("a state");
        let ticks = after_name.split(' ').skip(11).take(2);
        // Linux counts in hundredths of a second on all platforms.
        ticks.map(|n| n.parse::<f64>().expect("a number") / 100.0).sum()
    }

    pub fn at(&self, host: usize, port: u16) -> [SocketAddr; 2] {
        let addresses = &self.hosts[host].addresses;
        [addresses[0], addresses[1]].map(|ip| SocketAddr::new(ip, port))
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("it runs");
    }

    /// Stops the emulator and returns its ledger.
    pub fn stop(mut self) -> Value {
        self.signal(Signal::SIGTERM);
        let mut out = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        assert!(self.child.wait().expect("it ends").success());
        serde_json::from_str(&out).expect("JSON")
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two hosts, and a narrow edge between two routers.
pub const TEXT: &str = "\
seed = 3
host = [{ name = \"a\", tcp = \"reno\" }, { name = \"b\", tcp = \"reno\" }]
router = [{ name = \"r\" }, { name = \"s\" }]
edge = [
  { between = [\"a\", \"r\"], mtu = 1500 },
  { name = \"narrow\", between = [\"r\", \"s\"], rate = \"10 Mbit/s\", delay = \"5ms\", queue = \"100 packets\" },
  { between = [\"s\", \"b\"], mtu = 1400 },
]
";

/// Fails unless docs/impair.md documents each key of a ledger.
pub fn assert_documented(ledger: &Value) {
    const DOCS: &str = include_str!("../../../../../docs/impair.md");
    match ledger {
        Value::Object(keys) => keys.iter().for_each(|(key, value)| {
            // Settings are named by the kernel.
            assert!(key.starts_with("net.") || DOCS.contains(&format!("`{key}`")), "{key}");
            assert_documented(value);
        }),
        Value::Array(values) => values.iter().for_each(assert_documented),
        _ => {}
    }
}

/// The packets of a count in a ledger.
pub fn packets(value: &Value) -> u64 {
    value["packets"].as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// A network of three hosts at one router.
pub const THREE: &str = "\
host = [{ name = \"a\" }, { name = \"b\" }, { name = \"c\" }]
router = [{ name = \"r\" }]
edge = [{ between = [\"a\", \"r\"] }, { between = [\"b\", \"r\"] }, { between = [\"c\", \"r\"] }]
";

/// Sends datagrams from `from` until one arrives at `to`; fails after a timeout.
pub fn reach(emulator: &Emulator, from: usize, to: usize) {
    wait_for("a datagram", || is_reached(emulator, from, to).then_some(()));
}

/// Whether a single datagram from `from` arrives at `to` soon, for datagrams that must not arrive.
/// On a busy machine others may be late, see [`reach`].
pub fn is_reached(emulator: &Emulator, from: usize, to: usize) -> bool {
    let at = emulator.at(to, 5_000)[0];
    let socket = emulator.within(to, move || {
        // The host may have lost its own address.
        let socket = UdpSocket::bind(("0.0.0.0", at.port())).expect("bound");
        socket.set_read_timeout(Some(ms(500))).expect("set");
        socket
    });
    let socket = socket.join().expect("it listens");
    let send = move || UdpSocket::bind("0.0.0.0:0").and_then(|from| from.send_to(b"well?", at));
    emulator.within(from, send).join().expect("it ends").is_ok() && socket.recv(&mut [0; 9]).is_ok()
}

/// Number of processes in this network namespace.
pub fn inhabitants(namespace: &Path) -> usize {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|p| fs::read_link(p.path().join("ns/net")).is_ok_and(|net| net == namespace)).count()
}

/// Value of the counter `name` in this thread's namespace, named as in netstat(8): `Icmp:
/// InTimeExcds`.
pub fn counted(name: &str) -> u64 {
    let read = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("read");
    let Some((protocol, key)) = name.split_once(' ') else {
        let snmp6 = read("snmp6");
        let line = snmp6.lines().find(|line| line.split_whitespace().next() == Some(name));
        return line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).expect(name);
    };
    let snmp = read("snmp");
    let mut lines = snmp.lines().filter(|line| line.starts_with(protocol));
    let [keys, values] = [(); 2].map(|()| lines.next().expect(name).split_whitespace());
    let value = keys.zip(values).find_map(|(k, value)| (k == key).then_some(value));
    value.and_then(|value| value.parse().ok()).expect(name)
}
