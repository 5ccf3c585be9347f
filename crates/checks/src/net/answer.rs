//! Reading an HTTP answer: where its head ends, what it says, where its body ends.
//!
//! Everything here comes from a container and is bounded: nothing grows with what it sends.

use std::mem::MaybeUninit;

/// How every answer begins.
pub(super) const HTTP: &[u8] = b"HTTP/";

/// Most header lines. Go has no such limit, but one in bytes.
const MAX_HEADERS: usize = 256;

/// Longest line between two chunks: a length, and extensions that nobody reads.
const MAX_CHUNK_LINE: usize = 4 << 10;

/// Longest part of an answer that is repeated in an error.
const MAX_QUOTED: usize = 100;

/// Finds the empty line after a head, looking at each byte once.
#[derive(Debug, Default)]
pub(super) struct HeadEnd {
    seen: usize,
}

impl HeadEnd {
    /// Length of the head with its empty line, once it is there. `bytes` only grows.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(at) = bytes.get(self.seen..)?.iter().position(|b| *b == b'\n') {
            let after = self.seen + at + 1;
            match bytes.get(after..)? {
                [b'\n', ..] => return Some(after + 1),
                [b'\r', b'\n', ..] => return Some(after + 2),
                // may become one with the next bytes: look at this line end again
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

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After this many bytes.
    Length(u64),
    /// With an empty chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// What matters of a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    pub framing: Framing,
    location: Option<String>,
}

impl Head {
    /// Reads a head that ends with its empty line.
    ///
    /// # Errors
    /// It is none, in Go's words.
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
                // a server that speaks HTTP/1.0 cannot mean it
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

    /// Another answer follows.
    pub(super) fn is_informational(&self) -> bool {
        (100..=199).contains(&self.status) && self.status != 101
    }

    /// Where it redirects to, if it does.
    pub(super) fn redirect(&self) -> Option<String> {
        let redirects = matches!(self.status, 301 | 302 | 303 | 307 | 308);
        let location = self
            .location
            .clone()
            .filter(|location| !location.is_empty());
        location.filter(|_| redirects)
    }
}

/// What a server said instead of an answer.
pub(super) fn not_http(bytes: &[u8]) -> String {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let what = match line.starts_with(HTTP) {
        true => "malformed MIME header or status",
        false => "malformed HTTP response",
    };
    let line = String::from_utf8_lossy(&line[..line.len().min(MAX_QUOTED)]);
    format!("{what} {line:?}")
}

/// A length, which may be said twice if it is said the same.
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

/// A body while it is read.
#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    /// What was read and not yet taken apart.
    raw: Vec<u8>,
    kept: Vec<u8>,
    most: usize,
    chunk: Chunk,
}

/// Where in a chunked body we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// Before a line with a length.
    Line,
    /// This many bytes before the end of a chunk.
    Data(u64),
    /// Before the line end after a chunk.
    End,
}

impl Body {
    /// A body of which `read` is there and `most` bytes are kept.
    pub(super) fn new(framing: Framing, read: Vec<u8>, most: usize) -> Self {
        Self {
            framing,
            raw: read,
            kept: Vec::new(),
            most,
            chunk: Chunk::Line,
        }
    }

    /// Room for more bytes of the connection.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        self.raw.reserve(MAX_CHUNK_LINE);
        &mut self.raw
    }

    /// True if the end of the connection is the end of the body.
    pub(super) fn ends_with_connection(&self) -> bool {
        self.framing == Framing::Close
    }

    /// What is kept of it.
    pub(super) fn into_kept(self) -> Vec<u8> {
        self.kept
    }

    /// Takes apart what was read; true once everything that is kept is there.
    ///
    /// # Errors
    /// A chunk is none, in Go's words.
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
                        Chunk::Line
                    }
                    [] | [b'\r'] => return Ok(false),
                    _ => return Err("malformed chunked encoding".to_owned()),
                },
                Chunk::Line => {
                    let Some(end) = self.raw.iter().position(|b| *b == b'\n') else {
                        if self.raw.len() > MAX_CHUNK_LINE {
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

    /// Takes up to `most` bytes of what was read, keeping as many as there is room for.
    fn keep(&mut self, most: u64) -> u64 {
        let take = usize::try_from(most).map_or(self.raw.len(), |most| most.min(self.raw.len()));
        let room = self.most - self.kept.len();
        self.kept.extend_from_slice(&self.raw[..take.min(room)]);
        self.raw.drain(..take);
        take as u64
    }

    fn is_full(&self) -> bool {
        self.kept.len() >= self.most
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
