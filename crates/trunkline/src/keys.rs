//! Key and certificate files, and the commands that create them: `keygen`, `pubkey`, `certify`,
//! `certificate`.

use crate::files;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use trunkline_overlay::identity::{Certificate, CertificateError, Identity, KeyError, PublicKey};
use trunkline_overlay::wire::NodeId;
use zeroize::Zeroizing;

const DAY: u64 = 24 * 60 * 60;

/// Reason why a key or certificate file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// A file operation failed.
    #[error("cannot {what} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Other users can read the secret key.
    #[error("{} can be read by others than its owner: chmod 600 {}{advice}", path.display(), path.display())]
    Exposed {
        /// Path of the file.
        path: PathBuf,
        /// Another possible cause, a sentence of its own; may be empty.
        advice: &'static str,
    },
    /// The file does not contain a key.
    #[error("{} holds no secret key: {source}; `trunkline keygen` makes one", path.display())]
    Key {
        /// Path of the file.
        path: PathBuf,
        /// Reason why it is not a key.
        source: KeyError,
    },
    /// The file contains no certificate, or the wrong one.
    #[error("the certificate in {} {what}", path.display())]
    Certificate {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        what: String,
    },
    /// The certificate cannot be issued.
    #[error(transparent)]
    Issue(#[from] CertificateError),
    /// The node would have the overlay's key.
    #[error(
        "--key is the overlay's own public key: give the node's, as `trunkline pubkey` prints it there"
    )]
    OverlayKey,
    /// The system provided no randomness.
    #[error("the system provided no randomness for a key: {0}")]
    Entropy(getrandom::Error),
}

/// Advice for the user, after a semicolon; may be empty.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AlreadyExists => {
            "; no key or certificate is overwritten: take another name, or move that file away"
        }
        io::ErrorKind::NotFound => "; a relative path counts from where the command was started",
        _ => "",
    }
}

impl KeyFileError {
    /// Exit status: 1 for an error of the system, 2 for a mistake in the user's input.
    pub fn exit_code(&self) -> u8 {
        match self {
            KeyFileError::Io { what, .. } if *what != READ => 1,
            KeyFileError::Entropy(_) => 1,
            _ => 2,
        }
    }

    /// The file that can't be used, if the error is about one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            KeyFileError::Io { path, .. }
            | KeyFileError::Exposed { path, .. }
            | KeyFileError::Key { path, .. }
            | KeyFileError::Certificate { path, .. } => Some(path),
            KeyFileError::Issue(_) | KeyFileError::OverlayKey | KeyFileError::Entropy(_) => None,
        }
    }
}

/// The operation that fails if the user names a file that is not there.
const READ: &str = "read";

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |source| KeyFileError::Io { what, path, source }
}

/// Reads a secret key that only its owner may read. A file of root's may also be readable by its
/// group: systemd passes credentials to a service in that form, where the group bits are the mask
/// of an access list (acl(5)).
pub fn read_identity(path: &Path) -> Result<Identity, KeyFileError> {
    // Check the opened file, so that it does not matter if the path is replaced meanwhile.
    let mut file = files::open(path).map_err(io_error(READ, path))?;
    let meta = file.metadata().map_err(io_error(READ, path))?;
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(io_error(READ, path))?;
    // Check the content first: a file without a secret may be readable by all.
    let identity = Identity::from_text(&text)
        .map_err(|source| KeyFileError::Key { path: path.to_owned(), source })?;
    let others = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if meta.mode() & others != 0 {
        // Half of all secrets are also valid points of the curve.
        let advice = match text.parse::<PublicKey>() {
            Ok(_) => {
                ". That is for the secret key: if the file holds the public one, name the one \
                 that `trunkline keygen` made instead"
            }
            Err(_) => "",
        };
        return Err(KeyFileError::Exposed { path: path.to_owned(), advice });
    }
    Ok(identity)
}

/// Reads a certificate, without verifying it.
pub fn read_certificate(path: &Path) -> Result<Certificate, KeyFileError> {
    let mut text = String::new();
    let read = files::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(io_error(READ, path))?;
    let wrong = |e: CertificateError| KeyFileError::Certificate {
        path: path.to_owned(),
        what: format!("cannot be read: {e}"),
    };
    text.parse().map_err(wrong)
}

pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), KeyFileError> {
    // Never overwrite an existing key, which would be lost.
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = file.map_err(io_error("create", path))?;
    writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(io_error("write", path))
}

/// Make a secret key for a node, a client or an overlay, and print its public key
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline keygen /etc/trunkline/a.key

The file is for its owner alone (mode 0600) and is never overwritten. The public
key goes into the configuration of others: `key` in [[link]], [overlay] keys,
`certify --key`.")]
pub struct KeygenArgs {
    /// The file to create
    file: PathBuf,
}

