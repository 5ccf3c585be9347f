//! Measures the CPU time of an HTTP probe.
//!
//! `cargo run --profile bench-fast -p windlass-checks --example http_cost [requests]` starts a
//! server process and sends sequential requests over loopback. The result includes system calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use windlass_checks::{Checks, NetChecks};
use windlass_pod_lifecycle::http_target::{HttpTarget, Scheme};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\
    Connection: close\r\n\r\nok";

fn main() -> Result<()> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("--serve") {
        return serve();
    }
    let requests: u32 = argument.map_or(Ok(20_000), |text| text.parse())?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg("--serve")
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()?;
    let mut port = String::new();
    BufReader::new(server.stdout.take().context("no stdout")?).read_line(&mut port)?;
    let target = HttpTarget {
        scheme: Scheme::Http,
        host: "127.0.0.1".to_owned(),
        port: port.trim().parse()?,
        path: "/healthz".to_owned(),
        headers: vec![
            ("Accept".to_owned(), "*/*".to_owned()),
            ("User-Agent".to_owned(), "kube-probe/1.36".to_owned()),
        ],
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let spent = runtime.block_on(async {
        let checks = NetChecks::new();
        // warm up: pages, allocator, kernel caches
        send(&checks, &target, 1_000).await?;
        let before = cpu_time()?;
        send(&checks, &target, requests).await?;
        anyhow::Ok(cpu_time()?.saturating_sub(before))
    })?;
    server.kill()?;
    server.wait()?;
    let each = spent / requests;
    println!("{requests} requests, {spent:.2?} of CPU, {each:.1?} each");
    Ok(())
}

/// Sends each request from a task of a worker thread, as probes do.
async fn send(checks: &NetChecks, target: &HttpTarget, requests: u32) -> Result<()> {
    for _ in 0..requests {
        let (checks, target) = (checks.clone(), target.clone());
        let request =
            tokio::spawn(async move { checks.http(&target, Some(Duration::from_secs(1))).await });
        let answer = request.await??;
        anyhow::ensure!(answer.status == 200 && answer.body == b"ok", "{answer:?}");
    }
    Ok(())
}

/// Returns the CPU time of all threads of this process.
fn cpu_time() -> Result<Duration> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split(' ').next().context("empty schedstat")?;
        nanoseconds += first.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Runs a minimal server until its standard input is closed.
fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // errors affect one client only
            let _ = answer(stream);
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let _ = stream.read(&mut request)?;
    stream.write_all(RESPONSE)
}
