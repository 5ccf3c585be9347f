//! The server handle: what tests use directly.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::Resource;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use windlass_client::ApiClients;
use windlass_types::{Clock, Timestamp};

use crate::authority::Authority;
use crate::clock::StartedAt;
use crate::csr;
use crate::delete;
use crate::faults::{FaultState, Faults};
use crate::identity::{Access, User};
use crate::in_process::InProcess;
use crate::path::Target;
use crate::status_error::StatusError;
use crate::store::Store;
use crate::subresources::Token;
use crate::tls::TlsServer;
use crate::write;

/// A received request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRecord {
    /// Time of the response.
    pub at: Timestamp,
    /// HTTP method.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Query as sent.
    pub query: String,
    /// Name of the user: the CN of the certificate, or the token's user.
    pub user: String,
    /// Body; null if there was none.
    pub body: Value,
    /// HTTP status code; 0 if a fault prevented the response.
    pub status: u16,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// Resource, such as `pods`.
    pub resource: String,
    /// Namespace; empty for objects without one.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object; its last state if it was deleted.
    pub object: Arc<Value>,
    /// True if the object no longer exists.
    pub is_deleted: bool,
}

/// An observation of the server.
#[derive(Clone, Debug)]
pub enum Observed<'a> {
    /// An object changed.
    Changed(ObjectChange),
    /// A request was served, or failed by a fault.
    Served(&'a RequestRecord),
}

/// Receives observations in their order.
pub(crate) type Observer = Arc<dyn Fn(Observed<'_>) + Send + Sync>;

/// A type that can be stored in the server.
pub trait Stored: Resource + Serialize + DeserializeOwned {}

impl<K: Resource + Serialize + DeserializeOwned> Stored for K {}

/// An in-memory API server. Clones share it.
#[derive(Clone, Debug)]
pub struct FakeApiServer {
    pub(crate) shared: Arc<Shared>,
}

/// Maximum number of recorded requests for [`FakeApiServer::requests`].
const REQUESTS: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) authority: Authority,
    /// Waiters for changes, in order.
    pub(crate) changed: Notify,
    state: Mutex<State>,
}

/// Authorizes a user's request.
type Authorizer = Box<dyn Fn(&User, &Access) -> bool + Send>;
/// Returns the result of a `SubjectAccessReview` with this spec.
type AccessRules = Box<dyn Fn(&Value) -> bool + Send>;

pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) faults: FaultState,
    requests: VecDeque<RequestRecord>,
    pub(crate) observer: Option<Observer>,
    pub(crate) tokens: BTreeMap<String, Token>,
    pub(crate) authorizer: Option<Authorizer>,
    pub(crate) access_rules: Option<AccessRules>,
    pub(crate) restricts_nodes: bool,
    /// Approve CSRs at once, with this lifetime.
    pub(crate) approves_csrs: Option<Duration>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // a failed test that held the lock must not hide its own message
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn record(&mut self, record: RequestRecord) {
        if self.requests.len() == REQUESTS {
            self.requests.pop_front();
        }
        self.requests.push_back(record);
    }

    /// Returns the changes after a version, and who observes them.
    pub(crate) fn observed_since(&self, version: u64) -> Option<(Observer, Vec<ObjectChange>)> {
        let observer = self.observer.clone()?;
        let changes = self.store.since(version)?.map(|change| ObjectChange {
            resource: change.key.resource.clone(),
            namespace: change.key.namespace.clone(),
            name: change.key.name.clone(),
            object: change.after.clone(),
            is_deleted: change.deleted,
        });
        Some((observer, changes.collect()))
    }

    /// Records the storage version for lagging informers.
    pub(crate) fn record_version(&mut self, now: Timestamp) {
        if let Some(lag) = &mut self.faults.informer_lag {
            lag.record(now, self.store.version());
        }
    }

    /// Uses the user of a token instead of the connection's; an unknown token is rejected.
    pub(crate) fn user_of(
        &self,
        now: Timestamp,
        token: Option<&str>,
        user: &mut User,
    ) -> Result<(), StatusError> {
        if let Some(token) = token {
            let known = self.tokens.get(token).filter(|token| token.is_valid(now));
            *user = known.ok_or_else(StatusError::unauthorized)?.user.clone();
        }
        Ok(())
    }
}

