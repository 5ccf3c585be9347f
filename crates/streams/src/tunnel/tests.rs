//! Tunnels over real sockets; the test plays client and runtime.

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::Limits;
use crate::tests::{Node, SOON, read_exactly, read_head};

const TUNNEL: &str = "GET /portForward HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer secret\r\n\
    Sec-WebSocket-Protocol: v9.k8s.io, SPDY/3.1+portforward.k8s.io\r\n\r\n";

/// Opens a tunnel; the test has both ends.
async fn tunnel(node: &Node) -> (WebSocketStream<TcpStream>, TcpStream) {
    let mut client = node.client(TUNNEL).await;
    let (mut runtime, head) = node.accept().await;
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /exec/token http/1.1\r\n"), "{head}");
    for line in [
        "connection: upgrade",
        "upgrade: spdy/3.1",
        "x-stream-protocol-version: portforward.k8s.io",
        "x-forwarded-for: 10.0.0.9",
        "content-length: 0",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    for word in ["secret", "websocket", "v9"] {
        assert!(!head.contains(word), "{word}: {head}");
    }
    let switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
        Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\nearly";
    runtime.write_all(switched).await.expect("write");
    let head = read_head(&mut client).await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    let protocol = "\r\nsec-websocket-protocol: spdy/3.1+portforward.k8s.io\r\n";
    assert!(head.contains(protocol), "{head}");
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    assert_eq!(next(&mut client).await, Some(Message::binary("early")));
    (client, runtime)
}

async fn next(client: &mut WebSocketStream<TcpStream>) -> Option<Message> {
    let message = timeout(SOON, client.next()).await.expect("in time")?;
    Some(message.expect("a message"))
}

#[tokio::test]
async fn tunnel_copies_both_ways_until_runtime_ends() {
    let node = Node::start(Limits::default()).await;
    let (mut client, mut runtime) = tunnel(&node).await;
    for bytes in ["ping", "", "pong"] {
        client.send(Message::binary(bytes)).await.expect("sent");
    }
    read_exactly(&mut runtime, "pingpong").await;
    let long = "x".repeat(1 << 20);
    let write = async {
        runtime.write_all(long.as_bytes()).await.expect("write");
        drop(runtime);
    };
    let read = async {
        let mut read = 0;
        while let Some(Message::Binary(bytes)) = next(&mut client).await {
            read += bytes.len();
        }
        // the reply to its close frame
        while next(&mut client).await.is_some() {}
        read
    };
    assert_eq!(tokio::join!(read, write).0, long.len());
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn client_close_or_text_closes_runtime_connection() {
    let node = Node::start(Limits::default()).await;
    for end in [
        None,
        Some(Message::Close(None)),
        Some(Message::text("text")),
    ] {
        let (mut client, mut runtime) = tunnel(&node).await;
        if let Some(message) = end {
            client.send(message).await.expect("sent");
            while let Some(Ok(_)) = timeout(SOON, client.next()).await.expect("an end") {}
        }
        drop(client);
        let mut rest = Vec::new();
        let read = runtime.read_to_end(&mut rest);
        let _ = timeout(SOON, read).await.expect("an end");
        assert_eq!(rest, b"");
        node.wait_for_all_permits().await;
    }
}

#[tokio::test]
async fn failed_tunnel_handshake_returns_http_error() {
    let node = Node::start(Limits::default()).await;
    #[rustfmt::skip]
    let cases = [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno!\n", "403", "no!\n"),
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "500",
            "unable to upgrade: missing upgrade headers in response"),
    ];
    for (answer, status, words) in cases {
        let mut client = node.client(TUNNEL).await;
        let (mut runtime, _) = node.accept().await;
        runtime.write_all(answer.as_bytes()).await.expect("write");
        let head = read_head(&mut client).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        read_exactly(&mut client, words).await;
    }
    // the runtime is not contacted
    let request = TUNNEL.replace("Version: 13", "Version: 8");
    let mut client = node.client(&request).await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    node.wait_for_all_permits().await;
}
