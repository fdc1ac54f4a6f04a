//! A host: an unnamed network namespace, and the one device in it.
//!
//! It exists as long as a process has its descriptor open or runs in it. If this process is killed,
//! nothing remains.

use super::config::{CONGESTION_CONTROL, Host, Hosts};
use super::layout::{Layout, PREFIXES, addresses};
use crate::sys::open_tun;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// Name of the device in each host.
pub const DEVICE: &str = "tl0";

/// TCP settings of each host that are reported.
const TOLD: [&str; 3] = [CONGESTION_CONTROL, "net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps"];

/// A network namespace with its device; see the module.
#[derive(Debug)]
pub struct Namespace {
    /// Descriptor of the namespace, which keeps it alive.
    pub handle: File,
    /// The other end of its device, for whole IP packets. `None` once the device has been deleted
    /// in the host.
    pub tun: Option<File>,
    /// Values of the reported TCP settings.
    pub tcp: BTreeMap<&'static str, String>,
}

/// Reason why hosts cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The user is not root, and may not become root in a user namespace.
    #[error(
        "network namespaces need root or user namespaces, which are not permitted here ({0}): \
         run it as root, or allow them (sysctl user.max_user_namespaces=10000, \
         kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, \
         which of them there are; in a container, --privileged)"
    )]
    User(io::Error),
    /// A network namespace cannot be created.
    #[error("cannot make a network namespace: {}; {}", .0, network_advice(.0))]
    Network(io::Error),
    /// The device of a host cannot be created.
    #[error("cannot make a device in a namespace: {}; {}", .0, device_advice(.0))]
    Device(io::Error),
    /// `ip`, of iproute2, is missing or failed.
    #[error("host {host}: cannot give its device addresses and routes: {why}")]
    Routes {
        /// The name of the host.
        host: String,
        /// Output of `ip` that gives the reason.
        why: String,
    },
    /// The kernel rejects a setting.
    #[error("host {host}: the kernel refuses {key} = \"{value}\": {source}; {advice}")]
    Setting {
        /// The name of the host.
        host: String,
        /// The key of the setting.
        key: String,
        /// The value that was rejected.
        value: String,
        /// The operating system's error.
        source: io::Error,
        /// Advice for the user.
        advice: String,
        /// Position of the value, in bytes from the start of the file.
        at: usize,
    },
}

/// Advice for a network namespace that cannot be created.
fn network_advice(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            "run it as root, or let user namespaces have them (sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0); in a container, it needs --privileged"
        }
        _ => {
            "there may be too many: allow more (as root, sysctl user.max_net_namespaces=10000); or \
             the kernel has none (CONFIG_NET_NS)"
        }
    }
}

/// Advice for a TUN device that cannot be created.
fn device_advice(why: &io::Error) -> &'static str {
    let number = why.raw_os_error().map(Errno::from_raw);
    match number {
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => {
            "there must be a /dev/net/tun: modprobe tun; in a container, --device /dev/net/tun"
        }
        Some(Errno::EACCES) => {
            "this user must be able to read and write /dev/net/tun: chmod a+rw /dev/net/tun, as \
             most systems have it, or run it as root"
        }
        Some(Errno::EPERM) => {
            "in a container, it needs --device /dev/net/tun and --cap-add NET_ADMIN, or --privileged"
        }
        _ => "is /dev/net/tun what the kernel's driver has made? modprobe tun",
    }
}

/// Becomes root in a new user namespace, unless this process is already root, and returns whether
/// it had to. Call it before starting threads.
pub fn become_root() -> Result<bool, NamespaceError> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(false);
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| NamespaceError::User(e.into()))?;
    let write = |file: &str, text: String| fs::write(Path::new("/proc/self").join(file), text);
    // A process that may not choose groups may not drop them either (user_namespaces(7)).
    write("setgroups", "deny".into())
        .and_then(|()| write("uid_map", format!("0 {user} 1")))
        .and_then(|()| write("gid_map", format!("0 {group} 1")))
        .map_err(NamespaceError::User)?;
    Ok(true)
}

/// Creates a host in a new namespace.
pub fn make(hosts: &Hosts, n: usize, layout: &Layout) -> Result<Namespace, NamespaceError> {
    let host = &hosts.hosts[n];
    let lines = lines(hosts, n, layout);
    // A temporary thread enters the namespace, so that this one stays in its own.
    let made = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| NamespaceError::Network(e.into()))?;
        let tun = Some(open_tun(DEVICE).map_err(NamespaceError::Device)?);
        batch(&lines).map_err(|why| NamespaceError::Routes { host: host.name.clone(), why })?;
        set(host)?;
        let handle = File::open("/proc/thread-self/ns/net").map_err(NamespaceError::Network)?;
        let tcp = TOLD.map(|key| (key, fs::read_to_string(path(key)).unwrap_or_default()));
        let tcp = tcp.map(|(key, value)| (key, value.trim().to_owned())).into();
        Ok(Namespace { handle, tun, tcp })
    };
    thread::scope(|scope| scope.spawn(made).join().expect("making a host doesn't panic"))
}

