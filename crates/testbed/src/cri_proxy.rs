//! A proxy in front of a container runtime that makes single calls go wrong.
//!
//! It speaks HTTP/2 to both sides and passes on whatever it is given, frame by frame: headers,
//! bodies, trailers, streams, services it has never heard of. A [`Rule`] picks calls by their
//! method and by text in their request, such as a sandbox's ID, and says what becomes of them.
//! One connection in front is one behind: if either ends, so does the other.

mod forward;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Code;

/// What becomes of a call.
#[derive(Clone, Debug)]
pub enum Action {
    /// It reaches nobody and is not answered; once released it goes on as usual.
    Hang,
    /// It goes on after this long.
    Delay(Duration),
    /// It reaches nobody and fails so.
    Fail(Code, String),
    /// It is carried out, but its answer never arrives; once released, the caller hears it.
    LoseReply,
    /// It is carried out, but its caller hears this error.
    DenyReply(Code, String),
}

/// Which calls, and what becomes of them.
#[derive(Clone, Debug)]
pub struct Rule {
    method: String,
    texts: Vec<String>,
    times: usize,
    action: Action,
}

impl Rule {
    /// All calls of a method by its bare name, such as `PodSandboxStatus`.
    pub fn new(method: &str, action: Action) -> Self {
        Self {
            method: method.to_owned(),
            texts: Vec::new(),
            times: usize::MAX,
            action,
        }
    }

    /// Only calls whose request contains this text (all of them, if there are several).
    pub fn with(mut self, text: &str) -> Self {
        self.texts.push(text.to_owned());
        self
    }

    /// Only the next `times` of them.
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    fn takes(&self, request: &[u8]) -> bool {
        let contains = |text: &String| {
            let text = text.as_bytes();
            text.is_empty() || request.windows(text.len()).any(|window| window == text)
        };
        self.texts.iter().all(contains)
    }
}

/// A rule in force. Dropping it leaves the rule as it is.
#[derive(Clone, Debug)]
pub struct RuleHandle(Arc<Active>);

#[derive(Debug)]
struct Active {
    rule: Rule,
    hits: AtomicUsize,
    waiting: AtomicUsize,
    over: watch::Sender<bool>,
}

impl RuleHandle {
    /// Calls it was applied to.
    pub fn hits(&self) -> usize {
        self.0.hits.load(Ordering::SeqCst)
    }

    /// Calls that it keeps waiting now.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// Ends the rule: what waits goes on, and no further call is touched.
    pub fn release(&self) {
        self.0.over.send_replace(true);
    }
}

impl Active {
    /// Counts a call, if the rule is for it and not used up.
    fn take(&self, method: &str, request: &[u8]) -> bool {
        let open = !*self.over.borrow();
        if !open || self.rule.method != method || !self.rule.takes(request) {
            return false;
        }
        let more = |hits| (hits < self.rule.times).then_some(hits + 1);
        self.hits
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// Waits for the release.
    async fn released(&self) {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.waiting);
        // the sender is in `self`, so this ends with the release
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

/// The rules in force; the first that takes a call decides.
#[derive(Debug, Default)]
struct Rules {
    active: Mutex<Vec<Arc<Active>>>,
    traced: Mutex<Vec<TracedCall>>,
}

/// A call that said of which trace it is a part.
#[derive(Clone, Debug)]
pub struct TracedCall {
    /// Bare name of the method.
    pub method: String,
    /// The header `traceparent`.
    pub traceparent: String,
}

impl Rules {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Active>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn traced(&self) -> MutexGuard<'_, Vec<TracedCall>> {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the request of a method has to be read before it is passed on.
    fn concern(&self, method: &str) -> bool {
        self.lock()
            .iter()
            .any(|active| active.rule.method == method)
    }

    fn find(&self, method: &str, request: &[u8]) -> Option<Arc<Active>> {
        let rules = self.lock();
        rules.iter().find(|it| it.take(method, request)).cloned()
    }
}

/// A running proxy; dropping it cuts all connections.
#[derive(Debug)]
pub struct CriProxy {
    socket: PathBuf,
    rules: Arc<Rules>,
    accepting: JoinHandle<()>,
}

impl CriProxy {
    /// Listens at `socket` for the runtime whose socket is `runtime`, which need not be there
    /// yet. Must be called inside a tokio runtime, which then carries all traffic.
    pub fn start(socket: &Path, runtime: &Path) -> anyhow::Result<Self> {
        let listener = UnixListener::bind(socket)
            .with_context(|| format!("cannot listen at {}", socket.display()))?;
        let rules = Arc::<Rules>::default();
        let accepting = tokio::spawn(forward::accept(
            listener,
            runtime.to_owned(),
            Arc::clone(&rules),
        ));
        Ok(Self {
            socket: socket.to_owned(),
            rules,
            accepting,
        })
    }

    /// The endpoint as `--container-runtime-endpoint` takes it.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Calls so far that were parts of traces.
    pub fn traced(&self) -> Vec<TracedCall> {
        self.rules.traced().clone()
    }

    /// Puts a rule in force, behind those that are.
    pub fn add(&self, rule: Rule) -> RuleHandle {
        let active = Arc::new(Active {
            rule,
            hits: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            over: watch::Sender::new(false),
        });
        let mut rules = self.rules.lock();
        rules.retain(|it| !*it.over.borrow());
        rules.push(Arc::clone(&active));
        RuleHandle(active)
    }
}

impl Drop for CriProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}
