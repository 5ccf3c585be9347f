//! Image volumes (containerd 2.1) and their subpaths (containerd 2.2).

use serde_json::Value;
use windlass_testing::registry::PrivateRegistry;

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, older_than};

const MODEL: &str = "windlass.local/model:1";
const LATE: &str = "windlass.local/late:1";

/// Two containers mount one image, one of them also a subpath of it.
const USER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: whole
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [{name: model, mountPath: /model}]
    - name: part
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts:
        - {name: model, mountPath: /part, subPath: weights/small}
        - {name: model, mountPath: /model, readOnly: true, recursiveReadOnly: IfPossible}
        - {name: other, mountPath: /other}
  volumes:
    - {name: model, image: {reference: MODEL, pullPolicy: IfNotPresent}}
    - {name: other, image: {reference: IMAGE, pullPolicy: Never}}
"#;

/// One container mounts `MOUNT` of the image `REFERENCE`, which may not be pulled.
const ONE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - {name: plain, image: IMAGE, command: [sh, -c, "HOLD"]}
    - {name: main, image: IMAGE, command: [sh, -c, "HOLD"], volumeMounts: [MOUNT]}
  volumes: [{name: v, image: {reference: REFERENCE, pullPolicy: Never}}]
"#;

fn one(name: &str, reference: &str, mount: &str) -> String {
    let text = ONE.replace("NAME", name).replace("MOUNT", mount);
    fill(&text.replace("REFERENCE", reference))
}

/// Waits until `main` of a pod waits for `reason`; returns its message.
async fn waiting(env: &mut TestEnv, pod: &str, reason: &str) -> String {
    env.status(pod, reason).await;
    let mut message = String::new();
    eventually(&format!("{pod} reports {reason}"), SOON, async || {
        let status = env.pod(pod).await["status"]["containerStatuses"].clone();
        // sorted by name, `main` comes first
        let waiting = &status[0]["state"]["waiting"];
        if waiting["reason"] != reason {
            return Err(status.to_string());
        }
        message = waiting["message"].as_str().unwrap_or_default().to_owned();
        Ok(())
    })
    .await;
    message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_image_volume_is_mounted_read_only() {
    if older_than([2, 2], "a part of an image as a volume") {
        return;
    }
    let mut env = TestEnv::start("i-image").await;
    let files = [
        ("README", "a model\n"),
        ("weights/small/w", "small\n"),
        ("weights/large/w", "large\n"),
    ];
    env.containerd.add_image(MODEL, &files).await.unwrap();
    env.apply("user.yaml", &fill(USER).replace("MODEL", MODEL));
    env.ready("user").await;

    let exec = async |container: &str, script: &str| env.exec("user", container, script).await;
    assert_eq!(exec("whole", "cat /model/README").await, "a model\n");
    assert_eq!(exec("whole", "cat /model/weights/large/w").await, "large\n");
    assert_eq!(exec("part", "ls /part && cat /part/w").await, "w\nsmall\n");
    assert_eq!(exec("part", "cat /model/README").await, "a model\n");
    assert_eq!(exec("part", "ls -d /other/etc").await, "/other/etc\n");
    for (container, path) in [("whole", "/model"), ("part", "/part"), ("part", "/other")] {
        let script = format!("touch {path}/x 2>&1 || true");
        let said = exec(container, &script).await;
        assert!(said.contains("Read-only file system"), "{path}: {said}");
    }
    let pod = env.pod("user").await;
    let statuses = pod["status"]["containerStatuses"].as_array().unwrap();
    let part = statuses.iter().find(|c| c["name"] == "part").unwrap();
    assert_eq!(part["volumeMounts"][0]["mountPath"], "/part");
    assert_eq!(part["volumeMounts"][0]["readOnly"], Value::Null);
    assert_eq!(part["volumeMounts"][1]["recursiveReadOnly"], "Enabled");

    // ---- metrics count four mounts
    let metrics = env.agent.metrics(false).await.unwrap();
    for line in [
        "kubelet_image_volume_requested_total 4",
        "kubelet_image_volume_mounted_succeed_total 4",
        "kubelet_image_volume_mounted_errors_total 0",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }

    // ---- a subpath that the image does not have
    let missing = "{name: v, mountPath: /m, subPath: weights/none}";
    env.apply("part.yaml", &one("missing-part", MODEL, missing));
    let message = waiting(&mut env, "missing-part", "CreateContainerError").await;
    assert!(message.contains("weights/none"), "{message}");
    assert_eq!(env.running("missing-part").await.len(), 1);

    // ---- pods leave nothing behind
    let base = env.containerd.base().display().to_string();
    let mounted = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = table.lines().filter(|line| line.contains(&base));
        ours.filter(|line| line.contains("image-volumes")).count()
    };
    assert!(mounted() > 0, "the runtime mounts them below itself");
    env.remove("user.yaml");
    env.remove("part.yaml");
    env.gone("user").await;
    env.gone("missing-part").await;
    eventually("the images are unmounted", SOON, async || {
        let left = mounted();
        (left == 0).then_some(()).ok_or(format!("{left} mounts"))
    })
    .await;
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_container_waits_for_its_image_volume() {
    if older_than([2, 1], "an image as a volume") {
        return;
    }
    let mut env = TestEnv::start("i-image-late").await;
    // read with the first pod and then for five minutes
    let registry = PrivateRegistry::start().await.unwrap();
    let (host, image) = (registry.host(), registry.image());
    let password = format!("{{\"auths\": {{\"{host}\": {{\"auth\": \"YW5uOmh1bnRlcjI=\"}}}}}}");
    std::fs::write(env.agent.root_dir().join("config.json"), password).unwrap();
    env.apply(
        "late.yaml",
        &one("late", LATE, "{name: v, mountPath: /late}"),
    );
    let message = waiting(&mut env, "late", "ErrImageNeverPull").await;
    let expected = format!("Container image \"{LATE}\" is not present with pull policy of Never");
    assert_eq!(message, expected);
    // the other container does not wait for it
    assert_eq!(env.running("late").await.len(), 1);
    env.containerd
        .add_image(LATE, &[("x", "here\n")])
        .await
        .unwrap();
    env.ready("late").await;
    assert_eq!(env.exec("late", "main", "cat /late/x").await, "here\n");
    assert_eq!(
        env.pod("late").await["status"]["containerStatuses"][0]["restartCount"],
        0
    );

    // ---- a missing image is pulled as a container image, with the node's credentials
    let pulled = one("pulled", &image, "{name: v, mountPath: /pulled}");
    let pulled = pulled.replace("pullPolicy: Never", "pullPolicy: IfNotPresent");
    env.apply("pulled.yaml", &pulled);
    env.ready("pulled").await;
    let listed = env.exec("pulled", "main", "ls /pulled").await;
    assert_eq!(listed, "busybox\n");
    env.stop().await;
}
