//! The node API over TLS: each endpoint without credentials, without permission and with it.

use std::process::Command;

use windlass_fake_api::User;

use crate::control_plane::Kind;
use crate::test_env::{SOON, TestEnv, eventually};

/// Method, path, the subresource that upstream authorizes first, and the response with permission.
/// Endpoints of a missing pod return an error.
#[rustfmt::skip]
const ENDPOINTS: &[(&str, &str, &str, u16)] = &[
    ("GET", "/healthz", "healthz", 200),
    ("GET", "/healthz/ping", "healthz", 200),
    ("GET", "/pods", "pods", 200),
    ("GET", "/runningpods/", "pods", 200),
    ("GET", "/stats/summary", "stats", 200),
    ("GET", "/stats/summary?only_cpu_and_memory=true", "stats", 200),
    ("GET", "/metrics", "metrics", 200),
    ("GET", "/metrics/cadvisor", "metrics", 200),
    ("GET", "/metrics/probes", "metrics", 200),
    ("GET", "/metrics/resource", "metrics", 200),
    ("GET", "/metrics/slis", "metrics", 200),
    ("GET", "/configz", "configz", 200),
    ("GET", "/flagz", "configz", 200),
    ("GET", "/statusz", "statusz", 200),
    ("GET", "/debug/pprof/cmdline", "proxy", 200),
    ("POST", "/exec/default/none/app?command=ls&output=1", "proxy", 404),
    ("GET", "/exec/default/none/app?command=ls&output=1", "proxy", 404),
    ("POST", "/attach/default/none/app?output=1", "proxy", 404),
    ("POST", "/portForward/default/none", "proxy", 404),
    ("POST", "/run/default/none/app?cmd=ls", "proxy", 404),
    ("GET", "/containerLogs/default/none/app", "proxy", 404),
    ("GET", "/logs/", "log", 200),
    // authorized, but the request has a malformed number
    ("PUT", "/debug/flags/v", "proxy", 400),
    ("POST", "/checkpoint/default/none/app", "checkpoint", 404),
    ("GET", "/windlass/v1/pods/default/none/timeline", "proxy", 404),
    ("GET", "/windlass/v1/pods/default/none/explain", "proxy", 404),
    ("GET", "/windlass/v1/top", "proxy", 200),
    ("GET", "/nothing/there", "proxy", 404),
];

fn line_of(endpoint: &(&str, &str, &str, u16)) -> String {
    let (method, path, right, code) = endpoint;
    format!("{method} {path} {right} {code}")
}

/// Requests all endpoints with three tokens: `all` has every permission, `none` has none, and
/// `metrics` may get nodes/metrics.
async fn ask_everything(env: &TestEnv, all: &str, none: &str, metrics: &str) {
    eventually("the port answers", SOON, async || {
        let asked = env.agent.https("GET", "/healthz", Some(all)).await;
        match asked {
            Ok((200, body)) if body == "ok" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for endpoint in ENDPOINTS {
        let (method, path, right, code) = endpoint;
        let ask = async |token: Option<&str>| env.agent.https(method, path, token).await.unwrap();
        let line = line_of(endpoint);
        assert_eq!(ask(None).await.0, 401, "{line}");
        assert_eq!(ask(Some("invented")).await.0, 401, "{line}");
        let (refused, words) = ask(Some(none)).await;
        assert_eq!(refused, 403, "{line} {words}");
        assert!(words.starts_with("Forbidden (user="), "{line} {words}");
        let (code_of_all, body) = ask(Some(all)).await;
        assert_eq!(code_of_all, *code, "{line} {body}");
        let expected = if *right == "metrics" { *code } else { 403 };
        assert_eq!(ask(Some(metrics)).await.0, expected, "{line}");
    }
    let (_, summary) = env
        .agent
        .https("GET", "/stats/summary", Some(all))
        .await
        .unwrap();
    assert!(summary.contains("\"nodeName\":\"node\""), "{summary}");
    assert!(summary.contains("\"swap\":{\"time\""), "{summary}");
}

#[tokio::test]
async fn on_fake_cluster_endpoints_require_authn_and_authz() {
    let Some(env) = TestEnv::start(Kind::Fake, "nodeapi-fake").await else {
        return;
    };
    let api = env.cluster.fake().expect("the fake one");
    for name in ["all", "none", "metrics"] {
        api.add_token(name, User::new(name, &[]));
    }
    api.review_access(|spec| {
        let Some(asked) = &spec.resource_attributes else {
            return false;
        };
        let is = |found: &Option<String>, wanted: &str| found.as_deref() == Some(wanted);
        let of_node = is(&asked.resource, "nodes") && is(&asked.name, "node");
        of_node
            && match spec.user.as_deref() {
                Some("all") => true,
                Some("metrics") => is(&asked.subresource, "metrics") && is(&asked.verb, "get"),
                _ => false,
            }
    });
    ask_everything(&env, "all", "none", "metrics").await;
    env.stop().await;
}

#[tokio::test]
async fn on_real_cluster_endpoints_require_authn_and_authz() {
    let Some(env) = TestEnv::start(Kind::Real, "nodeapi-real").await else {
        return;
    };
    let kubectl = env.cluster.program("kubectl");
    let Some(kubectl) = kubectl.filter(|it| it.exists()) else {
        eprintln!("skipped: KUBEBUILDER_ASSETS has no kubectl");
        return env.stop().await;
    };
    let kubeconfig = env.cluster.admin_kubeconfig();
    let run = |line: &str| {
        let mut command = Command::new(&kubectl);
        command.env("KUBECONFIG", &kubeconfig).args(line.split(' '));
        let output = command.output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {line}: {words}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let tokens = ["all", "none", "metrics"].map(|name| {
        run(&format!("create serviceaccount {name}"));
        let verbs = "get,create,update,patch,delete";
        let of = format!("--serviceaccount=default:{name}");
        match name {
            "all" => {
                run(&format!("create clusterrole all --verb={verbs} --resource=nodes/proxy,nodes/stats,nodes/metrics,nodes/log,nodes/healthz,nodes/pods,nodes/configz,nodes/statusz,nodes/checkpoint"));
                run(&format!("create clusterrolebinding all --clusterrole=all {of}"));
            }
            "metrics" => {
                run("create clusterrole metrics --verb=get --resource=nodes/metrics");
                run(&format!("create clusterrolebinding metrics --clusterrole=metrics {of}"));
            }
            _ => {}
        }
        run(&format!("create token {name}"))
    });
    let [all, none, metrics] = &tokens;
    ask_everything(&env, all, none, metrics).await;
    env.stop().await;
}
