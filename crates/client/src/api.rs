//! The API verbs, over any HTTP service.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, ListMeta, Preconditions, Status,
};
use kube::client::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use windlass_pacing::{MissingFeature, RateLimit};

use crate::error::{ApiError, ApiErrorKind, ApiResult};
use crate::query::{Delete, List, ObjectKey, Patch, Selector, Watch};
use crate::record::Recorder;
use crate::reflect::REPROBE_INTERVAL;

/// A type of the Kubernetes API, as `k8s-openapi` defines it.
pub trait ApiObject:
    kube::Resource<DynamicType = ()>
    + Clone
    + fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> ApiObject for K where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent<K> {
    /// The object is new or changed.
    Applied(K),
    /// The object was deleted; its last state.
    Deleted(K),
    /// All changes up to this version were sent; `initial_end` ends a streaming list.
    Bookmark {
        /// The version for a later watch.
        resource_version: String,
        /// The initial set is complete.
        initial_end: bool,
    },
}

/// The events of one watch; it ends when the server closes it.
pub type WatchStream<K> = Pin<Box<dyn Stream<Item = ApiResult<WatchEvent<K>>> + Send>>;

/// A client of one API server. Clones share connection, limits and credentials.
#[derive(Clone)]
pub struct ApiClient {
    kube: kube::Client,
    timeout: Duration,
    limit: Option<Arc<RateLimit>>,
    recorder: Option<Recorder>,
    seed: u64,
    /// Lists as a stream; older API servers do not have them.
    streaming_lists: MissingFeature,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").finish_non_exhaustive()
    }
}

