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

/// Deadline of a request with its body: upstream's.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Where distributions keep the bundle of certificate authorities, as Go's crypto/x509 looks.
const CA_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why a body was not had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection, or it broke.
    #[error("request failed: {}", chain(.0))]
    Request(#[from] hyper_util::client::legacy::Error),
    /// An answer other than 200.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The body broke off.
    #[error("reading the body failed: {0}")]
    Body(String),
    /// The body is too long.
    #[error("the body is longer than {MAX_MANIFEST_BYTES} bytes")]
    TooLarge,
    /// Nothing within [`TIMEOUT`].
    #[error("no complete answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// `https`, and no certificate authorities on this node.
    #[error("no certificate authorities: none of {} can be read", CA_BUNDLES.join(", "))]
    NoAuthorities,
}

/// The client's error says only "client error"; its sources say what happened.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Fetches one URL, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher {
    uri: Uri,
    headers: HeaderMap,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    /// `https` without authorities to check against.
    unverifiable: bool,
}

impl Fetcher {
    /// A client for one URL; `headers` go with every request.
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

    /// The body of one answer.
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

/// The first bundle that has any.
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
