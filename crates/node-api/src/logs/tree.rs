//! `/logs/`: the files below `/var/log`, as Go's file server shows them.
//!
//! A pod may write below `/var/log`, so links are followed only within `/var/log` and the pods'
//! logs, where those of `/var/log/containers` point. The path is resolved first; the result is
//! opened without following links, so that no link can be inserted in between.

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::{io, iter};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use windlass_container_logs::open_beneath;

use super::containers::read_error;
use super::journal::roots;
use crate::NodeApi;
use crate::answer::{one_by_one, text};

/// Maximum bytes of the names in one listing, with [`NAME_OVERHEAD_BYTES`] for each: about 3,000
/// container logs. They are kept while the client reads the page, with a log reader permit, so that
/// all listings together keep at most 600 MiB.
const MAX_NAME_BYTES: usize = 512 << 10;

/// Bytes of a name besides its characters.
const NAME_OVERHEAD_BYTES: usize = 32;

/// Rows of the page that are rendered at once: fully escaped names of 255 bytes have 2.3 KiB each.
const ROWS_PER_PART: usize = 64;

/// The file or directory at a path.
#[derive(Debug)]
pub(crate) enum LogEntry {
    /// A regular file and its length.
    File(File, u64),
    /// Names of a directory's entries, with a slash after directories; true if the list is
    /// truncated.
    Directory(Vec<String>, bool),
}

/// Why a path cannot be served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogEntryError {
    /// 404.
    NotFound,
    /// 403: out of bounds, neither file nor directory, or permission denied.
    Forbidden,
    /// 500.
    Io(String),
}

/// Serves the file or directory at `path`, which is relative to `/logs/` and decoded.
pub(crate) async fn serve(api: &NodeApi, path: &str) -> Response {
    let requested = path.to_owned();
    let roots = roots(api);
    let found = api
        .logs
        .run_blocking(move || Ok(find(&roots, &requested)))
        .await;
    let found = found.unwrap_or_else(|error| Err(LogEntryError::Io(error.to_string())));
    match found {
        // as Go, so that relative links in the listing work
        Ok(LogEntry::Directory(..)) if !path.is_empty() && !path.ends_with('/') => {
            redirect(&format!("{}/", last(path)))
        }
        Ok(LogEntry::File(..)) if path.ends_with('/') => redirect(&format!("../{}", last(path))),
        Ok(LogEntry::Directory(names, more)) => listing(api, names, more),
        Ok(LogEntry::File(file, length)) => serve_file(api, file, length, path),
        Err(LogEntryError::NotFound) => text(StatusCode::NOT_FOUND, "404 page not found"),
        Err(LogEntryError::Forbidden) => text(StatusCode::FORBIDDEN, "403 Forbidden"),
        Err(LogEntryError::Io(error)) => {
            tracing::warn!(%error, "reading system log failed");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "500 Internal Server Error",
            )
        }
    }
}

/// Finds `path` below the first of `roots`; links may lead into any of them.
pub(crate) fn find(roots: &[PathBuf], path: &str) -> Result<LogEntry, LogEntryError> {
    let names = path
        .split('/')
        .filter(|name| !name.is_empty() && *name != ".");
    if path.contains('\0') || names.clone().any(|name| name == "..") {
        return Err(LogEntryError::NotFound);
    }
    let mut below = roots.first().cloned().unwrap_or_default();
    below.extend(names);
    let real = below.canonicalize().map_err(|error| entry_error(&error))?;
    let root = roots.iter().filter_map(|root| root.canonicalize().ok());
    let mut root = root.filter(|root| real.starts_with(root));
    let root = root.next().ok_or(LogEntryError::Forbidden)?;
    // devices and pipes are not opened
    let kind = real
        .symlink_metadata()
        .map_err(|error| entry_error(&error))?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(LogEntryError::Forbidden);
    }
    let file = open_beneath(&root, &real).map_err(|error| entry_error(&error))?;
    let metadata = file.metadata().map_err(|error| entry_error(&error))?;
    if metadata.is_file() {
        return Ok(LogEntry::File(file, metadata.len()));
    }
    if !metadata.is_dir() {
        return Err(LogEntryError::Forbidden);
    }
    list(&file).map_err(|error| entry_error(&error))
}

/// Lists the open directory: its path could refer to another one by now.
fn list(directory: &File) -> io::Result<LogEntry> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let (mut names, mut left, mut more) = (Vec::new(), MAX_NAME_BYTES, false);
    for entry in path.read_dir()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = left.checked_sub(name.len() + NAME_OVERHEAD_BYTES) else {
            more = true;
            break;
        };
        left = rest;
        let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{name}{slash}"));
    }
    names.sort();
    Ok(LogEntry::Directory(names, more))
}

fn entry_error(error: &io::Error) -> LogEntryError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => LogEntryError::NotFound,
        io::ErrorKind::PermissionDenied => LogEntryError::Forbidden,
        // a name that is too long, or a cycle of links
        _ => LogEntryError::Io(error.to_string()),
    }
}

fn last(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}

fn redirect(to: &str) -> Response {
    let location = escape_url(to);
    (
        StatusCode::MOVED_PERMANENTLY,
        [(header::LOCATION, location)],
    )
        .into_response()
}

/// Returns Go's page with a link for each name, rendered as it is read.
fn listing(api: &NodeApi, names: Vec<String>, more: bool) -> Response {
    let permit = match api.logs.permit() {
        Ok(permit) => permit,
        Err(error) => return read_error(&error),
    };
    let head = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n";
    let end = match more {
        true => "truncated\n</pre>\n",
        false => "</pre>\n",
    };
    let mut names = names.into_iter();
    let rows = iter::from_fn(move || {
        let _held = &permit;
        let rows: String = names
            .by_ref()
            .take(ROWS_PER_PART)
            .map(|name| row(&name))
            .collect();
        (!rows.is_empty()).then_some(rows)
    });
    let page = iter::once(head.to_owned())
        .chain(rows)
        .chain(iter::once(end.to_owned()));
    let page = stream::iter(page.map(Ok::<_, Infallible>));
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (kind, Body::from_stream(page)).into_response()
}

fn row(name: &str) -> String {
    let (link, text) = (escape_html(&escape_url(name)), escape_html(name));
    format!("<a href=\"{link}\">{text}</a>\n")
}

/// Serves a file as text, so that content of a pod is never a page or a script.
fn serve_file(api: &NodeApi, file: File, length: u64, path: &str) -> Response {
    let blocks = match api.logs.copy(file, length) {
        Ok(blocks) => blocks,
        Err(error) => return read_error(&error),
    };
    let compressed = Path::new(path).extension().is_some_and(|it| it == "gz");
    let kind = match compressed {
        true => "application/gzip",
        false => "text/plain; charset=utf-8",
    };
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    (headers, one_by_one(blocks)).into_response()
}

/// Returns a relative link to a name; `./` keeps a colon in it from being parsed as a scheme.
fn escape_url(name: &str) -> String {
    let mut link = String::new();
    if name.contains(':') {
        link.push_str("./");
    }
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => link.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'/' | b':' | b'@' | b'$' | b'&' | b'+' | b'=' => {
                link.push(char::from(byte));
            }
            _ => link.push_str(&format!("%{byte:02X}")),
        }
    }
    link
}

fn escape_html(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&#34;"),
            '\'' => text.push_str("&#39;"),
            other => text.push(other),
        }
    }
    text
}
