//! The server's side of TLS.
//!
//! The certificate files are read at the start and again by SIGHUP; open connections keep the
//! configuration of their handshake. A client that does not finish its handshake in
//! [`HANDSHAKE_TIME_MAX`] is closed.
//!
//! A change must ensure that, with TLS, no byte of a TCP client reaches the decoder unless it came
//! encrypted, after the handshake, or through a listener with `notls:` (`Listener::is_plain`).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{version, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::stream::Stream;
use crate::settings::tls::{ClientCertificates, TlsSettings};
use crate::timers;

/// The time that a client has for its handshake.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// The server's certificate and key, and the rules for clients.
pub struct Tls {
    settings: TlsSettings,
    read: RwLock<Read>,
}

/// The files as they were read last.
struct Read {
    acceptor: TlsAcceptor,
    /// The time at which they were read.
    at: Instant,
}

/// A configuration that was read from valid files and is not used yet.
pub struct NewConfig(Arc<ServerConfig>);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A sentence with the file and the reason.
    pub fn open(settings: &TlsSettings) -> Result<Self, String> {
        let config = config(settings)?;
        let read = Read { acceptor: config.into(), at: Instant::now() };
        Ok(Self { settings: settings.clone(), read: RwLock::new(read) })
    }

    /// Reads the files again.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn read_again(&self) -> Result<NewConfig, String> {
        config(&self.settings).map(NewConfig)
    }

    /// Uses a new configuration for all clients that connect from now on.
    pub fn replace(&self, NewConfig(config): NewConfig) {
        *self.read.write() = Read { acceptor: config.into(), at: Instant::now() };
    }

    /// Returns the time since the files were read.
    pub fn age(&self) -> Duration {
        self.read.read().at.elapsed()
    }

    /// Does the handshake with a client. Unix streams have no TLS, as in memcached.
    ///
    /// # Errors
    ///
    /// The client has failed in the handshake, or was too slow.
    pub async fn accept(&self, stream: Stream) -> io::Result<Stream> {
        let Stream::Tcp(stream) = stream else { return Ok(stream) };
        let handshake = self.read.read().acceptor.accept(stream);
        match timers::timeout(HANDSHAKE_TIME_MAX, handshake).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream?))),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")),
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let versions = if settings.is_13_only { &[&version::TLS13][..] } else { &[&version::TLS12, &version::TLS13] };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|why| format!("-Z: {why}"))?;
    let builder = match &settings.clients {
        ClientCertificates::None => builder.with_no_client_auth(),
        ClientCertificates::Optional(file) | ClientCertificates::Required(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("ssl_ca_cert", file)? {
                roots.add(certificate).map_err(|why| refused("ssl_ca_cert", file, &why))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match &settings.clients {
                ClientCertificates::Optional(_) => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|why| refused("ssl_ca_cert", file, &why))?)
        }
    };
    let chain = certificates("ssl_chain_cert", &settings.chain)?;
    let key = PrivateKeyDer::from_pem_file(&settings.key).map_err(|why| refused("ssl_key", &settings.key, &why))?;
    // As OpenSSL, goes by the contents: a PKCS#8 key may be labelled as an RSA or EC key.
    let key = PrivateKeyDer::try_from(key.secret_der().to_vec()).unwrap_or(key);
    // Fails, too, if the key is not that of the certificate.
    let config = builder.with_single_cert(chain, key).map_err(|why| refused("ssl_key", &settings.key, &why))?;
    Ok(Arc::new(config))
}

/// Reads the certificates of a file; at least one.
fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(refused(option, file, &"there is no certificate in it")),
        Ok(certificates) => Ok(certificates),
        Err(why) => Err(refused(option, file, &why)),
    }
}

fn refused(option: &str, file: &Path, why: &dyn std::fmt::Display) -> String {
    format!("-o: {option}: {}: {why}", file.display())
}
