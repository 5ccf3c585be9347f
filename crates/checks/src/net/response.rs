//! Parser of HTTP responses with bounded memory.

use std::mem::MaybeUninit;

/// Start of every response.
pub(super) const HTTP: &[u8] = b"HTTP/";

/// Go limits the bytes only.
const MAX_HEADERS: usize = 256;

/// Maximum length of a chunk header, with extensions.
const MAX_CHUNK_HEADER_BYTES: usize = 4 << 10;

/// Maximum quoted part of a response in an error.
const MAX_QUOTED_BYTES: usize = 100;

/// Finds the empty line after a head and scans each byte once.
#[derive(Debug, Default)]
pub(super) struct HeadEnd {
    seen: usize,
}

impl HeadEnd {
    /// Returns the length of the head with its empty line, if complete. `bytes` only grows.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(at) = bytes.get(self.seen..)?.iter().position(|b| *b == b'\n') {
            let after = self.seen + at + 1;
            match bytes.get(after..)? {
                [b'\n', ..] => return Some(after + 1),
                [b'\r', b'\n', ..] => return Some(after + 2),
                // incomplete: scan this line end again with the next bytes
                [] | [b'\r'] => {
                    self.seen = after - 1;
                    return None;
                }
                _ => self.seen = after,
            }
        }
        self.seen = bytes.len();
        None
    }
}

/// End of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After this many bytes.
    Length(u64),
    /// With an empty chunk.
    Chunked,
    /// At the end of the connection.
    Close,
}

/// Relevant parts of a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    pub framing: Framing,
    location: Option<String>,
}

impl Head {
    /// Parses a head that ends with its empty line. Error texts match Go.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let mut config = httparse::ParserConfig::default();
        config
            .allow_multiple_spaces_in_response_status_delimiters(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true);
        let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
        let (Ok(httparse::Status::Complete(_)), Some(status)) = (parsed, response.code) else {
            return Err(not_http(bytes));
        };
        let mut head = Self {
            status,
            framing: Framing::Close,
            location: None,
        };
        let mut length = None;
        let mut chunked = false;
        for header in response.headers.iter() {
            let value = header.value.trim_ascii();
            if header.name.eq_ignore_ascii_case("content-length") {
                length = Some(content_length(value, length)?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                // not defined for HTTP/1.0
                if response.version == Some(1) {
                    if !value.eq_ignore_ascii_case(b"chunked") {
                        let value = String::from_utf8_lossy(value);
                        return Err(format!("unsupported transfer encoding: {value:?}"));
                    }
                    chunked = true;
                }
            } else if header.name.eq_ignore_ascii_case("location") && head.location.is_none() {
                head.location = Some(String::from_utf8_lossy(value).into_owned());
            }
        }
        head.framing = match (status, chunked, length) {
            (100..=199 | 204 | 304, _, _) => Framing::Length(0),
            (_, true, _) => Framing::Chunked,
            (_, false, Some(length)) => Framing::Length(length),
            (_, false, None) => Framing::Close,
        };
        Ok(head)
    }

    /// Whether another response follows.
    pub(super) fn is_informational(&self) -> bool {
        (100..=199).contains(&self.status) && self.status != 101
    }

    /// Returns the location of a redirect.
    pub(super) fn redirect(&self) -> Option<String> {
        let redirects = matches!(self.status, 301 | 302 | 303 | 307 | 308);
        let location = self
            .location
            .clone()
            .filter(|location| !location.is_empty());
        location.filter(|_| redirects)
    }
}

/// Formats the error of a response that is not HTTP.
pub(super) fn not_http(bytes: &[u8]) -> String {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let problem = match line.starts_with(HTTP) {
        true => "malformed MIME header or status",
        false => "malformed HTTP response",
    };
    let line = String::from_utf8_lossy(&line[..line.len().min(MAX_QUOTED_BYTES)]);
    format!("{problem} {line:?}")
}

