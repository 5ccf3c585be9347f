//! Node log queries: from the journal, else from a file of the service's name.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::containers::too_many;
use super::node_query::{NodeQuery, no_such_file};
use super::tree::{LogEntry, find, serve};
use crate::NodeApi;
use crate::answer::{one_by_one, text};

/// Timeout of a query, as upstream, from its first command to its last byte. Also limits the time
/// for slow clients.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum concurrent queries. Each runs a journalctl, which maps and filters the journal's files.
const MAX_CONCURRENT_QUERIES: usize = 8;

/// Maximum bytes of a response, with journalctl's error messages.
const MAX_RESPONSE_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum bytes of the list of units.
const MAX_UNIT_LIST_BYTES: u64 = 4 * 1024 * 1024;

/// Maximum characters of journalctl's error message.
const MAX_ERROR_CHARS: usize = 200;

/// Bytes read from journalctl at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// Queries the journal. Clones share the permits.
#[derive(Clone, Debug)]
pub struct Journals {
    program: PathBuf,
    permits: Arc<Semaphore>,
}

impl Journals {
    /// Uses this `journalctl`, found in `PATH` if it is a name.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)),
        }
    }

    /// Starts journalctl; it is killed when its handle is dropped. Errors share the pipe with the
    /// output, as upstream: the client sees them, and one limit covers both.
    fn start(&self, arguments: &[String]) -> io::Result<(Child, pipe::Receiver)> {
        let (reader, writer) = io::pipe()?;
        let child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(writer.try_clone()?)
            .stdout(writer)
            .kill_on_drop(true)
            .spawn()?;
        Ok((child, pipe::Receiver::from_owned_fd(reader.into())?))
    }

    /// Returns the units of the journal, and the error if the list is incomplete.
    async fn units(&self) -> (String, Option<String>) {
        let arguments = ["--field", "_SYSTEMD_UNIT"].map(str::to_owned);
        let program = self.program.display();
        let (output, status) = match self.output(&arguments).await {
            Ok(output) => output,
            Err(error) => return (String::new(), Some(format!("{program}: {error}"))),
        };
        let error = status.filter(|status| !status.success()).map(|status| {
            let message: String = output.trim().chars().take(MAX_ERROR_CHARS).collect();
            let arguments = arguments.join(" ");
            format!("{program} {arguments}: {status}: {message}")
        });
        (output, error)
    }

    /// Returns the output, and the exit status unless the output was truncated.
    async fn output(&self, arguments: &[String]) -> io::Result<(String, Option<ExitStatus>)> {
        let (mut child, pipe) = self.start(arguments)?;
        let mut output = Vec::new();
        let mut pipe = pipe.take(MAX_UNIT_LIST_BYTES);
        let read = pipe.read_to_end(&mut output).await?;
        let status = match read as u64 {
            MAX_UNIT_LIST_BYTES => None,
            _ => Some(child.wait().await?),
        };
        Ok((String::from_utf8_lossy(&output).into_owned(), status))
    }
}

/// Responds to a query; codes and messages are upstream's.
pub(crate) async fn respond(api: &NodeApi, query: &NodeQuery, path: &str) -> Response {
    if !path.is_empty() {
        return text(StatusCode::NOT_ACCEPTABLE, "path not allowed in query mode");
    }
    if let Err(error) = query.check() {
        return text(StatusCode::NOT_ACCEPTABLE, error);
    }
    if let [file] = query.files.as_slice() {
        let response = serve(api, file.trim_matches('/')).await;
        // upstream's query validation includes the existence of the file
        return match response.status() {
            StatusCode::NOT_FOUND => text(StatusCode::NOT_ACCEPTABLE, no_such_file(file)),
            _ => response,
        };
    }
    // before the first process is started
    let Ok(permit) = Arc::clone(&api.journals.permits).try_acquire_owned() else {
        return too_many(format!(
            "too many concurrent journal queries (limit: {MAX_CONCURRENT_QUERIES}); \
             try again later"
        ));
    };
    let until = Instant::now() + QUERY_TIMEOUT;
    let units = timeout_at(until, api.journals.units()).await;
    let (units, error) = units.unwrap_or_else(|_| {
        let seconds = QUERY_TIMEOUT.as_secs();
        (String::new(), Some(format!("timeout after {seconds} s")))
    });
    // as upstream, services may log to files if the journal is unavailable
    let error = error.map_or(String::new(), |error| {
        tracing::warn!(error, "listing units of the journal failed");
        format!("cannot read the journal: {error}\n")
    });
    let files: Vec<_> = query
        .services
        .iter()
        .filter(|service| !units.contains(&format!("{service}.service")))
        .collect();
    if files.is_empty() {
        return journal(&api.journals, query, until, permit);
    }
    // a file has its own permit
    drop(permit);
    if query.has_options() {
        let names: Vec<_> = files.iter().map(|name| name.as_str()).collect();
        let names = names.join(" ");
        return plain(format!(
            "\noptions present and query resolved to log files for [{names}]\n\
             try without specifying options\n{error}"
        ));
    }
    match files.as_slice() {
        [service] => service_file(api, service, &error).await,
        _ => text(
            StatusCode::NOT_ACCEPTABLE,
            "more than one service logs to a file; query them one by one",
        ),
    }
}

/// Streams the journal. A separate task reads from journalctl, so that it ends when the client
/// disconnects, or at `until` if the client does not read.
fn journal(
    journals: &Journals,
    query: &NodeQuery,
    until: Instant,
    permit: OwnedSemaphorePermit,
) -> Response {
    let Ok((child, output)) = journals.start(&query.arguments()) else {
        return plain("\nerror: journal output not available\n".to_owned());
    };
    let (blocks, mut received) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = blocks.closed() => {}
            () = pass(output, &blocks) => {}
            // the output so far is the response, as upstream
            () = sleep_until(until) => {}
        }
        drop(child);
        drop(permit);
    });
    let blocks = stream::poll_fn(move |cx| received.poll_recv(cx));
    (PLAIN, one_by_one(blocks)).into_response()
}

/// Passes blocks of output until it ends.
async fn pass(output: impl AsyncRead + Unpin, blocks: &mpsc::Sender<io::Result<Bytes>>) {
    let mut output = output.take(MAX_RESPONSE_BYTES);
    loop {
        let mut block = vec![0; BLOCK_BYTES];
        let read = output.read(&mut block).await;
        let ends = !matches!(read, Ok(1..));
        let block = read.map(|read| {
            block.truncate(read);
            Bytes::from(block)
        });
        if blocks.send(block).await.is_err() || ends {
            return;
        }
    }
}

/// Serves `<service>`, `<service>.log` or `<service>/<service>.log` below the log directory.
/// Without such a file, the response includes `error`.
async fn service_file(api: &NodeApi, service: &str, error: &str) -> Response {
    let names = [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ];
    for name in names {
        let (roots, requested) = (roots(api), name.clone());
        let found = api
            .logs
            .run_blocking(move || Ok(find(&roots, &requested)))
            .await;
        if matches!(found, Ok(Ok(LogEntry::File(..)))) {
            return serve(api, &name).await;
        }
    }
    plain(format!("\nlog not found for {service}\n{error}"))
}

/// Returns the directories of `/logs/`: the first is its own, links may lead into the other.
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
