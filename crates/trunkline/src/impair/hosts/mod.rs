//! `trunkline impair --hosts`: programs in network namespaces, with the kernel's real packets over
//! a modelled network of hosts and routers.
//!
//! Each host is a namespace with one TUN device. This process holds the other ends of all devices,
//! and between them the same [`Network`](trunkline_net::Network) as the simulator. Any program can
//! therefore run there, over the kernel's own TCP.

mod capture;
mod cell;
mod config;
mod devices;
mod ip;
mod layout;
mod namespace;
mod report;

pub use capture::Wanted;
pub use namespace::NamespaceError;

use super::Error;
use super::config::ConfigError;
use super::pump::Pump;
use super::stop::{Reread, Stop};
use capture::Captures;
use config::Hosts;
use devices::{Device, Devices};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use report::Report;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The hosts of a file, and the modelled network between them.
pub struct Emulator {
    pump: Pump<Devices, Hosts>,
}

/// Parameters of a run.
pub struct Run<'a> {
    /// The file that describes hosts, routers and edges.
    pub path: &'a Path,
    /// The captures that were requested.
    pub captures: &'a [Wanted],
    /// Whether to stay awake shortly before a packet is due.
    pub is_punctual: bool,
}

impl Emulator {
    /// Creates the hosts. Call it before starting threads, and create `stop` and `reread` before
    /// it.
    ///
    /// # Errors
    ///
    /// The file is invalid, or this machine does not permit hosts.
    pub fn new(
        Run { path, captures, is_punctual }: &Run<'_>,
        stop: Stop,
        reread: Reread<Hosts>,
    ) -> Result<Emulator, Error> {
        let (hosts, text) = Hosts::read_with_text(path)?;
        let wanted = captures.iter().map(|wanted| find(&hosts, wanted));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        // Each host takes two descriptors, and the soft limit may be as low as a thousand.
        let _ = getrlimit(Resource::RLIMIT_NOFILE)
            .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
        let is_own_user = namespace::become_root()?;
        let (net, layout) = layout::build(&hosts);
        let devices = (0..hosts.hosts.len())
            .map(|n| {
                let namespace = namespace::make(&hosts, n, &layout).map_err(|why| match why {
                    NamespaceError::Setting { at, .. } => {
                        ConfigError::at(path, &text, at, why.to_string()).into()
                    }
                    why => Error::Namespace(why),
                })?;
                Ok(Device::new(hosts.hosts[n].name.clone(), namespace))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        announce(&hosts, &devices, &layout, is_own_user);
        let devices = Devices::new(devices, Captures::begin(wanted)?, layout);
        let pump = Pump::new((devices, net, hosts), stop, Some(reread), *is_punctual)?;
        for (n, device) in pump.ports.devices.iter().enumerate() {
            device.namespace.tun.iter().try_for_each(|tun| pump.watch(tun, n))?;
        }
        Ok(Emulator { pump })
    }

    /// Forwards packets until stopped, like [`Pump::run`], then ends the captures.
    pub fn run(&mut self) -> Result<(), Error> {
        let (hosts, edges) = (&self.pump.setup.hosts, self.pump.setup.all_edges().count());
        // Writing may fail without a reader of standard error, which is harmless.
        let of = |n: usize, what| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let ready = [of(hosts.len(), "host"), of(edges, "edge")].join(", ");
        let _ = writeln!(io::stderr(), "impair: ready, {ready}");
        self.pump.ports.captures.start();
        self.pump.run()?;
        self.pump.ports.captures.end()
    }

    /// Ledger of the run so far.
    pub fn report(&self) -> Report {
        Report::new(&self.pump)
    }
}

/// Host number and file of a capture.
fn find(hosts: &Hosts, wanted: &Wanted) -> Result<(usize, PathBuf), Error> {
    let n = hosts.hosts.iter().position(|host| host.name == wanted.host);
    let n = n.ok_or_else(|| Error::NoHost {
        host: wanted.host.clone(),
        is_router: hosts.routers.contains(&wanted.host),
    })?;
    Ok((n, wanted.path.clone()))
}

/// Prints the command that enters each host, and the host's addresses.
fn announce(hosts: &Hosts, devices: &[Device], layout: &layout::Layout, is_own_user: bool) {
    let pid = std::process::id();
    let user = match is_own_user {
        true => format!("--user=/proc/{pid}/ns/user --preserve-credentials "),
        false => String::new(),
    };
    for (n, (host, device)) in hosts.hosts.iter().zip(devices).enumerate() {
        let fd = device.namespace.handle.as_raw_fd();
        let addresses = layout.of_host[n].clone().map(|n| {
            let (v4, v6) = layout::addresses(n);
            format!(" {v4} {v6}")
        });
        let addresses: String = addresses.collect();
        let tcp = device.namespace.tcp.values().map(String::as_str).collect::<Vec<_>>().join("/");
        let _ = writeln!(
            io::stderr(),
            "impair: host {}: nsenter {user}--net=/proc/{pid}/fd/{fd}{addresses} tcp {tcp}",
            host.name
        );
    }
}
