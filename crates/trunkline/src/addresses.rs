//! Own addresses to listen at, which this machine may not have yet: after a boot, an address often
//! comes seconds after the daemon.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_indextoname};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;
use trunkline_base::Time;

/// Pause between two looks for an address that is missing.
const AGAIN: Duration = Duration::from_secs(1);

/// Connections that may wait at a listener: as many as the standard library's.
const BACKLOG: i32 = 128;

/// Binds `socket` to `address`, whether or not this machine has it (IP_FREEBIND). Where the system
/// doesn't allow that, the address must be there.
pub fn bind(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    let _ = match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true),
        SocketAddr::V6(_) => socket.set_freebind_v6(true),
    };
    socket.bind(&address.into())
}

/// A UDP socket at `address`.
pub fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(address, Type::DGRAM, Protocol::UDP)?;
    bind(&socket, address)?;
    Ok(socket.into())
}

/// A TCP listener at `address`.
pub fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(address, Type::STREAM, Protocol::TCP)?;
    // A restarted daemon need not wait until its last connections have timed out.
    socket.set_reuse_address(true)?;
    bind(&socket, address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn open(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    Socket::new(Domain::for_address(address), kind, Some(protocol))
}

/// The addresses that the daemon listens at, and which of them this machine does not have.
#[derive(Debug)]
pub struct Missing {
    wanted: Vec<SocketAddr>,
    missing: Vec<SocketAddr>,
    look_at: Time,
}

impl Missing {
    /// Looks for each of `addresses`, and warns of those that are missing.
    pub fn new(addresses: impl Iterator<Item = SocketAddr>, now: Time) -> Missing {
        let mut wanted: Vec<_> = addresses.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut missing = Missing { wanted, missing: Vec::new(), look_at: now };
        missing.look(now);
        missing
    }

    /// Looks again once a second, since an address may come or go at any time.
    pub fn look(&mut self, now: Time) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + AGAIN;
        let own = own();
        for &address in &self.wanted {
            let before = self.missing.iter().position(|missing| *missing == address);
            match (is_here(&own, address.ip()), before) {
                (true, Some(at)) => {
                    self.missing.remove(at);
                    tracing::info!(%address, "this machine has the address now");
                }
                (false, None) => {
                    self.missing.push(address);
                    tracing::warn!(
                        %address,
                        "this machine does not have the address; nothing can arrive there until \
                         it does"
                    );
                }
                _ => {}
            }
        }
    }

    /// The addresses that are missing.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.missing
    }
}

/// Address of this machine that packets to `remote` come from; `None` if there is no route.
pub fn towards(remote: IpAddr) -> Option<IpAddr> {
    // Connecting sends nothing.
    let socket = UdpSocket::bind((unspecified(remote), 0)).ok()?;
    socket.connect((remote, 9)).ok()?;
    socket.local_addr().ok().map(|at| at.ip())
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// All addresses of this machine; `None` if the system doesn't say.
pub fn own() -> Option<Vec<IpAddr>> {
    Some(getifaddrs().ok()?.filter_map(ip).collect())
}

/// The addresses of each interface of this machine; `None` if the system doesn't say.
pub fn by_interface() -> Option<BTreeMap<String, Vec<IpAddr>>> {
    let mut all = BTreeMap::<String, Vec<IpAddr>>::new();
    for interface in getifaddrs().ok()? {
        let addresses = all.entry(interface.interface_name.clone()).or_default();
        addresses.extend(ip(interface));
    }
    Some(all)
}

/// The own IPv6 addresses that another machine has, as duplicate address detection has found (RFC
/// 4862, 5.4). The kernel lists them, but they can't be used.
pub fn duplicates() -> Vec<IpAddr> {
    let all = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
    all.lines().filter_map(duplicate).collect()
}

/// The address in a line of `if_inet6`: address, interface, prefix, scope, flags, name; all but the
/// last in hexadecimal digits.
fn duplicate(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_whitespace();
    let address = u128::from_str_radix(fields.next()?, 16).ok()?;
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    (flags & libc::IFA_F_DADFAILED != 0).then(|| Ipv6Addr::from_bits(address).into())
}

/// The broadcast addresses of the networks that this machine is in. They follow from address and
/// length: an address without one of its own is reported as its own.
pub fn broadcast() -> Vec<IpAddr> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let is_broadcast = |a: &InterfaceAddress| a.flags.contains(InterfaceFlags::IFF_BROADCAST);
    let address = |a: InterfaceAddress| {
        let ip = a.address?.as_sockaddr_in()?.ip();
        last_of(ip, a.netmask?.as_sockaddr_in()?.ip()).map(IpAddr::V4)
    };
    all.filter(is_broadcast).filter_map(address).collect()
}