impl ApiClient {
    /// Creates a client over any HTTP service: a connection pool, or a server in the same process.
    ///
    /// `timeout` limits each request, and the start of each watch.
    pub fn from_service<S, B>(service: S, timeout: Duration) -> Self
    where
        S: tower::Service<http::Request<Body>, Response = http::Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<tower::BoxError>,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        Self {
            kube: kube::Client::new(service, "default"),
            timeout,
            limit: None,
            recorder: None,
            seed: 0,
            streaming_lists: MissingFeature::new(REPROBE_INTERVAL),
        }
    }

    /// Limits the client to `qps` requests per second with a burst of `burst`. Requests over the
    /// limit wait. A watch counts once.
    #[must_use]
    pub(crate) fn with_rate_limit(mut self, qps: f64, burst: u32) -> Self {
        self.limit = RateLimit::new(qps, burst).map(Arc::new);
        self
    }

    /// Counts the requests under this host name.
    #[must_use]
    pub(crate) fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Sets the seed of the reflectors' jitter.
    #[must_use]
    pub(crate) fn with_jitter_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn streaming_lists(&self) -> &MissingFeature {
        &self.streaming_lists
    }

    /// Reads one object.
    pub async fn get<K: ApiObject>(&self, at: ObjectKey<'_>) -> ApiResult<K> {
        let path = object_path::<K>(at, None);
        self.call(Call::new(Method::GET, path)).await
    }

    /// Reads one object from the server's cache, which may be outdated.
    pub async fn get_cached<K: ApiObject>(&self, at: ObjectKey<'_>) -> ApiResult<K> {
        let query = vec![("resourceVersion", "0".to_owned())];
        let path = object_path::<K>(at, None);
        self.call(Call::new(Method::GET, path).query(query)).await
    }

    /// Reads a set of objects and its version, for a following watch.
    pub async fn list<K: ApiObject>(
        &self,
        selector: &Selector,
        list: &List,
    ) -> ApiResult<(Vec<K>, String)> {
        let mut query = selector_query(selector);
        if let Some(version) = &list.resource_version {
            query.push(("resourceVersion", version.clone()));
        }
        let path = set_path::<K>(selector.namespace.as_deref());
        let listed: Listed<K> = self.call(Call::new(Method::GET, path).query(query)).await?;
        Ok((
            listed.items.unwrap_or_default(),
            listed.metadata.resource_version.unwrap_or_default(),
        ))
    }

    /// Watches a set of objects. The server ends a watch after 290 s; a stream that is silent
    /// beyond that ends with [`ApiErrorKind::Timeout`].
    pub async fn watch<K: ApiObject>(
        &self,
        selector: &Selector,
        watch: &Watch,
    ) -> ApiResult<WatchStream<K>> {
        let mut query = selector_query(selector);
        query.push(("watch", "true".to_owned()));
        query.push(("allowWatchBookmarks", "true".to_owned()));
        query.push(("timeoutSeconds", WATCH_SECONDS.to_string()));
        if watch.initial_events {
            query.push(("sendInitialEvents", "true".to_owned()));
            query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
        }
        if !watch.resource_version.is_empty() {
            query.push(("resourceVersion", watch.resource_version.clone()));
        }
        let path = set_path::<K>(selector.namespace.as_deref());
        let call = Call::new(Method::GET, path).query(query).named("watch");
        let (response, _) = self.send(&call).await?;
        let body = response.into_body();
        Ok(crate::stream::watch_stream(
            body,
            call.path,
            WATCH_IDLE_TIMEOUT,
        ))
    }

    /// Creates an object; `namespace` is `None` for cluster-scoped types.
    pub async fn create<K: ApiObject>(&self, namespace: Option<&str>, object: &K) -> ApiResult<K> {
        let call = Call::new(Method::POST, set_path::<K>(namespace));
        self.call(call.json(object)?).await
    }

    /// Replaces an object.
    pub async fn update<K: ApiObject>(
        &self,
        at: ObjectKey<'_>,
        subresource: Option<&str>,
        object: &K,
    ) -> ApiResult<K> {
        let call = Call::new(Method::PUT, object_path::<K>(at, subresource));
        self.call(call.json(object)?).await
    }

    /// Patches an object, or a subresource such as `status`, and returns the result.
    pub async fn patch<K: ApiObject>(
        &self,
        at: ObjectKey<'_>,
        subresource: Option<&str>,
        patch: &Patch,
    ) -> ApiResult<K> {
        let (content_type, body) = match patch {
            Patch::StrategicMerge(value) => ("application/strategic-merge-patch+json", value),
            Patch::Merge(value) => ("application/merge-patch+json", value),
        };
        let mut call = Call::new(Method::PATCH, object_path::<K>(at, subresource)).json(body)?;
        call.content_type = content_type;
        self.call(call).await
    }

    /// Deletes an object. With a grace period it may still exist for that long.
    pub async fn delete<K: ApiObject>(&self, at: ObjectKey<'_>, delete: &Delete) -> ApiResult<()> {
        let options = DeleteOptions {
            api_version: Some("v1".to_owned()),
            kind: Some("DeleteOptions".to_owned()),
            grace_period_seconds: delete.grace_seconds.map(i64::from),
            preconditions: delete.uid.as_ref().map(|uid| Preconditions {
                uid: Some(uid.clone()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        };
        let call = Call::new(Method::DELETE, object_path::<K>(at, None)).json(&options)?;
        let (response, deadline) = self.send(&call).await?;
        // an HTTP/1.1 connection is reusable only after its response was read
        let rest = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect();
        let _ = tokio::time::timeout_at(deadline, rest).await;
        Ok(())
    }

    /// Deletes a set of objects.
    pub async fn delete_set<K: ApiObject>(&self, selector: &Selector) -> ApiResult<()> {
        let query = selector_query(selector);
        let path = set_path::<K>(selector.namespace.as_deref());
        let call = Call::new(Method::DELETE, path).query(query);
        let (response, deadline) = self.send(&call).await?;
        // as for one object
        let rest = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect();
        let _ = tokio::time::timeout_at(deadline, rest).await;
        Ok(())
    }

    /// Posts to a subresource such as `token` and returns its response.
    pub async fn post<K: ApiObject, T: Serialize + DeserializeOwned>(
        &self,
        at: ObjectKey<'_>,
        subresource: &str,
        body: &T,
    ) -> ApiResult<T> {
        let call = Call::new(Method::POST, object_path::<K>(at, Some(subresource)));
        self.call(call.json(body)?).await
    }

    async fn call<T: DeserializeOwned>(&self, call: Call) -> ApiResult<T> {
        let (response, deadline) = self.send(&call).await?;
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
        let body = tokio::time::timeout_at(deadline, body)
            .await
            .map_err(|_| call.error(ApiErrorKind::Timeout, "response body timed out"))?
            .map_err(|error| match error.downcast_ref::<LengthLimitError>() {
                Some(_) => call.error(ApiErrorKind::Protocol, "response body too large"),
                None => call.error(ApiErrorKind::Connection, &chain(&*error)),
            })?
            .to_bytes();
        // the body may be a secret: it is not part of the error
        serde_json::from_slice(&body).map_err(|error| {
            let message = format!(
                "cannot decode the response (line {}, column {})",
                error.line(),
                error.column()
            );
            call.error(ApiErrorKind::Protocol, &message)
        })
    }

    /// Sends a request and returns a successful response with the deadline for its body. Waiting
    /// for the rate limit does not count.
    async fn send(&self, call: &Call) -> ApiResult<(http::Response<Body>, Instant)> {
        if let Some(limit) = &self.limit {
            limit.take().await;
        }
        let request = call.request()?;
        let started = Instant::now();
        let deadline = started + self.timeout;
        let result = tokio::time::timeout_at(deadline, self.kube.send(request)).await;
        if let Some(recorder) = &self.recorder {
            let status = match &result {
                Ok(Ok(response)) => Some(response.status()),
                _ => None,
            };
            recorder.record(&call.method, status, started.elapsed());
        }
        let response = result
            .map_err(|_| call.error(ApiErrorKind::Timeout, "no response within the timeout"))?
            .map_err(|error| call.error(ApiErrorKind::Connection, &chain(&error)))?;
        if response.status().is_success() {
            return Ok((response, deadline));
        }
        let retry_after = retry_after(&response);
        let code = response.status();
        let body = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect();
        let body = tokio::time::timeout_at(deadline, body).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            // the status code is enough
            _ => bytes::Bytes::new(),
        };
        Err(call.rejected(code, &body, retry_after))
    }
}

/// Timeout of a watch at the server: five minutes less ten seconds, below the idle timeouts of
/// common load balancers.
const WATCH_SECONDS: u64 = 290;
/// A watch that is silent for this long is dead: the server sends bookmarks every minute and ends
/// it after [`WATCH_SECONDS`].
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS + 15);

