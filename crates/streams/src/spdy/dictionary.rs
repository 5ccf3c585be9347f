//! The header compression dictionary of SPDY/3, from its specification.

/// Words of the dictionary, each after its length.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "options", "head", "post", "put", "delete", "trace", "accept", "accept-charset",
    "accept-encoding", "accept-language", "accept-ranges", "age", "allow", "authorization",
    "cache-control", "connection", "content-base", "content-encoding", "content-language",
    "content-length", "content-location", "content-md5", "content-range", "content-type", "date",
    "etag", "expect", "expires", "from", "host", "if-match", "if-modified-since", "if-none-match",
    "if-range", "if-unmodified-since", "last-modified", "location", "max-forwards", "pragma",
    "proxy-authenticate", "proxy-authorization", "range", "referer", "retry-after", "server",
    "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning",
    "www-authenticate", "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url",
    "public", "set-cookie", "keep-alive", "origin",
];

/// Text after the words.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417\
    502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request\
    401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented\
    503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, \
    Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
    application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
    charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Returns the dictionary; 1423 bytes.
pub(crate) fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in WORDS {
        // no word has more than 255 bytes
        let length = u8::try_from(word.len()).unwrap_or(u8::MAX);
        bytes.extend_from_slice(&[0, 0, 0, length]);
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}
