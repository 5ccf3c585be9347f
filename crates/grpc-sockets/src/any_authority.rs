//! Accepts gRPC clients that send the path of a Unix socket as authority.
//!
//! HTTP/2 requests need an authority, which a Unix socket lacks. The gRPC clients of Go (with a
//! custom dialer, as upstream's PodResources client), Java and C++ or Python send the socket path. `h2`
//! rejects it as malformed with PROTOCOL_ERROR (hyperium/h2#442). [`AnyAuthority`] replaces it by a
//! name of one letter, as no server here uses the authority.
//!
//! The replacement happens in the compressed headers. The new name is never longer than the old
//! one, so the server's HPACK table holds every entry at its index, and nothing has to be decoded.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

/// The connection preface of an HTTP/2 client.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Length, type, flags and stream of a frame.
const FRAME_HEAD: usize = 9;
/// Maximum frame size that `h2` accepts by default.
const MAX_FRAME_BYTES: usize = 16 << 10;

const HEADERS: u8 = 1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// `:authority` in HPACK's static table.
const AUTHORITY: u64 = 1;
/// `:authority` as a literal, as gRPC's C core (C++, Python, Ruby) sends it.
const PLAIN_AUTHORITY: &[u8] = b":authority";
/// The same, Huffman-coded.
const CODED_AUTHORITY: &[u8] = b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f";
/// A string of one byte, not Huffman-coded.
const NAME: [u8; 2] = [1, b'x'];

/// A connection whose requests have an authority that `h2` accepts.
#[derive(Debug)]
pub struct AnyAuthority<C> {
    connection: C,
    rewriter: Rewriter,
}

impl<C> AnyAuthority<C> {
    /// Wraps a connection from which nothing was read.
    pub fn new(connection: C) -> Self {
        Self {
            connection,
            rewriter: Rewriter::default(),
        }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for AnyAuthority<C> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.rewriter.done.is_empty() {
            let mut space = [0; 8 << 10];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.connection).poll_read(context, &mut read))?;
            match read.filled() {
                // end of the connection: pass the rest of a truncated frame
                [] if this.rewriter.waiting.is_empty() => return Poll::Ready(Ok(())),
                [] => this.rewriter.done = std::mem::take(&mut this.rewriter.waiting),
                bytes => this.rewriter.push(bytes),
            }
        }
        let done = &mut this.rewriter.done;
        let count = done.len().min(buffer.remaining());
        buffer.put_slice(&done[..count]);
        done.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for AnyAuthority<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}

impl Connected for AnyAuthority<UnixStream> {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.connection.connect_info()
    }
}

/// Rewrites the bytes of a client, in pieces of any size.
#[derive(Debug, Default)]
pub struct Rewriter {
    /// The preface was passed.
    begun: bool,
    /// Number of bytes to pass unchanged: the rest of a frame without headers.
    passing: usize,
    /// The start of a frame that must be complete; less than one frame and its head.
    waiting: Vec<u8>,
    /// Rewritten bytes, not yet read.
    done: Vec<u8>,
}

impl Rewriter {
    /// Adds bytes from the client.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.begun {
            (self.begun, self.passing) = (true, PREFACE);
        }
        self.waiting.extend_from_slice(bytes);
        let waiting = std::mem::take(&mut self.waiting);
        let rest = self.frames(&waiting);
        self.waiting = rest.to_vec();
    }

    /// Returns the rewritten bytes.
    pub fn rewritten(&self) -> &[u8] {
        &self.done
    }

    /// Moves complete frames to `done` and returns the rest.
    fn frames<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        loop {
            let (pass, rest) = bytes.split_at(self.passing.min(bytes.len()));
            self.done.extend_from_slice(pass);
            self.passing -= pass.len();
            bytes = rest;
            let Some(&[high, middle, low, kind, flags]) = bytes.first_chunk() else {
                return bytes;
            };
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            if kind != HEADERS || flags & END_HEADERS == 0 || length > MAX_FRAME_BYTES {
                self.passing = FRAME_HEAD + length;
                continue;
            }
            let Some((frame, rest)) = bytes.split_at_checked(FRAME_HEAD + length) else {
                return bytes;
            };
            match rewrite(frame) {
                Some(frame) => self.done.extend_from_slice(&frame),
                // malformed: `h2` reports it
                None => self.done.extend_from_slice(frame),
            }
            bytes = rest;
        }
    }
}

/// Returns a HEADERS frame with the new authority; `None` if it cannot be parsed.
fn rewrite(frame: &[u8]) -> Option<Vec<u8>> {
    let flags = frame[4];
    let (mut start, mut end) = (FRAME_HEAD, frame.len());
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*frame.get(start)?))?;
        start += 1;
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    let mut result = frame.get(..start)?.to_vec();
    fields(frame.get(start..end)?, &mut result)?;
    result.extend_from_slice(&frame[end..]);
    let length = u32::try_from(result.len() - FRAME_HEAD).ok()?.to_be_bytes();
    result[..3].copy_from_slice(&length[1..]);
    Some(result)
}

