//! A registry on loopback with one image, protected by a password.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::images::sleeper;
use crate::oci::digest;

/// User name.
pub const USER: &str = "ann";
/// Password.
pub const PASSWORD: &str = "hunter2";
/// Credentials in the Authorization header.
const AUTHORIZATION: &str = "Basic YW5uOmh1bnRlcjI=";

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The registry, stopped on drop.
#[derive(Debug)]
pub struct PrivateRegistry {
    address: SocketAddr,
    rejected: Arc<Mutex<u32>>,
    server: JoinHandle<()>,
}

/// Content by path suffix.
type Content = BTreeMap<String, (&'static str, Vec<u8>)>;

impl PrivateRegistry {
    /// Listens on a free port of 127.0.0.1, where containerd speaks plain HTTP.
    ///
    /// # Errors
    /// Busybox cannot be read, or no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let blobs = sleeper().context("cannot build the image")?;
        let mut content = Content::new();
        for blob in [blobs.config, blobs.layer] {
            let kind = "application/octet-stream";
            content.insert(format!("/blobs/{}", digest(&blob)), (kind, blob));
        }
        let by_digest = format!("/manifests/{}", digest(&blobs.manifest));
        content.insert(by_digest, (MANIFEST, blobs.manifest.clone()));
        content.insert("/manifests/1".to_owned(), (MANIFEST, blobs.manifest));

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (content, rejected) = (Arc::new(content), Arc::new(Mutex::new(0)));
        let counter = rejected.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (content, counter) = (content.clone(), counter.clone());
                // errors affect one request only
                tokio::spawn(async move { respond(stream, &content, &counter).await.ok() });
            }
        });
        Ok(Self {
            address,
            rejected,
            server,
        })
    }

    /// Returns host and port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Returns the name of the image (busybox that sleeps).
    pub fn image(&self) -> String {
        format!("{}/team/sleeper:1", self.address)
    }

    /// Returns the number of requests with a wrong password.
    pub fn rejected(&self) -> u32 {
        *self.rejected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PrivateRegistry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Responds to one request and closes.
async fn respond(
    stream: TcpStream,
    content: &Content,
    rejected: &Mutex<u32>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    // containerd 2.x tries TLS first and falls back to HTTP
    if stream.fill_buf().await?.first() == Some(&TLS_HANDSHAKE) {
        let response = b"HTTP/1.0 400 Bad Request\r\n\r\nthis is an HTTP server\n";
        stream.write_all(response).await?;
        return stream.shutdown().await;
    }
    let mut request = String::new();
    stream.read_line(&mut request).await?;
    let mut authorization = None;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("authorization") {
            authorization = Some(value.trim().to_owned());
        }
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next(), words.next().unwrap_or_default());
    let found = content.iter().find(|(end, _)| path.ends_with(end.as_str()));
    let (status, kind, body): (_, _, &[u8]) = match (authorization.as_deref(), found) {
        (Some(AUTHORIZATION), Some((_, (kind, body)))) => ("200 OK", *kind, body),
        (Some(AUTHORIZATION), None) => ("404 Not Found", "text/plain", b""),
        (wrong, _) => {
            if wrong.is_some() {
                *rejected.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
            ("401 Unauthorized", "text/plain", b"")
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Docker-Content-Digest: {}\r\nWWW-Authenticate: Basic realm=\"test\"\r\n\
         Connection: close\r\n\r\n",
        body.len(),
        digest(body),
    );
    stream.write_all(head.as_bytes()).await?;
    if method != Some("HEAD") {
        stream.write_all(body).await?;
    }
    stream.shutdown().await
}
