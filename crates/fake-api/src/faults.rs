//! Faults that are injected into the server or its connections.
//!
//! A [`Fault`] applies to the calls that match [`On`]; the first match in the order of addition
//! applies. No fault is random.

use std::sync::Arc;
use std::time::Duration;

use crate::lag::InformerLag;
use crate::peers::RawResponse;
use crate::server::Shared;

/// The calls that a fault applies to.
#[derive(Clone, Debug)]
pub struct On {
    method: Option<String>,
    path: String,
    skip: u32,
    times: Option<u32>,
}

impl On {
    /// Every call.
    pub fn any() -> Self {
        Self::path("*")
    }

    /// Calls to a path, without the query; each `*` matches any text.
    pub fn path(pattern: &str) -> Self {
        Self {
            method: None,
            path: pattern.to_owned(),
            skip: 0,
            times: None,
        }
    }

    /// Only calls with this HTTP method, or `WATCH` for watches (which do not match `GET`).
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only the next `times` of these calls; otherwise until the fault is removed.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Skips the first `calls` of them.
    #[must_use]
    pub fn after(mut self, calls: u32) -> Self {
        self.skip = calls;
        self
    }

    fn fits(&self, method: &str, path: &str) -> bool {
        self.method.as_deref().is_none_or(|want| want == method) && glob(&self.path, path)
    }
}

/// A fault of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is refused or closed before the server sees the call.
    Down,
    /// The call is delayed.
    Slow(Duration),
    /// The call hangs.
    Hang,
    /// The call fails with this HTTP code, with `Retry-After` if given (seconds, header and
    /// `Status`).
    Error {
        /// HTTP status code.
        code: u16,
        /// `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// The call is served, but the connection breaks before the response.
    DropReply,
    /// The call is not served and gets this response.
    Response(RawResponse),
}

/// Identifies a fault, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The faults of one server. See [`crate::FakeApiServer::faults`].
#[derive(Clone, Debug)]
pub struct Faults {
    pub(crate) shared: Arc<Shared>,
}

impl Faults {
    /// Adds a fault for some calls.
    pub fn add(&self, on: On, fault: Fault) -> FaultId {
        self.change(|state| state.add(on, fault))
    }

    /// The server cannot be reached.
    pub fn down(&self, on: On) -> FaultId {
        self.add(on, Fault::Down)
    }

    /// The server is unreachable: all watches end, and no call reaches it until the fault is
    /// removed.
    pub fn outage(&self) -> FaultId {
        self.close_watches();
        self.down(On::any())
    }

    /// Delays calls.
    pub fn slow(&self, on: On, delay: Duration) -> FaultId {
        self.add(on, Fault::Slow(delay))
    }

    /// Calls hang.
    pub fn hang(&self, on: On) -> FaultId {
        self.add(on, Fault::Hang)
    }

    /// Calls fail with an HTTP code.
    pub fn error(&self, on: On, code: u16) -> FaultId {
        let retry_after = None;
        self.add(on, Fault::Error { code, retry_after })
    }

    /// Calls fail with an HTTP code and `Retry-After`, in seconds.
    pub fn error_retry_after(&self, on: On, code: u16, seconds: u64) -> FaultId {
        let retry_after = Some(seconds);
        self.add(on, Fault::Error { code, retry_after })
    }

    /// Calls get this response in place of the server's own.
    pub fn answer(&self, on: On, answer: RawResponse) -> FaultId {
        self.add(on, Fault::Response(answer))
    }

    /// Calls are served, but their responses are lost.
    pub fn drop_reply(&self, on: On) -> FaultId {
        self.add(on, Fault::DropReply)
    }

    /// Removes one fault.
    pub fn lift(&self, id: FaultId) {
        self.change(|state| state.rules.retain(|rule| rule.id != id.0));
    }

    /// Removes all faults. Silenced watches stay silent, as a dead connection does.
    pub fn clear(&self) {
        self.change(|state| {
            let (next, closed, muted) = (state.next, state.closed, state.muted);
            *state = FaultState {
                next,
                closed,
                muted,
                ..FaultState::default()
            };
        });
    }

