//! SPDY/3.1 frames, as far as a client of a streaming server needs them.
//!
//! No I/O. Headers of the server are not decompressed: exec and attach do not use them. There is no
//! flow control, as in Kubernetes' servers: `WINDOW_UPDATE` and `SETTINGS` are ignored.

mod dictionary;

#[cfg(test)]
pub(crate) mod tests;

use flate2::{Compress, Compression, FlushCompress, Status};

pub(crate) use dictionary::dictionary;

/// Length of a frame's head.
pub(crate) const HEAD_BYTES: usize = 8;
/// Maximum length of a control frame; those of a streaming server have about 50 bytes.
pub(crate) const MAX_CONTROL_BYTES: usize = 64 << 10;
/// Maximum payload of a frame: its length has 24 bits.
const MAX_LENGTH: usize = (1 << 24) - 1;

const VERSION: u16 = 3;
const CONTROL: u8 = 0x80;
const FIN: u8 = 0x01;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;

/// A frame that is not SPDY/3.1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpdyError {
    #[error("SPDY version {0} instead of 3")]
    Version(u16),
    #[error("a SPDY control frame of {0} bytes")]
    TooLong(usize),
    #[error("a SPDY frame of type {0} with {1} bytes")]
    Truncated(u16, usize),
    #[error("SPDY headers cannot be compressed")]
    Compression,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Data {
        stream: u32,
        is_last: bool,
        length: usize,
    },
    Control {
        kind: u16,
        is_last: bool,
        length: usize,
    },
}

/// A control frame of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The server opens a stream.
    Open(u32),
    /// The server accepts a stream, and may close its half.
    Reply { stream: u32, is_last: bool },
    /// The server resets a stream.
    Reset(u32),
    /// The server expects the same number back.
    Ping(u32),
    /// Ignored.
    Other,
}

/// Parses the head of a frame.
pub(crate) fn head(bytes: [u8; HEAD_BYTES]) -> Result<Head, SpdyError> {
    let [first, second, third, fourth, flags, high, middle, low] = bytes;
    let is_last = flags & FIN != 0;
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    if first & CONTROL == 0 {
        let stream = u32::from_be_bytes([first, second, third, fourth]);
        return Ok(Head::Data {
            stream,
            is_last,
            length,
        });
    }
    let version = u16::from_be_bytes([first & !CONTROL, second]);
    if version != VERSION {
        return Err(SpdyError::Version(version));
    }
    if length > MAX_CONTROL_BYTES {
        return Err(SpdyError::TooLong(length));
    }
    let kind = u16::from_be_bytes([third, fourth]);
    Ok(Head::Control {
        kind,
        is_last,
        length,
    })
}

/// Parses the payload of a control frame.
pub(crate) fn control(kind: u16, is_last: bool, payload: &[u8]) -> Result<Control, SpdyError> {
    let number = || {
        let number = payload.first_chunk().map(|it| u32::from_be_bytes(*it));
        number.ok_or(SpdyError::Truncated(kind, payload.len()))
    };
    let stream = || number().map(|number| number & 0x7fff_ffff);
    Ok(match kind {
        SYN_STREAM => Control::Open(stream()?),
        SYN_REPLY => Control::Reply {
            stream: stream()?,
            is_last,
        },
        RST_STREAM => Control::Reset(stream()?),
        PING => Control::Ping(number()?),
        _ => Control::Other,
    })
}

/// Returns a data frame. The payload has to fit into a frame.
pub(crate) fn data(stream: u32, is_last: bool, payload: &[u8]) -> Result<Vec<u8>, SpdyError> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
    frame.extend_from_slice(&(stream & 0x7fff_ffff).to_be_bytes());
    frame.extend_from_slice(&flags_and_length(is_last, payload.len())?);
    frame.extend_from_slice(payload);
    Ok(frame)
}

/// Returns the response to a ping.
pub(crate) fn ping(number: u32) -> Result<Vec<u8>, SpdyError> {
    control_frame(PING, &number.to_be_bytes())
}

/// Returns a frame that rejects a stream opened by the server.
pub(crate) fn rejection(stream: u32) -> Result<Vec<u8>, SpdyError> {
    const REFUSED_STREAM: u32 = 3;
    let payload = [stream.to_be_bytes(), REFUSED_STREAM.to_be_bytes()];
    control_frame(RST_STREAM, payload.as_flattened())
}

fn control_frame(kind: u16, payload: &[u8]) -> Result<Vec<u8>, SpdyError> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
    let [high, low] = VERSION.to_be_bytes();
    frame.extend_from_slice(&[high | CONTROL, low]);
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&flags_and_length(false, payload.len())?);
    frame.extend_from_slice(payload);
    Ok(frame)
}

fn flags_and_length(is_last: bool, length: usize) -> Result<[u8; 4], SpdyError> {
    let short = u32::try_from(length).ok();
    let short = short.filter(|_| length <= MAX_LENGTH);
    let [_, high, middle, low] = short.ok_or(SpdyError::TooLong(length))?.to_be_bytes();
    Ok([u8::from(is_last) * FIN, high, middle, low])
}

/// Opens streams. The header compression has one state per connection.
#[derive(Debug)]
pub(crate) struct Opener(Compress);

impl Opener {
    pub(crate) fn new() -> Result<Self, SpdyError> {
        let mut compress = Compress::new(Compression::fast(), true);
        let loaded = compress.set_dictionary(&dictionary());
        loaded.map_err(|_| SpdyError::Compression)?;
        Ok(Self(compress))
    }

    /// Returns a frame that opens a stream with one header with a lower-case name.
    pub(crate) fn open(
        &mut self,
        stream: u32,
        name: &str,
        value: &str,
    ) -> Result<Vec<u8>, SpdyError> {
        let mut block = 1_u32.to_be_bytes().to_vec();
        for word in [name, value] {
            let length = u32::try_from(word.len()).map_err(|_| SpdyError::TooLong(word.len()))?;
            block.extend_from_slice(&length.to_be_bytes());
            block.extend_from_slice(word.as_bytes());
        }
        // zlib adds a head, the dictionary's checksum and the flush marker, far less than this
        let mut payload = Vec::with_capacity(block.len() + 128);
        payload.extend_from_slice(&stream.to_be_bytes());
        // no associated stream, highest priority, no credential
        payload.extend_from_slice(&[0; 6]);
        let room = payload.capacity();
        let done = self
            .0
            .compress_vec(&block, &mut payload, FlushCompress::Sync);
        match done {
            Ok(Status::Ok) if payload.len() < room => control_frame(SYN_STREAM, &payload),
            _ => Err(SpdyError::Compression),
        }
    }
}
