//! Fetches the manifest.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use windlass_manifests::manifest::MAX_MANIFEST_BYTES;

/// Timeout of a request including its body, as upstream.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Paths of certificate authority bundles, as in Go crypto/x509.
const CA_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Error of a fetch.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Connecting or sending failed.
    #[error("request failed: {}", chain(.0))]
    Request(#[from] hyper_util::client::legacy::Error),
    /// A status other than 200.
    #[error("unexpected status: {0}")]
    Status(StatusCode),
    /// Reading the body failed.
    #[error("reading the body failed: {0}")]
    Body(String),
    /// The body is too long.
    #[error("the body is longer than {MAX_MANIFEST_BYTES} bytes")]
    TooLarge,
    /// The request exceeded [`TIMEOUT`].
    #[error("timed out after {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// `https` without certificate authorities on this node.
    #[error("no certificate authorities: cannot read any of {}", CA_BUNDLES.join(", "))]
    NoAuthorities,
}

/// Formats an error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Client for one URL.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher {
    uri: Uri,
    headers: HeaderMap,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    /// `https` without certificate authorities.
    unverifiable: bool,
}

impl Fetcher {
    /// Creates a client that sends `headers` with every request.
    pub(crate) fn new(uri: Uri, mut headers: HeaderMap) -> Self {
        headers
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static("windlass"));
        let secure = uri.scheme_str() == Some("https");
        let roots = if secure {
            authorities()
        } else {
            RootCertStore::empty()
        };
        let unverifiable = secure && roots.is_empty();
        let tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        Self {
            uri,
            headers,
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(connector),
            unverifiable,
        }
    }

    /// Returns the body of one response.
    pub(crate) async fn fetch(&self) -> Result<Bytes, FetchError> {
        if self.unverifiable {
            return Err(FetchError::NoAuthorities);
        }
        tokio::time::timeout(TIMEOUT, self.get())
            .await
            .unwrap_or(Err(FetchError::TimedOut))
    }

    async fn get(&self) -> Result<Bytes, FetchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let response = self.client.request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_MANIFEST_BYTES as usize);
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge),
            Err(error) => Err(FetchError::Body(error.to_string())),
        }
    }
}

/// Loads the first bundle with certificates.
fn authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for bundle in CA_BUNDLES {
        let Ok(certificates) = CertificateDer::pem_file_iter(bundle) else {
            continue;
        };
        roots.add_parsable_certificates(certificates.flatten());
        if !roots.is_empty() {
            break;
        }
    }
    roots
}
