//! TLS for connections.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, which `reload` reads from their files again.
#[derive(Clone)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not valid PEM.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The cause.
        error: rustls::pki_types::pem::Error,
    },
    /// The certificate and the key do not belong together.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    /// Reads a certificate chain and its key, in PEM.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = Arc::new(RwLock::new(config(certificate, key)?));
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), current })
    }

    /// Reads both files again, for new connections. If they cannot be used, nothing changes.
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = config(&self.certificate, &self.key)?;
        *self.current.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = new;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        TlsAcceptor::from(current.clone())
    }
}

fn config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let refuse = |path: &Path, error| TlsError::File { path: path.display().to_string(), error };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refuse(certificate, error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, private)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
