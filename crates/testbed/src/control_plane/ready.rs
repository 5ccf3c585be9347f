//! Readiness check of an API server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Request timeout.
const DEADLINE: Duration = Duration::from_secs(5);
/// Does not require authentication.
const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Succeeds if `/readyz` at `address` returns 200.
pub(super) async fn check(address: SocketAddr, ca: &CertificateDer<'static>) -> anyhow::Result<()> {
    tokio::time::timeout(DEADLINE, ask(address, ca))
        .await
        .context("request timed out")?
}

async fn ask(address: SocketAddr, ca: &CertificateDer<'static>) -> anyhow::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone())?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await?;
    stream.write_all(REQUEST).await?;
    let mut head = vec![0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut head).await?;
    if head != b"HTTP/1.1 200" {
        bail!("/readyz: {}", String::from_utf8_lossy(&head));
    }
    Ok(())
}