/// Runs `trunkline keygen`: creates a key file.
pub fn keygen(args: &KeygenArgs) -> Result<(), KeyFileError> {
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *secret).map_err(KeyFileError::Entropy)?;
    let identity = Identity::from_secret(&secret);
    write_new(&args.file, &identity.secret_text(), 0o600)?;
    outln!("{}", identity.public());
    Ok(())
}

/// Print the public key of a secret key
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline pubkey /etc/trunkline/a.key")]
pub struct PubkeyArgs {
    /// The key file, as written by `keygen`
    file: PathBuf,
}

/// Runs `trunkline pubkey`: prints a key.
pub fn pubkey(args: &PubkeyArgs) -> Result<(), KeyFileError> {
    outln!("{}", read_identity(&args.file)?.public());
    Ok(())
}

/// Certify, with the overlay's key, that a node has a key
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example: the operator makes the overlay's key once, and certifies each node with it
  trunkline keygen overlay.key
  trunkline certify --overlay-key overlay.key --node 1 --name site-a \\
      --key \"$(trunkline pubkey a.key)\" --days 365 a.cert

Every node has the overlay's public key in [overlay] keys, and its own
certificate in [node] certificate. Nodes then admit each other without being
configured with each other.")]
pub struct CertifyArgs {
    /// The overlay's secret key, as written by `keygen`
    #[arg(long, value_name = "FILE")]
    overlay_key: PathBuf,
    /// Number of the node in the overlay
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    node: u32,
    /// Name of the node, at most 63 bytes
    #[arg(long)]
    name: String,
    /// The node's public key
    #[arg(long, value_name = "PUBKEY")]
    key: PublicKey,
    /// Validity in days; without it, the certificate does not expire
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    days: Option<u32>,
    /// The file to create
    file: PathBuf,
}

/// Runs `trunkline certify`: creates a certificate file.
pub fn certify(args: &CertifyArgs) -> Result<(), KeyFileError> {
    let overlay = read_identity(&args.overlay_key)?;
    if args.key == overlay.public() {
        return Err(KeyFileError::OverlayKey);
    }
    let now = crate::clock::since_epoch() / 1_000_000_000;
    let not_after = args.days.map_or(0, |days| now + u64::from(days) * DAY);
    let node = NodeId(args.node);
    let certificate = Certificate::issue(&overlay, node, &args.name, args.key, not_after)?;
    write_new(&args.file, &certificate.to_string(), 0o644)
}

/// A date in seconds since 1970, in words.
fn date(unix: u64) -> String {
    /// The last second of the year 9999, after which there is no such date.
    const LAST: u64 = 253_402_300_799;
    match unix {
        ..=LAST => httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix)),
        _ => "after the year 9999".into(),
    }
}

/// Show the contents of a certificate
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline certificate a.cert
  trunkline certificate a.cert --overlay-key \"$(trunkline pubkey overlay.key)\"

Exit code 2: with --overlay-key, the certificate is not valid.")]
pub struct CertificateArgs {
    /// The certificate file, as written by `certify`
    file: PathBuf,
    /// Check that this public key has signed the certificate, and that it is still valid
    #[arg(long, value_name = "PUBKEY")]
    overlay_key: Option<PublicKey>,
    /// Print the contents as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `trunkline certificate`: prints a certificate, and verifies it on request.
pub fn certificate(args: &CertificateArgs) -> Result<(), KeyFileError> {
    let certificate = read_certificate(&args.file)?;
    if let Some(key) = args.overlay_key {
        let now = crate::clock::since_epoch() / 1_000_000_000;
        let wrong = |why: CertificateError| KeyFileError::Certificate {
            path: args.file.clone(),
            what: format!("is not valid: {why}"),
        };
        certificate.verify(&[key], now).map_err(wrong)?;
    }
    let (node, name, key) = (certificate.node(), certificate.name(), certificate.key());
    let until = certificate.not_after();
    if args.json {
        let until = (until != 0).then_some(until);
        let key = key.to_string();
        let value =
            serde_json::json!({ "node": node.0, "name": name, "key": key, "not_after": until });
        outln!("{value}");
        return Ok(());
    }
    let now = crate::clock::since_epoch() / 1_000_000_000;
    let holds = match (until, until.checked_sub(now)) {
        (0, _) => "valid for ever".to_owned(),
        (_, Some(left)) => format!("valid until {}, for another {} days", date(until), left / DAY),
        (_, None) => {
            let since = crate::operate::span((now - until) as f64);
            format!("expired on {}, {since} ago", date(until))
        }
    };
    outln!("node {node}, {name}\nkey {key}\n{holds}");
    Ok(())
}
