//! A router behind `require_auth`, and requests to it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use tokio::time::Instant;
use windlass_auth::access::AccessSettings;
use windlass_auth::{Auth, AuthSettings, Authorization, Reviews};
use windlass_fake_api::FakeApiServer;
use windlass_metrics::Metrics;
use windlass_types::{Clock, Timestamp, later};

/// A clock that follows tokio's.
#[derive(Debug)]
pub(crate) struct TestClock(Instant);

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_second(1_795_305_600).expect("in range");
        later(start, self.0.elapsed())
    }
}

/// Upstream's defaults of a node with a configuration file.
pub(crate) fn settings() -> AuthSettings {
    AuthSettings {
        node_name: "n1".to_owned(),
        anonymous: false,
        token_ttl: Some(Duration::from_secs(120)),
        authorization: Authorization::Webhook {
            allowed: Duration::from_secs(300),
            refused: Duration::from_secs(30),
        },
        access: AccessSettings::default(),
    }
}

/// Authentication and authorization by `api`.
pub(crate) fn gate(api: &FakeApiServer, settings: AuthSettings) -> (Auth, Metrics) {
    let metrics = Metrics::new().expect("no two families share a name");
    let reviews = Reviews::from_client(&api.clients_of_node("n1").reviews);
    let auth = Auth::new(
        settings,
        Some(reviews),
        metrics.access.clone(),
        TestClock::new(),
    );
    (auth, metrics)
}

/// Grants users a verb on a subresource.
pub(crate) fn grant(api: &FakeApiServer, rights: &'static [(&'static str, &'static str)]) {
    api.review_access(move |spec: &SubjectAccessReviewSpec| {
        let attributes = spec.resource_attributes.as_ref();
        attributes.is_some_and(|it| {
            let user = spec.user.as_deref().unwrap_or_default();
            let verb = it.verb.as_deref().unwrap_or_default();
            let subresource = it.subresource.as_deref().unwrap_or_default();
            let right = format!(
                "{verb} {}/{subresource}",
                it.resource.as_deref().unwrap_or_default()
            );
            it.name.as_deref() == Some("n1") && rights.contains(&(user, right.as_str()))
        })
    });
}

/// A request, by its header lines.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).expect("a request")
}

/// The authorized user, or the rejection.
pub(crate) async fn ask(auth: &Auth, mut request: Request<Body>) -> String {
    match auth.authorize(&mut request).await {
        Ok(user) => format!("{} {:?}", user.name, user.groups),
        Err(refusal) => refusal.to_string(),
    }
}

/// The result of `GET /metrics` with `token`.
pub(crate) async fn with_token(auth: &Auth, token: &str) -> String {
    let header = format!("Bearer {token}");
    ask(
        auth,
        request("GET", "/metrics", &[("authorization", &header)]),
    )
    .await
}

/// The number of requests for a resource that the API server received.
pub(crate) fn asked(api: &FakeApiServer, resource: &str) -> usize {
    let requests = api.requests();
    requests
        .iter()
        .filter(|it| it.path.ends_with(resource))
        .count()
}
