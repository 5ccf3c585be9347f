//! From asking for a command to the first byte it prints, over the WebSocket that the runtime
//! speaks.

use anyhow::{Context, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, timeout};
use windlass_cri::StreamSet;
use windlass_testbed::agent::{Agent, NODE_NAME};

use super::http;
use crate::bare::Bare;

/// Timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The channel of a command's output, the first byte of a frame of it.
const STDOUT: u8 = 1;

/// Seconds through the node API, including the TLS handshake.
pub(super) async fn through(agent: &Agent, path: &str) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let stream = agent.connect_api().await?;
    let path = format!("{path}?command=echo&command=x&output=1");
    first_byte(stream, NODE_NAME, &path).await?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Seconds of Exec and stream of the runtime.
pub(super) async fn bare(bare: &Bare, container: &str) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let streams = StreamSet {
        stdout: true,
        stdin: false,
        stderr: false,
        tty: false,
    };
    let command = ["echo".to_owned(), "x".to_owned()];
    let url = bare.exec_url(container, &command, streams).await?;
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_at_checked(rest.find('/')?))
        .with_context(|| format!("no such URL: {url}"))?;
    first_byte(TcpStream::connect(host).await?, host, path).await?;
    Ok(begin.elapsed().as_secs_f64())
}

async fn first_byte(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
) -> anyhow::Result<()> {
    timeout(COMMAND_TIMEOUT, talk(stream, host, path)).await?
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: d2luZGxhc3Mtd2luZGxhcw==\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nOrigin: http://{host}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let status = http::head(&mut stream).await?;
    ensure!(status.contains(" 101 "), "{status}");
    loop {
        // frames of a server are not masked, and these are short
        let [_, length] = [stream.read_u8().await?, stream.read_u8().await?];
        ensure!(length < 126, "a long frame");
        let mut frame = vec![0; usize::from(length)];
        stream.read_exact(&mut frame).await?;
        match frame[..] {
            [STDOUT, _, ..] => return Ok(()),
            [3, _, ..] => anyhow::bail!("{}", String::from_utf8_lossy(&frame)),
            // the channel is open
            _ => {}
        }
    }
}
