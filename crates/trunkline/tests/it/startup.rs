//! First experiences of a user: mistakes, ports in use, help.

use crate::common::on_time::on_time;
use crate::common::{self, Node, Process, free_port, ms, run, temp_dir, trunkline, wait_for};
use macro_rules_attribute::apply;
use nix::sys::signal::Signal;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use tempfile::TempDir;
use trunkline_client::DatagramSocket;

const IP: std::net::IpAddr = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);

fn single() -> (TempDir, Node) {
    let dir = temp_dir();
    let node = Node::new(dir.path(), 1, IP);
    node.write("");
    (dir, node)
}

/// A single node with keys, so that remote applications can attach.
fn single_sealed() -> (TempDir, Node) {
    let dir = temp_dir();
    let node = Node { sealed: true, ..Node::new(dir.path(), 1, IP) };
    node.write("");
    (dir, node)
}

/// Binds a port that was found to be free. A process started by another test holds the probing
/// socket until it has executed its program.
fn hold<T>(bind: impl Fn() -> std::io::Result<T>) -> T {
    wait_for("a port that is free", || bind().ok())
}

/// A link that can't leave from the start is logged once, with what can be done.
#[test]
fn an_error_of_the_kernel_is_logged_with_a_remedy() {
    let dir = temp_dir();
    let node = Node { sealed: true, ..Node::new(dir.path(), 1, IP) };
    let (to, key) = (free_port(IP), common::keys::of_neighbour(2, true));
    node.write(&format!(
        "[[link]]\nneighbour = 2\npath = \"lte\"\naddress = \"{to}\"\ninterface = \"nosuch0\"\n{key}"
    ));
    let mut process = Process::start(&mut node.command());
    process.wait_for_word("the kernel refuses to send packets");
    let said = process.stderr();
    let line = said.lines().find(|line| line.contains("refuses to send")).expect("a line");
    for part in ["neighbour=2", "path=\"lte\"", "error=ENODEV", "see `ip link`"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn a_busy_udp_port_is_named() {
    let (_dir, node) = single();
    let _busy = hold(|| UdpSocket::bind(node.udp));
    let ended = run(&mut node.command());
    let line = ended.one_line(1);
    assert!(line.contains(&format!("cannot listen on UDP {}", node.udp)), "{line}");
    assert!(!node.socket.exists());
}

#[test]
fn a_busy_http_port_is_named_and_nothing_stays() {
    let (_dir, node) = single();
    let _busy = hold(|| TcpListener::bind(node.http));
    let ended = run(&mut node.command());
    assert_eq!(ended.code, Some(1));
    let line = ended.stderr.lines().last().expect("a line");
    assert!(line.contains(&format!("cannot serve metrics on {}", node.http)), "{line}");
    assert!(!node.socket.exists(), "{} is left behind", node.socket.display());
    ended.one_line(1);
}

#[apply(on_time)]
fn a_socket_is_taken_over_only_from_the_dead() {
    let (dir, mut node) = single();
    node.start();
    let client = node.bind(4_000);
    let mut other = Node::new(dir.path(), 2, IP);
    other.socket.clone_from(&node.socket);
    other.write("");
    let ended = run(&mut other.command());
    let line = ended.one_line(1);
    assert!(line.contains("cannot listen for applications at"), "{line}");
    assert!(line.contains(node.socket.to_str().expect("text")), "{line}");
    client.send_to(b"still there", client.local_addr()).expect("sent");
    let mut buf = [0; 100];
    assert_eq!(client.recv_from(&mut buf).expect("an echo").len, 11);

    node.crash();
    assert!(node.socket.exists(), "a crash leaves it");
    other.start();
    DatagramSocket::bind(node.socket.as_path(), 4_000).expect("the new node answers");
}

#[apply(on_time)]
fn a_file_in_the_place_of_the_socket_is_not_touched() {
    let (_dir, node) = single();
    std::fs::write(&node.socket, "precious").expect("written");
    let mut process = Process::start(&mut node.command());
    let ended = (0..100).any(|_| {
        thread::sleep(ms(20));
        !process.is_running()
    });
    let text = std::fs::read_to_string(&node.socket);
    assert_eq!(text.ok().as_deref(), Some("precious"));
    assert!(ended && process.wait().code() == Some(1));
}

#[apply(on_time)]
fn a_node_that_stops_removes_its_own_sockets_and_nothing_else() {
    let (dir, mut node) = single();
    let control = dir.path().join("ctl");
    node.write(&format!("control = {:?}", control.to_str().expect("text")));
    let mut stop = |instead: &dyn Fn(&Path)| {
        node.start();
        let sockets = [&node.socket, &control].map(|path| {
            assert!(path.exists(), "{}", path.display());
            instead(path);
            path.clone()
        });
        node.process().signal(Signal::SIGTERM);
        assert_eq!(node.process().wait().code(), Some(0));
        sockets
    };
    for path in stop(&|_| {}) {
        assert!(!path.exists(), "{} is left behind", path.display());
    }
    let precious = |path: &Path| {
        std::fs::remove_file(path).expect("it was there");
        std::fs::write(path, "precious").expect("written");
    };
    for path in stop(&precious) {
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), Some("precious"));
        std::fs::remove_file(&path).expect("it is there");
    }
    // The file now belongs to another node, and may even have the same inode number.
    let successor = |path: &Path| {
        std::fs::remove_file(path).expect("it was there");
        std::os::unix::net::UnixListener::bind(path).expect("free");
    };
    for path in stop(&successor) {
        assert!(path.exists(), "{} was its successor's", path.display());
    }
}