/// The last address of a network, unless that is a machine's: of one or two addresses all are.
fn last_of(ip: Ipv4Addr, mask: Ipv4Addr) -> Option<Ipv4Addr> {
    (mask.to_bits().leading_ones() < 31)
        .then(|| Ipv4Addr::from_bits(ip.to_bits() | !mask.to_bits()))
}

/// The interface that has the address `ip`, unless it is the loopback, whose addresses may be used
/// on all others.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    let is_loopback = |a: &InterfaceAddress| a.flags.contains(InterfaceFlags::IFF_LOOPBACK);
    let mut all = getifaddrs().ok()?.filter(|a| !is_loopback(a));
    let interface =
        |a: InterfaceAddress| (self::ip(a.clone()) == Some(ip)).then_some(a.interface_name);
    all.find_map(interface)
}

/// The name of the interface with an index; `None` if there is none.
pub fn interface_name(index: u32) -> Option<String> {
    let name = if_indextoname(index).ok()?.into_string().ok()?;
    // Without such an interface, nix returns an empty name instead of the error.
    Some(name).filter(|name| !name.is_empty())
}

/// The interfaces that are switched on, but have no carrier, as `ip link` shows them.
pub fn without_carrier() -> BTreeSet<String> {
    let Ok(all) = getifaddrs() else { return BTreeSet::new() };
    let is_without = |a: &InterfaceAddress| {
        a.flags.contains(InterfaceFlags::IFF_UP) && !a.flags.contains(InterfaceFlags::IFF_RUNNING)
    };
    all.filter(is_without).map(|a| a.interface_name).collect()
}

/// Whether `ip` can be reached through routers: it is neither a loopback nor a link-local address.
pub fn is_routed(ip: &IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !ip.is_loopback() && !is_link_local
}

fn ip(interface: InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address?;
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(v4.ip().into()),
        (_, Some(v6)) => Some(v6.ip().into()),
        _ => None,
    }
}

fn is_here(own: &Option<Vec<IpAddr>>, address: IpAddr) -> bool {
    let own = own.as_ref();
    address.is_unspecified()
        || address.is_loopback()
        || own.is_none_or(|own| own.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_of_a_network_is_no_machines_unless_there_are_two() {
        let last = |ip: &str, length: u32| {
            let mask = Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - length).unwrap_or(0));
            last_of(ip.parse().expect("an address"), mask).map(|ip| ip.to_string())
        };
        assert_eq!(last("10.9.0.1", 24).as_deref(), Some("10.9.0.255"));
        assert_eq!(last("10.9.0.1", 30).as_deref(), Some("10.9.0.3"));
        assert_eq!((last("10.9.0.1", 31), last("10.9.0.1", 32)), (None, None));
    }

    #[test]
    fn an_index_without_an_interface_has_no_name() {
        let lo = nix::net::if_::if_nametoindex("lo").expect("a loopback");
        assert_eq!((interface_name(lo).as_deref(), interface_name(1 << 30)), (Some("lo"), None));
    }

    #[test]
    fn an_address_of_another_machine_has_a_flag() {
        let line = |flags| format!("20010db8000000000000000000000007 02 40 00 {flags}     eth1");
        assert_eq!(duplicate(&line("c8")), Some("2001:db8::7".parse().expect("an address")));
        assert_eq!((duplicate(&line("80")), duplicate("")), (None, None));
    }

    #[test]
    fn an_address_that_is_not_here_can_be_bound_and_is_missing() {
        let [here, elsewhere]: [SocketAddr; 2] =
            ["127.0.0.1:0", "192.0.2.1:0"].map(|a| a.parse().unwrap());
        for address in [here, elsewhere] {
            udp(address).unwrap();
            tcp(address).unwrap();
        }
        let mut missing = Missing::new([here, elsewhere].into_iter(), Time::ZERO);
        assert_eq!(missing.addresses(), [elsewhere]);
        missing.look(Time::from_millis(2_000));
        assert_eq!(missing.addresses(), [elsewhere]);
    }
}
