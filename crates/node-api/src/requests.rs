//! Counts requests by group of endpoints.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;
use windlass_metrics::RequestLabels;

use crate::{NodeApi, ServerType};

/// Groups with their own series.
const GROUPS: [&str; 19] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
    "statusz",
];

/// Counts one request. A stream is in flight until the head of its response is sent.
pub(crate) async fn count(
    State((api, server)): State<(NodeApi, ServerType)>,
    request: Request,
    next: Next,
) -> Response {
    let labels = labels(request.method(), request.uri().path(), server);
    let in_flight = api.metrics.requests.begin(labels);
    let began = Instant::now();
    let response = next.run(request).await;
    in_flight.observe(began.elapsed().as_secs_f64());
    response
}

fn labels(method: &Method, path: &str, server: ServerType) -> RequestLabels {
    // upstream `metricsMethodBuckets`
    const METHODS: [&str; 8] = [
        "OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT",
    ];
    let path = group(path);
    RequestLabels {
        method: METHODS
            .into_iter()
            .find(|known| *known == method.as_str())
            .unwrap_or("other"),
        path,
        server_type: match server {
            ServerType::ReadWrite => "readwrite",
            ServerType::ReadOnly => "readonly",
        },
        long_running: ["exec", "attach", "portForward", "debug"].contains(&path),
    }
}

/// Returns the longest group that is a prefix of the path.
fn group(path: &str) -> &'static str {
    let path = path.trim_start_matches('/');
    let begins = |group: &&str| {
        path.strip_prefix(*group)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let groups = GROUPS.into_iter().filter(begins);
    groups.max_by_key(|group| group.len()).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::labels;
    use crate::ServerType;

    #[test]
    fn requests_are_labeled_by_known_group_only() {
        #[rustfmt::skip]
        let cases = [
            ("GET", "/pods", "GET pods false"),
            ("GET", "/pods/", "GET pods false"),
            ("GET", "/podsx", "GET other false"),
            ("POST", "/exec/ns/pod/app", "POST exec true"),
            ("GET", "/metrics", "GET metrics false"),
            ("GET", "/metrics/resource", "GET metrics/resource false"),
            ("GET", "/metrics/slis", "GET metrics false"),
            ("PUT", "/debug/flags/v", "PUT debug true"),
            ("BREW", "/%ff", "other other false"),
            ("PATCH", "/pods", "other pods false"),
            ("HEAD", "/healthz", "HEAD healthz false"),
            ("GET", "", "GET other false"),
        ];
        for (method, path, expected) in cases {
            let method = Method::from_bytes(method.as_bytes()).expect("method");
            let found = labels(&method, path, ServerType::ReadWrite);
            let line = format!("{} {} {}", found.method, found.path, found.long_running);
            assert_eq!(line, expected, "{path}");
        }
    }
}
