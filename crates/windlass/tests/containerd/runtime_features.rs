//! Features of newer runtimes: CRI events (containerd 1.7), cgroup driver, strict groups and
//! container user (2.0), stop signals (2.3).

use std::time::Duration;

use windlass_pod_inputs::resources::QosClass;
use windlass_testing::environment::uses_systemd_driver;
use windlass_types::PodUid;

use crate::manifest::{fill, shell};
use crate::test_env::{SOON, TestEnv, eventually, older_than, scaled, signal};

/// The image has the user 7777 in the group 8888.
const MEMBER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 7777, runAsGroup: 7777, supplementalGroups: [4000], supplementalGroupsPolicy: POLICY}
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"]}]
"#;

const STOPPED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: stopped}
spec:
  os: {name: linux}
  hostNetwork: true
  terminationGracePeriodSeconds: 20
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "trap 'echo USR1 > /out/signal; exit' USR1; trap 'echo TERM > /out/signal; exit' TERM; while true; do sleep 1000 & wait $!; done"]
      lifecycle: {stopSignal: SIGUSR1}
      volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: out, hostPath: {path: DIRECTORY, type: DirectoryOrCreate}}]
"#;

/// Well below the relist period of 10 s.
const BY_EVENT: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_cri_events_are_received() {
    if older_than([1, 7], "an event stream of CRI") {
        return;
    }
    let mut env = TestEnv::start("i-events").await;
    env.logged(&["runtime event stream", "open=true"]).await;
    env.apply("web.yaml", &shell("web", "HOLD"));
    env.ready("web").await;
    // ---- each exit is detected long before the next relist
    for restarts in 1..=2 {
        let relists = relists(&env).await;
        let before = env.running("web").await.remove(0).id;
        let killed = tokio::time::Instant::now();
        signal(
            env.process("web", "main").await,
            rustix::process::Signal::KILL,
        );
        if restarts == 1 {
            // the first restart has no delay
            eventually("it runs again", SOON, async || {
                let running = env.running("web").await;
                let anew = running.iter().any(|container| container.id != before);
                anew.then_some(()).ok_or_else(|| "the old one".to_owned())
            })
            .await;
        } else {
            env.status("web", "CrashLoopBackOff").await;
        }
        let (took, relisted) = (killed.elapsed(), self::relists(&env).await != relists);
        assert!(
            took < scaled(BY_EVENT) || !relisted,
            "death {restarts} was seen after {took:?}"
        );
    }
    // ---- without a fallback to containerd's own events
    let log = std::fs::read_to_string(env.agent.log_file()).unwrap();
    assert!(!log.contains("no CRI event stream"), "the agent fell back");
    env.stop().await;
}

/// Number of relists.
async fn relists(env: &TestEnv) -> u64 {
    let metrics = env.agent.metrics(false).await.unwrap();
    let name = "kubelet_pleg_relist_duration_seconds_count ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(name));
    count.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_cgroup_driver_of_runtime_wins() {
    if older_than([2, 0], "a runtime that reports its cgroup driver") {
        return;
    }
    // a cgroup parent of the other driver makes containerd reject each pod
    let (configured, used) = match uses_systemd_driver() {
        true => ("cgroupDriver: cgroupfs", "driver=Systemd"),
        false => ("cgroupDriver: systemd", "driver=Cgroupfs"),
    };
    let mut env = TestEnv::configured("i-driver", configured).await;
    env.apply("web.yaml", &shell("web", "HOLD"));
    env.ready("web").await;
    env.logged(&["cgroups of pods", used]).await;
    let uid = env.pod("web").await["metadata"]["uid"].clone();
    let uid = PodUid::from(uid.as_str().unwrap());
    let expected = env
        .containerd
        .cgroup_layout()
        .pod(QosClass::BestEffort, &uid);
    let process = env.process("web", "main").await;
    let lines = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    assert!(lines.contains(&expected), "not in {expected}: {lines}");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_strict_supplemental_groups_are_applied() {
    if older_than([2, 0], "supplementalGroupsPolicy: Strict") {
        return;
    }
    let mut env = TestEnv::start("i-groups").await;
    for (policy, groups) in [
        ("Merge", vec![4000, 7777, 8888]),
        ("Strict", vec![4000, 7777]),
    ] {
        let name = policy.to_lowercase();
        let text = MEMBER.replace("NAME", &name).replace("POLICY", policy);
        env.apply(&format!("{name}.yaml"), &fill(&text));
        env.ready(&name).await;
        let sorted = |mut list: Vec<u64>| {
            list.sort_unstable();
            list
        };
        let said = env.exec(&name, "main", "id -G").await;
        let inside = said.split_whitespace().map(|id| id.parse().unwrap());
        assert_eq!(sorted(inside.collect()), groups, "{policy}");
        let user = env.pod(&name).await["status"]["containerStatuses"][0]["user"]["linux"].clone();
        assert_eq!((&user["uid"], &user["gid"]), (&7777.into(), &7777.into()));
        let told = user["supplementalGroups"].as_array().unwrap().iter();
        let told = told.map(|id| id.as_u64().unwrap()).collect();
        assert_eq!(sorted(told), groups, "{policy}");
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_stop_signal_of_pod_is_used() {
    if older_than([2, 3], "a stop signal of a pod") {
        return;
    }
    let gate = "featureGates: {ContainerStopSignals: true}";
    let mut env = TestEnv::configured("i-signal", gate).await;
    let directory = env.containerd.base().join("out");
    let text = fill(STOPPED).replace("DIRECTORY", &directory.display().to_string());
    env.apply("stopped.yaml", &text);
    env.apply("plain.yaml", &shell("plain", "HOLD"));
    for (name, signal) in [("stopped", "SIGUSR1"), ("plain", "SIGTERM")] {
        env.ready(name).await;
        let status = env.pod(name).await["status"]["containerStatuses"][0].clone();
        assert_eq!(status["stopSignal"], signal, "{status}");
    }
    env.remove("stopped.yaml");
    env.gone("stopped").await;
    let got = std::fs::read_to_string(directory.join("signal")).unwrap();
    assert_eq!(got, "USR1\n");
    env.stop().await;
}
