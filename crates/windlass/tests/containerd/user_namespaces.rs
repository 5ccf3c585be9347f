//! Pods with user namespaces (containerd 2.0, runc 1.2), also with an image volume (2.3).

use std::os::unix::fs::MetadataExt;

use windlass_proto::cri_v1::StatusRequest;

use crate::manifest::fill;
use crate::test_env::{TestEnv, older_than};

const MODEL: &str = "windlass.local/users:1";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: users}}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 2000}
  containers:
    - name: root
      image: IMAGE
      command: [sh, -c, "touch /data/by-root; HOLD"]
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: host, mountPath: /host}
        - {name: labels, mountPath: /labels}
        - {name: image, mountPath: /image}
    - name: other
      image: IMAGE
      command: [sh, -c, "HOLD"]
      securityContext: {runAsUser: 1234}
      volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: part}]
  volumes:
    - {name: data, emptyDir: {}}
    - {name: host, hostPath: {path: DIRECTORY, type: Directory}}
    - {name: labels, downwardAPI: {items: [{path: app, fieldRef: {fieldPath: "metadata.labels['app']"}}]}}
    - {name: image, image: {reference: REFERENCE, pullPolicy: Never}}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_user_namespaces_have_distinct_ids() {
    if older_than([2, 3], "an image volume in a user namespace") {
        return;
    }
    let mut env = TestEnv::start("i-users").await;
    if !supported(&env).await {
        eprintln!("skipped: this runc or kernel has no user namespaces for containerd");
        return env.stop().await;
    }
    let image = [("readme", "in the image\n")];
    env.containerd.add_image(MODEL, &image).await.unwrap();
    // its processes are unprivileged on the node and need search permission for their root
    let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(env.containerd.base(), passable).unwrap();
    let directory = env.containerd.base().join("host");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("of-root"), "of root\n").unwrap();
    for name in ["one", "two"] {
        let text = fill(POD).replace("REFERENCE", MODEL);
        let text = text.replace("NAME", name);
        let text = text.replace("DIRECTORY", &directory.display().to_string());
        env.apply(&format!("{name}.yaml"), &text);
    }
    env.ready("one").await;
    env.ready("two").await;

    // ---- distinct IDs of the node, as recorded
    let mut firsts = Vec::new();
    for name in ["one", "two"] {
        let process = env.process(name, "root").await;
        let map = std::fs::read_to_string(format!("/proc/{process}/uid_map")).unwrap();
        let numbers: Vec<u32> = map.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let [inside, first, length] = numbers[..] else {
            panic!("not one range: {map}");
        };
        assert_eq!((inside, length), (0, 65_536), "{map}");
        assert!(first >= 65_536, "{map}");
        let of_process = std::fs::metadata(format!("/proc/{process}")).unwrap();
        assert_eq!((of_process.uid(), of_process.gid()), (first, first));
        let uid = env.pod(name).await["metadata"]["uid"].clone();
        let dir = env
            .agent
            .root_dir()
            .join("pods")
            .join(uid.as_str().unwrap());
        let note = std::fs::read_to_string(dir.join("userns")).unwrap();
        assert!(note.contains(&format!("\"hostId\":{first}")), "{note}");
        // files of root in a volume belong to root and the fsGroup on the node
        let made = dir.join("volumes/kubernetes.io~empty-dir/data/by-root");
        let made = std::fs::metadata(made).unwrap();
        assert_eq!((made.uid(), made.gid()), (0, 2000));
        firsts.push(first);
    }
    assert_ne!(firsts[0], firsts[1]);

    // ---- volumes and node files are as in other pods
    let exec = async |container: &str, script: &str| env.exec("one", container, script).await;
    assert_eq!(exec("root", "id -u").await, "0\n");
    assert_eq!(exec("root", "stat -c %u:%g /host/of-root").await, "0:0\n");
    assert_eq!(exec("root", "cat /host/of-root").await, "of root\n");
    assert_eq!(exec("root", "cat /labels/app").await, "users");
    assert_eq!(exec("root", "cat /image/readme").await, "in the image\n");
    assert_eq!(exec("root", "stat -c %u:%g /image/readme").await, "0:0\n");
    assert_eq!(exec("root", "stat -c %u /etc/hosts").await, "0\n");
    assert_eq!(exec("other", "id -u").await, "1234\n");
    exec("other", "touch /data/x /part/y && test -e /data/part/y").await;
    assert_eq!(exec("other", "stat -c %u:%g /data/x").await, "1234:2000\n");

    // ---- IDs are known after an agent restart
    let before = env.running("one").await;
    env.kill_and_respawn().await;
    env.ready("one").await;
    assert_eq!(env.running("one").await, before);
    env.remove("one.yaml");
    env.remove("two.yaml");
    env.gone("one").await;
    env.gone("two").await;
    env.stop().await;
}

/// Whether the runtime's default handler supports user namespaces.
async fn supported(env: &TestEnv) -> bool {
    let status = env.cri().await.status(StatusRequest::default()).await;
    let handlers = status.unwrap().into_inner().runtime_handlers;
    let default = handlers.iter().find(|handler| handler.name.is_empty());
    let features = default.and_then(|handler| handler.features.as_ref());
    features.is_some_and(|features| features.user_namespaces)
}
