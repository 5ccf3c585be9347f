//! The server behind TLS on the loopback address, with fault injection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, DnType};
use rustls::ServerConfig;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::authority::{Authority, AuthorityError, Purpose};
use crate::client_cert::ClientCerts;
use crate::freeze::{Freezer, FrozenIo};
use crate::http::handle;
use crate::server::{FakeApiServer, Shared};

/// Maximum number of streams per connection, as in the real server.
const STREAMS: u32 = 100;
/// Validity of the serving certificate.
const VALID: Duration = Duration::from_secs(24 * 3600);

/// The serving certificate of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCertificate {
    /// The valid one.
    Valid,
    /// Expired a minute ago.
    Expired,
    /// For `other.example`.
    OtherName,
    /// Of an unknown CA.
    OtherAuthority,
}

/// The credentials of a kubeconfig.
#[derive(Clone, Copy, Debug)]
pub enum KubeconfigUser<'a> {
    /// Certificates and key in PEM, as from [`TlsServer::issue_client_cert`], embedded.
    Certificate(&'a str),
    /// A bearer token.
    Token(&'a str),
    /// A file with certificates and key.
    CertificateFile(&'a Path),
    /// No credentials.
    Anonymous,
}

/// A [`FakeApiServer`] that listens on `127.0.0.1`. Dropping it closes the listener and all
/// connections.
#[derive(Debug)]
pub struct TlsServer {
    api: FakeApiServer,
    address: SocketAddr,
    front: Arc<Front>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Front {
    shared: Arc<Shared>,
    config: Mutex<Arc<ServerConfig>>,
    certs: Arc<ClientCerts>,
    freezer: Freezer,
}

impl TlsServer {
    pub(crate) async fn start(api: FakeApiServer) -> io::Result<Self> {
        let certificate = api
            .shared
            .authority
            .certificate()
            .map_err(io::Error::other)?;
        let certs = Arc::new(ClientCerts::new(certificate.der().clone())?);
        let config = server_config(&api, &certs, ServerCertificate::Valid)?;
        let front = Arc::new(Front {
            shared: api.shared.clone(),
            config: Mutex::new(config),
            certs,
            freezer: Freezer::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut server = Self {
            api,
            address: listener.local_addr()?,
            front,
            accepting: None,
        };
        server.accept(listener);
        Ok(server)
    }

    /// `https://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the CA of the cluster, in PEM.
    ///
    /// # Errors
    /// The CA cannot be created.
    pub fn ca_pem(&self) -> io::Result<String> {
        let certificate = self.api.shared.authority.certificate();
        Ok(certificate.map_err(io::Error::other)?.pem())
    }

    /// Returns a client certificate and its key as PEM text, valid from five minutes ago for
    /// `lifetime` from now. At most two organizations are supported.
    ///
    /// # Errors
    /// The certificate cannot be created.
    pub fn issue_client_cert(
        &self,
        common_name: &str,
        organizations: &[&str],
        lifetime: Duration,
    ) -> io::Result<String> {
        // rcgen keeps one value per name type; the second uses the OID of the same type
        let types = [
            DnType::OrganizationName,
            DnType::CustomDnType(vec![2, 5, 4, 10]),
        ];
        if organizations.len() > types.len() {
            return Err(io::Error::other("at most two organizations"));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, organization) in types.into_iter().zip(organizations) {
            params.distinguished_name.push(kind, *organization);
        }
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let now = self.api.shared.clock.now();
        let authority = &self.api.shared.authority;
        let (certificate, key) = authority
            .issue(params, Purpose::Client, now, lifetime)
            .map_err(io::Error::other)?;
        Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
    }

    /// Writes a kubeconfig for this server.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn kubeconfig(&self, path: &Path, user: KubeconfigUser<'_>) -> io::Result<()> {
        let user = match user {
            KubeconfigUser::Certificate(pem) => json!({
                "client-certificate-data": STANDARD.encode(pem),
                "client-key-data": STANDARD.encode(pem),
            }),
            KubeconfigUser::CertificateFile(file) => {
                json!({ "client-certificate": file, "client-key": file })
            }
            KubeconfigUser::Token(token) => json!({ "token": token }),
            KubeconfigUser::Anonymous => json!({}),
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "fake", "cluster": {
                "server": self.url(),
                "certificate-authority-data": STANDARD.encode(self.ca_pem()?),
            }}],
            "users": [{ "name": "user", "user": user }],
            "contexts": [{ "name": "fake", "context": { "cluster": "fake", "user": "user" }}],
            "current-context": "fake",
        });
        // JSON is valid YAML
        std::fs::write(path, config.to_string())
    }

    /// Closes the listener and all connections: new ones fail.
    pub async fn stop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            // ended by the abort; awaited so that the port is free afterwards
            let _ = accepting.await;
        }
    }

    /// Listens again on the same port.
    ///
    /// # Errors
    /// The port is in use.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.stop().await;
        let listener = TcpListener::bind(self.address).await?;
        self.accept(listener);
        Ok(())
    }

    /// While enabled, no connection transfers data, old or new: a network that drops every packet.
    pub fn black_hole(&self, on: bool) {
        self.front.freezer.set(on);
    }

    /// Sets the certificate of new connections.
    ///
    /// # Errors
    /// The certificate cannot be created.
    pub fn set_certificate(&self, certificate: ServerCertificate) -> io::Result<()> {
        let config = server_config(&self.api, &self.front.certs, certificate)?;
        *self
            .front
            .config
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn accept(&mut self, listener: TcpListener) {
        self.accepting = Some(tokio::spawn(accept(self.front.clone(), listener)));
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

/// Serves until it is aborted, which closes all connections.
async fn accept(front: Arc<Front>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(front.clone(), stream));
                }
                Err(error) => tracing::debug!(%error, "accept"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(front: Arc<Front>, stream: TcpStream) {
    let config = {
        let config = front.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.clone()
    };
    let io = FrozenIo::new(stream, front.freezer.clone());
    let stream = match TlsAcceptor::from(config).accept(io).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "handshake");
            return;
        }
    };
    let chain = stream.get_ref().1.peer_certificates();
    let chain = chain.map(<[_]>::to_vec).unwrap_or_default();
    let service = service_fn(|request| {
        // verified for each request: a certificate may expire while its connection is open
        let user = front.certs.user_of(&chain, front.shared.clock.now());
        handle(front.shared.clone(), user, request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS);
    let served = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection");
    }
}

fn server_config(
    api: &FakeApiServer,
    certs: &Arc<ClientCerts>,
    certificate: ServerCertificate,
) -> io::Result<Arc<ServerConfig>> {
    let unknown = Authority::default();
    let authority = match certificate {
        ServerCertificate::OtherAuthority => &unknown,
        _ => &api.shared.authority,
    };
    let names = match certificate {
        ServerCertificate::OtherName => vec!["other.example".to_owned()],
        _ => vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
    };
    let now = api.shared.clock.now();
    let (began, lifetime) = match certificate {
        ServerCertificate::Expired => (now - VALID, VALID - Duration::from_secs(60)),
        _ => (now, VALID),
    };
    let issued = CertificateParams::new(names)
        .and_then(|params| authority.issue(params, Purpose::Server, began, lifetime));
    let (certificate, key) = issued.map_err(|error: AuthorityError| io::Error::other(error))?;
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_client_cert_verifier(certs.clone())
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
