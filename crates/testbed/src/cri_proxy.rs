//! A fault-injecting proxy in front of a container runtime.
//!
//! It forwards HTTP/2 frame by frame, including streams and unknown services. A [`Rule`] selects
//! calls by method and request text, such as a sandbox ID. Each client connection has one runtime
//! connection; both end together.

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

/// Effect of a rule on a call.
#[derive(Clone, Debug)]
pub enum Action {
    /// Held back until released.
    Hang,
    /// Forwarded after a delay.
    Delay(Duration),
    /// Fails without being forwarded.
    Fail(Code, String),
    /// Forwarded, with its response held back until released.
    LoseReply,
    /// Forwarded, with its response replaced by an error.
    DenyReply(Code, String),
}

/// A selection of calls and the effect on them.
#[derive(Clone, Debug)]
pub struct Rule {
    method: String,
    texts: Vec<String>,
    times: usize,
    action: Action,
}

impl Rule {
    /// Selects all calls of a method, such as `PodSandboxStatus`.
    pub fn new(method: &str, action: Action) -> Self {
        Self {
            method: method.to_owned(),
            texts: Vec::new(),
            times: usize::MAX,
            action,
        }
    }

    /// Selects only calls whose request contains this text (and all earlier texts).
    pub fn with(mut self, text: &str) -> Self {
        self.texts.push(text.to_owned());
        self
    }

    /// Selects only the next `times` calls.
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

/// Handle to an active rule; the drop does not end the rule.
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
    /// Returns the number of affected calls.
    pub fn hits(&self) -> usize {
        self.0.hits.load(Ordering::SeqCst)
    }

    /// Returns the number of held calls.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// Ends the rule and releases the held calls.
    pub fn release(&self) {
        self.0.over.send_replace(true);
    }
}

impl Active {
    /// Counts a call if the rule applies to it.
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
        // cannot fail: `self` holds the sender
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

/// Active rules; the first match applies.
#[derive(Debug, Default)]
struct Rules {
    active: Mutex<Vec<Arc<Active>>>,
    traced: Mutex<Vec<TracedCall>>,
}

/// A call with a trace context.
#[derive(Clone, Debug)]
pub struct TracedCall {
    /// Method name.
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

    /// Whether a rule needs the request of a method.
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

/// A running proxy; the drop cuts all connections.
#[derive(Debug)]
pub struct CriProxy {
    socket: PathBuf,
    rules: Arc<Rules>,
    accepting: JoinHandle<()>,
}

impl CriProxy {
    /// Listens at `socket` and forwards to the socket `runtime`, which need not exist yet. Runs in the
    /// current tokio runtime.
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

    /// Returns the value for `--container-runtime-endpoint`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Returns the calls with a trace context.
    pub fn traced(&self) -> Vec<TracedCall> {
        self.rules.traced().clone()
    }

    /// Adds a rule after the existing ones.
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
