//! Paths and container environment match the Go kubelet.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::manifest::fill;
use crate::test_env::{TestEnv, bare, skipped};

const FULL: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: full
  labels: {app: full, tier: back-end}
  annotations: {team: blue}
spec:
  hostname: custom-host
  terminationGracePeriodSeconds: 3
  dnsPolicy: None
  dnsConfig:
    nameservers: [192.0.2.53]
    searches: [example.test]
    options: [{name: ndots, value: "3"}, {name: edns0}]
  hostAliases: [{ip: 192.0.2.7, hostnames: [alias.test, other.test]}]
  initContainers:
    - name: first
      image: IMAGE
      command: [sh, -c, "echo first > /shared/first"]
      volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
    - name: main
      image: IMAGE
      workingDir: /shared
      command: [sh, -c, 'echo "hello from $0"; printf "%s|" "$@" > args; HOLD']
      args: [$(GREETING), $(NESTED), $$(GREETING), $(UNSET)]
      env:
        - {name: GREETING, value: hello}
        - {name: NESTED, value: "$(GREETING) world"}
        - {name: ESCAPED, value: "$$(GREETING)"}
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: UID_, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
        - {name: TEAM, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['team']"}}}
        - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
      resources: {limits: {memory: 64Mi}}
      ports: [{name: http, containerPort: 80}]
      volumeMounts:
        - {name: shared, mountPath: /shared}
        - {name: memory, mountPath: /memory}
        - {name: dir, mountPath: /dir}
        - {name: file, mountPath: /file}
        - {name: made, mountPath: /made}
        - {name: dir, mountPath: /read-only, readOnly: true}
    - name: other
      image: IMAGE
      command: [sh, -c, "HOLD"]
      securityContext: {runAsUser: 65534, readOnlyRootFilesystem: true}
      volumeMounts: [{name: shared, mountPath: /elsewhere}]
  volumes:
    - {name: shared, emptyDir: {}}
    - {name: memory, emptyDir: {medium: Memory, sizeLimit: 4Mi}}
    - {name: dir, hostPath: {path: BASE/host-dir, type: Directory}}
    - {name: file, hostPath: {path: BASE/host-file, type: File}}
    - {name: made, hostPath: {path: BASE/made/by-agent, type: DirectoryOrCreate}}
"#;

const TERMINATION_MESSAGES: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: messages}
spec:
  restartPolicy: Never
  containers:
    - name: file
      image: IMAGE
      command: [sh, -c, "printf 'out of disk' > /dev/termination-log; exit 3"]
    - name: custom
      image: IMAGE
      terminationMessagePath: /tmp/message
      command: [sh, -c, "printf done > /tmp/message"]
    - name: log
      image: IMAGE
      terminationMessagePolicy: FallbackToLogsOnError
      command: [sh, -c, "echo first line; echo last line; exit 4"]
"#;

const ON_HOST: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: on-host, namespace: system}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"]}]
"#;

const WRONG_TYPE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: wrong-type}
spec:
  containers:
    - {name: main, image: IMAGE, command: [sh, -c, "HOLD"], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, hostPath: {path: BASE/host-file, type: Directory}}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pod_matches_the_go_kubelet() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-spec").await;
    let base = env.containerd.base().to_owned();
    std::fs::create_dir(base.join("host-dir")).unwrap();
    std::fs::write(base.join("host-dir/there"), "from the host\n").unwrap();
    std::fs::write(base.join("host-file"), "a file\n").unwrap();
    for (file, text) in [
        ("full.yaml", FULL),
        ("messages.yaml", TERMINATION_MESSAGES),
        ("on-host.yaml", ON_HOST),
        ("wrong-type.yaml", WRONG_TYPE),
    ] {
        let text = fill(text).replace("BASE", &base.display().to_string());
        env.apply(file, &text);
    }
    env.ready("full").await;
    env.ready("on-host").await;
    env.wait("messages has failed", |table| {
        table
            .pod("messages")
            .is_some_and(|pod| pod.phase == "Failed")
    })
    .await;

    labels_and_annotations(&env).await;
    logs_and_directories(&env).await;
    environment(&env).await;
    network_files(&env).await;
    volumes(&env).await;
    termination_messages(&env).await;
    host_network(&env).await;

    // a failed set-up blocks only its pod
    let seen = env
        .wait("wrong-type has a blocker", |table| {
            table
                .pod("wrong-type")
                .is_some_and(|pod| pod.blocker.is_some())
        })
        .await;
    let blocker = seen.pod("wrong-type").unwrap().blocker.clone().unwrap();
    assert!(blocker.message.contains("host-file"), "{blocker:?}");
    assert!(blocker.next_retry.is_some(), "{blocker:?}");
    assert!(env.running("wrong-type").await.is_empty());
    env.stop().await;
}

