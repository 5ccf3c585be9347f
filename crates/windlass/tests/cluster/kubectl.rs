//! `kubectl` on a pod: through a real API server, the node API and the streaming server of
//! containerd.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use windlass_testing::agent::NODE_NAME;
use windlass_testing::images::BUSYBOX;

use crate::control_plane::Kind;
use crate::objects::pod;
use crate::test_env::{Credentials, SOON, TestEnv, eventually};

/// Serves a page and counts on stdout until SIGTERM.
const TALK: &str = "mkdir -p /www; echo served >/www/index.html; httpd -p 8080 -h /www; \
    trap exit TERM; i=0; while true; do i=$((i+1)); echo line $i; sleep 1 & wait $!; done";

type Lines = tokio::io::Lines<BufReader<ChildStdout>>;

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Runs a command with `input` on its stdin.
    async fn run(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feed = async move {
            // a command that does not read it may exit before
            let _ = stdin.write_all(input).await;
        };
        let output = async { tokio::join!(child.wait_with_output(), feed).0.unwrap() };
        let output = timeout(SOON, output).await;
        output.unwrap_or_else(|_| panic!("kubectl {args:?} does not end"))
    }

    /// Runs a command that has to succeed and returns its stdout.
    async fn stdout(&self, args: &[&str], input: &str) -> String {
        let output = self.run(args, input.as_bytes()).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command on a terminal.
    async fn on_terminal(&self, args: &[&str], input: &str) -> String {
        let line = format!(
            "{} --kubeconfig {} {}",
            self.program.display(),
            self.kubeconfig.display(),
            args.join(" ")
        );
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        let output = timeout(SOON, child.wait_with_output()).await;
        drop(stdin);
        let output = output.unwrap_or_else(|_| panic!("kubectl {args:?} does not end"));
        let stdout = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
        stdout.replace('\r', "")
    }

    /// Starts a command and returns the lines of its stdout.
    fn start(&self, args: &[&str]) -> (Child, Lines) {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        (child, BufReader::new(stdout).lines())
    }
}

