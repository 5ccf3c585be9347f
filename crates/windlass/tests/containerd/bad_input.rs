//! Invalid manifests affect no other pod.

use crate::manifest::{fill, shell, shell_with};
use crate::test_env::{TestEnv, bare, skipped};

const API_REFERENCE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: reference}
spec:
  containers: [{name: main, image: IMAGE, envFrom: [{configMapRef: {name: settings}}]}]
"#;

const WRONG_TYPE: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: wrong}
spec:
  containers:
  - name: main
    image: IMAGE
    ports: [{containerPort: eighty}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_invalid_manifest_affects_no_other_pod() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-bad").await;
    env.apply("good.yaml", &shell("good", "HOLD"));
    let good = env.ready("good").await.containers;

    env.apply(
        "invalid.yaml",
        "apiVersion: v1\nkind: Pod\nspec: {containers: [\n",
    );
    env.apply("wrong-type.yaml", &fill(WRONG_TYPE));
    env.apply(
        "second.yaml",
        &shell("good", "echo another one of that name; HOLD"),
    );
    env.apply("reference.yaml", &fill(API_REFERENCE));
    env.apply_bytes(
        "garbage.yaml",
        &[0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe, 0x80, b'\n', 0],
    );
    let mut huge = shell("huge", "HOLD").into_bytes();
    huge.resize(20_000_000, b'#');
    env.apply_bytes("huge.yaml", &huge);
    std::os::unix::fs::symlink("/no/such/manifest", env.manifests.join("dangling.yaml")).unwrap();
    std::os::unix::fs::symlink("loop.yaml", env.manifests.join("loop.yaml")).unwrap();
    std::fs::create_dir(env.manifests.join("directory.yaml")).unwrap();
    let fifo = env.manifests.join("fifo.yaml");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    env.apply(
        "unknown.yaml",
        &shell_with("unknown", "  color: blue", "HOLD"),
    );
    let listed = [shell("one", "HOLD"), shell("two", "HOLD")];
    let listed: Vec<String> = listed
        .iter()
        .map(|pod| format!("- {}", pod.trim_end().replace('\n', "\n  ")))
        .collect();
    let list = format!(
        "apiVersion: v1\nkind: PodList\nitems:\n{}\n",
        listed.join("\n")
    );
    env.apply("list.yaml", &list);
    env.apply("empty.yaml", "");

    // valid manifests run
    for name in ["unknown", "one", "two"] {
        env.ready(name).await;
    }
    // each invalid one is logged
    env.logged(&["invalid.yaml", "line "]).await;
    env.logged(&["wrong-type.yaml", "line 8", "containerPort"])
        .await;
    env.logged(&["good.yaml", "second.yaml"]).await;
    env.logged(&["reference.yaml", "configMapRef"]).await;
    env.logged(&["garbage.yaml"]).await;
    env.logged(&["huge.yaml", "10"]).await;
    env.logged(&["dangling.yaml"]).await;
    env.logged(&["loop.yaml"]).await;
    env.logged(&["fifo.yaml"]).await;
    env.logged(&["unknown.yaml", "color"]).await;

    assert_eq!(env.ready("good").await.containers, good, "the good pod");
    let running = env.running("good").await;
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].id, bare(&good[0].id));
    let table = env.ctl_output(&["get", "pods"]).await;
    let mut names: Vec<&str> = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["good-node", "one-node", "two-node", "unknown-node"]);

    // a manifest that becomes invalid keeps its pod; one that becomes valid starts
    env.apply("list.yaml", "kind: [");
    env.logged(&["list.yaml", "line 1"]).await;
    env.apply("invalid.yaml", &shell("repaired", "HOLD"));
    env.ready("repaired").await;
    assert!(env.watch.now().pod("one").is_some_and(|pod| pod.ready));
    // the other manifest with the same name takes over
    env.remove("good.yaml");
    env.wait("the second manifest of the name runs", |table| {
        let pod = table.pod("good");
        pod.is_some_and(|pod| pod.ready && pod.containers[0].id != good[0].id)
    })
    .await;
    assert_eq!(env.running("good").await.len(), 1);
    env.stop().await;
}