async fn labels_and_annotations(env: &TestEnv) {
    let pod = env.pod("full").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        uid.len(),
        32,
        "a static pod's UID is 128 bits in hex: {uid}"
    );
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.hash"], uid);
    assert_eq!(annotations["kubernetes.io/config.source"], "file");

    let sandboxes = env.sandboxes("full").await;
    assert_eq!(sandboxes.len(), 1);
    let sandbox = &sandboxes[0];
    let of_pod = [
        ("io.kubernetes.pod.name", "full-node"),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", uid),
    ];
    let mut expected = map(&of_pod);
    expected.extend(map(&[("app", "full"), ("tier", "back-end")]));
    assert_eq!(sandbox.labels, expected, "labels of the sandbox");
    let metadata = sandbox.metadata.as_ref().unwrap();
    assert_eq!(
        (
            &*metadata.name,
            &*metadata.namespace,
            &*metadata.uid,
            metadata.attempt
        ),
        ("full-node", "default", uid, 0)
    );
    assert_eq!(sandbox.annotations["team"], "blue");
    assert_eq!(sandbox.annotations["kubernetes.io/config.source"], "file");
    assert_eq!(sandbox.annotations["kubernetes.io/config.hash"], uid);
    assert!(
        sandbox
            .annotations
            .contains_key("kubernetes.io/config.seen")
    );

    let containers = env.running("full").await;
    let main = containers
        .iter()
        .find(|c| c.metadata.as_ref().unwrap().name == "main")
        .unwrap();
    let mut expected = map(&of_pod);
    expected.extend(map(&[("io.kubernetes.container.name", "main")]));
    assert_eq!(main.labels, expected, "labels of the container");
    let mut annotations = main.annotations.clone();
    let hash = annotations.remove("io.kubernetes.container.hash").unwrap();
    assert!(u32::from_str_radix(&hash, 16).is_ok(), "{hash}");
    // not upstream's
    let sizes = annotations.remove("windlass.dev/sizes").unwrap();
    assert_eq!(sizes, "cpu=0/0 memory=67108864/67108864");
    let ports = r#"[{"name":"http","containerPort":80,"protocol":"TCP"}]"#;
    let expected = map(&[
        ("io.kubernetes.container.restartCount", "0"),
        (
            "io.kubernetes.container.terminationMessagePath",
            "/dev/termination-log",
        ),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.container.ports", ports),
        ("io.kubernetes.pod.terminationGracePeriod", "3"),
    ]);
    assert_eq!(annotations, expected, "annotations of the container");
}

async fn logs_and_directories(env: &TestEnv) {
    let pod = env.pod("full").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let logs = env.containerd.base().join("logs");
    let log_dir = logs.join(format!("default_full-node_{uid}"));
    let log = log_dir.join("main/0.log");
    let main = pod["status"]["containerStatuses"]
        .as_array()
        .unwrap()
        .iter()
        .find(|status| status["name"] == "main")
        .unwrap();
    let id = main["containerID"].as_str().unwrap();
    assert!(id.starts_with("containerd://"), "{id}");
    let (status, _) = env.container_status(bare(id)).await;
    assert_eq!(Path::new(&status.log_path), log);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains(" stdout F hello from hello"), "{text}");
    assert!(
        log_dir.join("first/0.log").exists(),
        "log of the init container"
    );

    let link = format!("full-node_default_main-{}.log", bare(id));
    let link = Path::new("/var/log/containers").join(link);
    let target = std::fs::read_link(&link).unwrap();
    assert_eq!(std::fs::read_to_string(&link).unwrap(), text, "{target:?}");

    let pod_dir = env.agent.root_dir().join("pods").join(uid);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&pod_dir), 0o750);
    assert_eq!(mode(&log_dir), 0o750);
    assert_eq!(mode(&log_dir.join("main")), 0o750);
    assert_eq!(mode(&env.agent.socket()), 0o600);
    for path in [
        "volumes/kubernetes.io~empty-dir/shared",
        "volumes/kubernetes.io~empty-dir/memory",
        "containers/main",
        "etc-hosts",
    ] {
        assert!(pod_dir.join(path).exists(), "{path}");
    }
    let terminations = std::fs::read_dir(pod_dir.join("containers/main")).unwrap();
    let names: Vec<_> = terminations.map(|e| e.unwrap().file_name()).collect();
    assert!(names.len() == 1 && names[0].len() == 8, "{names:?}");
}

