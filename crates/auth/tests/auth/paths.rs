//! A path is authorized for the group it is routed to.

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::Request;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tower::ServiceExt;
use windlass_auth::access::{AccessSettings, required_permissions};

/// Groups of endpoints as the node's API has them, each with a route that says its name.
const ROUTES: [(&str, &str); 19] = [
    ("/pods", "pods"),
    ("/runningpods/", "runningpods"),
    ("/healthz", "healthz"),
    ("/healthz/{check}", "healthz"),
    ("/configz", "configz"),
    ("/flagz", "flagz"),
    ("/statusz", "statusz"),
    ("/stats/summary", "stats"),
    ("/metrics", "metrics"),
    ("/metrics/{part}", "metrics"),
    ("/logs/", "logs"),
    ("/logs/{*path}", "logs"),
    ("/checkpoint/{ns}/{pod}/{container}", "checkpoint"),
    ("/exec/{ns}/{pod}/{container}", "exec"),
    ("/attach/{ns}/{pod}/{container}", "attach"),
    ("/run/{ns}/{pod}/{container}", "run"),
    ("/portForward/{ns}/{pod}", "portForward"),
    ("/containerLogs/{ns}/{pod}/{container}", "containerLogs"),
    ("/debug/{*path}", "debug"),
];

fn router() -> Router {
    ROUTES
        .into_iter()
        .fold(Router::new(), |router, (path, name)| {
            router.route(path, any(async move || name))
        })
}

/// The group that a path is routed to.
async fn routed(path: &str) -> Option<String> {
    let request = Request::builder().uri(path).body(Body::empty()).ok()?;
    let Ok(response) = router().oneshot(request).await;
    let found = response.status().is_success();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    found.then(|| String::from_utf8_lossy(&body).into_owned())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

proptest! {
    #[test]
    fn path_is_routed_to_the_group_it_is_authorized_for(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("pods"), Just("runningpods"), Just("healthz"), Just("metrics"), Just("logs"),
                Just("exec"), Just("run"), Just("attach"), Just("portForward"), Just("configz"),
                Just("debug"), Just("stats"), Just("summary"), Just("checkpoint"), Just(""),
                Just("."), Just(".."), Just("%2e%2e"), Just("%2f"), Just("%65xec"), Just("a"),
                Just("a%2fb"), Just(";x"), Just("pods%2f..%2fexec"), Just("%"), Just("%ff"),
            ],
            1..6,
        ),
    ) {
        let path = format!("/{}", parts.join("/"));
        let settings = AccessSettings::default();
        if let (Ok(granted), Some(group)) = (required_permissions("GET", &path, settings), block_on(routed(&path))) {
            let needed = required_permissions("GET", &format!("/{group}"), settings);
            prop_assert_eq!(Ok(granted), needed, "{} is routed to {}", path, group);
        }
    }
}

#[tokio::test]
async fn every_group_is_routed_by_its_plain_path() {
    for (path, name) in ROUTES {
        let plain = path.replace(['{', '}', '*'], "");
        assert_eq!(routed(&plain).await.as_deref(), Some(name), "{plain}");
        assert!(
            required_permissions("GET", &plain, AccessSettings::default()).is_ok(),
            "{plain}"
        );
    }
}
