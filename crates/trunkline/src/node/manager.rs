//! Notifications to a service manager, if there is one (sd_notify(3)). A manager that does not read
//! must not keep the node from handling signals, so sending has a short timeout.

use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// State of the node as reported to the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Ready,
    Alive,
    Stopping,
}

impl State {
    fn message(self) -> NotifyState<'static> {
        match self {
            State::Ready => NotifyState::Ready,
            State::Alive => NotifyState::Watchdog,
            State::Stopping => NotifyState::Stopping,
        }
    }

    /// Time that sending may wait for room. Without [`State::Ready`] the manager would wait in
    /// vain, so it gets longer; [`State::Alive`] is soon repeated.
    fn patience(self) -> Duration {
        match self {
            State::Ready => Duration::from_secs(2),
            State::Alive | State::Stopping => Duration::from_millis(100),
        }
    }
}

/// Time without [`State::Alive`] after which the manager considers the node hung; `None` if it
/// never does.
pub fn patience() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())
}

/// Sends the state to the manager, if there is one.
pub fn tell(state: State) {
    let Some(to) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&to, state) {
        tracing::warn!(%error, "could not notify the service manager");
    }
}

fn send(to: &OsStr, state: State) -> io::Result<()> {
    let to = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(to)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(state.patience()))?;
    socket.send_to_addr(state.message().to_string().as_bytes(), &to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_also_at_an_abstract_address() {
        let name = format!("trunkline-notify-{}", std::process::id());
        let at = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&at).unwrap();
        let to = format!("@{name}");
        for (state, said) in [
            (State::Ready, "READY=1"),
            (State::Alive, "WATCHDOG=1"),
            (State::Stopping, "STOPPING=1"),
        ] {
            send(OsStr::new(&to), state).unwrap();
            let mut bytes = [0; 64];
            let n = manager.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..n], said.as_bytes());
        }
        let nobody = format!("{to}-nobody");
        assert!(send(OsStr::new(&nobody), State::Ready).is_err());
    }
}
