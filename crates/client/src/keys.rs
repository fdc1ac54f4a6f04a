//! Keys that a client authenticates with, from the attachment
//! `tcp://HOST:PORT?node=PUBKEY&key=FILE`.

use crate::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trunkline_overlay::identity::{Identity, PublicKey};

/// A client's secret key and its node's public key.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) node: PublicKey,
    pub(crate) identity: Identity,
}

/// The keys of one socket: the query that names them, and their values when last read.
#[derive(Debug)]
pub(crate) struct KeyRing {
    query: String,
    keys: Option<Keys>,
}

impl KeyRing {
    pub(crate) fn new(query: String) -> KeyRing {
        KeyRing { query, keys: None }
    }

    /// Reads the keys from their files again.
    pub(crate) fn read(&mut self) -> Result<(), Error> {
        self.keys = Some(Keys::read(&self.query)?);
        Ok(())
    }

    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }
}

impl Keys {
    /// Reads the keys that `query`, the part after the question mark, names.
    fn read(query: &str) -> Result<Keys, Error> {
        let Query { node, key } = Query::parse(query)?;
        Ok(Keys { node, identity: read_identity(&key)? })
    }
}

#[derive(Debug, PartialEq)]
struct Query {
    node: PublicKey,
    key: PathBuf,
}

impl Query {
    fn parse(query: &str) -> Result<Query, Error> {
        let wrong = |what: String| Error::Attachment { what };
        let (mut node, mut key) = (None, None);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = unescape(value).ok_or_else(|| {
                wrong(format!("`{value}` has a % without two hexadecimal digits after it"))
            })?;
            let twice = match name {
                "node" => node.replace(node_key(&value).map_err(wrong)?).is_some(),
                "key" => key.replace(PathBuf::from(OsString::from_vec(value))).is_some(),
                _ => return Err(wrong(format!("expected `node` or `key`, not `{name}`"))),
            };
            if twice {
                return Err(wrong(format!("it has `{name}` twice")));
            }
        }
        match (node, key) {
            (Some(node), Some(key)) if !key.as_os_str().is_empty() => Ok(Query { node, key }),
            (None, _) => Err(missing()),
            _ => Err(wrong("`key`, the file with this application's key, is missing".into())),
        }
    }
}

/// Error for an attachment to another host that lacks the node's key.
pub(crate) fn missing() -> Error {
    Error::Attachment { what: "`node`, the node's public key, is missing".into() }
}

/// Decodes standard or URL-safe base64 (RFC 4648, section 5), padded or not.
fn node_key(value: &[u8]) -> Result<PublicKey, String> {
    let text = String::from_utf8_lossy(value).replace('-', "+").replace('_', "/");
    let text = format!("{}=", text.trim_end_matches('='));
    text.parse().map_err(|e| format!("`node` is not a public key: {e}"))
}

/// Decodes percent-encoding (RFC 3986, section 2.1).
fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        out.push((high * 16 + low) as u8);
    }
    Some(out)
}

/// Reads a secret key, which must be accessible to its owner only.
fn read_identity(path: &Path) -> Result<Identity, Error> {
    let wrong = |what: String| Error::KeyFile { path: path.to_owned(), what };
    let unreadable = |e: io::Error| wrong(format!("cannot be read: {e}"));
    // The permissions checked are those of the file that is read, even if the path is replaced
    // meanwhile.
    let mut file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.permissions().mode() & 0o077 != 0 {
        return Err(wrong("can be read by others than its owner: chmod 600".into()));
    }
    let mut text = zeroize::Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(unreadable)?;
    Identity::from_text(&text).map_err(|e| wrong(format!("holds no secret key: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A key with standard base64 that contains both characters that URL-safe base64 replaces.
    fn key() -> PublicKey {
        let keys = (0..).map(|n: u8| Identity::from_secret(&[n; 32]).public());
        keys.into_iter()
            .find(|k| k.to_string().contains('+') && k.to_string().contains('/'))
            .unwrap()
    }

    #[test]
    fn a_key_may_be_written_in_each_way_of_base64() {
        let standard = key().to_string();
        let url = standard.replace('+', "-").replace('/', "_");
        let percent = standard.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D");
        for text in [&standard, &url, &percent, url.trim_end_matches('=')] {
            let query = Query::parse(&format!("node={text}&key=/a%20b/c=d.key")).unwrap();
            assert_eq!(query, Query { node: key(), key: "/a b/c=d.key".into() }, "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let node = format!("node={}", key());
        for (query, what) in [
            (node.clone(), "`key`, the file"),
            (format!("{node}&key="), "`key`, the file"),
            ("key=/a".into(), "`node`, the node's public key, is missing"),
            (format!("{node}&{node}&key=/a"), "`node` twice"),
            (format!("{node}&kye=/a"), "not `kye`"),
            ("node=abc&key=/a".into(), "`node` is not a public key: a key is 44 characters"),
            (format!("{node}&key=/a%2"), "a % without two"),
            (String::new(), "`node`"),
        ] {
            let error = Query::parse(&query).unwrap_err().to_string();
            assert!(error.contains(what), "{query}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_query_or_an_error(text in ".{0,60}") {
            let _ = Query::parse(&text);
        }
    }
}
