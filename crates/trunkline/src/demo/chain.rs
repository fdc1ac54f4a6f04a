//! The processes of a demo: nodes in three rows, and one that impairs their links. No process is
//! modified for the demo.

use super::keys::Operator;
use super::{Error, cannot};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trunkline_overlay::identity::PublicKey;

/// Parameters of the chain of nodes.
pub struct Setup {
    pub hops: u32,
    pub delay: Duration,
    pub loss: f64,
    pub burst: f64,
    pub seed: u64,
}

/// Rows of nodes that each differ from the first in one respect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// All settings at their defaults: nodes A, B, …
    Default,
    /// Recovery as in Amir et al. 2005, IV-A: nodes a, b, …
    Paper,
    /// A trunk between the two ends, in each direction: nodes tA, tB, …
    Trunk,
}

impl Row {
    pub const ALL: [Row; 3] = [Row::Default, Row::Paper, Row::Trunk];

    /// Name of the row's node at `index`.
    pub fn name(self, index: u32) -> String {
        match self {
            Row::Default => letter(index).to_string(),
            Row::Paper => letter(index).to_ascii_lowercase().to_string(),
            Row::Trunk => format!("t{}", letter(index)),
        }
    }
}

/// Letter that names the node at `index`: A, B, …
pub fn letter(index: u32) -> char {
    char::from(b'A' + index as u8)
}

/// Index of the node named `name`; a usage error if the chain has no such node.
pub fn index_of(name: char, hops: u32) -> Result<u32, Error> {
    (0..=hops).find(|&i| letter(i) == name.to_ascii_uppercase()).ok_or_else(|| {
        Error::Usage(format!("--restart {name}: the nodes are A to {}", letter(hops)))
    })
}

struct Node {
    config: PathBuf,
    socket: PathBuf,
    http: SocketAddr,
    process: Process,
}

/// A child process that exits when this process ends, however that happens: its standard input
/// closes.
struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rows of running nodes, and the impairment between them.
pub struct Chain {
    rows: [Vec<Node>; Row::ALL.len()],
    impair: Process,
    /// Address at which the UDP path begins, and the socket at its end.
    pub udp_entry: SocketAddr,
    pub udp_exit: Option<UdpSocket>,
    _dir: TempDir,
}

/// Index of the link that loses packets: the middle one, or the first of two middle ones.
pub fn lossy_link(hops: u32) -> u32 {
    (hops - 1) / 2
}

/// Listening addresses of a row's nodes, and the ends of its links at `impair`.
struct Addresses {
    listen: Vec<SocketAddr>,
    ends: Vec<(SocketAddr, SocketAddr)>,
}

impl Addresses {
    fn free(hops: u32, ports: &mut FreePorts) -> Result<Addresses, Error> {
        let listen = (0..=hops).map(|_| ports.udp()).collect::<Result<_, _>>()?;
        let ends = (0..hops).map(|_| Ok((ports.udp()?, ports.udp()?)));
        Ok(Addresses { listen, ends: ends.collect::<Result<_, Error>>()? })
    }
}

/// Sockets that reserve the ports found so far, so that none is found twice.
#[derive(Default)]
struct FreePorts(Vec<UdpSocket>);

impl FreePorts {
    fn udp(&mut self) -> Result<SocketAddr, Error> {
        let fail = "find a free UDP port";
        let socket = UdpSocket::bind((home(), 0)).map_err(cannot(fail))?;
        let address = socket.local_addr().map_err(cannot(fail))?;
        self.0.push(socket);
        Ok(address)
    }
}

/// Name of the row's link at `index`.
pub fn link_name(row: Row, index: u32) -> String {
    format!("{}-{}", row.name(index), row.name(index + 1))
}

/// A loopback address that no other demo uses at the same time. Free ports are found by probing,
/// and two demos at one address could find the same.
pub fn home() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, 1)
}

fn free_tcp() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind((home(), 0));
    listener.and_then(|s| s.local_addr()).map_err(cannot("find a free TCP port"))
}