#[test]
fn a_socket_in_no_folder_is_named() {
    let (dir, mut node) = single();
    node.socket = dir.path().join("absent").join("1.sock");
    node.write("");
    let ended = run(&mut node.command());
    let line = ended.one_line(1);
    assert!(line.contains("absent/1.sock"), "{line}");
}

#[test]
fn a_taken_address_for_remote_applications_is_named() {
    let (_dir, node) = single_sealed();
    let tcp = hold(|| TcpListener::bind(node.remote));
    let ended = run(&mut node.command());
    let line = ended.one_line(1);
    assert!(line.contains(&format!("TCP and UDP {}", node.remote)), "{line}");
    assert!(line.contains("change `remote` in [node]"), "{line}");
    drop(tcp);
    let _udp = hold(|| UdpSocket::bind(node.remote));
    assert!(run(&mut node.command()).one_line(1).contains("change `remote` in [node]"));
}

#[test]
fn a_mistake_in_the_file_has_a_place_and_a_suggestion() {
    let (_dir, node) = single();
    node.write("[[link]]\nneighbor = 2\n");
    let config = node.config.to_str().expect("text");
    let mut check = trunkline(["check", config]);
    for command in [&mut node.command(), &mut check] {
        let ended = run(command);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
        let lines: Vec<_> = ended.stderr.lines().collect();
        let (first, excerpt) = lines.split_first().expect("lines");
        assert!(first.starts_with(&format!("trunkline: {config}:8:1: unknown field `neighbor`")));
        assert!(first.contains("did you mean `neighbour`?"), "{first}");
        assert_eq!(excerpt, ["  8 | neighbor = 2", "      ^"]);
    }
    assert!(!node.socket.exists());
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (dir, node) = single();
    let absent = dir.path().join("absent.toml");
    let path = |p: &Path| p.to_str().expect("text").to_owned();
    for command in [["node", "--config", &path(&absent)].as_slice(), &["check", &path(&absent)]] {
        let ended = run(&mut trunkline(command));
        let line = ended.one_line(2);
        assert!(line.contains("absent.toml: cannot be read: No such file"), "{line}");
    }
    for command in ["pubkey", "certificate", "replay", "impair"] {
        let ended = run(&mut trunkline([command, &path(&absent)]));
        assert!(ended.one_line(2).contains("cannot read "), "{command}: {}", ended.stderr);
    }
    std::fs::write(&node.config, [0xff, 0xfe, 0]).expect("written");
    let ended = run(&mut trunkline(["check", &path(&node.config)]));
    assert!(ended.one_line(2).contains("cannot be read"), "{}", ended.stderr);
    // A combination that is invalid only as a whole.
    node.write("[[link]]\nneighbour = 2\n[[link]]\nneighbour = 2\n");
    let ended = run(&mut trunkline(["check", &path(&node.config)]));
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains(":9:1: two links to neighbour 2"), "{}", ended.stderr);
}