impl Default for FakeApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeApiServer {
    /// Creates a server with the four default namespaces. Its clock follows tokio's time.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(StartedAt::now()))
    }

    /// Creates a server with timestamps from `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        let mut store = Store::new();
        let namespaces = Target {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "namespaces".to_owned(),
            namespace: None,
            name: None,
            subresource: None,
        };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let object = json!({ "metadata": { "name": name } });
            // cannot fail in an empty store
            let _ = write::create(&mut store, now, &namespaces, object);
        }
        let state = State {
            store,
            faults: FaultState::default(),
            requests: VecDeque::new(),
            observer: None,
            tokens: BTreeMap::new(),
            authorizer: None,
            access_rules: None,
            restricts_nodes: true,
            approves_csrs: None,
        };
        Self {
            shared: Arc::new(Shared {
                clock,
                authority: Authority::default(),
                changed: Notify::new(),
                state: Mutex::new(state),
            }),
        }
    }

    /// In-process clients with all permissions.
    pub fn clients(&self) -> ApiClients {
        ApiClients::in_process(self.service(User::admin()))
    }

    /// In-process clients of the node `name`, with the permissions of a node.
    pub fn clients_of_node(&self, name: &str) -> ApiClients {
        ApiClients::in_process(self.service(User::node(name)))
    }

    /// Returns the server as an HTTP service with callers `user`.
    pub fn service(&self, user: User) -> InProcess {
        InProcess::new(self.shared.clone(), user)
    }

    /// Serves TLS on a free port of the loopback address.
    ///
    /// # Errors
    /// No port, or no certificates.
    pub async fn serve_tls(&self) -> io::Result<TlsServer> {
        TlsServer::start(self.clone()).await
    }

    /// Adds a bearer token for requests and token reviews.
    pub fn add_token(&self, token: &str, user: User) {
        let token_of = Token {
            user,
            audiences: Vec::new(),
            expires_at: None,
        };
        self.shared.lock().tokens.insert(token.to_owned(), token_of);
    }

    /// Removes a bearer token; requests with it result in 401.
    pub fn revoke_token(&self, token: &str) {
        self.shared.lock().tokens.remove(token);
    }

    /// Sets the authorizer: requests that `allowed` denies result in 403. Without it, all requests
    /// except the restricted ones of nodes are allowed. It is called under the server's lock.
    pub fn authorize(&self, allowed: impl Fn(&User, &Access) -> bool + Send + 'static) {
        self.shared.lock().authorizer = Some(Box::new(allowed));
    }

    /// Enables the restrictions of the node authorizer and the admission plugin NodeRestriction.
    /// Enabled by default.
    pub fn restrict_nodes(&self, on: bool) {
        self.shared.lock().restricts_nodes = on;
    }

    /// Sets the results of access reviews by spec; by default all are allowed.
    pub fn review_access(
        &self,
        allowed: impl Fn(&SubjectAccessReviewSpec) -> bool + Send + 'static,
    ) {
        let rule = move |spec: &Value| {
            SubjectAccessReviewSpec::deserialize(spec).is_ok_and(|spec| allowed(&spec))
        };
        self.shared.lock().access_rules = Some(Box::new(rule));
    }

    /// Approves and signs every new CSR of a node with certificates of this lifetime; `None`
    /// disables it.
    pub fn auto_approve_csrs(&self, lifetime: Option<Duration>) {
        self.shared.lock().approves_csrs = lifetime;
    }

    /// Approves a node's CSR and signs it.
    ///
    /// # Errors
    /// The signer's failure, which is also recorded in the CSR.
    pub fn approve_csr(&self, name: &str, lifetime: Duration) -> Result<(), String> {
        let authority = &self.shared.authority;
        self.change(|state, now| csr::approve(&mut state.store, authority, now, name, lifetime))
    }

    /// Denies a CSR.
    ///
    /// # Errors
    /// The CSR does not exist.
    pub fn deny_csr(&self, name: &str, message: &str) -> Result<(), String> {
        self.change(|state, now| csr::deny(&mut state.store, now, name, message))
    }

    /// Returns the injected faults.
    pub fn faults(&self) -> Faults {
        Faults {
            shared: self.shared.clone(),
        }
    }

    /// Calls `observer` with every change of an object and every request, in order. It must not call
    /// the server.
    pub fn observe(&self, observer: impl Fn(Observed<'_>) + Send + Sync + 'static) {
        self.shared.lock().observer = Some(Arc::new(observer));
    }

    /// Returns the recorded requests, in the order of their responses.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.lock().requests.iter().cloned().collect()
    }

    /// Clears the recorded requests.
    pub fn clear_requests(&self) {
        self.shared.lock().requests.clear();
    }

    /// Returns the newest version.
    pub fn version(&self) -> u64 {
        self.shared.lock().store.version()
    }

    /// Creates an object with all permissions, and returns it as stored.
    ///
    /// # Panics
    /// If the server rejects it.
    #[track_caller]
    pub fn create<K: Stored>(&self, object: &K) -> K {
        let object = encode(object);
        let namespace = crate::object::meta(&object, "namespace").map(str::to_owned);
        let target = target::<K>(namespace.as_deref());
        let created =
            self.change(|state, now| write::create(&mut state.store, now, &target, object));
        let created = expect_done(created);
        decode(&created)
    }

    /// Reads an object.
    ///
    /// # Panics
    /// If the stored object is not a `K`.
    #[track_caller]
    pub fn get<K: Stored>(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        let key = target::<K>(namespace).key(name);
        let object = self.shared.lock().store.get(&key)?;
        Some(decode(&object))
    }

    /// Reads all objects of a type, in the order of namespace and name.
    ///
    /// # Panics
    /// If a stored object is not a `K`.
    #[track_caller]
    pub fn list<K: Stored>(&self) -> Vec<K> {
        let set = self.shared.lock().store.list(K::GROUP, K::URL_PATH_SEGMENT);
        set.iter().map(|(_, object)| decode(object)).collect()
    }

    /// Changes any part of an object, including the status, without validation, and returns it as
    /// stored. A changed spec increments the generation; no change has no effect.
    ///
    /// # Panics
    /// If the object does not exist.
    #[track_caller]
    pub fn modify<K: Stored>(
        &self,
        namespace: Option<&str>,
        name: &str,
        change: impl FnOnce(&mut K),
    ) -> K {
        let key = target::<K>(namespace).key(name);
        let modified = self.change(|state, _| {
            let old = state
                .store
                .get(&key)
                .ok_or_else(|| StatusError::not_found(&key))?;
            let mut object: K = decode(&old);
            change(&mut object);
            write::overwrite(&mut state.store, &key, &old, encode(&object))
        });
        let modified = expect_done(modified);
        decode(&modified)
    }

    /// Deletes an object as a user, with a grace period in seconds or the object's own. Returns
    /// true if it existed.
    ///
    /// # Panics
    /// If the server rejects it.
    #[track_caller]
    pub fn delete<K: Stored>(
        &self,
        namespace: Option<&str>,
        name: &str,
        grace_seconds: Option<i64>,
    ) -> bool {
        let key = target::<K>(namespace).key(name);
        if self.shared.lock().store.get(&key).is_none() {
            return false;
        }
        let options = json!({ "gracePeriodSeconds": grace_seconds });
        let deleted =
            self.change(|state, now| delete::delete(&mut state.store, now, &key, &options));
        expect_done(deleted);
        true
    }

    /// Waits until `done` returns true; it is called after each change and request. Use it with a
    /// timeout.
    pub async fn wait_for(&self, mut done: impl FnMut(&Self) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // registered before the check, so that no change is missed
            changed.as_mut().enable();
            if done(self) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        let before = state.store.version();
        let result = change(&mut state, now);
        state.record_version(now);
        let observed = state.observed_since(before);
        drop(state);
        report_changes(observed);
        self.shared.changed.notify_waiters();
        result
    }
}

