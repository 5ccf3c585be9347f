//! Output and exit codes of the binary against a fake agent on a socket.

#![allow(clippy::expect_used, reason = "a test that cannot continue has failed")]

use std::path::Path;
use std::process::{Output, Stdio};

use async_trait::async_trait;
use serde_json::json;
use tokio::net::UnixListener;
use tokio::process::Command;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use windlass_node_proto::windlass_v1 as proto;
use windlass_node_proto::windlass_v1::windlass_server::{Windlass, WindlassServer};
use windlass_types::Timestamp;
use windlass_types::explain::{BlockerView, Explanation};

/// A fake agent with the pod `web-n1`, whose log has two lines.
#[derive(Debug)]
struct FakeAgent;

fn web() -> proto::PodEntry {
    let pod = json!({
        "metadata": {"name": "web-n1", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "web"}]},
        "status": {"phase": "Pending"},
    });
    proto::PodEntry {
        pod_json: pod.to_string().into(),
        source: "file".to_owned(),
        worker_state: "Sync".to_owned(),
        stale_status: false,
        blocker: Some(proto::Blocker {
            reason: "ErrImageNeverPull".to_owned(),
            container: Some("app".to_owned()),
            message: "image web is not present".to_owned(),
            ..proto::Blocker::default()
        }),
        ..proto::PodEntry::default()
    }
}

#[async_trait]
impl Windlass for FakeAgent {
    async fn list_pods(
        &self,
        request: Request<proto::ListPodsRequest>,
    ) -> Result<Response<proto::ListPodsResponse>, Status> {
        let namespace = request.into_inner().namespace;
        let pods = match namespace.as_deref() {
            None | Some("default") => vec![web()],
            Some(_) => Vec::new(),
        };
        Ok(Response::new(proto::ListPodsResponse { pods }))
    }

    /// Repeats the same message without end.
    async fn watch_pods(
        &self,
        _request: Request<proto::ListPodsRequest>,
    ) -> Result<Response<BoxStream<proto::WatchPodsResponse>>, Status> {
        let messages = std::iter::repeat_with(|| {
            Ok(proto::WatchPodsResponse {
                snapshot: false,
                pods: vec![web()],
                removed: Vec::new(),
            })
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(messages))))
    }

    async fn get_node(
        &self,
        _: Request<proto::GetNodeRequest>,
    ) -> Result<Response<proto::GetNodeResponse>, Status> {
        Ok(Response::new(proto::GetNodeResponse {
            name: "n1".to_owned(),
            cluster: None,
            version: "0.0.9".to_owned(),
            eviction: None,
            hung_operations: Vec::new(),
        }))
    }

    async fn explain_pod(
        &self,
        request: Request<proto::GetPodRequest>,
    ) -> Result<Response<proto::GetPodResponse>, Status> {
        assert_eq!(request.into_inner().name, "web-n1", "resolved");
        let json = serde_json::to_vec(&explanation()).expect("JSON").into();
        Ok(Response::new(proto::GetPodResponse { json }))
    }

    async fn get_metrics(
        &self,
        request: Request<proto::GetMetricsRequest>,
    ) -> Result<Response<proto::GetMetricsResponse>, Status> {
        let text = match request.into_inner().probes {
            true => "prober_probe_total 2\n".to_owned(),
            false => "kubelet_running_pods 1\n".to_owned(),
        };
        Ok(Response::new(proto::GetMetricsResponse { text }))
    }

    async fn read_log(
        &self,
        request: Request<proto::ReadLogRequest>,
    ) -> Result<Response<BoxStream<proto::ReadLogResponse>>, Status> {
        let request = request.into_inner();
        if request.container == "db" {
            return Err(Status::invalid_argument(
                "pod web-n1 has no container db, it has: app",
            ));
        }
        assert_eq!(request.pod, "web-n1", "the short name was resolved");
        let lines = ["one\n", "two\n"].map(|line| Ok(proto::ReadLogResponse { data: line.into() }));
        Ok(Response::new(Box::pin(tokio_stream::iter(lines))))
    }
}

/// The explanation of the pod.
fn explanation() -> Explanation {
    Explanation {
        namespace: "default".to_owned(),
        pod: "web-n1".to_owned(),
        uid: "u".to_owned(),
        phase: Some("Pending".to_owned()),
        worker_state: "Sync".to_owned(),
        stale_status: false,
        blocker: Some(BlockerView {
            reason: "ErrImageNeverPull".to_owned(),
            container: Some("app".to_owned()),
            message: "image web is not present".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            next_retry: None,
            waiting_for: "user: add the image to the node".to_owned(),
        }),
        eviction: None,
        resize: None,
        issues: Vec::new(),
        records: Vec::new(),
    }
}

fn start(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("socket");
    let server = tonic::transport::Server::builder().add_service(WindlassServer::new(FakeAgent));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
}

