//! A GET request over a new TLS connection, whose response is counted and discarded.

use anyhow::{Context, ensure};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::Instant;
use windlass_testbed::agent::{Agent, NODE_NAME};

/// Read buffer; a TLS record has 16 KiB.
const BUFFER_BYTES: usize = 256 << 10;

/// A response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseStats {
    /// From the request to the last byte, without the handshake.
    pub(super) seconds: f64,
    /// Bytes of the body.
    pub(super) bytes: u64,
}

/// Gets `path` and reads the whole response.
pub(super) async fn get(agent: &Agent, path: &str) -> anyhow::Result<ResponseStats> {
    let stream = agent.connect_api().await?;
    let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
    let begin = Instant::now();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {NODE_NAME}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let bytes = read(&mut stream).await.context(path.to_owned())?;
    Ok(ResponseStats {
        seconds: begin.elapsed().as_secs_f64(),
        bytes,
    })
}

async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> anyhow::Result<u64> {
    let status = line(stream).await?;
    ensure!(status.starts_with("HTTP/1.1 200"), "{status}");
    let (mut length, mut chunked) = (None, false);
    loop {
        let header = line(stream).await?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = Some(value.trim().parse()?);
        }
        chunked |= header == "transfer-encoding: chunked";
    }
    if !chunked {
        let length = length.context("an answer without a length")?;
        skip(stream, length).await?;
        return Ok(length);
    }
    let mut bytes = 0;
    loop {
        let size = u64::from_str_radix(&line(stream).await?, 16)?;
        if size == 0 {
            return Ok(bytes);
        }
        skip(stream, size).await?;
        line(stream).await?;
        bytes += size;
    }
}

async fn skip(stream: &mut (impl AsyncBufReadExt + Unpin), bytes: u64) -> anyhow::Result<()> {
    let mut part = AsyncReadExt::take(stream, bytes);
    let read = tokio::io::copy_buf(&mut part, &mut tokio::io::sink()).await?;
    ensure!(read == bytes, "it ends after {read} bytes of {bytes}");
    Ok(())
}

/// A line without its line end.
pub(super) async fn line(stream: &mut (impl AsyncBufReadExt + Unpin)) -> anyhow::Result<String> {
    let mut line = String::new();
    // 8 KiB, longer than any line of such a response
    let mut part = AsyncReadExt::take(&mut *stream, 8192);
    part.read_line(&mut line).await?;
    ensure!(line.ends_with("\r\n"), "half a line: {line:?}");
    line.truncate(line.len() - 2);
    Ok(line)
}

/// Reads up to the empty line after the headers.
pub(super) async fn head(stream: &mut BufReader<impl AsyncRead + Unpin>) -> anyhow::Result<String> {
    let status = line(stream).await?;
    while !line(stream).await?.is_empty() {}
    Ok(status)
}
