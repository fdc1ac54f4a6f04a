//! A file from one host of a testbed to another, by the kernel's TCP or by QUIC: the program at
//! each end.

use nix::sys::socket::{setsockopt, sockopt};
use quinn::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Protocol, Socket, Type};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The name in the certificate of the receiving end.
const NAME: &str = "receiver";

/// Timeout of the sending end to reach the other, which may not listen yet.
const PATIENCE: Duration = Duration::from_secs(15);

/// Transport protocol of a file.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// TCP of the kernel.
    Tcp,
    /// QUIC, implemented by quinn.
    Quic,
}

/// Parameters of one end of a transfer.
#[derive(Clone, Debug)]
pub struct Part {
    /// Transport protocol of the file.
    pub by: By,
    /// The congestion control: one of the kernel's, or for QUIC `newreno` or `cubic`.
    pub congestion: String,
    /// Address of the receiving end; `None` if this is it.
    pub to: Option<SocketAddr>,
    /// The UDP or TCP port of the receiving end, if this is it.
    pub port: u16,
    /// File to send, or to write to.
    pub file: PathBuf,
    /// Where QUIC's receiving end leaves its certificate for the sending one.
    pub certificate: PathBuf,
}

/// Transfers the file, and returns once the other end has finished too.
///
/// # Errors
///
/// If the file can't be read or written, or the connection fails.
pub fn carry(part: &Part) -> io::Result<()> {
    match (part.by, part.to) {
        (By::Tcp, Some(to)) => send_tcp(&part.congestion, to, &part.file),
        (By::Tcp, None) => {
            let (mut socket, _) =
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, part.port))?.accept()?;
            io::copy(&mut socket, &mut File::create(&part.file)?).map(drop)
        }
        (By::Quic, to) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let transport = Arc::new(transport(&part.congestion)?);
            runtime.block_on(async {
                match to {
                    Some(to) => send_quic(transport, to, part).await,
                    None => receive_quic(transport, part).await,
                }
            })
        }
    }
}

fn send_tcp(congestion: &str, to: SocketAddr, file: &Path) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut socket = loop {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(congestion))?;
        match socket.connect(&to.into()) {
            Ok(()) => break socket,
            Err(why) if Instant::now() > until => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    io::copy(&mut File::open(file)?, &mut socket)?;
    socket.shutdown(std::net::Shutdown::Write)?;
    // The other end closes when it has read everything.
    io::copy(&mut socket, &mut io::sink()).map(drop)
}

fn other(why: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(why)
}

fn transport(congestion: &str) -> io::Result<TransportConfig> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        "newreno" => Arc::new(NewRenoConfig::default()),
        "cubic" => Arc::new(CubicConfig::default()),
        _ => return Err(io::Error::other(format!("no congestion control \"{congestion}\""))),
    };
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(factory);
    Ok(transport)
}

async fn receive_quic(transport: Arc<TransportConfig>, part: &Part) -> io::Result<()> {
    let own = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(other)?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(io::Error::other)?;
    let mut config =
        ServerConfig::with_single_cert(vec![own.cert.der().clone()], key).map_err(other)?;
    config.transport_config(transport);
    let endpoint = Endpoint::server(config, (Ipv4Addr::UNSPECIFIED, part.port).into())?;
    // Renamed at once, since the other end may be about to read it.
    let new = part.certificate.with_extension("new");
    std::fs::write(&new, own.cert.der())?;
    std::fs::rename(&new, &part.certificate)?;
    let incoming = endpoint.accept().await.ok_or(io::ErrorKind::NotConnected)?;
    let connection = incoming.await.map_err(other)?;
    let mut stream = connection.accept_uni().await.map_err(other)?;
    let mut out = File::create(&part.file)?;
    while let Some(chunk) = stream.read_chunk(64 << 10, true).await.map_err(other)? {
        io::Write::write_all(&mut out, &chunk.bytes)?;
    }
    drop(out);
    connection.close(0u8.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn send_quic(transport: Arc<TransportConfig>, to: SocketAddr, part: &Part) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !part.certificate.is_file() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(&part.certificate)?)).map_err(other)?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(other)?;
    config.transport_config(transport);
    let endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    let connection =
        endpoint.connect_with(config, to, NAME).map_err(other)?.await.map_err(other)?;
    let mut stream = connection.open_uni().await.map_err(other)?;
    let (mut from, mut buf) = (File::open(&part.file)?, vec![0; 64 << 10]);
    loop {
        match io::Read::read(&mut from, &mut buf)? {
            0 => break,
            len => stream.write_all(&buf[..len]).await.map_err(other)?,
        }
    }
    stream.finish().map_err(other)?;
    // The other end closes when it has read everything.
    connection.closed().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_as_it_was() {
        for (by, congestion, port) in
            [(By::Tcp, "reno", 47_011), (By::Quic, "newreno", 47_012), (By::Quic, "cubic", 47_013)]
        {
            let dir = tempfile::tempdir().unwrap();
            let [from, into, certificate] = ["in", "out", "cert"].map(|name| dir.path().join(name));
            let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
            std::fs::write(&from, &sent).unwrap();
            let congestion = congestion.to_owned();
            let receive = Part { by, congestion, to: None, port, file: into.clone(), certificate };
            let to = Some((Ipv4Addr::LOCALHOST, port).into());
            let send = Part { to, file: from, ..receive.clone() };
            std::thread::scope(|scope| {
                let receiver = scope.spawn(|| carry(&receive));
                carry(&send).unwrap();
                receiver.join().unwrap().unwrap();
            });
            assert!(std::fs::read(&into).unwrap() == sent, "{by:?}");
        }
    }
}