/// Parses a length; a duplicate header must be equal.
fn content_length(value: &[u8], before: Option<u64>) -> Result<u64, String> {
    let text = String::from_utf8_lossy(value);
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let length = text.parse().ok().filter(|_| digits);
    let length = length.ok_or_else(|| format!("bad Content-Length {text:?}"))?;
    match before {
        Some(before) if before != length => Err(format!(
            "http: message cannot contain multiple Content-Length headers; \
             got [{before} {length}]"
        )),
        _ => Ok(length),
    }
}

/// A partially read body.
#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    /// Received and not yet parsed.
    raw: Vec<u8>,
    kept: Vec<u8>,
    max: usize,
    chunk: Chunk,
}

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// Before a chunk header.
    Header,
    /// This many bytes before the end of a chunk.
    Data(u64),
    /// Before the line end after a chunk.
    End,
}

impl Body {
    /// Creates a body with the received bytes `read`, truncated to `max` bytes.
    pub(super) fn new(framing: Framing, read: Vec<u8>, max: usize) -> Self {
        Self {
            framing,
            raw: read,
            kept: Vec::new(),
            max,
            chunk: Chunk::Header,
        }
    }

    /// Returns the buffer for more received bytes.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.raw.reserve(MAX_CHUNK_HEADER_BYTES);
        &mut self.raw
    }

    /// Whether the end of the connection is the end of the body.
    pub(super) fn ends_with_connection(&self) -> bool {
        self.framing == Framing::Close
    }

    /// Returns the truncated body.
    pub(super) fn into_kept(self) -> Vec<u8> {
        self.kept
    }

    /// Parses the received bytes; true once the truncated body is complete. Error texts match Go.
    pub(super) fn advance(&mut self) -> Result<bool, String> {
        match self.framing {
            Framing::Close => {
                self.keep(u64::MAX);
                Ok(self.is_full())
            }
            Framing::Length(left) => {
                let taken = self.keep(left);
                self.framing = Framing::Length(left - taken);
                Ok(left == taken || self.is_full())
            }
            Framing::Chunked => self.chunks(),
        }
    }

    fn chunks(&mut self) -> Result<bool, String> {
        while !self.is_full() {
            self.chunk = match self.chunk {
                Chunk::Data(left) => {
                    let taken = self.keep(left);
                    if taken < left {
                        self.chunk = Chunk::Data(left - taken);
                        return Ok(self.is_full());
                    }
                    Chunk::End
                }
                Chunk::End => match self.raw.as_slice() {
                    [b'\r', b'\n', ..] => {
                        self.raw.drain(..2);
                        Chunk::Header
                    }
                    [] | [b'\r'] => return Ok(false),
                    _ => return Err("malformed chunked encoding".to_owned()),
                },
                Chunk::Header => {
                    let Some(end) = self.raw.iter().position(|b| *b == b'\n') else {
                        if self.raw.len() > MAX_CHUNK_HEADER_BYTES {
                            return Err("http: chunk line too long".to_owned());
                        }
                        return Ok(false);
                    };
                    let line: Vec<u8> = self.raw.drain(..=end).collect();
                    match chunk_length(&line)? {
                        0 => return Ok(true),
                        length => Chunk::Data(length),
                    }
                }
            };
        }
        Ok(true)
    }

    /// Consumes up to `max` received bytes and keeps those that fit.
    fn keep(&mut self, max: u64) -> u64 {
        let take = usize::try_from(max).map_or(self.raw.len(), |max| max.min(self.raw.len()));
        let room = self.max - self.kept.len();
        self.kept.extend_from_slice(&self.raw[..take.min(room)]);
        self.raw.drain(..take);
        take as u64
    }

    fn is_full(&self) -> bool {
        self.kept.len() >= self.max
    }
}

fn chunk_length(line: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(line);
    let digits = text.split(';').next().unwrap_or_default().trim_ascii();
    let all_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| all_hex)
        .ok_or_else(|| "invalid byte in chunk length".to_owned())
}

#[cfg(test)]
mod tests;
