//! Proxies a stream between a client and a container runtime, both played by the example: the
//! upgrade is replayed without credentials, then bytes are copied both ways.
//!
//! `cargo run -p windlass-streams --example join_a_stream`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::io;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use windlass_streams::{Limits, Sessions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = TcpListener::bind("127.0.0.1:0").await?;
    // the URL that a runtime returns for CRI's Exec
    let url = format!("http://{}/exec/token", runtime.local_addr()?);
    let echo = tokio::spawn(echo(runtime));

    let sessions = Sessions::new(Limits::default(), CancellationToken::new());
    let node = Router::new()
        .fallback(handle)
        .with_state((sessions.clone(), url));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, node).await });

    let mut client = TcpStream::connect(address).await?;
    let upgrade = "POST /exec/default/web/app?command=cat HTTP/1.1\r\nHost: node\r\n\
        Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nAuthorization: Bearer secret\r\n\r\n";
    client.write_all(upgrade.as_bytes()).await?;
    println!("client:  {}", first_line(&head(&mut client).await?));
    client.write_all(b"hello").await?;
    let mut received = [0; 5];
    client.read_exact(&mut received).await?;
    println!("client:  received {:?}", String::from_utf8_lossy(&received));
    println!("node:    {} stream is open", sessions.open());

    drop(client);
    echo.await??;
    println!("runtime: the stream ended with its client");
    let mut no_upgrade = TcpStream::connect(address).await?;
    no_upgrade
        .write_all(b"POST /exec HTTP/1.1\r\nHost: node\r\n\r\n")
        .await?;
    println!(
        "without an upgrade: {}",
        first_line(&head(&mut no_upgrade).await?)
    );
    Ok(())
}

async fn handle(State((sessions, url)): State<(Sessions, String)>, request: Request) -> Response {
    let response = match sessions.reserve(&request) {
        Ok(permit) => permit.proxy(request, &url, None).await,
        Err(error) => Err(error),
    };
    response.unwrap_or_else(|error| (error.status(), error.to_string()).into_response())
}

/// A streaming server for one client.
async fn echo(listener: TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    let head = head(&mut stream).await?;
    println!("runtime: {}", first_line(&head));
    println!("runtime: received the secret: {}", head.contains("secret"));
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
        Upgrade: SPDY/3.1\r\n\r\n";
    stream.write_all(switched.as_bytes()).await?;
    let (mut from, mut to) = stream.split();
    tokio::io::copy(&mut from, &mut to).await?;
    Ok(())
}

/// Reads up to the empty line.
async fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn first_line(head: &str) -> &str {
    head.lines().next().unwrap_or_default()
}
