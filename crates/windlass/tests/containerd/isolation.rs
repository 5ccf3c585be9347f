//! User, capabilities and visible resources of a container, read inside it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::manifest::fill;
use crate::test_env::{TestEnv, skipped};

/// Required settings of the agent.
const CONFIG: &str = "clusterDomain: cluster.local\nclusterDNS: [10.96.0.10]\nallowedUnsafeSysctls: [\"net.core.*\"]";

const IDENTITY: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: identity}
spec:
  terminationGracePeriodSeconds: 1
  hostname: web
  subdomain: shop
  setHostnameAsFQDN: true
  securityContext:
    runAsUser: 1000
    runAsGroup: 3000
    fsGroup: 2000
    supplementalGroups: [4000]
    seccompProfile: {type: RuntimeDefault}
    sysctls:
      - {name: kernel.shm_rmid_forced, value: "1"}
      - {name: net/ipv4/ip_unprivileged_port_start, value: "99"}
      - {name: net.core.somaxconn, value: "77"}
  initContainers:
    - name: writer
      image: IMAGE
      command:
        - sh
        - -c
        - |
          cat > /config/env <<END
          # ours
          GREETING='two
          lines' # note
          OTHER='x'
          END
      volumeMounts: [{name: config, mountPath: /config}]
  containers:
    - name: tight
      image: IMAGE
      command: [sh, -c, "HOLD"]
      env:
        - {name: GREETING, valueFrom: {fileKeyRef: {volumeName: config, path: env, key: GREETING}}}
        - {name: NONE, valueFrom: {fileKeyRef: {volumeName: config, path: env, key: NONE, optional: true}}}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
    - name: loose
      image: IMAGE
      command: [sh, -c, "HOLD"]
      securityContext: {runAsUser: 0, runAsGroup: 0, seccompProfile: {type: Unconfined}}
    - name: hosts
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [{name: config, mountPath: /etc/hosts}]
    - name: open
      image: IMAGE
      command: [sh, -c, "HOLD"]
      securityContext: {privileged: true, runAsUser: 0}
  volumes: [{name: config, emptyDir: {}}]
"#;

const SHARED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  terminationGracePeriodSeconds: 1
  shareProcessNamespace: true
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  containers:
    - {name: a, image: IMAGE, command: [sh, -c, "HOLD"]}
    - {name: b, image: IMAGE, command: [sleep, "54321"]}
"#;

const ON_NODE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: on-node}
spec:
  terminationGracePeriodSeconds: 1
  hostNetwork: true
  hostPID: true
  hostIPC: true
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"]}]
"#;

const OWN_USERS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: own-users}
spec:
  hostUsers: false
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"]}]
"#;

const STRICT: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: strict}
spec:
  securityContext: {supplementalGroupsPolicy: Strict}
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"]}]
"#;

const CONFINED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: confined}
spec:
  securityContext: {appArmorProfile: {type: RuntimeDefault}}
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"]}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_container_isolation_follows_pod_spec() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::configured("i-isolation", CONFIG).await;
    for (file, text) in [
        ("identity.yaml", IDENTITY),
        ("shared.yaml", SHARED),
        ("on-node.yaml", ON_NODE),
    ] {
        env.apply(file, &fill(text));
    }
    for pod in ["identity", "shared", "on-node"] {
        env.ready(pod).await;
    }
    who_it_is(&env).await;
    what_it_may_do(&env).await;
    what_is_hidden(&env).await;
    its_names(&env).await;
    its_parameters_and_variables(&env).await;
    its_neighbours(&env).await;
    the_node(&env).await;
    what_is_refused(&mut env).await;
    env.stop().await;
}

/// A line of `/proc/self/status`.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {name} in {status}"))
        .trim()
}

async fn status(env: &TestEnv, container: &str) -> String {
    env.exec("identity", container, "cat /proc/self/status")
        .await
}