impl Chain {
    /// Starts all processes and waits until every link is up and both ends' trunks are open.
    pub fn start(setup: &Setup) -> Result<Chain, Error> {
        let dir = tempfile::Builder::new()
            .prefix("trunkline-demo-")
            .tempdir()
            .map_err(cannot("make a temporary folder"))?;
        let mut ports = FreePorts::default();
        let rows = Row::ALL.iter().map(|_| Addresses::free(setup.hops, &mut ports));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let udp_exit =
            UdpSocket::bind((home(), 0)).map_err(cannot("bind the listener of the UDP calls"))?;
        let udp = (ports.udp()?, ports.udp()?);
        drop(ports);
        let exit = udp_exit.local_addr().map_err(cannot("look at a socket"))?;

        let config = dir.path().join("impair.toml");
        let text = impair_config(setup, &rows, udp, exit);
        std::fs::write(&config, text).map_err(cannot("write a configuration"))?;
        // Run punctually if permitted: lateness adds to every delay.
        let arguments = ["--punctual", "--until-stdin-closes"];
        let mut impair = spawn(&[&["impair", &config.to_string_lossy()], &arguments[..]].concat())?;
        wait_for_line(&mut impair, "ready")?;

        let operator = Operator::new()?;
        let mut chain = Chain {
            rows: Row::ALL.map(|_| Vec::new()),
            impair,
            udp_entry: udp.0,
            udp_exit: Some(udp_exit),
            _dir: dir,
        };
        for (row, addresses) in Row::ALL.into_iter().zip(&rows) {
            for i in 0..=setup.hops {
                let http = free_tcp()?;
                let file = |kind| chain._dir.path().join(format!("{row:?}-{}.{kind}", letter(i)));
                let (socket, config) = (file("sock"), file("toml"));
                let (key, cert) = (file("key"), file("cert"));
                operator.admit(i + 1, &row.name(i), &key, &cert)?;
                let files = Files { key, cert, overlay: operator.public(), socket: &socket };
                let write = |dials_next| {
                    let text = node_config(row, i, setup, addresses, &files, http, dials_next);
                    std::fs::write(&config, text).map_err(cannot("write a configuration"))
                };
                // The next node is not running yet, and packets sent to it now would be missing in
                // the ledger. A node that restarts need not wait.
                write(false)?;
                let process = start_node(&config)?;
                write(true)?;
                chain.rows[row as usize].push(Node { config, socket, http, process });
            }
        }
        chain.wait_until_up()?;
        Ok(chain)
    }

