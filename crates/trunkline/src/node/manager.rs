//! What a service manager is told, if one waits for it (sd_notify(3)). One that
//! does not read must not keep the node from heeding signals, so that nobody waits
//! for it for long.

use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How the node is.
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

    /// How long the manager may take to make room for it. Without the first it
    /// would wait in vain; that the node lives is soon said again.
    fn patience(self) -> Duration {
        match self {
            State::Ready => Duration::from_secs(2),
            State::Alive | State::Stopping => Duration::from_millis(100),
        }
    }
}

/// After how long without [`State::Alive`] the manager believes that the node
/// hangs; `None` if it never does.
pub fn patience() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())
}

/// Tells the manager.
pub fn tell(state: State) {
    let Some(to) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&to, state) {
        tracing::warn!(%error, "the service manager was not told");
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
