//! The part of Go's `net/url` that determines the request path.

/// A resolved URL reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Scheme in lower case, if given.
    pub scheme: Option<String>,
    /// Host without brackets, if given.
    pub host: Option<String>,
    /// Port, if given.
    pub port: Option<u16>,
    /// Path and query; starts with `/`.
    pub path: String,
}

/// The parts of a reference (Go's `url.Parse`).
struct Parts<'a> {
    scheme: Option<String>,
    authority: Option<&'a str>,
    /// Escaped as Go writes it.
    path: String,
    query: Option<&'a str>,
}

/// Returns path and query of a configured `path` (upstream `formatURL`): those of the URL, or the
/// literal path if it is not a URL.
///
/// # Errors
/// A URL without a path, such as `mailto:x`.
pub(super) fn request_path(path: &str) -> Result<String, String> {
    let Ok(parts) = parse(path) else {
        return Ok(rooted(escape(path.as_bytes())));
    };
    if parts.scheme.is_some() && parts.authority.is_none() && !parts.path.starts_with('/') {
        return Err("http: no Host in request URL".to_owned());
    }
    Ok(with_query(rooted(parts.path), parts.query))
}

/// Resolves `reference` relative to `base`, an absolute path with its query.
///
/// # Errors
/// An invalid URL, with Go's message.
pub(super) fn resolve(base: &str, reference: &str) -> Result<Reference, String> {
    let parts = parse(reference)?;
    let (base_path, base_query) = match base.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (base, None),
    };
    let mut found = Reference {
        scheme: parts.scheme,
        host: None,
        port: None,
        path: String::new(),
    };
    if let Some(authority) = parts.authority {
        let (host, port) = split_authority(authority)?;
        found.host = Some(host);
        found.port = port;
    }
    let (path, query) = if found.host.is_some() || found.scheme.is_some() {
        (without_dots(&parts.path), parts.query)
    } else if parts.path.is_empty() {
        (base_path.to_owned(), parts.query.or(base_query))
    } else if parts.path.starts_with('/') {
        (without_dots(&parts.path), parts.query)
    } else {
        let folder = base_path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let joined = format!("{folder}/{}", parts.path);
        (without_dots(&joined), parts.query)
    };
    found.path = with_query(rooted(path), query);
    Ok(found)
}

/// True for a URL host that Go accepts; an address with a zone is rejected.
pub(super) fn is_host(host: &str) -> bool {
    let allowed =
        |b: u8| b >= 0x80 || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&b);
    !host.is_empty() && host.bytes().all(allowed)
}

fn parse(text: &str) -> Result<Parts<'_>, String> {
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    if text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    unescape(fragment)?;
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    if scheme.is_none() && !rest.starts_with('/') {
        let segment = rest.split('/').next().unwrap_or_default();
        if segment.contains(':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_authority = rest.starts_with("//") && (scheme.is_some() || !rest.starts_with("///"));
    let (authority, path) = match rest.strip_prefix("//").filter(|_| has_authority) {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        None => (None, rest),
    };
    if let Some(authority) = authority {
        split_authority(authority)?;
    }
    let bytes = unescape(path)?;
    let path = match is_well_escaped(path) {
        true => path.to_owned(),
        false => escape(&bytes),
    };
    Ok(Parts {
        scheme,
        authority,
        path,
        query,
    })
}

fn split_scheme(text: &str) -> Result<(Option<String>, &str), String> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((Some(text[..at].to_ascii_lowercase()), &text[at + 1..])),
            _ => return Ok((None, text)),
        }
    }
    Ok((None, text))
}

/// Host without brackets, and port. User and password are dropped.
fn split_authority(authority: &str) -> Result<(String, Option<u16>), String> {
    let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest
                .split_once(']')
                .ok_or_else(|| "missing ']' in host".to_owned())?;
            (
                name,
                after
                    .strip_prefix(':')
                    .or((!after.is_empty()).then_some(after)),
            )
        }
        None => match host.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    if !name.is_empty() && !is_host(name) {
        return Err(format!("invalid character in host name {name:?}"));
    }
    let port = match port {
        None | Some("") => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| format!("invalid port {:?} after host", format!(":{text}")))?,
        ),
    };
    Ok((name.to_owned(), port))
}

/// True if Go keeps the escapes of this path as they are written (`validEncoded`).
fn is_well_escaped(path: &str) -> bool {
    path.bytes()
        .all(|b| is_plain(b) || b"!'()*[]%".contains(&b))
}

/// Bytes that Go writes into a path without an escape.
fn is_plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b)
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for b in bytes {
        match is_plain(*b) {
            true => out.push(char::from(*b)),
            false => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(b) = bytes.get(at) {
        if *b != b'%' {
            out.push(*b);
            at += 1;
            continue;
        }
        let digits = bytes
            .get(at + 1..at + 3)
            .and_then(|d| std::str::from_utf8(d).ok());
        let value = digits
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|d| u8::from_str_radix(d, 16).ok());
        let Some(value) = value else {
            return Err("invalid URL escape".to_owned());
        };
        out.push(value);
        at += 3;
    }
    Ok(out)
}

fn rooted(path: String) -> String {
    match path.starts_with('/') {
        true => path,
        false => format!("/{path}"),
    }
}

fn with_query(mut path: String, query: Option<&str>) -> String {
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    path
}

/// Takes `.` and `..` out of a path (Go's `resolvePath`).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path
        .split('/')
        .skip(usize::from(path.starts_with('/')))
        .peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}
