//! A proxy to a server: HTTP `CONNECT` and SOCKS 5 on one port of the loopback address.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Maximum size of a request head.
const MAX_HEAD: usize = 8 << 10;

/// A proxy that records the requested connections. Dropping it closes them all.
#[derive(Debug)]
pub struct ForwardProxy {
    address: SocketAddr,
    rules: Arc<Mutex<Rules>>,
    accepting: JoinHandle<()>,
}

/// A requested connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRequest {
    /// `host:port` as the client wrote it.
    pub target: String,
    /// User and password as `user:password`, if the client sent them.
    pub credentials: Option<String>,
    /// True if the proxy connected.
    pub accepted: bool,
}

#[derive(Debug, Default)]
struct Rules {
    credentials: Option<String>,
    hosts: BTreeMap<String, SocketAddr>,
    requests: Vec<ProxyRequest>,
}

impl ForwardProxy {
    /// Listens on a free port.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let rules = Arc::<Mutex<Rules>>::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&rules)));
        Ok(Self {
            address,
            rules,
            accepting,
        })
    }

    /// Closes the port and all connections.
    pub async fn stop(mut self) {
        self.accepting.abort();
        // ended by the abort
        let _ = (&mut self.accepting).await;
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requires a user and a password, as `user:password`.
    pub fn require(&self, credentials: &str) {
        lock(&self.rules).credentials = Some(credentials.to_owned());
    }

    /// Connects to `address` when a client asks for this host, whatever the port.
    pub fn resolve(&self, host: &str, address: SocketAddr) {
        lock(&self.rules).hosts.insert(host.to_owned(), address);
    }

    /// Returns the requested connections, in order.
    pub fn requests(&self) -> Vec<ProxyRequest> {
        lock(&self.rules).requests.clone()
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn lock(rules: &Mutex<Rules>) -> std::sync::MutexGuard<'_, Rules> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until it is aborted, which closes all connections.
async fn accept(listener: TcpListener, rules: Arc<Mutex<Rules>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let rules = Arc::clone(&rules);
                    connections.spawn(async move {
                        if let Err(error) = serve(stream, &rules).await {
                            tracing::debug!(%error, "proxied connection ended");
                        }
                    });
                }
                Err(error) => tracing::debug!(%error, "accept"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, rules: &Mutex<Rules>) -> io::Result<()> {
    let mut first = [0];
    client.peek(&mut first).await?;
    let server = match first[0] {
        5 => socks5(&mut client, rules).await?,
        _ => connect(&mut client, rules).await?,
    };
    if let Some(mut server) = server {
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    }
    Ok(())
}

/// Records a request and returns the address to connect to, if accepted.
fn decide(rules: &Mutex<Rules>, target: &str, credentials: Option<String>) -> Option<String> {
    let mut rules = lock(rules);
    let required = rules.credentials.as_ref();
    let accepted = required.is_none_or(|required| credentials.as_ref() == Some(required));
    rules.requests.push(ProxyRequest {
        target: target.to_owned(),
        credentials,
        accepted,
    });
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    let address = rules.hosts.get(host).map(SocketAddr::to_string);
    accepted.then(|| address.unwrap_or_else(|| target.to_owned()))
}

async fn connect(client: &mut TcpStream, rules: &Mutex<Rules>) -> io::Result<Option<TcpStream>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Err(io::Error::other("the head of the request is too long"));
        }
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some("CONNECT"), Some(target)) = (words.next(), words.next()) else {
        let answer = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n";
        client.write_all(answer).await?;
        return Ok(None);
    };
    let credentials = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("proxy-authorization");
        let encoded = value.trim().strip_prefix("Basic ").filter(|_| is_it)?;
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    });
    let Some(address) = decide(rules, target, credentials) else {
        let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\n\
                       proxy-authenticate: Basic realm=\"proxy\"\r\ncontent-length: 0\r\n\r\n";
        client.write_all(answer).await?;
        return Ok(None);
    };
    match TcpStream::connect(address).await {
        Ok(server) => {
            let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
            client.write_all(answer).await?;
            Ok(Some(server))
        }
        Err(_) => {
            let answer = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
            client.write_all(answer).await?;
            Ok(None)
        }
    }
}

async fn socks5(client: &mut TcpStream, rules: &Mutex<Rules>) -> io::Result<Option<TcpStream>> {
    let mut head = [0; 2];
    client.read_exact(&mut head).await?;
    let mut methods = vec![0; usize::from(head[1])];
    client.read_exact(&mut methods).await?;
    let login = lock(rules).credentials.is_some();
    let method = if login { 2 } else { 0 };
    if !methods.contains(&method) {
        client.write_all(&[5, 0xff]).await?;
        return Ok(None);
    }
    client.write_all(&[5, method]).await?;
    let mut credentials = None;
    if login {
        client.read_u8().await?;
        let user = text(client).await?;
        let password = text(client).await?;
        credentials = Some(format!("{user}:{password}"));
        // rejected together with the request
        client.write_all(&[1, 0]).await?;
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let host = match request[3] {
        1 => Ipv4Addr::from_bits(client.read_u32().await?).to_string(),
        _ => text(client).await?,
    };
    let port = client.read_u16().await?;
    let address = decide(rules, &format!("{host}:{port}"), credentials);
    let server = match address {
        None => Err(2),
        Some(address) => TcpStream::connect(address).await.map_err(|_| 5),
    };
    let code = server.as_ref().err().copied().unwrap_or(0);
    client.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(server.ok())
}

async fn text(client: &mut TcpStream) -> io::Result<String> {
    let mut text = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut text).await?;
    String::from_utf8(text).map_err(io::Error::other)
}
