//! Frames against hand-written bytes, and invalid frames.

use flate2::{Decompress, FlushDecompress};

use super::{Control, Head, MAX_CONTROL_BYTES, Opener, SpdyError, control, data, dictionary, head};
use super::{ping, rejection};

/// Decompresses headers as a server does.
pub(crate) struct Headers(Decompress);

impl Headers {
    pub(crate) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Returns the only header of a frame that opens a stream; `payload` starts after the frame's
    /// head.
    pub(crate) fn read(&mut self, payload: &[u8]) -> (u32, String, String) {
        let stream = u32::from_be_bytes(*payload.first_chunk().expect("a stream"));
        let compressed = payload.get(10..).expect("headers");
        let mut block = Vec::with_capacity(1 << 10);
        let mut read = 0;
        while read < compressed.len() {
            let before = self.0.total_in();
            let rest = &compressed[read..];
            let done = self
                .0
                .decompress_vec(rest, &mut block, FlushDecompress::Sync);
            if let Err(error) = done {
                assert!(error.needs_dictionary().is_some(), "{error}");
                self.0.set_dictionary(&dictionary()).expect("dictionary");
            }
            read += usize::try_from(self.0.total_in() - before).expect("small");
        }
        let mut words = Vec::new();
        let mut rest = block.strip_prefix(&[0, 0, 0, 1]).expect("one header");
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let (word, behind) = behind.split_at(length);
            words.push(String::from_utf8(word.to_vec()).expect("text"));
            rest = behind;
        }
        let [name, value] = words.try_into().expect("a name and a value");
        (stream, name, value)
    }
}

#[test]
fn dictionary_has_the_checksum_of_the_specification() {
    let bytes = dictionary();
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in &bytes {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    assert_eq!((bytes.len(), b << 16 | a), (1423, 0xe3c6_a7c2));
}

#[test]
fn frames_are_written_as_specified() {
    type Case<'a> = (Result<Vec<u8>, SpdyError>, &'a [u8]);
    let cases: [Case<'_>; 5] = [
        (data(3, false, b"hi"), b"\0\0\0\x03\0\0\0\x02hi"),
        (data(3, true, b""), b"\0\0\0\x03\x01\0\0\0"),
        (ping(2), b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x02"),
        (
            rejection(4),
            b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x04\0\0\0\x03",
        ),
        (data(1, false, &[0; 300]), b"\0\0\0\x01\0\0\x01\x2c"),
    ];
    for (frame, expected) in cases {
        let frame = frame.expect("a frame");
        assert!(frame.starts_with(expected), "{frame:?} {expected:?}");
    }
    let long = vec![0; 1 << 24];
    assert_eq!(data(1, false, &long), Err(SpdyError::TooLong(1 << 24)));
}

#[test]
fn headers_of_all_streams_share_one_compression() {
    let mut opener = Opener::new().expect("compression");
    let mut headers = Headers::new();
    for (stream, value) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")] {
        let frame = opener.open(stream, "streamtype", value).expect("a frame");
        let (bytes, payload) = frame.split_first_chunk().expect("a head");
        assert_eq!(
            head(*bytes),
            Ok(Head::Control {
                kind: 1,
                is_last: false,
                length: payload.len()
            })
        );
        // the zlib head requires the dictionary, as specified
        if stream == 1 {
            assert_eq!(payload.get(11).map(|flags| flags & 0x20), Some(0x20));
            assert_eq!(payload.get(12..16), Some(&[0xe3, 0xc6, 0xa7, 0xc2][..]));
        }
        let expected = (stream, "streamtype".to_owned(), value.to_owned());
        assert_eq!(headers.read(payload), expected);
    }
}

#[test]
fn frame_heads_are_parsed_or_rejected() {
    let data = |stream, is_last, length| {
        Ok(Head::Data {
            stream,
            is_last,
            length,
        })
    };
    let control = |kind, is_last, length| {
        Ok(Head::Control {
            kind,
            is_last,
            length,
        })
    };
    let cases: [([u8; 8], Result<Head, SpdyError>); 7] = [
        ([0, 0, 0, 5, 0, 0, 0, 9], data(5, false, 9)),
        (
            [0x7f, 255, 255, 255, 1, 255, 255, 255],
            data(0x7fff_ffff, true, (1 << 24) - 1),
        ),
        ([0x80, 3, 0, 2, 1, 0, 0, 4], control(2, true, 4)),
        ([0x80, 3, 0, 77, 0, 0, 0, 0], control(77, false, 0)),
        ([0x80, 2, 0, 1, 0, 0, 0, 4], Err(SpdyError::Version(2))),
        (
            [0x80, 3, 0, 4, 0, 1, 0, 0],
            control(4, false, MAX_CONTROL_BYTES),
        ),
        (
            [0x80, 3, 0, 4, 0, 1, 0, 1],
            Err(SpdyError::TooLong(MAX_CONTROL_BYTES + 1)),
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(head(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn control_frames_are_parsed_or_rejected() {
    let reply = |stream, is_last| Ok(Control::Reply { stream, is_last });
    type Case<'a> = (u16, bool, &'a [u8], Result<Control, SpdyError>);
    let cases: [Case<'_>; 9] = [
        (1, false, b"\0\0\0\x02rest", Ok(Control::Open(2))),
        (2, false, b"\0\0\0\x01rest", reply(1, false)),
        (2, true, b"\x80\0\0\x01", reply(1, true)),
        (3, false, b"\0\0\0\x05\0\0\0\x05", Ok(Control::Reset(5))),
        (6, false, b"\0\0\0\x08", Ok(Control::Ping(8))),
        (6, false, b"\0\0\x08", Err(SpdyError::Truncated(6, 3))),
        (2, false, b"", Err(SpdyError::Truncated(2, 0))),
        // GOAWAY, WINDOW_UPDATE, an unknown type
        (7, false, b"", Ok(Control::Other)),
        (77, true, b"?", Ok(Control::Other)),
    ];
    for (kind, is_last, payload, expected) in cases {
        let read = control(kind, is_last, payload);
        assert_eq!(read, expected, "{kind} {payload:?}");
    }
}