    /// Closes all open watches.
    pub fn close_watches(&self) {
        self.change(|state| state.closed += 1);
    }

    /// Silences the open watches, including bookmarks.
    pub fn silence_watches(&self) {
        self.change(|state| state.muted += 1);
    }

    /// While enabled, new watches are silent.
    pub fn silent_from_start(&self, on: bool) {
        self.change(|state| state.silent_from_start = on);
    }

    /// Compacts the log of changes: a watch from an older version gets 410.
    pub fn expire_versions(&self) {
        self.shared.lock().store.compact();
        self.shared.changed.notify_waiters();
    }

    /// From now on, lists at any version (`resourceVersion=0`, and streaming lists that accept it)
    /// return the current state, as a server with a lagging cache.
    pub fn stale_reads(&self, on: bool) {
        let mut state = self.shared.lock();
        let version = state.store.version();
        state.faults.stale = on.then_some(version);
    }

    /// From now on, the node authorizer and the admission plugin NodeRestriction observe each
    /// change with this delay, by the server's clock. Objects are served without delay.
    pub fn informer_lag(&self, delay: Duration) {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        let version = state.store.version();
        state.faults.informer_lag = Some(InformerLag::new(delay, now, version));
    }

    /// While enabled, each change is sent to watches twice.
    pub fn repeat_events(&self, on: bool) {
        self.change(|state| state.repeat = on);
    }

    /// While enabled, changes that a watch reads at once are sent in reverse order, except those
    /// of one object. The API does not allow this, but a failing server might do it.
    pub fn reorder_events(&self, on: bool) {
        self.change(|state| state.reorder = on);
    }

    /// While enabled, `sendInitialEvents` is rejected, as by a server without this feature.
    pub fn no_streaming_lists(&self, on: bool) {
        self.change(|state| state.no_streaming_lists = on);
    }

    /// While enabled, streaming lists are accepted and then end with an error event, as by a
    /// server whose etcd lacks `RequestWatchProgress` (before 3.4.31 and 3.5.13).
    pub fn no_watch_progress(&self, on: bool) {
        self.change(|state| state.no_watch_progress = on);
    }

    /// While enabled, all watches are accepted and then end with an error event of code 500.
    pub fn fail_watches(&self, on: bool) {
        self.change(|state| state.failing_watches = on);
    }

    fn change<T>(&self, change: impl FnOnce(&mut FaultState) -> T) -> T {
        let result = change(&mut self.shared.lock().faults);
        self.shared.changed.notify_waiters();
        result
    }
}

#[derive(Debug, Default)]
pub(crate) struct FaultState {
    rules: Vec<Rule>,
    next: u64,
    /// Watches with an older number are closed.
    pub(crate) closed: u64,
    /// Watches with an older number are silent.
    pub(crate) muted: u64,
    pub(crate) silent_from_start: bool,
    pub(crate) stale: Option<u64>,
    pub(crate) informer_lag: Option<InformerLag>,
    pub(crate) repeat: bool,
    pub(crate) reorder: bool,
    pub(crate) no_streaming_lists: bool,
    pub(crate) no_watch_progress: bool,
    pub(crate) failing_watches: bool,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    on: On,
    fault: Fault,
}

impl FaultState {
    fn add(&mut self, on: On, fault: Fault) -> FaultId {
        self.next += 1;
        let id = self.next;
        self.rules.push(Rule { id, on, fault });
        FaultId(id)
    }

    /// Returns the fault of a call and counts the call.
    pub(crate) fn take(&mut self, method: &str, path: &str) -> Option<Fault> {
        let at = self.rules.iter_mut().position(|rule| {
            let fits = rule.on.fits(method, path) && rule.on.times != Some(0);
            if fits && rule.on.skip > 0 {
                rule.on.skip -= 1;
                return false;
            }
            fits
        })?;
        let rule = &mut self.rules[at];
        if let Some(times) = &mut rule.on.times {
            *times -= 1;
        }
        Some(rule.fault.clone())
    }
}

/// `*` matches any text, including `/`.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    match last {
        // without a star the whole text must match
        None => rest.is_empty(),
        Some(part) => rest.is_empty() || text.ends_with(part),
    }
}
