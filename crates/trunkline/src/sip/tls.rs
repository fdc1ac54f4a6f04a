//! The TLS settings of a gateway, and the files that they come from.

use crate::files;
use crate::node::config;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// TLS settings: the certificate presented, and the roots trusted.
#[derive(Clone, Default)]
pub struct Tls {
    pub(super) acceptor: Option<TlsAcceptor>,
    pub(super) connector: Option<TlsConnector>,
    /// Certificates of the acceptor and the connector, to compare settings.
    of: [Vec<CertificateDer<'static>>; 2],
    /// When the presented certificate expires, in seconds since 1970; 0 without one.
    pub not_after: u64,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        self.of == other.of
    }
}

impl Tls {
    /// Reads the files of the TLS settings; fails with a description of the problem.
    pub fn read(files: &config::Tls) -> Result<Tls, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = Tls::default();
        if let Some((certificate, key)) = &files.own {
            let chain = certificates("certificate", certificate)?;
            let secret = private_key(key)?;
            tls.not_after = not_after(&chain);
            tls.of[0].clone_from(&chain);
            let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .map_err(|e| e.to_string())?
                .with_no_client_auth()
                .with_single_cert(chain, secret)
                .map_err(|e| unusable(certificate, key, &e))?;
            tls.acceptor = Some(TlsAcceptor::from(Arc::new(server)));
        }
        if let Some(path) = &files.roots {
            let mut roots = RootCertStore::empty();
            for (n, root) in (1..).zip(certificates("roots", path)?) {
                tls.of[1].push(root.clone());
                roots.add(root).map_err(|_| {
                    let path = path.display();
                    format!(
                        "roots {path}: its certificate number {n} is damaged, or none of X.509 \
                         version 3: take it out, or copy it again"
                    )
                })?;
            }
            let client = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|e| e.to_string())?
                .with_root_certificates(roots)
                .with_no_client_auth();
            tls.connector = Some(TlsConnector::from(Arc::new(client)));
        }
        Ok(tls)
    }
}

/// When the first certificate of a chain expires, in seconds since 1970; 0 if that can't be told.
fn not_after(chain: &[CertificateDer<'_>]) -> u64 {
    let first = chain.first().and_then(|der| X509Certificate::from_der(der).ok());
    let end = first.map_or(0, |(_, certificate)| certificate.validity().not_after.timestamp());
    u64::try_from(end).unwrap_or(0)
}

/// Maximum size of a certificate file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads the file that `key` names.
fn content(key: &str, path: &Path) -> Result<Vec<u8>, String> {
    files::read(path, MAX_FILE).map_err(|e| {
        let path = path.display();
        format!(
            "{key} {path} can't be read: {e}; check `{key}`, and that the node's user may read the \
             file"
        )
    })
}

/// Reads the certificates in the file that `key` names.
fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |what: &str| format!("{key} {}: {what}", path.display());
    let text = content(key, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all.map_err(|e| wrong(damage(&e)))? {
        none if none.is_empty() => Err(wrong(match text.first() {
            Some(0x30) => {
                "it is in DER, not in PEM: `openssl x509 -inform der -in FILE -out NEW` converts it"
            }
            _ => {
                "no certificate is in it: it needs a part from -----BEGIN CERTIFICATE----- to \
                 -----END CERTIFICATE-----"
            }
        })),
        some => Ok(some),
    }
}

/// Reads the key of the gateway's certificate.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = content("certificate_key", path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| {
        let has = |words: &str| text.windows(words.len()).any(|part| part == words.as_bytes());
        let what = match e {
            pem::Error::NoItemsFound if has("BEGIN ENCRYPTED PRIVATE KEY") => {
                "it is protected by a password: `openssl pkey -in FILE -out NEW` removes that; let \
                 only the node's user read the new file"
            }
            pem::Error::NoItemsFound if has("BEGIN CERTIFICATE") => {
                "it has a certificate and no private key: name the file with the key of \
                 `certificate`"
            }
            pem::Error::NoItemsFound => {
                "no private key is in it: it needs a part from -----BEGIN PRIVATE KEY----- to \
                 -----END PRIVATE KEY-----"
            }
            e => damage(&e),
        };
        format!("certificate_key {}: {what}", path.display())
    })
}

/// The damage of a PEM file, and what helps.
fn damage(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "it is cut off, since a line -----END …----- is missing: copy the whole file again"
        }
        _ => "it is damaged, since a part of it isn't PEM: copy the whole file again",
    }
}

/// Why a certificate and a key can't be used together.
fn unusable(certificate: &Path, key: &Path, error: &rustls::Error) -> String {
    let (one, other) = (certificate.display(), key.display());
    match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "certificate {one} and certificate_key {other} don't belong together: name the key that \
             the certificate was made for; of several certificates in a file the first must be the \
             gateway's"
        ),
        rustls::Error::InvalidCertificate(_) => format!(
            "certificate {one}: its first certificate is damaged, or none of X.509 version 3: copy \
             it again, or have a new one made"
        ),
        _ => format!(
            "certificate_key {other}: a key of this kind can't be used: make one for RSA (2048 to \
             8192 bits), ECDSA (P-256 or P-384) or Ed25519, and a certificate for it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_file_is_told_with_the_file_and_a_remedy() {
        let made = || rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
        let (one, other) = (made(), made());
        let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let said = |certificate: &[u8], key: &[u8], roots: Option<&[u8]>| {
            let file = |name: &str, content: &[u8]| {
                std::fs::write(path(name), content).unwrap();
                path(name)
            };
            let own = Some((file("c.pem", certificate), file("k.pem", key)));
            let roots = roots.map(|roots| file("r.pem", roots));
            Tls::read(&config::Tls { own, roots }).err().unwrap_or_default()
        };
        let (c, k) = (certificate.as_bytes(), key.as_bytes());
        assert_eq!(said(c, k, Some(c)), "");
        let cut = &c[..c.len() - 30];
        let bad = certificate.replacen("MII", "!!!", 1);
        let der = one.cert.der().to_vec();
        let strange = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let strange_key = strange.replace("CERTIFICATE", "PRIVATE KEY");
        let secret = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        let (other, strange) = (other.signing_key.serialize_pem(), strange.as_bytes());
        for (certificate, key, roots, file, why) in [
            (cut, k, None, "certificate ", "cut off"),
            (bad.as_bytes(), k, None, "certificate ", "damaged"),
            (&der[..], k, None, "certificate ", "openssl x509 -inform der"),
            (b"", k, None, "certificate ", "no certificate is in it"),
            (strange, k, None, "certificate ", "damaged"),
            (c, b"", None, "certificate_key ", "no private key is in it"),
            (c, c, None, "certificate_key ", "has a certificate and no private key"),
            (c, secret.as_bytes(), None, "certificate_key ", "openssl pkey"),
            (c, strange_key.as_bytes(), None, "certificate_key ", "a key of this kind"),
            (c, other.as_bytes(), None, "certificate ", "belong together"),
            (c, k, Some(cut), "roots ", "cut off"),
            (c, k, Some(strange), "roots ", "number 1"),
        ] {
            let said = said(certificate, key, roots);
            assert!(said.starts_with(file) && said.contains(why), "{why}: {said}");
            assert!(said.contains(directory.path().to_str().unwrap()), "{said}");
        }
        let own = Some((path("none.pem"), path("none.key")));
        let said = Tls::read(&config::Tls { own, roots: None }).err().unwrap();
        assert!(said.contains("none.pem can't be read: No such file"), "{said}");
    }
}
