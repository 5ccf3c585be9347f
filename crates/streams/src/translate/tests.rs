//! Commands over real sockets: a client that uses `v5.channel.k8s.io`, and a streaming server that
//! supports only SPDY.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::ClientMessage;
use crate::Limits;
use crate::spdy::tests::Headers;
use crate::spdy::{self, Head};
use crate::tests::{Node, SOON, read_head};

const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;

/// The client's end, after the handshake.
struct Client(WebSocketStream<TcpStream>);

impl Client {
    async fn start(node: &Node, query: &str) -> Self {
        let mut stream = node
            .client(&format!(
                "GET /exec?{query} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Authorization: Bearer secret\r\n\
                 Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
            ))
            .await;
        let head = read_head(&mut stream).await.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        let protocol = "\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n";
        assert!(head.contains(protocol), "{head}");
        Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }

    async fn send(&mut self, bytes: &[u8]) {
        let message = Message::binary(bytes.to_vec());
        self.0.send(message).await.expect("sent");
    }

    /// Returns the channel and the text of the next message.
    async fn next(&mut self) -> Option<(u8, String)> {
        let message = timeout(SOON, self.0.next()).await.expect("in time")?;
        match message.expect("a message") {
            Message::Binary(bytes) => {
                let (channel, rest) = bytes.split_first().expect("a channel");
                Some((*channel, String::from_utf8_lossy(rest).into_owned()))
            }
            Message::Close(frame) => {
                let code = frame.expect("a reason").code;
                assert_eq!(u16::from(code), 1000);
                // the next read sends the close frame
                let end = timeout(SOON, self.0.next()).await.expect("in time");
                assert!(end.is_none_or(|end| end.is_err()));
                None
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns all messages until the end.
    async fn rest(&mut self) -> Vec<(u8, String)> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        messages
    }
}

/// The streaming server's end.
struct Runtime {
    stream: TcpStream,
    headers: Headers,
}

impl Runtime {
    /// Accepts the connection and reads the requested streams, without accepting them.
    async fn begin(node: &Node, streams: &[(u32, &str)]) -> Self {
        let (mut stream, head) = node.accept().await;
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("post /exec/token http/1.1\r\n"), "{head}");
        for line in [
            "upgrade: spdy/3.1",
            "connection: upgrade",
            "x-stream-protocol-version: v4.channel.k8s.io",
        ] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
        }
        assert!(!head.contains("secret"), "{head}");
        let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
        stream.write_all(switched.as_bytes()).await.expect("write");
        let mut runtime = Self {
            stream,
            headers: Headers::new(),
        };
        for (id, kind) in streams {
            let opened = runtime.opened().await;
            assert_eq!(opened, (*id, "streamtype".to_owned(), (*kind).to_owned()));
        }
        runtime
    }

    async fn start(node: &Node, streams: &[(u32, &str)]) -> Self {
        let mut runtime = Self::begin(node, streams).await;
        for (id, _) in streams {
            runtime.accept(*id).await;
        }
        runtime
    }

    async fn accept(&mut self, id: u32) {
        self.control(2, &id.to_be_bytes()).await;
    }

