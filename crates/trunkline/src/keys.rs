//! Key and certificate files, and the commands that make them: `keygen`,
//! `pubkey`, `certify`, `certificate`.

use crate::files;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use trunkline_overlay::identity::{Certificate, CertificateError, Identity, KeyError, PublicKey};
use trunkline_overlay::wire::NodeId;
use zeroize::Zeroizing;

const DAY: u64 = 24 * 60 * 60;

/// Why a key or certificate file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system refused something.
    #[error("cannot {what} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others could copy it.
    #[error("{} can be read by others than its owner: chmod 600 {}{advice}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// What else may be the matter, after a comma; may be empty.
        advice: &'static str,
    },
    /// No key is in it.
    #[error("{} holds no secret key: {source}; `trunkline keygen` makes one", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyError,
    },
    /// No certificate is in it, or not the right one.
    #[error("the certificate in {} {what}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What was to be certified can't be.
    #[error(transparent)]
    Issue(#[from] CertificateError),
    /// No randomness.
    #[error("the system gives no randomness for a key: {0}")]
    Entropy(getrandom::Error),
}

/// What to do, after a semicolon; may be empty.
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
    /// 1 where the system is to blame, 2 where the user's input is.
    pub fn exit_code(&self) -> u8 {
        match self {
            KeyFileError::Io { .. } | KeyFileError::Entropy(_) => 1,
            _ => 2,
        }
    }
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |source| KeyFileError::Io { what, path, source }
}

/// Reads a secret key that only its owner may read. Root's may be for its group,
/// too: so it is with what systemd hands to a service, where the group's bits
/// are the mask of an access list (acl(5)).
pub fn read_identity(path: &Path) -> Result<Identity, KeyFileError> {
    // What is judged is what is read, whatever takes the path meanwhile.
    let mut file = files::open(path).map_err(io_error("read", path))?;
    let meta = file.metadata().map_err(io_error("read", path))?;
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(io_error("read", path))?;
    // First whether it is the right file: what is no secret may be read by all.
    let identity = Identity::from_text(&text)
        .map_err(|source| KeyFileError::Key { path: path.to_owned(), source })?;
    let others = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if meta.mode() & others != 0 {
        // Half of all secrets are points of the curve as well.
        let advice = match text.parse::<PublicKey>() {
            Ok(_) => {
                ", if it holds the secret key; it may as well be the public one, which is no use \
                 here: name the file that `trunkline keygen` made"
            }
            Err(_) => "",
        };
        return Err(KeyFileError::Exposed { path: path.to_owned(), advice });
    }
    Ok(identity)
}

/// Reads a certificate; that it is true, others check.
pub fn read_certificate(path: &Path) -> Result<Certificate, KeyFileError> {
    let mut text = String::new();
    let read = files::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(io_error("read", path))?;
    let wrong = |e: CertificateError| KeyFileError::Certificate {
        path: path.to_owned(),
        what: format!("cannot be read: {e}"),
    };
    text.parse().map_err(wrong)
}

pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), KeyFileError> {
    // Never over an existing key: that would be lost.
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
key goes where others are told of this one: `key` in [[link]], [overlay] keys,
`certify --key`.")]
pub struct KeygenArgs {
    /// The file to create
    file: PathBuf,
}

/// Runs `trunkline keygen`.
pub fn keygen(args: &KeygenArgs) -> Result<(), KeyFileError> {
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *secret).map_err(KeyFileError::Entropy)?;
    let identity = Identity::from_secret(&secret);
    write_new(&args.file, &identity.secret_text(), 0o600)?;
    outln!("{}", identity.public());
    Ok(())
}

/// Print the public key of a secret one
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  trunkline pubkey /etc/trunkline/a.key")]
pub struct PubkeyArgs {
    /// The file that `keygen` made
    file: PathBuf,
}

/// Runs `trunkline pubkey`.
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

Every node has the overlay's public key under [overlay] keys, and its own
certificate in [node] certificate. Nodes then admit each other without having
heard of each other before.")]
pub struct CertifyArgs {
    /// The overlay's secret key, which `keygen` made
    #[arg(long, value_name = "FILE")]
    overlay_key: PathBuf,
    /// The node's id
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    node: u32,
    /// What the node is called, at most 63 bytes
    #[arg(long)]
    name: String,
    /// The node's public key
    #[arg(long, value_name = "PUBKEY")]
    key: PublicKey,
    /// For how many days; without it for ever
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    days: Option<u32>,
    /// The file to create
    file: PathBuf,
}

/// Runs `trunkline certify`.
pub fn certify(args: &CertifyArgs) -> Result<(), KeyFileError> {
    let overlay = read_identity(&args.overlay_key)?;
    let now = crate::clock::since_epoch() / 1_000_000_000;
    let not_after = args.days.map_or(0, |days| now + u64::from(days) * DAY);
    let node = NodeId(args.node);
    let certificate = Certificate::issue(&overlay, node, &args.name, args.key, not_after)?;
    write_new(&args.file, &certificate.to_string(), 0o644)
}

/// Show what a certificate says
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  trunkline certificate a.cert
  trunkline certificate a.cert --overlay-key \"$(trunkline pubkey overlay.key)\"

Exit code 2: with --overlay-key, the certificate doesn't hold.")]
pub struct CertificateArgs {
    /// The file that `certify` made
    file: PathBuf,
    /// Check that this public key has signed it, and that it still holds
    #[arg(long, value_name = "PUBKEY")]
    overlay_key: Option<PublicKey>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs `trunkline certificate`.
pub fn certificate(args: &CertificateArgs) -> Result<(), KeyFileError> {
    let certificate = read_certificate(&args.file)?;
    if let Some(key) = args.overlay_key {
        certificate.verify(&[key], crate::clock::since_epoch() / 1_000_000_000)?;
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
        (0, _) => "for ever".to_owned(),
        (_, Some(left)) => format!("for another {} days", left / DAY),
        (_, None) => format!("over for {}", crate::operate::span((now - until) as f64)),
    };
    outln!("node {node}, {name}\nkey {key}\n{holds}");
    Ok(())
}
