//! Two sites and the network between them, each host a network namespace.
//!
//! ```text
//!  phone A ── gateway A ── the Internet ── gateway B ── phone B
//!     10.77.1.0/24   10.77.8.0/24   10.77.9.0/24   10.77.2.0/24
//! ```

use super::{Error, cannot, run};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// One of the hosts of the two sites, or the router between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PhoneHost {
    /// The first site's phone, 10.77.1.2.
    PhoneA,
    /// The first site's gateway, 10.77.1.1.
    GatewayA,
    /// The router between the gateways, 10.77.8.1 and 10.77.9.1, which loses packets.
    Internet,
    /// The second site's gateway, 10.77.2.1.
    GatewayB,
    /// The second site's phone, 10.77.2.2.
    PhoneB,
}

/// Addresses of the first site: its phone, its gateway towards the phone, and its gateway towards
/// the Internet.
pub const SITE_A: [&str; 3] = ["10.77.1.2", "10.77.1.1", "10.77.8.2"];
/// Addresses of the second site, likewise.
pub const SITE_B: [&str; 3] = ["10.77.2.2", "10.77.2.1", "10.77.9.2"];

const PLACES: [PhoneHost; 5] = [
    PhoneHost::PhoneA,
    PhoneHost::GatewayA,
    PhoneHost::Internet,
    PhoneHost::GatewayB,
    PhoneHost::PhoneB,
];

/// The namespaces of the hosts, which are deleted when dropped.
pub struct Network {
    name: String,
}

impl Drop for Network {
    fn drop(&mut self) {
        for place in PLACES {
            // If setup failed halfway, some namespaces don't exist.
            let _ = ip(&["netns", "del", &self.host(place)]);
        }
    }
}

/// Reason why phones can't run on this machine: no root, or missing programs. `None` if they can.
pub fn missing(programs: &[&str]) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| {
        let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
        folders.any(|folder| folder.join(name).is_file())
    };
    let absent = |name: &&&str| !is_there(name);
    let name = ["ip", "nft"].iter().chain(programs).find(absent)?;
    Some(format!("{name} is not installed: scripts/setup.sh installs it"))
}

fn ip(args: &[&str]) -> Result<(), Error> {
    run(Command::new("ip").args(args)).map(drop)
}

impl Network {
    /// Creates the network, without loss.
    pub fn new() -> Result<Network, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let network = Network { name: format!("tl{}-{n}", std::process::id()) };
        for place in PLACES {
            let host = network.host(place);
            ip(&["netns", "add", &host])?;
            ip(&["-n", &host, "link", "set", "lo", "up"])?;
        }
        network.join([(PhoneHost::PhoneA, SITE_A[0]), (PhoneHost::GatewayA, SITE_A[1])], "site")?;
        network
            .join([(PhoneHost::GatewayA, SITE_A[2]), (PhoneHost::Internet, "10.77.8.1")], "to-a")?;
        network
            .join([(PhoneHost::GatewayB, SITE_B[2]), (PhoneHost::Internet, "10.77.9.1")], "to-b")?;
        network.join([(PhoneHost::PhoneB, SITE_B[0]), (PhoneHost::GatewayB, SITE_B[1])], "site")?;
        for (place, to, via) in [
            (PhoneHost::PhoneA, "default", SITE_A[1]),
            (PhoneHost::GatewayA, "default", "10.77.8.1"),
            (PhoneHost::GatewayB, "default", "10.77.9.1"),
            (PhoneHost::PhoneB, "default", SITE_B[1]),
            (PhoneHost::Internet, "10.77.1.0/24", SITE_A[2]),
            (PhoneHost::Internet, "10.77.2.0/24", SITE_B[2]),
        ] {
            ip(&["-n", &network.host(place), "route", "add", to, "via", via])?;
        }
        for place in [PhoneHost::GatewayA, PhoneHost::Internet, PhoneHost::GatewayB] {
            run(network.command(place, "sysctl").args(["-qw", "net.ipv4.ip_forward=1"]))?;
        }
        Ok(network)
    }

    /// Connects two hosts by a pair of virtual Ethernet devices of the given name.
    fn join(&self, ends: [(PhoneHost, &str); 2], name: &str) -> Result<(), Error> {
        let [(a, address_a), (b, address_b)] = ends;
        let (host_a, host_b) = (self.host(a), self.host(b));
        let args = ["link", "add", "name", name, "netns", &host_a, "type", "veth"];
        let args = [&args[..], &["peer", "name", name]].concat();
        ip(&[&args[..], &["netns", &host_b]].concat())?;
        for (host, address) in [(&host_a, address_a), (&host_b, address_b)] {
            ip(&["-n", host, "addr", "add", &format!("{address}/24"), "dev", name])?;
            ip(&["-n", host, "link", "set", "dev", name, "up"])?;
        }
        Ok(())
    }

    /// Name of a host's namespace.
    pub fn host(&self, place: PhoneHost) -> String {
        format!("{}-{place:?}", self.name)
    }

    /// A command that runs a program on a host.
    pub fn command(&self, place: PhoneHost, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host(place)]).arg(program);
        command
    }

    /// Makes the path lose this share of datagrams in each direction; signalling isn't affected.
    pub fn lose(&self, share: f64) -> Result<(), Error> {
        let _ = self.nft("delete table inet loss");
        if share <= 0.0 {
            return Ok(());
        }
        let per_million = (share * 1e6).round();
        self.nft("add table inet loss")?;
        self.nft("add chain inet loss path { type filter hook forward priority 0; }")?;
        for (from, to) in [("to-a", "to-b"), ("to-b", "to-a")] {
            self.nft(&format!(
                "add rule inet loss path iifname {from} oifname {to} meta l4proto udp \
                 udp dport != {{ 5060, 5061 }} udp sport != {{ 5060, 5061 }} \
                 numgen random mod 1000000 < {per_million} counter drop"
            ))?;
        }
        Ok(())
    }

    /// Blocks the overlay's direct path between the gateways, or opens it again.
    pub fn cut(&self, on: bool) -> Result<(), Error> {
        let _ = self.nft("delete table inet cut");
        if !on {
            return Ok(());
        }
        self.nft("add table inet cut")?;
        self.nft("add chain inet cut path { type filter hook forward priority 0; }")?;
        self.nft("add rule inet cut path udp dport 7000 drop")
    }

    fn nft(&self, line: &str) -> Result<(), Error> {
        run(self.command(PhoneHost::Internet, "nft").arg(line)).map(drop)
    }

    /// Runs a function on a separate thread in this host's network. The thread ends with its
    /// result.
    pub fn within<T: Send + 'static>(
        &self,
        place: PhoneHost,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Option<T>>, Error> {
        within(&self.path(place), work).map_err(cannot("enter a namespace"))
    }

    /// Path of the namespace of a host.
    pub fn path(&self, place: PhoneHost) -> std::path::PathBuf {
        Path::new("/run/netns").join(self.host(place))
    }
}

/// Runs a function on a separate thread in the network of the namespace `host`.
pub(super) fn within<T: Send + 'static>(
    host: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<Option<T>>> {
    let host = File::open(host)?;
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let entered = setns(&host, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        let is_there = entered.is_ok();
        let _ = tell.send(entered);
        is_there.then(work)
    });
    told.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
    Ok(thread)
}
