//! A registry on loopback that shows its one image to those who know the password.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::images::sleeper;
use crate::oci::digest;

/// Who may pull.
pub const USER: &str = "ann";
/// Her password.
pub const PASSWORD: &str = "hunter2";
/// Both, as a client sends them.
const AUTHORIZATION: &str = "Basic YW5uOmh1bnRlcjI=";

/// First byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 0x16;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The registry; ends when dropped.
#[derive(Debug)]
pub struct PrivateRegistry {
    address: SocketAddr,
    refused: Arc<Mutex<u32>>,
    server: JoinHandle<()>,
}

/// Content by the end of its path.
type Content = BTreeMap<String, (&'static str, Vec<u8>)>;

impl PrivateRegistry {
    /// Listens on a free port of 127.0.0.1, where containerd speaks plain HTTP.
    ///
    /// # Errors
    /// Busybox cannot be read, or there is no port.
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
        let (content, refused) = (Arc::new(content), Arc::new(Mutex::new(0)));
        let counter = refused.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (content, counter) = (content.clone(), counter.clone());
                // a client that goes away takes only its own request with it
                tokio::spawn(async move { answer(stream, &content, &counter).await.ok() });
            }
        });
        Ok(Self {
            address,
            refused,
            server,
        })
    }

    /// Host and port, the pattern of credentials for it.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Name of the image: busybox that sleeps.
    pub fn image(&self) -> String {
        format!("{}/team/sleeper:1", self.address)
    }

    /// Requests that came with a wrong password; those with none are how a client begins.
    pub fn refused(&self) -> u32 {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PrivateRegistry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers one request and closes.
async fn answer(stream: TcpStream, content: &Content, refused: &Mutex<u32>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    // containerd 2.x begins with TLS and goes on without when it is answered in HTTP
    if stream.fill_buf().await?.first() == Some(&TLS_HANDSHAKE) {
        let answer = b"HTTP/1.0 400 Bad Request\r\n\r\nthis is an HTTP server\n";
        stream.write_all(answer).await?;
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
                *refused.lock().unwrap_or_else(PoisonError::into_inner) += 1;
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
