//! One bad manifest stays one bad manifest.

use crate::bed::{Bed, bare, skipped};
use crate::manifest::{fill, shell, shell_with};

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
    let mut bed = Bed::start("i-bad").await;
    bed.apply("good.yaml", &shell("good", "HOLD"));
    let good = bed.ready("good").await.containers;

    bed.apply(
        "invalid.yaml",
        "apiVersion: v1\nkind: Pod\nspec: {containers: [\n",
    );
    bed.apply("wrong-type.yaml", &fill(WRONG_TYPE));
    bed.apply(
        "second.yaml",
        &shell("good", "echo another one of that name; HOLD"),
    );
    bed.apply("reference.yaml", &fill(API_REFERENCE));
    bed.apply_bytes(
        "garbage.yaml",
        &[0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe, 0x80, b'\n', 0],
    );
    let mut huge = shell("huge", "HOLD").into_bytes();
    huge.resize(20_000_000, b'#');
    bed.apply_bytes("huge.yaml", &huge);
    std::os::unix::fs::symlink("/no/such/manifest", bed.manifests.join("dangling.yaml")).unwrap();
    std::os::unix::fs::symlink("loop.yaml", bed.manifests.join("loop.yaml")).unwrap();
    std::fs::create_dir(bed.manifests.join("directory.yaml")).unwrap();
    let fifo = bed.manifests.join("fifo.yaml");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    bed.apply(
        "unknown.yaml",
        &shell_with("unknown", "  colour: blue", "HOLD"),
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
    bed.apply("list.yaml", &list);
    bed.apply("empty.yaml", "");

    // what is good among it runs
    for name in ["unknown", "one", "two"] {
        bed.ready(name).await;
    }
    // and each of the others is named in a line of the log
    bed.logged(&["invalid.yaml", "line "]).await;
    bed.logged(&["wrong-type.yaml", "line 8", "containerPort"])
        .await;
    bed.logged(&["good.yaml", "second.yaml"]).await;
    bed.logged(&["reference.yaml", "configMapRef"]).await;
    bed.logged(&["garbage.yaml"]).await;
    bed.logged(&["huge.yaml", "10"]).await;
    bed.logged(&["dangling.yaml"]).await;
    bed.logged(&["loop.yaml"]).await;
    bed.logged(&["fifo.yaml"]).await;
    bed.logged(&["unknown.yaml", "colour"]).await;

    assert_eq!(bed.ready("good").await.containers, good, "the good pod");
    let running = bed.running("good").await;
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].id, bare(&good[0].id));
    let table = bed.ctl_output(&["get", "pods"]).await;
    let mut names: Vec<&str> = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["good-node", "one-node", "two-node", "unknown-node"]);

    // a manifest that becomes bad leaves its pod alone; one that becomes good starts
    bed.apply("list.yaml", "kind: [");
    bed.logged(&["list.yaml", "line 1"]).await;
    bed.apply("invalid.yaml", &shell("repaired", "HOLD"));
    bed.ready("repaired").await;
    assert!(bed.watch.now().pod("one").is_some_and(|pod| pod.ready));
    // the name becomes free, and the other manifest of it takes over
    bed.remove("good.yaml");
    bed.wait("the second manifest of the name runs", |table| {
        let pod = table.pod("good");
        pod.is_some_and(|pod| pod.ready && pod.containers[0].id != good[0].id)
    })
    .await;
    assert_eq!(bed.running("good").await.len(), 1);
    bed.stop().await;
}