async fn run(socket: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlassctl"))
        .args(line.split_whitespace())
        .env("WINDLASS_SOCKET", socket)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("the program runs")
}

/// Runs a command and compares exit code, output and errors as one text.
async fn check(socket: &Path, line: &str, expected: &str) {
    let output = run(socket, line).await;
    let text = format!(
        "{} {}{}",
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(text, expected, "{line}");
}

#[tokio::test]
async fn errors_are_one_line_with_exit_code_1() {
    let directory = tempfile::tempdir().expect("directory");
    let socket = directory.path().join("windlass.sock");
    start(&socket);
    let table = "NAME     READY   STATUS    RESTARTS   AGE\n\
                 web-n1   0/1     Pending   0          <unknown>\n";
    check(&socket, "get pods", &format!("0 {table}")).await;
    check(
        &socket,
        "get pods web",
        &format!("0 {table}pod web: showing web-n1\n"),
    )
    .await;
    check(
        &socket,
        "get pods -n other",
        "0 No pods found in namespace other.\n",
    )
    .await;
    check(&socket, "get pods -A -o name", "0 pod/web-n1\n").await;
    check(&socket, "logs web-n1", "0 one\ntwo\n").await;
    check(&socket, "metrics", "0 kubelet_running_pods 1\n").await;
    check(&socket, "metrics --probes", "0 prober_probe_total 2\n").await;
    check(
        &socket,
        "explain pod web-n1 -o json",
        "0 {\n  \"namespace\": \"default\",\n  \"pod\": \"web-n1\",\n  \"uid\": \"u\",\n  \
         \"phase\": \"Pending\",\n  \"workerState\": \"Sync\",\n  \"blocker\": {\n    \
         \"reason\": \"ErrImageNeverPull\",\n    \"container\": \"app\",\n    \
         \"message\": \"image web is not present\",\n    \
         \"since\": \"1970-01-01T00:00:00Z\",\n    \"nextRetry\": null,\n    \
         \"waitingFor\": \"user: add the image to the node\"\n  },\n  \"issues\": [],\n  \
         \"records\": []\n}\n",
    )
    .await;
    check(
        &socket,
        "describe pod nope",
        "1 windlassctl: pod nope not found in namespace default; the namespace has web-n1\n",
    )
    .await;
    check(
        &socket,
        "logs web-n1 -c db",
        "1 windlassctl: pod web-n1 has no container db, it has: app\n",
    )
    .await;
    // the agent does not support GetUsage
    check(
        &socket,
        "top",
        &format!(
            "1 windlassctl: windlass 0.0.9 does not support this command of windlassctl {}; \
             update the agent or use the windlassctl of the same version\n",
            env!("CARGO_PKG_VERSION")
        ),
    )
    .await;
    let missing = directory.path().join("none.sock");
    let directory = directory.path().display();
    check(
        &missing,
        "get pods",
        &format!(
            "1 windlassctl: no socket at {directory}/none.sock; check that windlass is running \
             with --root-dir {directory}, or set --socket\n"
        ),
    )
    .await;
}

#[tokio::test]
async fn closed_pipe_ends_program_without_error() {
    let directory = tempfile::tempdir().expect("directory");
    let socket = directory.path().join("windlass.sock");
    start(&socket);
    let mut child = Command::new(env!("CARGO_BIN_EXE_windlassctl"))
        .args(["get", "pods", "--watch"])
        .env("WINDLASS_SOCKET", &socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the program runs");
    // as `| head -0` does
    drop(child.stdout.take());
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), child.wait_with_output());
    let output = ended.await.expect("it ends").expect("output");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[tokio::test]
async fn check_needs_no_agent() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("c.yaml");
    let head = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";
    std::fs::write(&file, format!("{head}maxPods: 50\n")).expect("written");
    let check = async |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlassctl"));
        command.arg("check").arg("--config").arg(&file).args(flags);
        let output = command.output().await.expect("ran");
        let text = String::from_utf8(output.stdout).expect("text");
        (output.status.code(), text)
    };
    let (code, text) = check(&["--", "--node-ip=10.0.0.1"]).await;
    let expected = "0 rejected, 0 ignored, 0 partial, 0 default, 3 supported: windlass accepts \
                    these settings; --all lists the rest.";
    assert_eq!((code, text.lines().next()), (Some(0), Some(expected)));
    let (code, text) = check(&["-o", "json", "--", "--no-such-flag"]).await;
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &json["rejected"]), (Some(1), &json!(1)));
}

#[tokio::test]
async fn completion_script_has_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlassctl"));
        let output = command.args(["completion", shell]).output().await;
        let script = String::from_utf8(output.expect("ran").stdout).expect("text");
        assert!(
            script.contains("explain") && script.contains("config-dir"),
            "{shell}"
        );
    }
}