async fn who_it_is(env: &TestEnv) {
    let tight = status(env, "tight").await;
    assert_eq!(field(&tight, "Uid"), "1000\t1000\t1000\t1000");
    assert_eq!(field(&tight, "Gid"), "3000\t3000\t3000\t3000");
    let groups: BTreeSet<&str> = field(&tight, "Groups").split_whitespace().collect();
    let own = BTreeSet::from(["3000"]);
    let extra: Vec<&str> = groups.difference(&own).copied().collect();
    assert_eq!(extra, ["2000", "4000"]);
    let loose = status(env, "loose").await;
    assert_eq!(field(&loose, "Uid"), "0\t0\t0\t0");
    // new files in a volume belong to fsGroup
    let owner = "touch /etc/hosts/x && stat -c %g /etc/hosts/x; stat -c %a:%g /etc/hosts";
    let owner = env.exec("identity", "hosts", owner).await;
    assert_eq!(owner, "2000\n2777:2000\n");
}

async fn what_it_may_do(env: &TestEnv) {
    let tight = status(env, "tight").await;
    assert_eq!(field(&tight, "CapBnd"), "0000000000000400");
    assert_eq!(field(&tight, "CapEff"), "0000000000000000");
    assert_eq!(field(&tight, "NoNewPrivs"), "1");
    assert_eq!(field(&tight, "Seccomp"), "2");
    let write = "touch /tmp/x 2>&1 || echo refused";
    let written = env.exec("identity", "tight", write).await;
    assert!(
        written.contains("Read-only file system") && written.ends_with("refused\n"),
        "{written}"
    );

    let loose = status(env, "loose").await;
    assert_eq!(field(&loose, "CapBnd"), "00000000a80425fb");
    assert_eq!(field(&loose, "NoNewPrivs"), "0");
    assert_eq!(field(&loose, "Seccomp"), "0");

    let open = status(env, "open").await;
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert_eq!(field(&open, "CapBnd"), field(&own, "CapBnd"));
    assert_eq!(field(&open, "CapEff"), field(&own, "CapBnd"));
    assert_eq!(field(&open, "Seccomp"), "0");
}