#[apply(on_time)]
fn a_good_file_is_told_so() {
    let (_dir, node) = single();
    node.write("[[link]]\nneighbour = 2\n");
    let ended = run(trunkline(["check"]).arg(&node.config));
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(0), 1), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("trunkline: warning: this node is UNSEALED"));
    assert!(ended.stdout.contains("node 1 is node 1, UNSEALED, with 1 link"), "{}", ended.stdout);
    assert!(!node.socket.exists(), "check starts nothing");
}

#[apply(on_time)]
fn a_script_learns_what_check_found() {
    let (dir, mut node) = single();
    let check = |node: &Node, code| {
        let ended = run(trunkline(["check", "--json"]).arg(&node.config));
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        serde_json::from_str::<serde_json::Value>(&ended.stdout).expect("JSON")
    };
    node.write("[[link]]\nneighbour = 2\n");
    let said = check(&node, 0);
    assert_eq!((&said["ok"], &said["node"], &said["links"]), (&true.into(), &1.into(), &1.into()));
    assert!(said["mistake"].is_null() && said["sealed"] == false, "{said}");
    let warnings = |said: &serde_json::Value| -> Vec<String> {
        let list = said["warnings"].as_array().expect("a list").iter();
        list.map(|w| w.as_str().expect("text").to_owned()).collect()
    };
    let [unsealed] = &warnings(&said)[..] else { panic!("{said}") };
    assert!(unsealed.contains("UNSEALED"), "{said}");
    node.write("[runtime]\ncpu = 1023\n");
    let [_, cpu] = &warnings(&check(&node, 0))[..] else { panic!("no warning of the processor") };
    assert!(cpu.contains("[runtime] cpu is 1023, and this machine's processors are 0 to"), "{cpu}");
    node.write("[[link]]\nneighbor = 2\n");
    let said = check(&node, 2);
    let mistake = &said["mistake"];
    assert_eq!((&said["ok"], &mistake["line"]), (&false.into(), &8.into()), "{said}");
    assert_eq!(mistake["suggestion"], "neighbour", "{said}");
    // The file alone cannot show whether this machine has the folder.
    node.socket = dir.path().join("absent/1.sock");
    node.write("");
    let said = check(&node, 2);
    let what = said["mistake"]["what"].as_str().expect("text");
    assert!(what.contains("[node] socket is in a folder that does not exist"), "{said}");
    let text = std::fs::read_to_string(&node.config).expect("written");
    let line = text.lines().position(|line| line.starts_with("socket")).expect("a line");
    assert_eq!(said["mistake"]["line"], line + 1, "{said}");
}