/// Copies the fields of a header block (RFC 7541, section 6).
fn fields(mut block: &[u8], result: &mut Vec<u8>) -> Option<()> {
    while let Some(&first) = block.first() {
        let begin = block;
        let (bits, literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let index = integer(&mut block, bits)?;
        if literal {
            let is_authority = match index {
                0 => string(&mut block)?.is_authority(),
                index => index == AUTHORITY,
            };
            let name = begin.len() - block.len();
            string(&mut block)?;
            // an empty value is one byte, which `h2` accepts
            let value = begin.len() - block.len() - name;
            if is_authority && value > 1 {
                result.extend_from_slice(&begin[..name]);
                result.extend_from_slice(&NAME);
                continue;
            }
        }
        result.extend_from_slice(&begin[..begin.len() - block.len()]);
    }
    Some(())
}

/// Takes an integer with a prefix of `bits` bits (section 5.1).
fn integer(block: &mut &[u8], bits: u32) -> Option<u64> {
    let max = (1 << bits) - 1;
    let value = u64::from(*block.split_off_first()?) & max;
    if value < max {
        return Some(value);
    }
    let mut value = value;
    // no frame has a length of more than four bytes
    for shift in [0, 7, 14, 21] {
        let byte = *block.split_off_first()?;
        value += u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A string of a header block.
struct Literal<'a> {
    is_coded: bool,
    bytes: &'a [u8],
}

impl Literal<'_> {
    fn is_authority(&self) -> bool {
        let name = if self.is_coded {
            CODED_AUTHORITY
        } else {
            PLAIN_AUTHORITY
        };
        self.bytes == name
    }
}

/// Takes a string, Huffman-coded or not (section 5.2).
fn string<'a>(block: &mut &'a [u8]) -> Option<Literal<'a>> {
    let is_coded = block.first()? & 0x80 != 0;
    let length = usize::try_from(integer(block, 7)?).ok()?;
    let bytes = block.split_off(..length)?;
    Some(Literal { is_coded, bytes })
}

#[cfg(test)]
mod tests {
    use super::{Rewriter, rewrite};

    /// Returns a HEADERS frame with a block.
    fn headers(flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("a short block");
        let mut frame = vec![0, 0, length, 1, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    #[track_caller]
    fn check(flags: u8, payload: &[u8], expected: Option<&[u8]>) {
        let frame = headers(flags, payload);
        let expected = expected.map(|payload| headers(flags, payload));
        assert_eq!(rewrite(&frame), expected, "{payload:?}");
    }

    #[test]
    fn authority_is_replaced_and_other_fields_stay() {
        check(4, b"\x83\x41\x03%2F\x86", Some(b"\x83\x41\x01x\x86"));
        check(4, b"\x41\x85huffm", Some(b"\x41\x01x"));
        check(4, b"\x01\x02/a\x11\x02/b", Some(b"\x01\x01x\x11\x01x"));
        // the name as a literal, plain and Huffman-coded, indexed or not
        check(
            4,
            b"\x40\x0a:authority\x03%2F\x86",
            Some(b"\x40\x0a:authority\x01x\x86"),
        );
        let (coded, value) = (b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f", b"\x03%2F");
        let field = |value: &[u8]| [&b"\x10\x88"[..], coded, value].concat();
        check(4, &field(value), Some(&field(b"\x01x")));
        // another literal name of the same length, and the coded bytes as a plain name
        for other in [
            &b"\x40\x0a:authoritx\x03%2F"[..],
            b"\x40\x0aauthority:\x03%2F",
        ] {
            check(4, other, Some(other));
        }
        // other names, without indexing, empty, indexed, and a new table size
        let others = b"\x04\x02/a\x41\x00\xbe\x3f\xe1\x1f\x00\x02te\x01t";
        check(4, others, Some(others));
        // padding and a priority precede the block
        let padded = b"\x02\0\0\0\0\x10\x41\x03%2Fpp";
        check(0x2c, padded, Some(b"\x02\0\0\0\0\x10\x41\x01xpp"));
        // truncated, an endless number, too much padding
        for broken in [
            &b"\x41"[..],
            b"\x41\x03%2",
            b"\x7f\xff\xff\xff\xff\xff\x01\x00",
        ] {
            check(4, broken, None);
        }
        check(0xc, b"\x09\x83", None);
        let path = [&b"\x83\x86\x44\x7f\xad\x01"[..], &[b'p'; 300]].concat();
        let frame = [&[0, 1, 0x32, 1, 4, 0, 0, 0, 1][..], &path].concat();
        assert_eq!(
            rewrite(&frame).as_ref(),
            Some(&frame),
            "a length of several bytes"
        );
    }

    #[test]
    fn frames_are_rewritten_in_pieces_of_any_size() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9];
        let data = [0, 0, 2, 0, 1, 0, 0, 0, 1, 0x41, 0x02];
        let with = |authority: &[u8]| {
            let first = headers(4, authority);
            // an incomplete block passes unchanged
            let second = headers(0, b"\x41\x03%2F");
            let parts: [&[u8]; 6] = [preface, &settings, &first, &data, &second, &data];
            parts.concat()
        };
        let (sent, expected) = (with(b"\x41\x03%2F"), with(b"\x41\x01x"));
        for size in 1..sent.len() {
            let mut rewriter = Rewriter::default();
            for piece in sent.chunks(size) {
                rewriter.push(piece);
            }
            assert_eq!(rewriter.rewritten(), expected, "pieces of {size}");
        }
    }
}