impl Namespace {
    /// Number of packets that the kernel dropped because they were not read in time.
    pub fn kernel_dropped(&self) -> u64 {
        let look = || {
            setns(&self.handle, CloneFlags::CLONE_NEWNET)?;
            fs::read_to_string("/proc/thread-self/net/dev")
        };
        let text = thread::scope(|scope| scope.spawn(look).join().expect("reading doesn't panic"));
        let text = text.unwrap_or_default();
        let counts = text.lines().find_map(|line| line.trim().strip_prefix("tl0:"));
        // Transmit counters, from the host's view: they follow the eight receive counters, and
        // begin with bytes, packets, errors and drops.
        counts.and_then(|c| c.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
    }
}

/// Commands for `ip` that set up the device of a host.
fn lines(hosts: &Hosts, n: usize, layout: &Layout) -> String {
    let own = layout.of_host[n].clone();
    let own_edges =
        hosts.all_edges().filter(|(ends, _)| ends.contains(&super::config::EdgeEnd::Host(n)));
    let mtu = own_edges.map(|(_, mtu)| mtu).min().unwrap_or_default();
    let mut text = format!(
        "link set lo up\n\
         link set {DEVICE} mtu {mtu} txqueuelen 1000 addrgenmode none up\n"
    );
    for interface in own.clone() {
        let (v4, v6) = addresses(interface);
        let _ =
            write!(text, "addr add {v4}/32 dev {DEVICE}\naddr add {v6}/128 dev {DEVICE} nodad\n");
    }
    let mut route = |to: [String; 2], from: usize| {
        let (v4, v6) = addresses(from);
        let [to_v4, to_v6] = to;
        let _ = write!(
            text,
            "route add {to_v4} dev {DEVICE} src {v4}\nroute add {to_v6} dev {DEVICE} src {v6}\n"
        );
    };
    if own.len() == 1 {
        route(PREFIXES.map(str::to_owned), own.start);
    } else {
        for (to, from) in layout.nearest(n) {
            let (v4, v6) = addresses(to);
            route([format!("{v4}/32"), format!("{v6}/128")], from);
        }
    }
    text
}

/// Runs `ip` commands in this thread's namespace.
fn batch(lines: &str) -> Result<(), String> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| format!("cannot run ip: {why}; install iproute2"))?;
    let mut stdin = ip.stdin.take().expect("a pipe");
    // If `ip` does not read them, its exit status below shows the failure.
    let _ = stdin.write_all(lines.as_bytes());
    drop(stdin);
    let done = ip.wait_with_output().map_err(|why| format!("cannot wait for ip: {why}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().replace('\n', ", ")),
    }
}

/// File of a setting. Network settings are those of this thread's namespace.
fn path(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

fn set(host: &Host) -> Result<(), NamespaceError> {
    for (key, value) in &host.sysctl {
        fs::write(path(key), value.get_ref()).map_err(|source| {
            let advice = match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem => {
                    "/proc/sys is read-only, as in a container without --privileged".into()
                }
                _ if key == CONGESTION_CONTROL => tcp_advice(value.get_ref(), &source),
                _ => setting_advice(key, &source),
            };
            let (host, key, at) = (host.name.clone(), key.clone(), value.span().start);
            let value = value.get_ref().clone();
            NamespaceError::Setting { host, key, value, source, advice, at }
        })?;
    }
    Ok(())
}

/// Advice for a congestion control that is not available.
///
/// A namespace inherits those that the machine allows to all users. Others can be allowed only from
/// outside of namespaces.
fn tcp_advice(name: &str, why: &io::Error) -> String {
    const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
    let allowed = fs::read_to_string(path(ALLOWED)).unwrap_or_default();
    let allowed = allowed.trim();
    match why.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "a namespace may have: {allowed}; choose one of these, or allow it on the whole machine, \
             as root outside of containers: sysctl {ALLOWED}=\"{allowed} {name}\""
        ),
        io::ErrorKind::NotFound => format!(
            "a namespace may have: {allowed}; choose one of these, or, if it is a module of the \
             kernel, load it as root outside of containers: modprobe tcp_{name}"
        ),
        _ => format!("a namespace may have: {allowed}; choose one of these"),
    }
}

/// Advice for any other setting that is rejected.
fn setting_advice(key: &str, why: &io::Error) -> String {
    let is_there = Path::new(&path(key)).exists();
    match why.kind() {
        io::ErrorKind::NotFound if !is_there => {
            format!("a namespace has no such setting{}", likely(key).unwrap_or_default())
        }
        io::ErrorKind::PermissionDenied => {
            "it is one of the whole machine, or read-only: remove it, or set it as root outside of \
             containers by sysctl"
                .into()
        }
        _ => match fs::read_to_string(path(key)) {
            Ok(now) => format!("by default it is \"{}\"", now.trim().replace('\t', " ")),
            Err(_) => "remove it".into(),
        },
    }
}

/// An existing setting that the user may have meant.
fn likely(key: &str) -> Option<String> {
    let (folder, name) = key.rsplit_once('.')?;
    let names = fs::read_dir(path(folder)).ok()?.flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let likeness = |other: &String| strsim::jaro_winkler(name, other);
    let best = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) > 0.8).then(|| format!("; did you mean {folder}.{best}?"))
}
