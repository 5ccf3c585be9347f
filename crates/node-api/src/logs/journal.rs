//! Answers a query of the node's logs: from the journal, else from a file of the service's name.

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
use super::tree::{Found, find, serve};
use crate::NodeApi;
use crate::answer::{one_by_one, text};

/// Upstream's time for a query, from its first command to its last byte. A client that is slower
/// gets what it took by then: nobody keeps a journalctl for longer.
const LONGEST: Duration = Duration::from_secs(30);

/// Queries at a time. Each runs a journalctl, which maps the journal's files and may filter all of
/// them; it is people who ask, a node has two processors at least, and each gets four.
const QUERIES: usize = 8;

/// Bytes of a journal in one answer, with what journalctl complains of.
const LARGEST: u64 = 256 * 1024 * 1024;

/// Bytes of the list of units.
const UNITS: u64 = 4 * 1024 * 1024;

/// Letters of what journalctl complains of when it cannot list them.
const COMPLAINT: usize = 200;

/// Bytes read from journalctl at once.
const BLOCK: usize = 64 * 1024;

/// Who reads the journal. Clones share the places.
#[derive(Clone, Debug)]
pub struct Journals {
    program: PathBuf,
    places: Arc<Semaphore>,
}

impl Journals {
    /// By this `journalctl`, found in `PATH` if it is a name.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            places: Arc::new(Semaphore::new(QUERIES)),
        }
    }

    /// Starts it; killed when its handle goes. What it complains of comes by the same pipe as what
    /// it says, as upstream: who asks sees why there is nothing, and no bound is needed beside that
    /// of the answer.
    fn start(&self, arguments: &[String]) -> io::Result<(Child, pipe::Receiver)> {
        let (output, said) = io::pipe()?;
        let child = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(said.try_clone()?)
            .stdout(said)
            .kill_on_drop(true)
            .spawn()?;
        Ok((child, pipe::Receiver::from_owned_fd(output.into())?))
    }

    /// Units that the journal names, and what kept it from naming others.
    async fn units(&self) -> (String, Option<String>) {
        let arguments = ["--field", "_SYSTEMD_UNIT"].map(str::to_owned);
        let program = self.program.display();
        let (said, status) = match self.said(&arguments).await {
            Ok(said) => said,
            Err(error) => return (String::new(), Some(format!("{program}: {error}"))),
        };
        let fault = status.filter(|status| !status.success()).map(|status| {
            let words: String = said.trim().chars().take(COMPLAINT).collect();
            let arguments = arguments.join(" ");
            format!("{program} {arguments}: {status}: {words}")
        });
        (said, fault)
    }

    /// What it says, and how it ended, unless it was cut short.
    async fn said(&self, arguments: &[String]) -> io::Result<(String, Option<ExitStatus>)> {
        let (mut child, output) = self.start(arguments)?;
        let mut said = Vec::new();
        let read = output.take(UNITS).read_to_end(&mut said).await?;
        let status = match read as u64 {
            UNITS => None,
            _ => Some(child.wait().await?),
        };
        Ok((String::from_utf8_lossy(&said).into_owned(), status))
    }
}

/// Answers a query; codes and words are upstream's.
pub(crate) async fn answer(api: &NodeApi, query: &NodeQuery, path: &str) -> Response {
    if !path.is_empty() {
        return text(StatusCode::NOT_ACCEPTABLE, "path not allowed in query mode");
    }
    if let Err(error) = query.check() {
        return text(StatusCode::NOT_ACCEPTABLE, error);
    }
    if let [file] = query.files.as_slice() {
        let shown = serve(api, file.trim_matches('/')).await;
        // that it is there is a part of upstream's check of the query
        return match shown.status() {
            StatusCode::NOT_FOUND => text(StatusCode::NOT_ACCEPTABLE, no_such_file(file)),
            _ => shown,
        };
    }
    // before the first process is started for it
    let Ok(place) = Arc::clone(&api.journals.places).try_acquire_owned() else {
        return too_many(format!(
            "{QUERIES} queries of the journal are being answered, which is the most at a time; \
             try again later"
        ));
    };
    let until = Instant::now() + LONGEST;
    let known = timeout_at(until, api.journals.units()).await;
    let (known, fault) = known.unwrap_or_else(|_| {
        let seconds = LONGEST.as_secs();
        (
            String::new(),
            Some(format!("not listed within {seconds} s")),
        )
    });
    // as upstream, services of a journal that cannot be asked may log to files
    let fault = fault.map_or(String::new(), |why| {
        tracing::warn!(why, "units of the journal not listed");
        format!("the journal cannot be read: {why}\n")
    });
    let files: Vec<_> = query
        .services
        .iter()
        .filter(|service| !known.contains(&format!("{service}.service")))
        .collect();
    if files.is_empty() {
        return journal(&api.journals, query, until, place);
    }
    // a file has a place of its own
    drop(place);
    if query.has_options() {
        let names: Vec<_> = files.iter().map(|name| name.as_str()).collect();
        let names = names.join(" ");
        return plain(format!(
            "\noptions present and query resolved to log files for [{names}]\n\
             try without specifying options\n{fault}"
        ));
    }
    match files.as_slice() {
        [service] => of_file(api, service, &fault).await,
        _ => text(
            StatusCode::NOT_ACCEPTABLE,
            "more than one service that logs to a file: ask for them one by one",
        ),
    }
}

/// The journal's answer. Who reads from journalctl is not the one who is waited for by the client,
/// so that its end comes when the client has gone, or at `until` if the client takes nothing.
fn journal(
    journals: &Journals,
    query: &NodeQuery,
    until: Instant,
    place: OwnedSemaphorePermit,
) -> Response {
    let Ok((child, output)) = journals.start(&query.arguments()) else {
        return plain("\nerror: journal output not available\n".to_owned());
    };
    let (blocks, mut taken) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = blocks.closed() => {}
            () = pass(output, &blocks) => {}
            // what came so far is the answer, as upstream
            () = sleep_until(until) => {}
        }
        drop(child);
        drop(place);
    });
    let blocks = stream::poll_fn(move |cx| taken.poll_recv(cx));
    (PLAIN, one_by_one(blocks)).into_response()
}

/// Passes on what it says until it ends, at a block a time.
async fn pass(output: impl AsyncRead + Unpin, blocks: &mpsc::Sender<io::Result<Bytes>>) {
    let mut output = output.take(LARGEST);
    loop {
        let mut block = vec![0; BLOCK];
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

/// `<service>`, `<service>.log` or `<service>/<service>.log` below the log directory; `fault` is told
/// where there is none.
async fn of_file(api: &NodeApi, service: &str, fault: &str) -> Response {
    let names = [
        service.to_owned(),
        format!("{service}.log"),
        format!("{service}/{service}.log"),
    ];
    for name in names {
        let (roots, wanted) = (roots(api), name.clone());
        let found = api.logs.run_blocking(move || Ok(find(&roots, &wanted))).await;
        if matches!(found, Ok(Ok(Found::File(..)))) {
            return serve(api, &name).await;
        }
    }
    plain(format!("\nlog not found for {service}\n{fault}"))
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