async fn what_is_hidden(env: &TestEnv) {
    let masked = [
        "/proc/asound",
        "/proc/acpi",
        "/proc/interrupts",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/sys/firmware",
        "/sys/devices/virtual/powercap",
    ];
    let read_only = [
        "/proc/bus",
        "/proc/fs",
        "/proc/irq",
        "/proc/sys",
        "/proc/sysrq-trigger",
    ];
    let there = |paths: &[&'static str]| -> Vec<&'static str> {
        let paths = paths.iter().copied();
        paths.filter(|path| Path::new(path).exists()).collect()
    };
    let tight = env.exec("identity", "tight", "cat /proc/mounts").await;
    let mount = |path: &str| {
        let line = tight.lines().find(|l| l.contains(&format!(" {path} ")));
        line.unwrap_or_else(|| panic!("no mount on {path} in\n{tight}"))
    };
    let hidden = there(&masked);
    assert!(hidden.contains(&"/proc/acpi"), "{hidden:?}");
    for path in hidden {
        let line = mount(path);
        assert!(
            line.starts_with("tmpfs ") || line.starts_with("devtmpfs "),
            "{line}"
        );
    }
    for path in there(&read_only) {
        let line = mount(path);
        assert!(line.contains(" proc ro,"), "{line}");
    }
    // a privileged container sees everything
    let open = env.exec("identity", "open", "cat /proc/mounts").await;
    for path in masked.iter().chain(&read_only) {
        assert!(!open.contains(&format!(" {path} ")), "{path} in\n{open}");
    }
}

async fn its_names(env: &TestEnv) {
    let exec = async |container: &str, script: &str| env.exec("identity", container, script).await;
    let fqdn = "web.shop.default.svc.cluster.local";
    assert_eq!(exec("tight", "hostname").await, format!("{fqdn}\n"));
    assert_eq!(exec("tight", "hostname -f").await, format!("{fqdn}\n"));
    let pod = env.pod("identity").await;
    let ip = pod["status"]["podIP"].as_str().unwrap();
    let hosts = exec("tight", "cat /etc/hosts").await;
    assert!(
        hosts.ends_with(&format!("fe00::2\tip6-allrouters\n{ip}\t{fqdn}\tweb\n")),
        "{hosts}"
    );
    // a container's own mount there is kept
    assert_eq!(exec("hosts", "ls /etc/hosts/env").await, "/etc/hosts/env\n");
    let cluster = "search default.svc.cluster.local svc.cluster.local cluster.local";
    for (pod, container) in [("identity", "tight"), ("shared", "a")] {
        let resolv = env.exec(pod, container, "cat /etc/resolv.conf").await;
        assert!(resolv.starts_with(cluster), "{pod}: {resolv}");
        let tail = "nameserver 10.96.0.10\noptions ndots:5\n";
        assert!(resolv.ends_with(tail), "{pod}: {resolv}");
    }
    // on the host network the default is the node's own
    let resolv = env.exec("on-node", "main", "cat /etc/resolv.conf").await;
    assert!(!resolv.contains("10.96.0.10"), "{resolv}");
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(env.exec("on-node", "main", "hostname").await, node);
}

async fn its_parameters_and_variables(env: &TestEnv) {
    let read = "cd /proc/sys; cat kernel/shm_rmid_forced net/ipv4/ip_unprivileged_port_start \
                net/core/somaxconn";
    assert_eq!(env.exec("identity", "tight", read).await, "1\n99\n77\n");
    let variables = "printf '%s|' \"$GREETING\" \"${NONE-unset}\"";
    assert_eq!(
        env.exec("identity", "tight", variables).await,
        "two\nlines|unset|"
    );
}

async fn its_neighbours(env: &TestEnv) {
    let processes = env.exec("shared", "a", "ps -o pid,args").await;
    assert!(processes.contains("sleep 54321"), "{processes}");
    let first = processes.lines().find(|l| l.trim().starts_with("1 "));
    assert!(first.unwrap().ends_with("/pause"), "{processes}");
    // without sharing, a container's own process is the first and the only one
    let alone = env.exec("identity", "tight", "cat /proc/1/comm").await;
    assert_eq!(alone, "sh\n");
}

async fn the_node(env: &TestEnv) {
    for (namespace, shared) in [("pid", true), ("ipc", true), ("net", true), ("mnt", false)] {
        let link = format!("/proc/self/ns/{namespace}");
        let ours = std::fs::read_link(&link).unwrap();
        let script = format!("readlink {link}");
        let theirs = env.exec("on-node", "main", &script).await;
        assert_eq!(Path::new(theirs.trim_end()) == ours, shared, "{namespace}");
        let theirs = env.exec("identity", "tight", &script).await;
        assert_ne!(Path::new(theirs.trim_end()), ours, "{namespace}");
    }
    let own = format!("test -d /proc/{} && echo seen", std::process::id());
    assert_eq!(env.exec("on-node", "main", &own).await, "seen\n");
}

/// AppArmor requires kernel support.
async fn what_is_refused(env: &mut TestEnv) {
    env.apply("confined.yaml", &fill(CONFINED));
    if env.containerd.is_older_than([2, 0]) {
        what_it_is_too_old_for(env).await;
    }
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    if !enabled.is_ok_and(|text| text.starts_with('Y')) {
        env.wait("confined has failed", |table| {
            table
                .pod("confined")
                .is_some_and(|pod| pod.phase == "Failed")
        })
        .await;
        let confined = env.pod("confined").await;
        assert_eq!(confined["status"]["reason"], "AppArmor");
        assert_eq!(
            confined["status"]["message"],
            "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"
        );
    }
}

/// Such a containerd supports neither user namespaces nor strict groups, and would
/// ignore them silently.
async fn what_it_is_too_old_for(env: &mut TestEnv) {
    env.apply("own-users.yaml", &fill(OWN_USERS));
    env.apply("strict.yaml", &fill(STRICT));
    let why = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
    env.wait("own-users reports why it does not start", |table| {
        let blocker = table.pod("own-users").and_then(|pod| pod.blocker.as_ref());
        blocker.is_some_and(|blocker| blocker.message.contains(why))
    })
    .await;
    env.wait("strict has failed", |table| {
        table.pod("strict").is_some_and(|pod| pod.phase == "Failed")
    })
    .await;
    let strict = env.pod("strict").await;
    assert_eq!(
        strict["status"]["reason"],
        "SupplementalGroupsPolicyNotSupported"
    );
    for pod in ["own-users", "strict"] {
        assert!(env.sandboxes(pod).await.is_empty(), "{pod}");
    }
}
