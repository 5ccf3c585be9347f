//! PEM certificates, parsed as in Go.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Base64 characters per line.
const LINE: usize = 64;

/// Returns a chain with its PEM blocks only, without headers and other text (upstream
/// `cleanCertificateChain`).
pub fn clean_chain(text: &str) -> Arc<[u8]> {
    let blocks: Vec<_> = blocks(text).collect();
    certificates(blocks.iter().map(Vec::as_slice))
}

/// Encodes DER certificates as one PEM file.
pub(super) fn certificates<'a>(all: impl Iterator<Item = &'a [u8]>) -> Arc<[u8]> {
    let mut text = String::new();
    for der in all {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(der);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            // base64 is ASCII, so any index is a char boundary
            let (line, after) = rest.split_at(LINE.min(rest.len()));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text.into_bytes().into()
}

/// Returns the contents of the PEM blocks of a text; other text is ignored.
pub(super) fn blocks(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let mut lines = text.lines().map(str::trim_end);
    std::iter::from_fn(move || {
        loop {
            let begin = lines.find_map(|line| label(line, "-----BEGIN "))?;
            let mut body = String::new();
            let mut ended = false;
            for line in lines.by_ref() {
                if let Some(end) = label(line, "-----END ") {
                    ended = end == begin;
                    break;
                }
                // skip headers
                if !line.contains(':') {
                    body.push_str(line);
                }
            }
            match STANDARD.decode(&body) {
                Ok(der) if ended && !der.is_empty() => return Some(der),
                _ => {}
            }
        }
    })
}

fn label<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}
