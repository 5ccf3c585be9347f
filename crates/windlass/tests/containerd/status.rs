//! The whole pod status, as `windlassctl get -o json` prints it.

use serde_json::{Value, json};

use crate::manifest::fill;
use crate::test_env::{TestEnv, eventually, skipped};

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: whole}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: data, emptyDir: {}}]
  initContainers:
    - name: first
      image: IMAGE
      command: [sh, -c, "echo made > /data/made"]
      volumeMounts: [{name: data, mountPath: /data}]
    - name: beside
      image: IMAGE
      restartPolicy: Always
      command: [sh, -c, "HOLD"]
      startupProbe: {exec: {command: [test, -e, /data/made]}, periodSeconds: 1}
      volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      readinessProbe: {exec: {command: [test, -e, /data/made]}, periodSeconds: 1}
      resources:
        requests: {cpu: 100m, memory: 16Mi}
        limits: {memory: 32Mi}
      volumeMounts: [{name: data, mountPath: /data}]
"#;

/// Replaces values that differ between runs, after checking their format.
fn settle(status: &mut Value) {
    for key in ["hostIP", "podIP"] {
        let ip = status[key].as_str().expect(key);
        assert!(ip.parse::<std::net::IpAddr>().is_ok(), "{key}: {ip}");
        assert_eq!(status[format!("{key}s")][0]["ip"], status[key]);
        status[key] = json!("IP");
        status[format!("{key}s")] = json!("IPS");
    }
    let time = |value: &mut Value| {
        let text = value.as_str().expect("a time").to_owned();
        let parsed = text.parse::<windlass_types::Timestamp>();
        assert!(parsed.is_ok() && text.ends_with('Z'), "{text}");
        assert_eq!(text.len(), "2026-11-21T04:00:00Z".len(), "whole seconds");
        *value = json!("TIME");
    };
    time(&mut status["startTime"]);
    for condition in status["conditions"].as_array_mut().expect("conditions") {
        time(&mut condition["lastTransitionTime"]);
    }
    for list in ["initContainerStatuses", "containerStatuses"] {
        for container in status[list].as_array_mut().expect(list) {
            let id = container["containerID"].clone();
            let text = id.as_str().expect("an ID");
            let bare = text.strip_prefix("containerd://").expect(text);
            assert_eq!(bare.len(), 64, "{text}");
            container["containerID"] = json!("ID");
            let image = container["imageID"].as_str().expect("an image ID");
            assert!(image.contains("sha256:"), "{image}");
            container["imageID"] = json!("IMAGE ID");
            if container["state"]["running"].is_object() {
                time(&mut container["state"]["running"]["startedAt"]);
            }
            if let Some(ended) = container.pointer_mut("/state/terminated") {
                time(&mut ended["startedAt"]);
                time(&mut ended["finishedAt"]);
                assert_eq!(ended["containerID"], id);
                ended["containerID"] = json!("ID");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pod_status_has_all_fields() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("i-status").await;
    env.apply("whole.yaml", &fill(POD));
    env.ready("whole").await;
    let mut status = env.pod("whole").await["status"].take();
    let before = status.clone();
    settle(&mut status);

    let running = || json!({"running": {"startedAt": "TIME"}});
    let condition =
        |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": "TIME"});
    let mount = json!([{"name": "data", "mountPath": "/data"}]);
    // containerd 1.6 tells neither `user` nor `resources`: the latter are those of the spec
    let lacks = match env.containerd.is_older_than([2, 0]) {
        true => "lacks=\"user namespaces (hostUsers: false), recursive read-only mounts, ",
        false => "lacks=",
    };
    env.logged(&["container runtime name=", lacks]).await;
    let tells_user = !env.containerd.is_older_than([2, 0]);
    let container = |name: &str, more: Value| {
        let mut container = json!({
            "name": name, "image": fill("IMAGE"), "imageID": "IMAGE ID", "containerID": "ID",
            "ready": true, "started": true, "restartCount": 0, "state": running(),
            "resources": {}, "volumeMounts": mount,
        });
        let object = container.as_object_mut().expect("an object");
        object.extend(more.as_object().expect("an object").clone());
        if tells_user {
            let user = json!({"linux": {"uid": 0, "gid": 0, "supplementalGroups": [0]}});
            object.insert("user".to_owned(), user);
        }
        container
    };
    let expected = json!({
        "phase": "Running",
        "qosClass": "Burstable",
        // of the pod: the sums of its containers
        "allocatedResources": {"cpu": "100m", "memory": "16Mi"},
        "resources": {
            "requests": {"cpu": "100m", "memory": "16Mi"},
            "limits": {"memory": "32Mi"},
        },
        "startTime": "TIME",
        "hostIP": "IP", "hostIPs": "IPS", "podIP": "IP", "podIPs": "IPS",
        "conditions": [
            condition("PodReadyToStartContainers"),
            condition("Initialized"),
            condition("Ready"),
            condition("ContainersReady"),
            condition("PodScheduled"),
        ],
        "initContainerStatuses": [
            container("first", json!({
                "started": false,
                "state": {"terminated": {
                    "exitCode": 0, "reason": "Completed", "containerID": "ID",
                    "startedAt": "TIME", "finishedAt": "TIME",
                }},
            })),
            container("beside", json!({
                "volumeMounts": [{
                    "name": "data", "mountPath": "/data", "readOnly": true,
                    "recursiveReadOnly": "Disabled",
                }],
            })),
        ],
        "containerStatuses": [
            container("main", json!({
                "resources": {
                    "requests": {"cpu": "100m", "memory": "16Mi"},
                    "limits": {"memory": "32Mi"},
                },
                "allocatedResources": {"cpu": "100m", "memory": "16Mi"},
            })),
        ],
    });
    let text = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
    assert!(
        status == expected,
        "{}\nis not\n{}",
        text(&status),
        text(&expected)
    );

    // The status is the same after a restart, although conditions of a static pod are stored
    // nowhere.
    env.kill_and_respawn().await;
    env.ready("whole").await;
    let lists = ["initContainerStatuses", "containerStatuses"];
    eventually("the same containers", crate::test_env::SOON, async || {
        let after = env.pod("whole").await["status"].take();
        let same = lists.iter().all(|list| after[list] == before[list]);
        same.then_some(()).ok_or_else(|| text(&after))
    })
    .await;
    env.stop().await;
}