#[apply(on_time)]
fn a_node_without_descriptors_stays_calm() {
    let (_dir, mut node) = single();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -n 48 && exec \"$0\" node --until-stdin-closes --config \"$1\""]);
    shell.arg(env!("CARGO_BIN_EXE_trunkline")).arg(&node.config);
    let mut process = Process::start(&mut shell);
    process.wait_for_word("ready");
    node.process = Some(process);
    let first = node.bind(0);
    let _crowd: Vec<_> = (0..80)
        .map(|_| {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
            socket.connect(&SockAddr::unix(&node.socket).expect("short")).expect("connected");
            socket
        })
        .collect();
    let before = node.cpu_time();
    thread::sleep(ms(1_500));
    let (busy, lines) = (node.cpu_time() - before, node.process().stderr().lines().count());
    assert!(lines < 200, "{lines} lines in 1.5 s");
    assert!(busy < ms(500), "busy for {busy:?} of 1.5 s");
    // The first node is still served.
    first.send_to(b"echo", first.local_addr()).expect("sent");
    assert_eq!(first.recv_from(&mut [0; 100]).expect("an echo").len, 4);
    drop(_crowd);
    wait_for("room", || DatagramSocket::bind(node.socket.as_path(), 0).ok());
}

#[apply(on_time)]
fn help_lists_the_commands_in_groups() {
    let help = |args: &[&str]| {
        let ended = run(&mut trunkline(args));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
        ended.stdout
    };
    let (short, all) = (help(&["--help"]), help(&["--help", "--all"]));
    assert!(short.contains("\nInspect:\n  status ") && !short.contains("Tools:"), "{short}");
    assert!(short.contains("trunkline --help --all"), "{short}");
    assert!(all.contains("\nInspect:\n  status ") && all.contains("\nTools:\n"), "{all}");
    assert_eq!((help(&["help"]), help(&["help", "--all"])), (short, all));
    assert!(help(&["help", "bench"]).contains("Example"));
}

#[test]
fn shells_and_manuals_are_served() {
    let bash = run(&mut trunkline(["completions", "bash"]));
    assert_eq!(bash.code, Some(0));
    for word in ["complete -F _trunkline", "--until-stdin-closes", "replay"] {
        assert!(bash.stdout.contains(word), "{word}");
    }
    let man = run(&mut trunkline(["man"]));
    assert_eq!(man.code, Some(0));
    assert!(man.stdout.contains(".TH trunkline 1"), "{}", man.stdout);
    for call in [&["man", "call", "send"][..], &["man", "call send"]] {
        let send = run(&mut trunkline(call));
        assert!(send.code == Some(0) && send.stdout.contains("duration"), "{}", send.stderr);
    }
    let node = run(&mut trunkline(["man", "node"]));
    assert!(node.code == Some(0) && node.stdout.contains("record"), "{}", node.stdout);
}

#[test]
fn a_manual_that_is_not_is_the_users_mistake() {
    for names in [&["man", "nosuch"][..], &["man", "call", "nosuch"]] {
        let ended = run(&mut trunkline(names));
        assert!(ended.one_line(2).contains("nosuch"), "{}", ended.stderr);
    }
}

#[apply(on_time)]
fn metrics_and_health_are_served_to_many() {
    let (_dir, mut node) = single();
    node.start();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| drop(node.metrics())));
        }
    });
    node.assert_healthy();
    let (status, _) = common::get(node.http, "/nothing").expect("an answer");
    assert!(status.ends_with("404 Not Found"), "{status}");
    // The node has a separate port, which is known to be free.
    assert_ne!(node.http, free_port(IP));
}