    async fn control(&mut self, kind: u16, payload: &[u8]) {
        let mut frame = vec![0x80, 3];
        frame.extend_from_slice(&kind.to_be_bytes());
        let length = u32::try_from(payload.len()).expect("short");
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).await.expect("write");
    }

    async fn reset(&mut self, id: u32) {
        let payload = [id.to_be_bytes(), 5_u32.to_be_bytes()];
        self.control(3, payload.as_flattened()).await;
    }

    async fn data(&mut self, id: u32, is_last: bool, bytes: &[u8]) {
        let frame = spdy::data(id, is_last, bytes).expect("a frame");
        self.stream.write_all(&frame).await.expect("write");
    }

    async fn frame(&mut self) -> (Head, Vec<u8>) {
        let read = async {
            let mut bytes = [0; spdy::HEAD_BYTES];
            self.stream.read_exact(&mut bytes).await.expect("a head");
            let head = spdy::head(bytes).expect("SPDY");
            let (Head::Data { length, .. } | Head::Control { length, .. }) = head;
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload).await.expect("bytes");
            (head, payload)
        };
        timeout(SOON, read).await.expect("in time")
    }

    async fn opened(&mut self) -> (u32, String, String) {
        let (head, payload) = self.frame().await;
        assert!(matches!(head, Head::Control { kind: 1, .. }), "{head:?}");
        self.headers.read(&payload)
    }

    /// Returns the next data: stream, text, and whether it is the last.
    async fn read(&mut self) -> (u32, String, bool) {
        let (head, payload) = self.frame().await;
        let Head::Data {
            stream, is_last, ..
        } = head
        else {
            panic!("{head:?}");
        };
        (
            stream,
            String::from_utf8_lossy(&payload).into_owned(),
            is_last,
        )
    }

    async fn is_left(&mut self) {
        let mut rest = Vec::new();
        let _ = timeout(SOON, self.stream.read_to_end(&mut rest))
            .await
            .expect("the connection ends in time");
    }
}

fn status(cause: &str) -> (u8, String) {
    let status = format!(
        "{{\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"Internal error occurred: \
         {cause}\",\"reason\":\"InternalError\",\"details\":{{\"causes\":[{{\"message\":\
         \"{cause}\"}}]}},\"code\":500}}"
    );
    (3, status)
}

fn text(channel: u8, text: &str) -> (u8, String) {
    (channel, text.to_owned())
}