/// Calls the observer, without the lock.
pub(crate) fn report_changes(observed: Option<(Observer, Vec<ObjectChange>)>) {
    if let Some((observer, changes)) = observed {
        for change in changes {
            observer(Observed::Changed(change));
        }
    }
}

fn target<K: Resource>(namespace: Option<&str>) -> Target {
    Target {
        group: K::GROUP.to_owned(),
        version: K::VERSION.to_owned(),
        resource: K::URL_PATH_SEGMENT.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: None,
        subresource: None,
    }
}

#[track_caller]
fn expect_done<T>(result: Result<T, StatusError>) -> T {
    match result {
        Ok(done) => done,
        #[expect(clippy::panic, reason = "a test that sets the scene wrongly ends here")]
        Err(error) => panic!(
            "the fake API server rejected the request: {}",
            error.message
        ),
    }
}

#[track_caller]
fn encode<K: Serialize>(object: &K) -> Value {
    match serde_json::to_value(object) {
        Ok(value) => value,
        #[expect(clippy::panic, reason = "types of k8s-openapi always encode")]
        Err(error) => panic!("cannot encode the object: {error}"),
    }
}

#[track_caller]
fn decode<K: DeserializeOwned>(object: &Value) -> K {
    match K::deserialize(object) {
        Ok(object) => object,
        #[expect(clippy::panic, reason = "a test that reads the wrong type ends here")]
        Err(error) => panic!("the stored object has another type: {error}: {object}"),
    }
}
