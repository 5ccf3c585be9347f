//! Replaces the serving certificate while the server runs: an open connection continues, the next
//! one gets the new certificate.
//!
//! `cargo run -p windlass-https --example replace_the_certificate`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use windlass_https::{
    Limits, ServingCertificate, TlsChoice, TlsProfile, TlsSource, Transport, serve,
};
use windlass_mailboxes::SystemClock;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (first, trust_first) = certificate()?;
    let (second, trust_second) = certificate()?;
    let (replace, certificate) = watch::channel(Some(first));
    let tls = TlsSource {
        certificate,
        client_ca: None,
        profile: TlsProfile::new(&TlsChoice::default())?,
        clock: Arc::new(SystemClock),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().fallback(get(|| async { "served" }));
    let shutdown = CancellationToken::new();
    let limits = Limits::default();
    let server = serve(
        listener,
        router,
        Transport::Tls(tls),
        limits,
        shutdown.clone(),
    );
    let server = tokio::spawn(server);

    let mut old = connect(address, &trust_first).await?;
    println!(
        "trusting the first certificate:    {}",
        ask(&mut old).await?
    );
    replace.send_replace(Some(second));
    println!("replaced");
    println!(
        "the open connection:               {}",
        ask(&mut old).await?
    );
    match connect(address, &trust_first).await {
        Err(error) => println!("new, trusting the first:           {error}"),
        Ok(_) => return Err("the first certificate is still in use".into()),
    }
    let mut new = connect(address, &trust_second).await?;
    println!(
        "new, trusting the second:          {}",
        ask(&mut new).await?
    );

    drop((old, new));
    shutdown.cancel();
    server.await?;
    Ok(())
}

/// A self-signed certificate for `localhost`, and its DER for clients.
fn certificate() -> Result<(ServingCertificate, CertificateDer<'static>), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = ServingCertificate::from_pem(pem.as_bytes())?;
    Ok((certificate, made.cert.der().clone()))
}

async fn connect(
    server: SocketAddr,
    trusted: &CertificateDer<'static>,
) -> Result<TlsStream<TcpStream>, Box<dyn Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server).await?;
    let name = ServerName::try_from("localhost")?;
    Ok(TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?)
}

/// The status line of a response.
async fn ask(stream: &mut TlsStream<TcpStream>) -> Result<String, Box<dyn Error>> {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"served") {
        answer.push(stream.read_u8().await?);
    }
    let answer = String::from_utf8(answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
