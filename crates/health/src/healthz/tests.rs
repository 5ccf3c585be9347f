//! The health port over TCP.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::{HealthCheck, HealthSource, bind_health, serve_health};

#[derive(Debug)]
struct Fixed(Vec<HealthCheck>);

impl HealthSource for Fixed {
    fn checks(&self) -> Vec<HealthCheck> {
        self.0.clone()
    }
}

/// Sends a request to a real server and returns status and body as one line.
async fn send(pleg: Result<&str, &str>, target: &str) -> String {
    let health = Fixed(vec![
        HealthCheck {
            name: "syncloop",
            result: Ok("last iteration 0.2 s ago".to_owned()),
        },
        HealthCheck {
            name: "pleg",
            result: pleg.map(str::to_owned).map_err(str::to_owned),
        },
    ]);
    let listener = bind_health(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
        .await
        .expect("port");
    let address = listener.local_addr().expect("address");
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve_health(listener, Arc::new(health), async {
        let _closed = stopped.await;
    }));

    let mut stream = TcpStream::connect(address).await.expect("connection");
    let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("request");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("response");

    stop.send(()).expect("server waits");
    server.await.expect("no panic").expect("no error");
    let status = text.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    format!("{status} {}", body.trim_end().replace('\n', " | "))
}

#[tokio::test]
async fn health_is_ok_only_while_every_check_passes() {
    assert_eq!(send(Ok(""), "/healthz").await, "200 ok");
    assert_eq!(
        send(Ok(""), "/healthz?verbose").await,
        "200 [+]ping ok | [+]log ok | [+]syncloop ok: last iteration 0.2 s ago | [+]pleg ok | healthz check passed"
    );
    let failing = Err("last relist 200 s ago, allowed are 180 s");
    assert_eq!(
        send(failing, "/healthz").await,
        "500 [+]ping ok | [+]log ok | [+]syncloop ok: last iteration 0.2 s ago | \
         [-]pleg failed: last relist 200 s ago, allowed are 180 s | healthz check failed"
    );
    assert_eq!(send(failing, "/healthz/syncloop").await, "200 ok");
    assert_eq!(send(failing, "/healthz/ping").await, "200 ok");
    assert!(
        send(failing, "/healthz/pleg")
            .await
            .starts_with("500 [-]pleg failed")
    );
    assert_eq!(
        send(failing, "/healthz/nonsense").await,
        "404 no such check"
    );
}

#[tokio::test]
async fn health_port_serves_health_only() {
    for target in ["/metrics", "/metrics/probes", "/pods", "/"] {
        assert_eq!(send(Ok(""), target).await, "404 ", "{target}");
    }
}
