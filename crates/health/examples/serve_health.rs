//! Serves `/healthz` of a program, first healthy and then unhealthy.
//!
//! `cargo run -p windlass-server --example serve_health`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use windlass_health::{HealthCheck, HealthSource, bind_health, serve_health};

#[derive(Debug, Default)]
struct Pump {
    stuck: AtomicBool,
}

impl HealthSource for Pump {
    fn checks(&self) -> Vec<HealthCheck> {
        let result = match self.stuck.load(Ordering::Relaxed) {
            false => Ok("40 strokes a minute".to_owned()),
            true => Err("no stroke for 12 s".to_owned()),
        };
        let name = "pump";
        vec![HealthCheck { name, result }]
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let pump = Arc::new(Pump::default());
    let listener = bind_health([127, 0, 0, 1].into(), 0).await?;
    let address = listener.local_addr()?;
    let shutdown = CancellationToken::new();
    let ends = shutdown.clone().cancelled_owned();
    let server = tokio::spawn(serve_health(listener, pump.clone(), ends));

    show(address, "/healthz").await?;
    show(address, "/healthz?verbose").await?;
    pump.stuck.store(true, Ordering::Relaxed);
    show(address, "/healthz").await?;
    show(address, "/healthz/ping").await?;

    shutdown.cancel();
    server.await??;
    Ok(())
}

async fn show(address: SocketAddr, path: &str) -> Result<(), Box<dyn Error>> {
    let answer = get(address, path).await?;
    let status = answer.lines().next().unwrap_or_default();
    println!("GET {path}: {status}");
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    body.lines().for_each(|line| println!("  {line}"));
    Ok(())
}

async fn get(address: SocketAddr, path: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
