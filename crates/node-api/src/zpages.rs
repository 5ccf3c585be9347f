//! `/flagz` and `/statusz`: flags and versions, as text for people and as JSON for programs.

use std::fmt::Write;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use windlass_types::api_time;

use crate::answer::{json, text};
use crate::{NodeApi, NodeApiSettings};

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no \
    formatting compatibility guarantees and is for debugging purposes only.";

/// Endpoints that `/statusz` lists.
const PATHS: [&str; 16] = [
    "/attach",
    "/checkpoint",
    "/configz",
    "/containerLogs",
    "/debug",
    "/exec",
    "/flagz",
    "/healthz",
    "/logs",
    "/metrics",
    "/pods",
    "/portForward",
    "/run",
    "/runningpods",
    "/stats",
    "/statusz",
];

pub(crate) fn routes(settings: &NodeApiSettings) -> Router<NodeApi> {
    let mut routes = Router::new();
    if settings.flagz {
        routes = routes.route("/flagz", get(flagz));
    }
    if settings.statusz {
        routes = routes.route("/statusz", get(statusz));
    }
    routes
}

async fn flagz(State(api): State<NodeApi>, headers: HeaderMap) -> Response {
    negotiate(
        &headers,
        "Flagz",
        || {
            let flags = api.flagz.iter();
            let flags = flags.map(|(name, value)| (name.clone(), Value::from(value.as_str())));
            json!({"flags": Value::Object(flags.collect())})
        },
        || {
            let mut page = String::new();
            for (name, value) in api.flagz.iter() {
                let _infallible = writeln!(page, "{name}={value}");
            }
            page
        },
    )
}

async fn statusz(State(api): State<NodeApi>, headers: HeaderMap) -> Response {
    let up = api.clock.now().duration_since(api.started);
    let up = Duration::try_from(up).unwrap_or_default().as_secs();
    let binary = env!("CARGO_PKG_VERSION");
    negotiate(
        &headers,
        "Statusz",
        || {
            json!({
                "startTime": api_time(api.started),
                "uptimeSeconds": up,
                "goVersion": "none, written in Rust",
                "binaryVersion": binary,
                "emulationVersion": api.version,
                "paths": PATHS,
            })
        },
        || {
            format!(
                "Started: {}\nUp: {} hr {:02} min {:02} sec\nGo version: none, written in Rust\n\
                 Binary version: {binary}\nEmulation version: {}\nPaths: {}\n",
                api.started.strftime("%a %b %e %H:%M:%S UTC %Y"),
                up / 3600,
                up / 60 % 60,
                up % 60,
                api.version,
                PATHS.join(" "),
            )
        },
    )
}

/// Returns text, or the object of that kind if the client accepts `application/json` of
/// `config.k8s.io`; 406 for other media types.
fn negotiate(
    headers: &HeaderMap,
    kind: &str,
    object: impl FnOnce() -> Value,
    page: impl FnOnce() -> String,
) -> Response {
    let accept = headers.get(header::ACCEPT);
    match format(accept.and_then(|it| it.to_str().ok()).unwrap_or(""), kind) {
        Some(Format::Text) => {
            let page = format!("\nkubelet {}\n{WARNING}\n\n{}", kind.to_lowercase(), page());
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], page).into_response()
        }
        Some(Format::Json(version)) => {
            let mut object = object();
            object["kind"] = kind.into();
            object["apiVersion"] = format!("config.k8s.io/{version}").into();
            object["metadata"] = json!({"name": "kubelet"});
            let mut response = json(&object);
            if version == "v1alpha1" {
                let warning = format!(
                    "299 - \"This version of the {} endpoint is deprecated. Please use a newer version.\"",
                    kind.to_lowercase()
                );
                if let Ok(warning) = warning.parse() {
                    response.headers_mut().insert(header::WARNING, warning);
                }
            }
            response
        }
        None => text(
            StatusCode::NOT_ACCEPTABLE,
            format!(
                "only the following media types are accepted: text/plain, \
                 application/json;v=v1beta1;g=config.k8s.io;as={kind}"
            ),
        ),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json(&'static str),
}

/// The first of the acceptable formats that there is.
fn format(accept: &str, kind: &str) -> Option<Format> {
    if accept.trim().is_empty() {
        return Some(Format::Text);
    }
    accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        match parts.next()? {
            "text/plain" | "text/*" | "*/*" => Some(Format::Text),
            "application/json" => {
                let parameters: Vec<_> = parts.filter_map(|it| it.split_once('=')).collect();
                let named = |name: &str| {
                    let mut all = parameters.iter();
                    all.find(|(found, _)| *found == name)
                        .map(|(_, value)| *value)
                };
                let ours = named("as") == Some(kind) && named("g") == Some("config.k8s.io");
                let versions = ["v1beta1", "v1alpha1"];
                let version = versions.into_iter().find(|it| named("v") == Some(it))?;
                ours.then_some(Format::Json(version))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn zpages_negotiate_text_or_json() {
        #[rustfmt::skip]
        let cases = [
            ("", "Some(Text)"),
            ("*/*", "Some(Text)"),
            ("text/plain", "Some(Text)"),
            ("application/json", "None"),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "Some(Json(\"v1beta1\"))"),
            ("application/json; v=v1alpha1; g=config.k8s.io; as=Statusz", "Some(Json(\"v1alpha1\"))"),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", "None"),
            ("application/json;v=v2;g=config.k8s.io;as=Statusz, text/plain;q=0.5", "Some(Text)"),
            ("application/yaml", "None"),
        ];
        for (accept, expected) in cases {
            assert_eq!(
                format!("{:?}", format(accept, "Statusz")),
                expected,
                "{accept}"
            );
        }
    }
}