#[test]
fn client_messages_are_parsed() {
    use ClientMessage::{Close, Data, Ignored, Invalid};
    let cases: [(&[u8], ClientMessage<'_>); 9] = [
        (b"", Ignored),
        (b"\0", Data(0, b"")),
        (b"\0ls\n", Data(0, b"ls\n")),
        (b"\x04{}", Data(4, b"{}")),
        (b"\x05x", Ignored),
        (b"\xff\0", Close(0)),
        (b"\xff\x05", Invalid),
        (b"\xff", Invalid),
        (b"\xff\0\0", Invalid),
    ];
    for (bytes, expected) in cases {
        assert_eq!(ClientMessage::new(bytes), expected, "{bytes:?}");
    }
}

#[tokio::test]
async fn command_with_stdin_returns_status() {
    let node = Node::start(Limits::default()).await;
    let mut client = Client::start(&node, "in,out,err").await;
    let streams = [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")];
    let mut runtime = Runtime::begin(&node, &streams).await;
    assert_eq!(
        client.next().await,
        Some(text(1, "")),
        "the connection is confirmed"
    );
    client.send(b"\0early").await;
    for id in [7, 1, 5, 3] {
        runtime.accept(id).await;
    }
    assert_eq!(runtime.read().await, (3, "early".to_owned(), false));
    runtime.data(5, false, b"out").await;
    assert_eq!(client.next().await, Some(text(1, "out")));
    runtime.data(7, false, b"err").await;
    assert_eq!(client.next().await, Some(text(2, "err")));
    // a channel of the server, an empty message, a text
    client.send(b"\x01x").await;
    client.send(b"").await;
    let typed = Message::text("\0typed");
    client.0.send(typed).await.expect("sent");
    assert_eq!(runtime.read().await, (3, "typed".to_owned(), false));
    client.send(b"\xff\0").await;
    assert_eq!(runtime.read().await, (3, String::new(), true));
    // bytes after its end and a second end are ignored: the ping's reply comes next
    client.send(b"\0late").await;
    client.send(b"\xff\0").await;
    runtime.control(6, &2_u32.to_be_bytes()).await;
    let (head, payload) = runtime.frame().await;
    assert!(matches!(head, Head::Control { kind: 6, .. }), "{head:?}");
    assert_eq!(payload, 2_u32.to_be_bytes());
    // a stream of the server is rejected
    let opened = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0];
    runtime.control(1, &opened).await;
    let (head, _) = runtime.frame().await;
    assert!(matches!(head, Head::Control { kind: 3, .. }), "{head:?}");
    let exit = br#"{"status":"Failure","reason":"NonZeroExitCode","message":"x",
        "details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
    runtime.data(1, true, exit).await;
    runtime.data(5, true, b"last line").await;
    runtime.reset(7).await;
    let rest = client.rest().await;
    assert_eq!(rest.first(), Some(&text(1, "last line")));
    let [_, (3, status)] = rest.as_slice() else {
        panic!("{rest:?}");
    };
    assert!(
        status.contains("command terminated with exit code 3"),
        "{status}"
    );
    runtime.is_left().await;
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn terminal_has_resizes_and_no_stderr() {
    let node = Node::start(Limits::default()).await;
    let mut client = Client::start(&node, "in,out,err,tty").await;
    let streams = [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")];
    let mut runtime = Runtime::start(&node, &streams).await;
    let size = r#"{"Width":80,"Height":24}"#;
    client.send(&[b"\x04", size.as_bytes()].concat()).await;
    assert_eq!(runtime.read().await, (7, size.to_owned(), false));
    // the runtime closes stdin; the client's side follows
    runtime.data(3, true, b"").await;
    assert_eq!(runtime.read().await, (3, String::new(), true));
    runtime.data(1, true, SUCCESS.as_bytes()).await;
    runtime.data(5, true, b"").await;
    assert_eq!(client.rest().await, [text(1, ""), text(3, SUCCESS)]);
}

#[tokio::test]
async fn long_output_is_complete_before_status() {
    let node = Node::start(Limits::default()).await;
    let mut client = Client::start(&node, "out").await;
    let mut runtime = Runtime::start(&node, &[(1, "error"), (3, "stdout")]).await;
    let long = "x".repeat(3 << 20);
    let write = async {
        runtime.data(3, true, long.as_bytes()).await;
        runtime.data(1, false, SUCCESS.as_bytes()).await;
        // a client that still sends does not lose the status
        drop(runtime);
    };
    client.send(b"\0unread").await;
    let (rest, ()) = tokio::join!(client.rest(), write);
    let output: usize = rest
        .iter()
        .filter(|it| it.0 == 1)
        .map(|it| it.1.len())
        .sum();
    assert_eq!(output, long.len());
    assert_eq!(rest.last(), Some(&text(3, SUCCESS)));
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn unread_stdin_does_not_block_output() {
    let node = Node::start(Limits::default()).await;
    let mut client = Client::start(&node, "in,out").await;
    let streams = [(1, "error"), (3, "stdin"), (5, "stdout")];
    let mut runtime = Runtime::start(&node, &streams).await;
    assert_eq!(client.next().await, Some(text(1, "")));
    let (mut sink, mut source) = client.0.split();
    let flood = tokio::spawn(async move {
        let message = Message::binary(vec![0; 1 << 20]);
        while sink.send(message.clone()).await.is_ok() {}
    });
    // more than the socket buffers hold, while the runtime does not read
    for _ in 0..64 {
        runtime.data(5, false, &[b'y'; 1 << 16]).await;
        let mut rest = 1 << 16;
        while rest > 0 {
            let message = timeout(SOON, source.next()).await.expect("in time");
            rest -= message.expect("open").expect("a message").len() - 1;
        }
    }
    drop(source);
    flood.abort();
    runtime.is_left().await;
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn client_disconnect_ends_command() {
    let node = Node::start(Limits::default()).await;
    let streams = [(1, "error"), (3, "stdin"), (5, "stdout")];
    // without a close, with a close, with a protocol violation
    for ends in [
        None,
        Some(Message::Close(None)),
        Some(Message::binary(vec![255])),
    ] {
        let mut client = Client::start(&node, "in,out").await;
        let mut runtime = Runtime::start(&node, &streams).await;
        assert_eq!(client.next().await, Some(text(1, "")));
        client.send(b"\0last line").await;
        match ends {
            None => drop(client),
            Some(message) => {
                client.0.send(message).await.expect("sent");
                while let Some(Ok(_)) = timeout(SOON, client.0.next()).await.expect("an end") {}
            }
        }
        assert_eq!(runtime.read().await, (3, "last line".to_owned(), false));
        runtime.is_left().await;
        node.wait_for_all_permits().await;
    }
}

#[tokio::test]
async fn runtime_failure_becomes_status() {
    let node = Node::start(Limits::default()).await;
    let broken = |what: &str| status(&format!("the container runtime's streaming server {what}"));
    let streams = [(1, "error"), (3, "stdout")];

    // rejected
    let mut client = Client::start(&node, "out").await;
    let (mut runtime, _) = node.accept().await;
    let rejection =
        "HTTP/1.1 404 Not Found\r\nContent-Length: 26\r\n\r\n{\"message\":\"no container\"}";
    runtime
        .write_all(rejection.as_bytes())
        .await
        .expect("write");
    let expected = status("unable to upgrade connection: no container");
    assert_eq!(client.rest().await, [text(1, ""), expected]);

    // another protocol
    let mut client = Client::start(&node, "err").await;
    let (mut runtime, _) = node.accept().await;
    let other = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
        Upgrade: SPDY/3.1\r\n\r\n";
    runtime.write_all(other.as_bytes()).await.expect("write");
    let [first, (3, words)] = &client.rest().await[..] else {
        panic!("no status");
    };
    assert_eq!(*first, text(2, ""));
    assert!(
        words.contains("the container runtime chose the protocol"),
        "{words}"
    );

    // a rejected stream
    let mut client = Client::start(&node, "out").await;
    let mut runtime = Runtime::begin(&node, &streams).await;
    runtime.reset(3).await;
    let expected = broken("rejected the stdout stream");
    assert_eq!(client.rest().await, [text(1, ""), expected]);

    // disconnected without a status
    let mut client = Client::start(&node, "out").await;
    let mut runtime = Runtime::start(&node, &streams).await;
    runtime.data(3, true, b"half").await;
    drop(runtime);
    let rest = client.rest().await;
    let [_, (1, half), (3, words)] = &rest[..] else {
        panic!("{rest:?}");
    };
    assert_eq!(half, "half");
    assert!(words.contains("streaming server broke"), "{words}");

    // not SPDY
    let mut client = Client::start(&node, "out").await;
    let mut runtime = Runtime::start(&node, &streams).await;
    runtime
        .stream
        .write_all(b"\x80\x02\0\x01\0\0\0\0")
        .await
        .expect("write");
    let expected = broken("sent an invalid frame: SPDY version 2 instead of 3");
    assert_eq!(client.rest().await, [text(1, ""), expected]);

    // an endless status
    let mut client = Client::start(&node, "out").await;
    let mut runtime = Runtime::start(&node, &streams).await;
    runtime.data(1, false, &[b'x'; (64 << 10) + 1]).await;
    let expected = broken("sent a status of more than 65536 bytes");
    assert_eq!(client.rest().await, [text(1, ""), expected]);
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn translated_session_ends_after_idle_timeout() {
    let limits = Limits {
        idle_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let node = Node::start(limits).await;
    let mut client = Client::start(&node, "out").await;
    let mut runtime = Runtime::start(&node, &[(1, "error"), (3, "stdout")]).await;
    assert_eq!(client.rest().await, [text(1, "")]);
    runtime.is_left().await;
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn unreachable_runtime_becomes_status() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bind");
    let url = format!("http://{}/exec", gone.local_addr().expect("bound"));
    drop(gone);
    let node = Node::with_url(Limits::default(), url).await;
    let mut client = Client::start(&node, "out").await;
    let rest = client.rest().await;
    let [_, (3, words)] = &rest[..] else {
        panic!("{rest:?}");
    };
    assert!(words.contains("error dialing backend: "), "{words}");
    node.wait_for_all_permits().await;
}
