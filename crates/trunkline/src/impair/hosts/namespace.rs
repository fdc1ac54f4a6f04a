//! A host: a network namespace without a name, and the one device in it.
//!
//! It lives as long as somebody has its descriptor or runs in it: if this process is
//! killed, nothing is left behind.

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

/// The device's name, in each host.
pub const DEVICE: &str = "tl0";

/// What is said of each host's TCP.
const TOLD: [&str; 3] = [CONGESTION_CONTROL, "net.ipv4.tcp_sack", "net.ipv4.tcp_timestamps"];

/// See the module.
#[derive(Debug)]
pub struct Namespace {
    /// Itself.
    pub handle: File,
    /// The other end of its device: whole IP packets. `None` once somebody there has
    /// deleted the device.
    pub tun: Option<File>,
    /// Settings of its TCP, as they are.
    pub tcp: BTreeMap<&'static str, String>,
}

/// Why there are no hosts here.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// Neither root nor allowed to be it in a namespace.
    #[error(
        "network namespaces need root or user namespaces, which are not permitted here ({0}): \
         run it as root, or allow them (sysctl user.max_user_namespaces=10000, \
         kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, \
         which of them there are; in a container, --privileged)"
    )]
    User(io::Error),
    /// A namespace can't be made.
    #[error("cannot make a network namespace: {}; {}", .0, network_advice(.0))]
    Network(io::Error),
    /// No device.
    #[error("cannot make a device in a namespace: {}; {}", .0, device_advice(.0))]
    Device(io::Error),
    /// iproute2 failed.
    #[error("host {host}: cannot give its device addresses and routes: {why}")]
    Routes {
        /// Which.
        host: String,
        /// What `ip` said.
        why: String,
    },
    /// The kernel didn't take a setting.
    #[error("host {host}: the kernel refuses {key} = \"{value}\": {source}{hint}")]
    Setting {
        /// Which.
        host: String,
        /// The setting.
        key: String,
        /// What it was to be.
        value: String,
        /// Why not.
        source: io::Error,
        /// What there is.
        hint: String,
    },
}

/// What to do about a network namespace that can't be made.
fn network_advice(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            "run it as root, or let user namespaces have them (sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0); in a container, it needs --privileged"
        }
        _ => {
            "there may be too many (sysctl user.max_net_namespaces), or the kernel has none \
             (CONFIG_NET_NS)"
        }
    }
}

/// What to do about a TUN device that can't be made.
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

/// Becomes root in a user namespace of its own, if this process is no root; whether it was
/// none. It must not have started threads.
pub fn become_root() -> Result<bool, NamespaceError> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(false);
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| NamespaceError::User(e.into()))?;
    let write = |file: &str, text: String| fs::write(Path::new("/proc/self").join(file), text);
    // Who may not choose groups may not drop them either (user_namespaces(7)).
    write("setgroups", "deny".into())
        .and_then(|()| write("uid_map", format!("0 {user} 1")))
        .and_then(|()| write("gid_map", format!("0 {group} 1")))
        .map_err(NamespaceError::User)?;
    Ok(true)
}

/// Makes a host.
pub fn make(hosts: &Hosts, n: usize, layout: &Layout) -> Result<Namespace, NamespaceError> {
    let host = &hosts.hosts[n];
    let lines = lines(hosts, n, layout);
    // Of a thread that ends, so that this one stays where it is.
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
    /// Packets that the kernel dropped before they could be read, since nobody did.
    pub fn kernel_dropped(&self) -> u64 {
        let look = || {
            setns(&self.handle, CloneFlags::CLONE_NEWNET)?;
            fs::read_to_string("/proc/thread-self/net/dev")
        };
        let text = thread::scope(|scope| scope.spawn(look).join().expect("reading doesn't panic"));
        let text = text.unwrap_or_default();
        let counts = text.lines().find_map(|line| line.trim().strip_prefix("tl0:"));
        // What is to be sent to the device: eight counts of what was received come before,
        // then bytes, packets, errors and drops.
        counts.and_then(|c| c.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
    }
}

/// What `ip` shall do.
fn lines(hosts: &Hosts, n: usize, layout: &Layout) -> String {
    let own = layout.of_host[n].clone();
    let mtu = hosts.edges.iter().filter(|edge| edge.ends.contains(&super::config::Spot::Host(n)));
    let mtu = mtu.map(|edge| edge.mtu).min().unwrap_or_default();
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

/// Has `ip` do what lines say, in this thread's namespace.
fn batch(lines: &str) -> Result<(), String> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| format!("cannot run ip: {why}; install iproute2"))?;
    let mut stdin = ip.stdin.take().expect("a pipe");
    // It says below what is wrong if it doesn't listen.
    let _ = stdin.write_all(lines.as_bytes());
    drop(stdin);
    let done = ip.wait_with_output().map_err(|why| format!("cannot wait for ip: {why}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().replace('\n', ", ")),
    }
}

/// Where the kernel has a setting; of this thread's namespace, if it is one of it.
fn path(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

fn set(host: &Host) -> Result<(), NamespaceError> {
    for (key, value) in &host.sysctl {
        fs::write(path(key), value).map_err(|source| {
            let there = "net.ipv4.tcp_available_congestion_control";
            let available = || fs::read_to_string(path(there)).unwrap_or_default();
            let hint = match key == CONGESTION_CONTROL {
                true => format!("; there is: {}", available().trim()),
                false => String::new(),
            };
            let (host, key, value) = (host.name.clone(), key.clone(), value.clone());
            NamespaceError::Setting { host, key, value, source, hint }
        })?;
    }
    Ok(())
}