async fn next_line(lines: &mut Lines) -> Option<String> {
    timeout(SOON, lines.next_line()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_kubectl_reaches_into_pods() {
    let credentials = Credentials::Certificate;
    let env = TestEnv::prepare_with(Kind::Real, "k-kubectl", credentials, |cluster, address| {
        cluster.serving_config(address)
    });
    let Some(mut env) = env.await else {
        return;
    };
    let Some(program) = env.cluster.program("kubectl") else {
        eprintln!("skipped: KUBEBUILDER_ASSETS has no kubectl");
        return;
    };
    let kubectl = Kubectl {
        program,
        kubeconfig: env.cluster.admin_kubeconfig(),
    };
    env.agent.spawn().unwrap();
    env.node_ready().await;
    env.create(&pod("talks", TALK, json!({ "hostNetwork": false })))
        .await;
    env.pod_ready("talks").await;
    logs_are_told(&kubectl).await;
    exec_runs_commands(&kubectl).await;
    exec_without_its_client_ends(&kubectl).await;
    attach_shows_what_is_written(&kubectl).await;
    ports_are_forwarded(&kubectl).await;
    files_are_copied(&env, &kubectl).await;
    run_waits_and_removes(&kubectl).await;
    websockets_reach_the_agent(&env).await;
    env.stop().await;
}

/// The API server passed kubectl's WebSockets on, because the node declares that it serves them.
async fn websockets_reach_the_agent(env: &TestEnv) {
    let metrics = env.agent.metrics(false).await.unwrap();
    for subresource in ["exec", "attach", "portforward"] {
        let series =
            format!("kubelet_websocket_streaming_requests_total{{subresource=\"{subresource}\"}} ");
        assert!(metrics.contains(&series), "{series}in {metrics}");
    }
}

async fn logs_are_told(kubectl: &Kubectl) {
    let (_child, mut lines) = kubectl.start(&["logs", "-f", "talks"]);
    for expected in ["line 1", "line 2", "line 3", "line 4"] {
        assert_eq!(next_line(&mut lines).await.as_deref(), Some(expected));
    }
    let last = kubectl.stdout(&["logs", "talks", "--tail=1"], "").await;
    assert!(
        last.starts_with("line ") && last.lines().count() == 1,
        "{last:?}"
    );
}

async fn exec_runs_commands(kubectl: &Kubectl) {
    let both = ["exec", "talks", "--", "sh", "-c", "echo out; echo err >&2"];
    let output = kubectl.run(&both, b"").await;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(words(&output.stdout), "out\n", "{}", words(&output.stderr));
    assert_eq!(words(&output.stderr), "err\n");
    assert!(output.status.success());

    let fails = ["exec", "talks", "--", "sh", "-c", "exit 3"];
    let output = kubectl.run(&fails, b"").await;
    assert_eq!(output.status.code(), Some(3), "{}", words(&output.stderr));
    let no_such = ["exec", "talks", "--", "no-such-command"];
    let output = kubectl.run(&no_such, b"").await;
    assert!(!output.status.success());
    assert!(
        words(&output.stderr).contains("executable file not found"),
        "{}",
        words(&output.stderr)
    );

    let input = "some words\n".repeat(100_000);
    let said = kubectl
        .stdout(&["exec", "-i", "talks", "--", "cat"], &input)
        .await;
    assert!(said == input, "{} bytes of {}", said.len(), input.len());

    let terminal = [
        "exec",
        "-it",
        "talks",
        "--",
        "sh",
        "-c",
        "'tty; read x; echo got $x'",
    ];
    let said = kubectl.on_terminal(&terminal, "typed\n").await;
    assert!(said.contains("/dev/pts/"), "{said:?}");
    assert!(said.contains("got typed"), "{said:?}");
}

/// containerd ends the command's stdin when the connection is gone.
async fn exec_without_its_client_ends(kubectl: &Kubectl) {
    let waits = [
        "exec",
        "-i",
        "talks",
        "--",
        "sh",
        "-c",
        "echo here; exec cat",
    ];
    let (mut child, mut lines) = kubectl.start(&waits);
    assert_eq!(next_line(&mut lines).await.as_deref(), Some("here"));
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    eventually("cat ends without its client", SOON, async || {
        let look = ["exec", "talks", "--", "pidof", "cat"];
        let output = kubectl.run(&look, b"").await;
        match output.status.code() {
            Some(1) => Ok(()),
            _ => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
        }
    })
    .await;
}

async fn attach_shows_what_is_written(kubectl: &Kubectl) {
    let (mut child, mut lines) = kubectl.start(&["attach", "talks"]);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(
            next_line(&mut lines)
                .await
                .filter(|it| it.starts_with("line ")),
        );
        assert!(
            child.try_wait().unwrap().is_none(),
            "attach ended: {seen:?}"
        );
    }
    assert_ne!(seen[0], seen[1]);
}

async fn ports_are_forwarded(kubectl: &Kubectl) {
    let page = async |port: &str| {
        let (child, mut lines) = kubectl.start(&["port-forward", "pod/talks", port]);
        let line = next_line(&mut lines).await.unwrap_or_default();
        // Forwarding from 127.0.0.1:40123 -> 8080
        let local = line.split([':', ' ']).nth(3).unwrap_or_default();
        let local: u16 = local.parse().unwrap_or_else(|_| panic!("{line:?}"));
        let mut page = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(("127.0.0.1", local)).await.unwrap();
            let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await;
            page.clear();
            let read = timeout(SOON, stream.read_to_end(&mut page)).await;
            let answered = read.expect("an end in time");
            if answered.is_err() || page.is_empty() {
                break;
            }
        }
        drop(child);
        String::from_utf8_lossy(&page).into_owned()
    };
    let served = page(":8080").await;
    assert!(served.ends_with("served\n"), "{served:?}");
    assert_eq!(page(":9").await, "", "no listener");
}

async fn files_are_copied(env: &TestEnv, kubectl: &Kubectl) {
    let dir = env.manifests.parent().unwrap();
    let (there, back) = (dir.join("there"), dir.join("back"));
    let content: Vec<u8> = (0..1_000_003_u32).map(|it| (it % 251) as u8).collect();
    std::fs::write(&there, &content).unwrap();
    let (there, back_path) = (there.to_str().unwrap(), back.to_str().unwrap());
    kubectl.stdout(&["cp", there, "talks:/tmp-file"], "").await;
    kubectl
        .stdout(&["cp", "talks:/tmp-file", back_path], "")
        .await;
    assert!(std::fs::read(&back).unwrap() == content);
}

async fn run_waits_and_removes(kubectl: &Kubectl) {
    let image = format!("--image={BUSYBOX}");
    let on_node = format!("{{\"spec\":{{\"nodeName\":\"{NODE_NAME}\"}}}}");
    let overrides = format!("--overrides={on_node}");
    let run = |name| {
        [
            "run",
            name,
            "--rm",
            "--restart=Never",
            "--image-pull-policy=IfNotPresent",
        ]
    };
    let command = "read x; echo got $x";
    let args = [
        &run("once")[..],
        &[&image, &overrides, "-i", "--", "sh", "-c", command],
    ]
    .concat();
    let said = kubectl.stdout(&args, "hello\n").await;
    assert!(said.contains("got hello"), "{said:?}");
    assert!(said.contains("pod \"once\" deleted"), "{said:?}");

    let overrides = format!("'{overrides}'");
    let args = [
        &run("typed")[..],
        &[
            &image,
            &overrides,
            "-it",
            "--",
            "sh",
            "-c",
            "'read x; echo got $x'",
        ],
    ]
    .concat();
    let said = kubectl.on_terminal(&args, "hello\n").await;
    assert!(said.contains("got hello"), "{said:?}");
    assert!(said.contains("pod \"typed\" deleted"), "{said:?}");
}
