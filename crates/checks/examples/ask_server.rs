//! Sends HTTP probes and prints their results.
//!
//! `cargo run -p windlass-checks --example ask_server -- http://127.0.0.1:8080/healthz` probes that
//! URL; without arguments it probes several paths of a built-in server.

use std::error::Error;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass_checks::{Checks, NetChecks};
use windlass_pod_lifecycle::http_target::{HttpTarget, Scheme};
use windlass_pod_lifecycle::probe::{evaluate_http, evaluate_tcp};

const TIMEOUT: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let checks = NetChecks::new();
    if let Some(url) = std::env::args().nth(1) {
        probe(&checks, &target(&url)?).await;
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let server = tokio::spawn(serve(listener));
    for path in ["ok", "sick", "moved", "elsewhere", "silent"] {
        probe(
            &checks,
            &target(&format!("http://127.0.0.1:{port}/{path}"))?,
        )
        .await;
    }
    server.abort();
    // the task owns the listener
    let _ = server.await;
    let answer = checks.tcp("127.0.0.1", port, TIMEOUT).await;
    println!(
        "port {port} after the server stopped: {}",
        evaluate_tcp("127.0.0.1", port, &answer)
    );
    Ok(())
}

async fn probe(checks: &NetChecks, target: &HttpTarget) {
    let answer = checks.http(target, Some(TIMEOUT)).await;
    println!("{}: {}", target.url(), evaluate_http(target, &answer));
}

/// Parses `http://host:port/path` or `https://host:port/path`.
fn target(url: &str) -> Result<HttpTarget, String> {
    let invalid = || format!("invalid URL {url}; use for example http://127.0.0.1:8080/healthz");
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').ok_or_else(invalid)?;
    Ok(HttpTarget {
        scheme: match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(invalid()),
        },
        host: host.to_owned(),
        port: port.parse().map_err(|_| invalid())?,
        path: format!("/{path}"),
        headers: Vec::new(),
    })
}

async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // errors affect one client only
        tokio::spawn(async move { drop(answer(stream).await) });
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    let request = String::from_utf8_lossy(&request[..length]);
    let head = match request.split(' ').nth(1) {
        Some("/ok") => "200 OK",
        Some("/moved") => "302 Found\r\nLocation: /ok",
        Some("/elsewhere") => "302 Found\r\nLocation: http://192.0.2.1/",
        Some("/silent") => return std::future::pending().await,
        _ => "503 Service Unavailable",
    };
    let text = format!("HTTP/1.1 {head}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n..");
    stream.write_all(text.as_bytes()).await
}
