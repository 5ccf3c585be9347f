//! Answers a query of the node's logs: from the journal, else from a file of the service's name.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::containers::unreadable;
use super::node_query::NodeQuery;
use super::tree::{Found, find, serve};
use crate::NodeApi;
use crate::answer::text;

/// Upstream's time for a query, from its first command to its last byte.
const LONGEST: Duration = Duration::from_secs(30);

/// Bytes of a journal in one answer.
const LARGEST: usize = 256 * 1024 * 1024;

/// Bytes of the list of units.
const UNITS: u64 = 4 * 1024 * 1024;

/// Bytes read from journalctl at once.
const BLOCK: usize = 64 * 1024;

/// Answers a query; codes and words are upstream's.
pub(crate) async fn answer(api: &NodeApi, query: &NodeQuery, path: &str) -> Response {
    if !path.is_empty() {
        return text(StatusCode::NOT_ACCEPTABLE, "path not allowed in query mode");
    }
    if let Err(error) = query.check() {
        return text(StatusCode::NOT_ACCEPTABLE, error);
    }
    if let [file] = query.files.as_slice() {
        return serve(api, file.trim_matches('/')).await;
    }
    // before the first process is started for it
    let place = match api.logs.place() {
        Ok(place) => place,
        Err(error) => return unreadable(&error),
    };
    let until = Instant::now() + LONGEST;
    let known = tokio::time::timeout_at(until, units()).await;
    let known = known.unwrap_or_default();
    let files: Vec<_> = query
        .services
        .iter()
        .filter(|service| !known.contains(&format!("{service}.service")))
        .collect();
    if files.is_empty() {
        return journal(query, until, place);
    }
    // a file has a place of its own
    drop(place);
    if query.has_options() {
        let names: Vec<_> = files.iter().map(|name| name.as_str()).collect();
        let names = names.join(" ");
        return plain(format!(
            "\noptions present and query resolved to log files for [{names}]\n\
             try without specifying options\n"
        ));
    }
    match files.as_slice() {
        [service] => of_file(api, service).await,
        _ => text(
            StatusCode::NOT_ACCEPTABLE,
            "more than one service that logs to a file: ask for them one by one",
        ),
    }
}

/// Units that the journal knows; none without a journal.
async fn units() -> String {
    let Ok(mut child) = journalctl(&["--field".to_owned(), "_SYSTEMD_UNIT".to_owned()]) else {
        return String::new();
    };
    let mut units = Vec::new();
    if let Some(output) = child.stdout.take() {
        // what could not be read is not known
        let _ = output.take(UNITS).read_to_end(&mut units).await;
    }
    String::from_utf8_lossy(&units).into_owned()
}

/// Killed when its handle goes: with the client, at the latest.
fn journalctl(arguments: &[String]) -> std::io::Result<Child> {
    Command::new("journalctl")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

fn journal(query: &NodeQuery, until: Instant, place: OwnedSemaphorePermit) -> Response {
    let child = journalctl(&query.arguments()).and_then(|mut child| {
        let output = child.stdout.take();
        output
            .map(|output| (child, output))
            .ok_or(std::io::ErrorKind::BrokenPipe.into())
    });
    let Ok((child, output)) = child else {
        return plain("\nerror: journal output not available\n".to_owned());
    };
    let state = (child, output, place, 0);
    let blocks = stream::try_unfold(state, move |(child, mut output, place, sent)| async move {
        let block = tokio::time::timeout_at(until, block(&mut output, sent)).await;
        // out of time: what came so far is the answer, as upstream
        let block = block.unwrap_or(Ok(Bytes::new()))?;
        let sent = sent + block.len();
        let more = !block.is_empty();
        std::io::Result::Ok(more.then_some((block, (child, output, place, sent))))
    });
    (PLAIN, Body::from_stream(blocks)).into_response()
}

async fn block(output: &mut (impl AsyncRead + Unpin), sent: usize) -> std::io::Result<Bytes> {
    let mut block = vec![0; BLOCK.min(LARGEST - sent.min(LARGEST))];
    let read = match block.is_empty() {
        true => 0,
        false => output.read(&mut block).await?,
    };
    block.truncate(read);
    Ok(Bytes::from(block))
}

/// `<service>`, `<service>.log` or `<service>/<service>.log` below the log directory.
async fn of_file(api: &NodeApi, service: &str) -> Response {
    let names = [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ];
    for name in names {
        let (roots, wanted) = (roots(api), name.clone());
        let found = api.logs.look(move || Ok(find(&roots, &wanted))).await;
        if matches!(found, Ok(Ok(Found::File(..)))) {
            return serve(api, &name).await;
        }
    }
    plain(format!("\nlog not found for {service}\n"))
}

/// Directories that `/logs/` may show: the first is its own, links may lead into the other.
pub(crate) fn roots(api: &NodeApi) -> Vec<PathBuf> {
    vec![api.system_logs.clone(), api.paths.pod_logs_dir.clone()]
}

const PLAIN: [(header::HeaderName, &str); 2] = [
    (header::CONTENT_TYPE, "text/plain;charset=UTF-8"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

fn plain(message: String) -> Response {
    (PLAIN, message).into_response()
}
