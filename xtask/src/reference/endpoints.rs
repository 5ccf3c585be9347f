//! Endpoints: routes in the sources of the servers, with the permission that each requires.

use anyhow::bail;
use windlass_auth::access::{self, AccessSettings};

use super::{code, head, table};

const NODE_API: &str = "crates/node-api/src";
/// The groups of `windlass_node_api::router`.
const GROUPS: [&str; 9] = [
    "health",
    "pods",
    "metrics",
    "usage",
    "debug",
    "zpages",
    "logs",
    "streaming",
    "explain",
];
/// Source of the server on 10248.
const HEALTH: &str = "crates/health/src/healthz.rs";
/// Methods in the sources. `any` is used for the verbosity, which requires PUT.
const METHODS: [(&str, &str); 3] = [("get(", "GET"), ("post(", "POST"), ("any(", "PUT")];

/// `endpoints.md`.
pub(super) fn page(source: &dyn Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let router = source(&format!("{NODE_API}/lib.rs"))?;
    let (open, debugging) = match (
        body(&router, "fn always_on("),
        body(&router, "fn debugging("),
    ) {
        (Some(open), Some(debugging)) => (open, debugging),
        _ => bail!("{NODE_API}/lib.rs has no always_on and debugging"),
    };
    let mut rows = Vec::new();
    for group in GROUPS {
        let port = match (open.contains(group), debugging.contains(group)) {
            (true, _) => "10250, `readOnlyPort`",
            (false, true) => "10250",
            (false, false) => bail!("{NODE_API}/lib.rs merges no routes of {group}"),
        };
        let text = source(&format!("{NODE_API}/{group}.rs"))?;
        for (path, methods) in routes(&text) {
            for method in methods {
                rows.push(row(method, path, port, &rights(method, path)?));
            }
        }
    }
    for (path, methods) in routes(&source(HEALTH)?) {
        for method in methods {
            rows.push(row(method, path, "10248", "none"));
        }
    }
    rows.sort_by(|a, b| (a[1].trim_matches('`'), &a[0]).cmp(&(b[1].trim_matches('`'), &b[0])));
    rows.dedup();
    let about = "Ports are the defaults of `port` and `healthzPort`. Port 10250 requires one of \
                 the permissions, a verb on a subresource of `nodes` (`authorization.mode: Webhook`). \
                 `readOnlyPort` (0 disables it) and 10248 do not authenticate clients. An unknown path \
                 requires permission on `nodes/proxy`. Endpoints disabled by `enableDebuggingHandlers`, \
                 `enableSystemLogHandler`, `enableProfilingHandler` or `enableDebugFlagsHandler` return an \
                 error. Permissions are those with `--exec-needs-create=true`.";
    let heading = ["method", "path", "permission", "port"];
    let endpoints = head("Endpoints", about) + &table(&heading, rows);
    Ok(endpoints
        + "\nThe local sockets `windlass.sock` (`windlassctl`) and `pod-resources/kubelet.sock` and plugin \
           sockets serve gRPC; see [proto](../../proto).\n")
}

fn row(method: &str, path: &str, port: &str, right: &str) -> Vec<String> {
    let row = [method, &code(path), right, port];
    row.map(str::to_owned).to_vec()
}

fn rights(method: &str, path: &str) -> anyhow::Result<String> {
    // any value for a parameter
    let path: Vec<&str> = path
        .split('/')
        .map(|part| if part.starts_with('{') { "x" } else { part })
        .collect();
    let rights = access::required_permissions(method, &path.join("/"), AccessSettings::default())?;
    let rights = rights
        .iter()
        .map(|right| format!("{} `nodes/{}`", right.verb, right.subresource));
    Ok(rights.collect::<Vec<_>>().join(" or "))
}

/// The text of a function.
fn body<'a>(source: &'a str, head: &str) -> Option<&'a str> {
    let (_, rest) = source.split_once(head)?;
    rest.split("\n}").next()
}

/// Routes and their methods, without those of disabled groups.
pub(super) fn routes(source: &str) -> Vec<(&str, Vec<&'static str>)> {
    let source = source.split("mod tests {").next().unwrap_or_default();
    let routes = source.split(".route(").skip(1).filter_map(|call| {
        let (path, rest) = call.trim_start().strip_prefix('"')?.split_once('"')?;
        // up to the closing parenthesis of the call
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        })?;
        let handler = &rest[..end];
        let off = handler.contains("disabled") || handler.contains("is_off");
        let methods = METHODS.iter().filter(|(call, _)| handler.contains(call));
        (!off).then(|| (path, methods.map(|(_, method)| *method).collect()))
    });
    routes.collect()
}