/// Follows the rules of `promtool check metrics` unless OpenMetrics is requested.
#[apply(on_time)]
fn metrics_are_named_as_the_format_has_it_that_was_asked_for() {
    let (_dir, mut node) = single();
    node.start();
    let page = |accept: &str| {
        let mut stream = std::net::TcpStream::connect(node.http).expect("it listens");
        let ask = format!("GET /metrics HTTP/1.0\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(ask.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let open = page(prometheus);
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.contains("# TYPE trunkline_forwarded counter\n") && open.ends_with("# EOF\n"));
    let text = page("*/*");
    assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
    assert!(!text.contains("# EOF"));
    let told = |what: &str, name: &str| {
        let start = format!("# {what} {name} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default()
    };
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    let values: Vec<_> = body.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(values.len() > 50, "{text}");
    for line in values {
        let name = line.split(['{', ' ']).next().expect("a name");
        assert!(told("HELP", name).len() > 5, "{name} has no help text");
        let kind = told("TYPE", name);
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}: {kind}");
        let bucket = name.ends_with("_bucket") || line.contains("le=\"");
        assert_eq!(kind == "untyped", bucket, "{line}: {kind}");
    }
}

/// More clients than there are slots, each sending a byte of a header now and then.
#[apply(on_time)]
fn those_who_dribble_keep_no_scraper_out() {
    let (_dir, mut node) = single();
    node.start();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = std::net::TcpStream::connect(node.http) else { continue };
                    let mut go_on = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").is_ok();
                    while go_on && !over.load(Ordering::Relaxed) {
                        thread::sleep(ms(100));
                        go_on = stream.write_all(b"x").is_ok();
                    }
                }
            });
        }
        thread::sleep(ms(500));
        let slowest = (0..20).map(|n| {
            let begun = Instant::now();
            let path = ["/metrics", "/healthz"][n % 2];
            let answer = common::get(node.http, path);
            let served = answer.is_ok_and(|(status, _)| status.ends_with("200 OK"));
            (!served || begun.elapsed() > ms(2_000), begun.elapsed())
        });
        let slowest = slowest.max();
        over.store(true, Ordering::Relaxed);
        assert!(slowest.is_some_and(|(bad, _)| !bad), "{slowest:?}");
        println!("the slowest answer took {:?}", slowest.expect("twenty").1);
    });
}

#[apply(on_time)]
fn without_descriptors_it_waits_for_some() {
    let (_dir, mut node) = single_sealed();
    node.start();
    let pid = node.process().id();
    let allow = |files: u32| {
        let limit = format!("--nofile={files}:");
        let done = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
        done.is_ok_and(|status| status.success())
    };
    // A limit below the current number: even the reserved descriptor does not come back.
    if !allow(5) {
        println!("skipped: no prlimit");
        return;
    }
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
    socket.connect(&SockAddr::unix(&node.socket).expect("a path")).expect("a place in its queue");
    let remote = std::net::TcpStream::connect(node.remote).expect("a place in its queue");
    let before = node.cpu_time();
    thread::sleep(ms(1_000));
    let used = node.cpu_time() - before;
    assert!(used < ms(300), "it used {used:?} of a second to wait for descriptors");
    assert!(allow(1_000));
    node.bind(4_000);
    node.bind_remote(4_001);
    drop((socket, remote));
}

#[apply(on_time)]
fn no_command_panics_where_what_it_prints_to_is_full_or_gone() {
    let (dir, node) = single_sealed();
    let key = dir.path().join("key");
    let full = || std::fs::File::create("/dev/full").expect("Linux");
    let closed = || std::io::pipe().expect("a pipe").1;
    let config = node.config.to_str().expect("text");
    for args in [
        &["check", config][..],
        &["keygen", key.to_str().expect("text")],
        &["completions", "bash"],
        &["man"],
    ] {
        let ended = trunkline(args).stdout(full()).output().expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("trunkline: cannot write to standard output: "), "{said}");
        std::fs::remove_file(&key).ok();
        let ended = trunkline(args).stdout(closed()).output().expect("it starts");
        assert_eq!((ended.status.code(), &ended.stderr[..]), (Some(0), &b""[..]), "{args:?}");
    }
    for (args, code) in [
        (&["node", "--config", "absent"][..], 2),
        (&["status", "--control", "absent"], 1),
        (&["call", "recv", "--socket", "absent"], 1),
    ] {
        for stderr in [Stdio::from(full()), Stdio::from(closed())] {
            let ended = trunkline(args).stderr(stderr).status().expect("it starts");
            assert_eq!(ended.code(), Some(code), "{args:?}");
        }
    }
}
