//! Own addresses to listen at, which this machine may not have yet: after a boot, an address often
//! comes seconds after the daemon.

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
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

/// The addresses that the daemon listens at and this machine does not have.
#[derive(Debug)]
pub struct Missing {
    addresses: Vec<SocketAddr>,
    look_at: Time,
}

impl Missing {
    /// Looks for each of `addresses`, and warns of those that are missing.
    pub fn new(addresses: impl Iterator<Item = SocketAddr>, now: Time) -> Missing {
        let own = own();
        let mut addresses: Vec<_> = addresses.filter(|a| !is_here(&own, a.ip())).collect();
        addresses.sort_unstable();
        addresses.dedup();
        for address in &addresses {
            tracing::warn!(
                %address,
                "this machine does not have the address yet; nothing can arrive there until it does"
            );
        }
        Missing { addresses, look_at: now + AGAIN }
    }

    /// Looks again for the missing addresses, once a second.
    pub fn look(&mut self, now: Time) {
        if self.addresses.is_empty() || now < self.look_at {
            return;
        }
        self.look_at = now + AGAIN;
        let own = own();
        self.addresses.retain(|address| {
            let here = is_here(&own, address.ip());
            if here {
                tracing::info!(%address, "this machine has the address now");
            }
            !here
        });
    }

    /// The addresses that are missing.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// All addresses of this machine; `None` if the system doesn't say.
pub fn own() -> Option<Vec<IpAddr>> {
    Some(getifaddrs().ok()?.filter_map(ip).collect())
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