    fn wait_until_up(&self) -> Result<(), Error> {
        let patience = Instant::now() + Duration::from_secs(10);
        let of_row = |row: Row| self.rows[row as usize].iter().zip((0..).map(move |i| row.name(i)));
        for (node, name) in Row::ALL.into_iter().flat_map(of_row) {
            while !node.metrics().is_ok_and(|m| m.links_up() && m.trunks_open()) {
                if Instant::now() > patience {
                    let what = format!("node {name}'s links or trunk did not come up in 10 s");
                    return Err(Error::Process(what));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Waits until the nodes have read everything that `impair` has sent.
    fn wait_until_read(&self) -> Result<(), Error> {
        let mut last = -1.0;
        for _ in 0..50 {
            let mut sum = 0.0;
            for node in self.rows.iter().flatten() {
                let m = node.metrics()?;
                sum += m.sum_where("trunkline_link_received_envelopes_total", &[]);
            }
            if sum == last {
                break;
            }
            last = sum;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sockets at which applications attach to a row's first and last node, and the last node's ID.
    pub fn ends(&self, row: Row) -> (&PathBuf, &PathBuf, u32) {
        let nodes = &self.rows[row as usize];
        (&nodes[0].socket, &nodes[nodes.len() - 1].socket, nodes.len() as u32)
    }

    /// Kills node `index` of each row, as a crash would.
    pub fn kill(&mut self, index: u32) -> Result<(), Error> {
        for nodes in &mut self.rows {
            let process = &mut nodes[index as usize].process;
            process.child.kill().map_err(cannot("kill a node"))?;
            process.child.wait().map_err(cannot("wait for a node"))?;
        }
        Ok(())
    }

    /// Restarts node `index` of each row.
    pub fn revive(&mut self, index: u32) -> Result<(), Error> {
        for nodes in &mut self.rows {
            let node = &mut nodes[index as usize];
            node.process = start_node(&node.config)?;
        }
        Ok(())
    }

    /// Stops the impairment, so that every count is final, then reads each node's metrics and stops
    /// it.
    pub fn finish(mut self) -> Result<Ledger, Error> {
        self.impair.stdin.take();
        let mut text = String::new();
        let mut stdout = self.impair.child.stdout.take();
        if let Some(out) = &mut stdout {
            out.read_to_string(&mut text).map_err(cannot("read impair's ledger"))?;
        }
        let links: serde_json::Value = serde_json::from_str(&text)
            .map_err(|e| Error::Process(format!("impair's ledger is no JSON: {e}")))?;
        self.wait_until_read()?;
        let metrics = |nodes: &Vec<Node>| nodes.iter().map(Node::metrics).collect();
        let rows = self.rows.iter().map(metrics).collect::<Result<_, Error>>()?;
        Ok(Ledger { impair: links, rows })
    }
}

/// Counts of `impair` and of the nodes.
pub struct Ledger {
    /// JSON output of `impair`.
    pub impair: serde_json::Value,
    /// Each node's metrics, by row.
    pub rows: Vec<Vec<Metrics>>,
}

/// Metrics of a node by name and labels, as in `name{a="b"}`.
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Parses trunkline's metrics from Prometheus text.
    pub fn parse(text: &str) -> Metrics {
        let series = text.lines().filter(|l| l.starts_with("trunkline_"));
        let parsed = series.filter_map(|l| {
            let (name, value) = l.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Metrics(parsed.collect())
    }

    /// Sums all series of metric `name` that have every one of `parts` in their labels.
    pub fn sum_where(&self, name: &str, parts: &[&str]) -> f64 {
        let of_name = |series: &str| series.split('{').next() == Some(name);
        let fits = |series: &str| of_name(series) && parts.iter().all(|p| series.contains(p));
        self.0.iter().filter(|(s, _)| fits(s)).map(|(_, v)| v).sum()
    }

    /// Whether each trunk's question has been answered. On lossy links that takes a second or two;
    /// until then packets leave one by one, as if there were no trunk.
    fn trunks_open(&self) -> bool {
        let mut trunks = self.0.iter().filter(|(s, _)| s.starts_with("trunkline_trunk_open"));
        trunks.all(|(_, v)| *v == 1.0)
    }

    fn links_up(&self) -> bool {
        let up: Vec<_> =
            self.0.iter().filter(|(s, _)| s.starts_with("trunkline_link_up")).collect();
        let measured = self.0.keys().filter(|s| s.starts_with("trunkline_link_rtt")).count();
        !up.is_empty() && up.iter().all(|(_, v)| **v == 1.0) && measured == up.len()
    }
}

impl Node {
    fn metrics(&self) -> Result<Metrics, Error> {
        let fetch = || {
            let mut stream = TcpStream::connect_timeout(&self.http, Duration::from_secs(1))?;
            stream.set_read_timeout(Some(Duration::from_secs(3)))?;
            write!(stream, "GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.http)?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = fetch().map_err(cannot(format!("read metrics from {}", self.http)))?;
        Ok(Metrics::parse(&text))
    }
}

fn spawn(args: &[&str]) -> Result<Process, Error> {
    let own = std::env::current_exe().map_err(cannot("find this program"))?;
    let mut child = Command::new(own)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot(format!("start `trunkline {}`", args[0])))?;
    let stdin = child.stdin.take();
    Ok(Process { child, stdin })
}

fn start_node(config: &std::path::Path) -> Result<Process, Error> {
    let mut node = spawn(&["node", "--until-stdin-closes", "--config", &config.to_string_lossy()])?;
    wait_for_line(&mut node, "ready")?;
    Ok(node)
}

/// Reads the process's standard error up to the line that contains `word`, then forwards warnings
/// to our standard error.
fn wait_for_line(process: &mut Process, word: &str) -> Result<(), Error> {
    let Some(stderr) = process.child.stderr.take() else { return Ok(()) };
    let mut lines = BufReader::new(stderr).lines();
    let mut said = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        if line.contains(word) {
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    if line.contains("WARN") || line.contains("ERROR") {
                        errln!("{line}");
                    }
                }
            });
            return Ok(());
        }
        // The error for a mistake in a file spans a few lines.
        if said.len() + line.len() < 4_096 {
            said = [said, line].join("\n");
        }
    }
    Err(Error::Process(format!("a process of the demo ended at once: {}", said.trim_start())))
}

fn impair_config(
    setup: &Setup,
    rows: &[Addresses],
    udp: (SocketAddr, SocketAddr),
    exit: SocketAddr,
) -> String {
    let mut text = format!("seed = {}\n", setup.seed);
    let middle = lossy_link(setup.hops);
    let nanos = setup.delay.as_nanos();
    // The lossy links and the UDP path see the same loss process: one stream.
    let loss = format!("loss = {}\nburst = {}\nstream = 0\n", setup.loss, setup.burst);
    for (row, Addresses { listen, ends }) in Row::ALL.into_iter().zip(rows) {
        for (&(a, b), i) in ends.iter().zip(0..) {
            let (peer_a, peer_b) = (listen[i as usize], listen[i as usize + 1]);
            let _ = write!(
                text,
                "[[link]]\nname = \"{}\"\ndelay = \"{nanos}ns\"\n\
                 a = {{ listen = \"{a}\", peer = \"{peer_a}\" }}\n\
                 b = {{ listen = \"{b}\", peer = \"{peer_b}\" }}\n{}",
                link_name(row, i),
                if i == middle { loss.as_str() } else { "" }
            );
        }
    }
    let nanos = nanos * u128::from(setup.hops);
    let _ = write!(
        text,
        "[[link]]\nname = \"udp\"\ndelay = \"{nanos}ns\"\na = {{ listen = \"{}\" }}\n\
         b = {{ listen = \"{}\", peer = \"{exit}\" }}\n{loss}",
        udp.0, udp.1
    );
    text
}

/// Files that a node's configuration names.
struct Files<'a> {
    key: PathBuf,
    cert: PathBuf,
    overlay: PublicKey,
    socket: &'a Path,
}

fn node_config(
    row: Row,
    i: u32,
    setup: &Setup,
    Addresses { listen, ends }: &Addresses,
    files: &Files<'_>,
    http: SocketAddr,
    dials_next: bool,
) -> String {
    let mut text = format!(
        "[node]\nid = {}\nname = \"{}\"\nkey = {:?}\ncertificate = {:?}\nlisten = [\"{}\"]\n\
         socket = {:?}\nhttp = \"{http}\"\n[overlay]\nkeys = [\"{}\"]\n",
        i + 1,
        row.name(i),
        files.key.to_string_lossy(),
        files.cert.to_string_lossy(),
        listen[i as usize],
        files.socket.to_string_lossy(),
        files.overlay,
    );
    let (nodes, delay) = (setup.hops + 1, setup.delay);
    let mut link = |neighbour: u32, address: Option<SocketAddr>, reaches: Vec<u32>| {
        let id = neighbour + 1;
        let _ = writeln!(text, "[[link]]\nneighbour = {id}");
        if let Some(address) = address {
            let _ = writeln!(text, "address = \"{address}\"");
        }
        for to in reaches {
            let onward = delay.as_nanos() * u128::from(to.abs_diff(id));
            let _ = write!(text, "[[route]]\nto = [{to}]\nvia = {id}\nonward = \"{onward}ns\"\n");
        }
    };
    if i > 0 {
        link(i - 1, Some(ends[i as usize - 1].1), (1..=i).collect());
    }
    if i + 1 < nodes {
        let address = dials_next.then_some(ends[i as usize].0);
        link(i + 1, address, (i + 2..=nodes).collect());
    }
    match row {
        Row::Default => {}
        Row::Paper => text += "[realtime]\nrecovery = \"once\"\nretransmit_ratio = \"25%\"\n",
        Row::Trunk if i == 0 => text += &format!("[[trunk]]\nto = {nodes}\n"),
        Row::Trunk if i + 1 == nodes => text += "[[trunk]]\nto = 1\n",
        Row::Trunk => {}
    }
    text
}