/// Maximum response body: several times a list of all Services of a large cluster.
const MAX_RESPONSE_BYTES: usize = 128 << 20;
/// Maximum body of an error, from the server or a proxy.
const MAX_ERROR_BYTES: usize = 1 << 20;

#[derive(serde::Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
struct Listed<K> {
    #[serde(default)]
    metadata: ListMeta,
    // Go's encoder writes null for a nil slice
    items: Option<Vec<K>>,
}

/// One request before it is sent.
struct Call {
    method: Method,
    verb: &'static str,
    path: String,
    query: String,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        let verb = match method {
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "GET",
        };
        Self {
            method,
            verb,
            path,
            query: String::new(),
            content_type: "application/json",
            body: Vec::new(),
        }
    }

    fn named(mut self, verb: &'static str) -> Self {
        self.verb = verb;
        self
    }

    fn query(mut self, pairs: Vec<(&'static str, String)>) -> Self {
        self.query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish();
        self
    }

    fn json<T: Serialize>(mut self, body: &T) -> ApiResult<Self> {
        self.body = serde_json::to_vec(body)
            .map_err(|error| self.error(ApiErrorKind::Invalid, &error.to_string()))?;
        Ok(self)
    }

    fn request(&self) -> ApiResult<http::Request<Body>> {
        // with an empty name the request would be for the whole set
        let mut segments = self.path.split('/').skip(1);
        if segments.any(|segment| matches!(segment, "" | "." | "..")) {
            let text = "a name or namespace is empty, '.' or '..'";
            return Err(self.error(ApiErrorKind::Invalid, text));
        }
        let uri = match self.query.as_str() {
            "" => self.path.clone(),
            query => format!("{}?{query}", self.path),
        };
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(uri)
            .header(http::header::ACCEPT, "application/json");
        if !self.body.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, self.content_type);
        }
        request
            .body(Body::from(self.body.clone()))
            .map_err(|error| self.error(ApiErrorKind::Invalid, &error.to_string()))
    }

    fn error(&self, kind: ApiErrorKind, message: &str) -> ApiError {
        ApiError::new(kind, self.verb, &self.path, message)
    }

    fn rejected(&self, code: StatusCode, body: &[u8], header: Option<Duration>) -> ApiError {
        let status: Status = serde_json::from_slice(body).unwrap_or_default();
        let seconds = status
            .details
            .and_then(|details| details.retry_after_seconds);
        let message = match status.message {
            Some(message) if !message.is_empty() => message,
            _ => format!("HTTP {code}"),
        };
        ApiError {
            retry_after: seconds
                .and_then(|s| u64::try_from(s).ok())
                .filter(|s| *s > 0)
                .map(Duration::from_secs)
                .or(header),
            ..self.error(
                ApiErrorKind::from_status(
                    code.as_u16(),
                    status.reason.as_deref().unwrap_or_default(),
                ),
                &message,
            )
        }
    }
}

fn set_path<K: ApiObject>(namespace: Option<&str>) -> String {
    K::url_path(&(), namespace.map(segment).as_deref())
}

fn object_path<K: ApiObject>(at: ObjectKey<'_>, subresource: Option<&str>) -> String {
    let set = set_path::<K>(at.namespace);
    match subresource {
        Some(subresource) => format!("{set}/{}/{subresource}", segment(at.name)),
        None => format!("{set}/{}", segment(at.name)),
    }
}

/// Escapes a name as one segment of a path.
fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn selector_query(selector: &Selector) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    if let Some(fields) = &selector.fields {
        query.push(("fieldSelector", fields.clone()));
    }
    if let Some(labels) = &selector.labels {
        query.push(("labelSelector", labels.clone()));
    }
    query
}

fn retry_after<B>(response: &http::Response<B>) -> Option<Duration> {
    let value = response.headers().get(http::header::RETRY_AFTER)?;
    let seconds = value.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Formats an error with all its causes, without repetition.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
