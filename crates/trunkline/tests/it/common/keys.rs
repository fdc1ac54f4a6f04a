//! Keys of nodes and clients, the same in every run.

use super::Node;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trunkline_overlay::identity::Identity;

/// Secret of the client that every sealed node knows and that has all rights.
pub const CLIENT: u8 = 100;
/// Secret of a client that may bind 4000 to 4001 and send to node 1.
pub const LIMITED: u8 = 101;
/// Secret of a client that no node knows.
pub const STRANGER: u8 = 102;

/// Identity of a node, by its ID, or of a client, with secret `n`.
pub fn identity(n: u8) -> Identity {
    Identity::from_secret(&[n; 32])
}

/// Writes the secret `n` to a file in `dir`.
pub fn key_file(dir: &Path, n: u8) -> PathBuf {
    let path = dir.join(format!("{n}.key"));
    if !path.exists() {
        fs::write(&path, identity(n).secret_text().as_str()).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permitted");
    }
    path
}

/// The configuration line with the key of a link to `neighbour`.
pub fn of_neighbour(neighbour: usize, sealed: bool) -> String {
    let key = identity(neighbour as u8).public();
    if sealed { format!("key = \"{key}\"\n") } else { String::new() }
}

impl Node {
    fn dir(&self) -> &Path {
        self.config.parent().expect("a folder")
    }

    /// Lines of `[node]` about keys and, with keys, about remote applications; and further
    /// sections.
    pub(super) fn protection(&self) -> (String, String) {
        if !self.sealed {
            return ("unsealed_for_measurements = true\n".into(), String::new());
        }
        let file = key_file(self.dir(), self.id as u8);
        let (all, limited) = (identity(CLIENT).public(), identity(LIMITED).public());
        let clients = format!(
            "[[client]]\nname = \"all\"\nkey = \"{all}\"\n\
             [[client]]\nname = \"limited\"\nkey = \"{limited}\"\n\
             bind = [\"4000-4001\"]\nto = [1]\n"
        );
        let file = file.to_str().expect("text");
        (format!("key = {file:?}\nremote = [\"{}\"]\n", self.remote), clients)
    }

    /// Attachment of an application on another host to a sealed node.
    pub fn attachment(&self) -> String {
        self.attachment_at(self.remote, CLIENT)
    }

    /// Attachment through `address`, as `client`.
    pub fn attachment_at(&self, address: SocketAddr, client: u8) -> String {
        let file = key_file(self.dir(), client);
        let node = identity(self.id as u8).public();
        format!("tcp://{address}?node={node}&key={}", file.to_str().expect("text"))
    }
}
