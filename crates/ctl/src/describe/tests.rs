//! Whole pages.

use serde_json::json;
use windlass_node_proto::windlass_v1 as proto;

use super::text;
use crate::pod::tests::view;

#[test]
fn page_shows_pod_containers_and_events() {
    let mut web = view(&json!({
        "metadata": {
            "name": "web-n1", "namespace": "default", "uid": "abc",
            "labels": {"app": "web", "tier": "front"},
        },
        "spec": {
            "nodeName": "n1",
            "volumes": [{"name": "data", "hostPath": {"path": "/srv"}}],
            "containers": [{
                "name": "app", "image": "web:1", "command": ["sh", "-c"], "args": ["serve"],
                "ports": [{"containerPort": 80, "hostPort": 8080}],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ],
                "resources": {"limits": {"memory": "64Mi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": true}],
            }],
        },
        "status": {
            "phase": "Running", "podIP": "10.88.0.4", "hostIP": "10.0.0.5", "qosClass": "Burstable",
            "startTime": "2026-11-21T04:00:00Z",
            "conditions": [
                {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
            ],
            "containerStatuses": [{
                "name": "app", "image": "web:1", "imageID": "sha256:1", "containerID": "containerd://c2",
                "ready": false, "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error",
                    "startedAt": "2026-11-21T04:00:10Z", "finishedAt": "2026-11-21T04:00:11Z"}},
            }],
        },
    }));
    let at = |seconds: i64| {
        Some(prost_types::Timestamp {
            seconds: 1_795_233_600 + seconds,
            nanos: 0,
        })
    };
    web.entry.events = vec![proto::Event {
        r#type: "Warning".to_owned(),
        reason: "BackOff".to_owned(),
        container: Some("app".to_owned()),
        message: "restart delayed".to_owned(),
        count: 4,
        first: at(10),
        last: at(50),
    }];
    web.entry.unsupported_fields = vec!["spec.dnsPolicy".to_owned()];
    let now = "2026-11-21T04:01:00Z".parse().expect("time");
    let expected = "\
Name:             web-n1
Namespace:        default
UID:              abc
Source:           file
Node:             n1/10.0.0.5
Start Time:       2026-11-21T04:00:00Z (60s ago)
Labels:           app=web
                  tier=front
Annotations:      <none>
Status:           CrashLoopBackOff
Phase:            Running
Worker:           Sync
IP:               10.88.0.4
QoS Class:        Burstable
Restart Policy:   Always
Containers:
  app:
    Container ID:   containerd://c2
    Image:          web:1
    Image ID:       sha256:1
    Ports:          80/TCP (host 8080)
    Command:
      sh
      -c
    Args:
      serve
    State:          Waiting
      Reason:       CrashLoopBackOff
      Message:      back-off 20s
    Last State:     Terminated
      Reason:       Error
      Exit Code:    3
      Started:      2026-11-21T04:00:10Z
      Finished:     2026-11-21T04:00:11Z
    Ready:          False
    Restart Count:  2
    Limits:
      memory:       64Mi
    Environment:
      A:            1
      IP:           (status.podIP)
    Mounts:
      /data from data (ro)
Conditions:
  Type    Status   Reason
  Ready   False    ContainersNotReady
Volumes:
  data:
    Type:           hostPath
    path:           /srv
Start:
  total:            -
  wait:             -
  sandbox:          -
  image:            -
  init:             -
  containers:       -
Warnings:
  spec.dnsPolicy: not supported by this version
Events:
  Type      Reason    Age                   Message
  Warning   BackOff   10s (x4 over 50s)     app: restart delayed
Blocker:
  pod default/web-n1: no blocker (Running)
";
    let text = text(&web, &[], now);
    for (line, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            expected.split_whitespace().collect::<Vec<_>>(),
            "{text}"
        );
        let indent = |text: &str| text.len() - text.trim_start().len();
        assert_eq!(indent(line), indent(expected), "{text}");
    }
    assert_eq!(text.lines().count(), expected.lines().count(), "{text}");
}

#[test]
fn page_shows_probes_and_ephemeral_containers() {
    let page = text(
        &view(&json!({
            "metadata": {"name": "web-n1", "namespace": "default"},
            "spec": {
                "containers": [{
                    "name": "app",
                    "livenessProbe": {
                        "httpGet": {"path": "/healthz", "port": 8080},
                        "initialDelaySeconds": 3, "periodSeconds": 4,
                    },
                    "readinessProbe": {"exec": {"command": ["cat", "/ready"]}, "failureThreshold": 1},
                    "startupProbe": {"tcpSocket": {"port": "web"}, "timeoutSeconds": 5},
                }],
                "ephemeralContainers": [{"name": "debug", "image": "busybox:1"}],
            },
            "status": {
                "containerStatuses": [{
                    "name": "app", "image": "", "imageID": "", "ready": false, "started": false,
                    "restartCount": 0, "state": {"running": {}},
                }],
                "ephemeralContainerStatuses": [{
                    "name": "debug", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"running": {}},
                }],
            },
        })),
        &[],
        "2026-11-21T04:01:00Z".parse().expect("time"),
    );
    for expected in [
        "    State:          Running\n    Started:        False\n    Ready:          False\n",
        "    Liveness:       http-get http://:8080/healthz delay=3s timeout=1s period=4s \
         #success=1 #failure=3\n",
        "    Readiness:      exec [cat /ready] delay=0s timeout=1s period=10s #success=1 \
         #failure=1\n",
        "    Startup:        tcp-socket :web delay=0s timeout=5s period=10s #success=1 #failure=3\n",
        "Ephemeral Containers:\n  debug:\n    Image:          busybox:1\n",
    ] {
        assert!(page.contains(expected), "{expected:?} in\n{page}");
    }
}
