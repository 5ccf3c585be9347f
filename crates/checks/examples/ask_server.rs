//! Asks a server in each way it can answer, and says what a probe would make of it.
//!
//! `cargo run -p windlass-checks --example ask_server -- http://127.0.0.1:8080/healthz` asks that
//! URL; without an argument it starts a server of its own and asks for several paths.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass_checks::{Checks, NetChecks};
use windlass_pod_lifecycle::http_target::{HttpTarget, Scheme};
use windlass_pod_lifecycle::probe::{judge_http, judge_tcp};

const TIMEOUT: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let checks = NetChecks::new();
    if let Some(url) = std::env::args().nth(1) {
        ask(&checks, &target(&url)?).await;
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let server = tokio::spawn(serve(listener));
    for path in ["ok", "sick", "moved", "elsewhere", "silent"] {
        ask(
            &checks,
            &target(&format!("http://127.0.0.1:{port}/{path}"))?,
        )
        .await;
    }
    server.abort();
    // the listener goes with the task, once that has ended
    let _ = server.await;
    let answer = checks.tcp("127.0.0.1", port, TIMEOUT).await;
    println!(
        "port {port} after the server is gone: {}",
        judge_tcp("127.0.0.1", port, &answer)
    );
    Ok(())
}

async fn ask(checks: &NetChecks, target: &HttpTarget) {
    let answer = checks.http(target, Some(TIMEOUT)).await;
    println!("{}: {}", target.url(), judge_http(target, &answer));
}

/// `http://host:port/path`, or the same with `https`.
fn target(url: &str) -> Result<HttpTarget, String> {
    let wrong = || format!("{url}: give a URL such as http://127.0.0.1:8080/healthz");
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    Ok(HttpTarget {
        scheme: match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(wrong()),
        },
        host: host.to_owned(),
        port: port.parse().map_err(|_| wrong())?,
        path: format!("/{path}"),
        headers: Vec::new(),
    })
}

async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // a client that went away is no concern of the others
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