async fn environment(env: &TestEnv) {
    let pod = env.pod("full").await;
    let text = env.exec("full", "main", "env").await;
    let variables: HashMap<&str, &str> = text.lines().filter_map(|l| l.split_once('=')).collect();
    let status = &pod["status"];
    let gateway = env.containerd.network().gateway().to_string();
    let expected = [
        ("GREETING", "hello"),
        ("NESTED", "hello world"),
        ("ESCAPED", "$(GREETING)"),
        ("POD_IP", status["podIP"].as_str().unwrap()),
        ("HOST_IP", &gateway),
        ("NODE", "node"),
        ("POD", "full-node"),
        ("UID_", pod["metadata"]["uid"].as_str().unwrap()),
        ("APP", "full"),
        ("TEAM", "blue"),
        ("MEMORY", "64"),
        ("PATH", "/bin:/sbin:/usr/bin"),
        ("HOSTNAME", "custom-host"),
    ];
    for (name, value) in expected {
        assert_eq!(variables.get(name), Some(&value), "{name}");
    }
    let args = env.exec("full", "main", "cat args").await;
    // the first argument of a script is its $0, which the log has shown
    assert_eq!(args, "hello world|$(GREETING)|$(UNSET)|");
    assert_eq!(
        env.exec("full", "main", "readlink /proc/1/cwd").await,
        "/shared\n"
    );
    assert_eq!(env.exec("full", "main", "hostname").await, "custom-host\n");
    assert_eq!(env.exec("full", "other", "id -u").await, "65534\n");
    let write = "touch /file-of-mine 2>/dev/null || echo refused";
    assert_eq!(env.exec("full", "other", write).await, "refused\n");
}

async fn network_files(env: &TestEnv) {
    let pod = env.pod("full").await;
    let ip = pod["status"]["podIP"].as_str().unwrap();
    let hosts = env.exec("full", "main", "cat /etc/hosts").await;
    assert_eq!(
        hosts,
        format!(
            "# Kubernetes-managed hosts file.\n\
             127.0.0.1\tlocalhost\n\
             ::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\n\
             fe00::1\tip6-allnodes\n\
             fe00::2\tip6-allrouters\n\
             {ip}\tcustom-host\n\
             \n\
             # Entries added by HostAliases.\n\
             192.0.2.7\talias.test\tother.test\n"
        )
    );
    let resolv = env.exec("full", "main", "cat /etc/resolv.conf").await;
    let lines: Vec<&str> = resolv.lines().collect();
    assert_eq!(
        lines,
        [
            "search example.test",
            "nameserver 192.0.2.53",
            "options ndots:3 edns0"
        ]
    );
}

async fn volumes(env: &TestEnv) {
    let exec = async |container: &str, script: &str| env.exec("full", container, script).await;
    assert_eq!(exec("main", "stat -c %a /shared").await, "777\n");
    assert_eq!(exec("main", "cat /shared/first").await, "first\n");
    // another user and container
    exec("other", "echo from other > /elsewhere/note").await;
    assert_eq!(exec("main", "cat note").await, "from other\n");
    let mounts = exec("main", "cat /proc/mounts").await;
    let memory = mounts.lines().find(|l| l.contains(" /memory ")).unwrap();
    assert!(memory.starts_with("tmpfs /memory tmpfs "), "{memory}");
    assert!(memory.contains("size=4096k"), "{memory}");
    assert_eq!(
        exec("main", "cat /dir/there /file").await,
        "from the host\na file\n"
    );
    exec("main", "echo back > /made/answer").await;
    let answer = env.containerd.base().join("made/by-agent/answer");
    assert_eq!(std::fs::read_to_string(answer).unwrap(), "back\n");
    let refused = "touch /read-only/x 2>/dev/null || echo refused";
    assert_eq!(exec("main", refused).await, "refused\n");
    exec("main", "touch /dir/x && test -e /read-only/x").await;
}

async fn termination_messages(env: &TestEnv) {
    let pod = env.pod("messages").await;
    let of = |name: &str| {
        let statuses = pod["status"]["containerStatuses"].as_array().unwrap();
        let status = statuses.iter().find(|s| s["name"] == name).unwrap();
        let end = &status["state"]["terminated"];
        format!("{} {} {}", end["exitCode"], end["reason"], end["message"])
    };
    assert_eq!(of("file"), r#"3 "Error" "out of disk""#);
    assert_eq!(of("custom"), r#"0 "Completed" "done""#);
    assert_eq!(of("log"), r#"4 "Error" "first line\nlast line\n""#);
}

async fn host_network(env: &TestEnv) {
    let pod = env.pod("on-host").await;
    let gateway = env.containerd.network().gateway().to_string();
    assert_eq!(pod["status"]["podIP"], *gateway);
    assert_eq!(pod["status"]["hostIP"], *gateway);
    assert_eq!(pod["metadata"]["namespace"], "system");
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    let theirs = env.exec("on-host", "main", "readlink /proc/1/ns/net").await;
    assert_eq!(Path::new(theirs.trim_end()), ours, "network namespace");
    let hosts = env.exec("on-host", "main", "cat /etc/hosts").await;
    let own = std::fs::read_to_string("/etc/hosts").unwrap();
    let head = "# Kubernetes-managed hosts file (host network).\n";
    assert_eq!(hosts, format!("{head}{own}"));
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    pairs.iter().map(owned).collect()
}
