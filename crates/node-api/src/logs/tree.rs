//! `/logs/`: the files below `/var/log`, as Go's file server shows them.
//!
//! A pod may write below `/var/log`, so a link counts only as far as it stays below `/var/log` or
//! the pods' logs: `/var/log/containers` is links into those. The path is resolved first; what it
//! resolves to is then opened without following any link, so that nobody can put one in between.

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::{io, iter};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use windlass_runtime::logs::open_beneath;

use super::containers::unreadable;
use super::journal::roots;
use crate::NodeApi;
use crate::answer::{one_by_one, text};

/// Bytes of the names that one listing shows, with [`OF_A_NAME`] for each: some 3,000 logs of
/// containers. They are kept for as long as the client takes the page, in a place for readers of
/// logs, so that as many as there may be of these keep 600 MiB.
const NAMES: usize = 512 << 10;

/// What a name takes besides its letters.
const OF_A_NAME: usize = 32;

/// Rows of the page that are made at once: names of 255 bytes that all have to be escaped become
/// 2.3 KiB each.
const ROWS: usize = 64;

/// What is found at a path.
#[derive(Debug)]
pub(crate) enum Found {
    /// A regular file and its length.
    File(File, u64),
    /// Names of a directory's entries, those of directories with a slash; true if there are more.
    Directory(Vec<String>, bool),
}

/// Why a path shows nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// 404.
    NotFound,
    /// 403: out of bounds, no file, or not to be read.
    Forbidden,
    /// 500.
    Fault(String),
}

/// The file or directory at `path`, which is relative to `/logs/` and not encoded.
pub(crate) async fn serve(api: &NodeApi, path: &str) -> Response {
    let wanted = path.to_owned();
    let roots = roots(api);
    let found = api.logs.run_blocking(move || Ok(find(&roots, &wanted))).await;
    let found = found.unwrap_or_else(|error| Err(Missing::Fault(error.to_string())));
    match found {
        // as Go, so that relative links in the listing work
        Ok(Found::Directory(..)) if !path.is_empty() && !path.ends_with('/') => {
            moved(&format!("{}/", last(path)))
        }
        Ok(Found::File(..)) if path.ends_with('/') => moved(&format!("../{}", last(path))),
        Ok(Found::Directory(names, more)) => listing(api, names, more),
        Ok(Found::File(file, length)) => whole(api, file, length, path),
        Err(Missing::NotFound) => text(StatusCode::NOT_FOUND, "404 page not found"),
        Err(Missing::Forbidden) => text(StatusCode::FORBIDDEN, "403 Forbidden"),
        Err(Missing::Fault(error)) => {
            tracing::warn!(%error, "system log not read");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "500 Internal Server Error",
            )
        }
    }
}

/// What is at `path` below the first of `roots`; links may lead into any of them.
pub(crate) fn find(roots: &[PathBuf], path: &str) -> Result<Found, Missing> {
    let names = path
        .split('/')
        .filter(|name| !name.is_empty() && *name != ".");
    if path.contains('\0') || names.clone().any(|name| name == "..") {
        return Err(Missing::NotFound);
    }
    let mut below = roots.first().cloned().unwrap_or_default();
    below.extend(names);
    let real = below.canonicalize().map_err(|error| missing(&error))?;
    let root = roots.iter().filter_map(|root| root.canonicalize().ok());
    let mut root = root.filter(|root| real.starts_with(root));
    let root = root.next().ok_or(Missing::Forbidden)?;
    // devices and pipes are not even opened
    let kind = real.symlink_metadata().map_err(|error| missing(&error))?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(Missing::Forbidden);
    }
    let file = open_beneath(&root, &real).map_err(|error| missing(&error))?;
    let metadata = file.metadata().map_err(|error| missing(&error))?;
    if metadata.is_file() {
        return Ok(Found::File(file, metadata.len()));
    }
    if !metadata.is_dir() {
        return Err(Missing::Forbidden);
    }
    list(&file).map_err(|error| missing(&error))
}

/// By the open directory: its name could mean another one by now.
fn list(directory: &File) -> io::Result<Found> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let (mut names, mut left, mut more) = (Vec::new(), NAMES, false);
    for entry in path.read_dir()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = left.checked_sub(name.len() + OF_A_NAME) else {
            more = true;
            break;
        };
        left = rest;
        let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{name}{slash}"));
    }
    names.sort();
    Ok(Found::Directory(names, more))
}

fn missing(error: &io::Error) -> Missing {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Missing::NotFound,
        io::ErrorKind::PermissionDenied => Missing::Forbidden,
        // a name that is too long, links in a circle
        _ => Missing::Fault(error.to_string()),
    }
}

fn last(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path)
}

fn moved(to: &str) -> Response {
    let location = escape_url(to);
    (
        StatusCode::MOVED_PERMANENTLY,
        [(header::LOCATION, location)],
    )
        .into_response()
}

/// Go's page: a link for each name; made as it is taken.
fn listing(api: &NodeApi, names: Vec<String>, more: bool) -> Response {
    let place = match api.logs.permit() {
        Ok(place) => place,
        Err(error) => return unreadable(&error),
    };
    let head = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n";
    let end = match more {
        true => "there is more\n</pre>\n",
        false => "</pre>\n",
    };
    let mut names = names.into_iter();
    let rows = iter::from_fn(move || {
        let _held = &place;
        let rows: String = names.by_ref().take(ROWS).map(|name| row(&name)).collect();
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
    let (link, shown) = (escape_html(&escape_url(name)), escape_html(name));
    format!("<a href=\"{link}\">{shown}</a>\n")
}

/// As text whatever is in it: nothing that a pod wrote is a page or a script.
fn whole(api: &NodeApi, file: File, length: u64, path: &str) -> Response {
    let blocks = match api.logs.copy(file, length) {
        Ok(blocks) => blocks,
        Err(error) => return unreadable(&error),
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

/// A relative link to a name; `./` keeps a colon in it from being read as a scheme.
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
    let mut shown = String::new();
    for c in name.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&#34;"),
            '\'' => shown.push_str("&#39;"),
            other => shown.push(other),
        }
    }
    shown
}
