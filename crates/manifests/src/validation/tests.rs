//! A valid pod with one invalid field at a time, and its errors.

use serde_json::{Value, json};
use windlass_types::Pod;

use super::validate;
use crate::defaults;

fn base() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u-1"},
        "spec": {
            "containers": [{"name": "a", "image": "x:1"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    })
}

/// Sets `pointer` to `value` in a valid pod and compares the joined errors.
fn check(pointer: &str, value: Value, expected: &str) {
    let mut pod = base();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = pod.pointer_mut(parent).expect("parent exists");
    match parent {
        Value::Array(list) => list.push(value),
        other => other[key] = value,
    }
    let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
    defaults::apply(&mut pod);
    let errors: Vec<String> = validate(&pod).iter().map(ToString::to_string).collect();
    assert_eq!(errors.join("; "), expected, "for {pointer}");
}

#[test]
fn names_must_be_dns_names() {
    check("/metadata/name", json!("web-1.x"), "");
    check("/metadata/name", json!(""), "metadata.name: Required value");
    check(
        "/metadata/name",
        json!("Web"),
        "metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    );
    check(
        "/metadata/name",
        json!("a".repeat(254)),
        &format!(
            "metadata.name: Invalid value: {:?}: must be no more than 253 characters",
            "a".repeat(254)
        ),
    );
    check(
        "/metadata/namespace",
        json!("a.b"),
        "metadata.namespace: Invalid value: \"a.b\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    );
    check(
        "/metadata/uid",
        json!("../../etc"),
        "metadata.uid: Invalid value: \"../../etc\": must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    );
    check(
        "/metadata/labels",
        json!({"/x": "ok", "k": "not ok"}),
        "metadata.labels: Invalid value: \"/x\": prefix part must be non-empty; metadata.labels[k]: Invalid value: \"not ok\": must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    );
    check("/metadata/labels", json!({"a.b/c": "", "d": "v1.0"}), "");
}

#[test]
fn containers_require_name_and_image() {
    check(
        "/spec/containers",
        json!([]),
        "spec.containers: Required value",
    );
    check(
        "/spec/containers/-",
        json!({"name": "b"}),
        "spec.containers[1].image: Required value",
    );
    check(
        "/spec/containers/-",
        json!({"name": "a", "image": "x"}),
        "spec.containers[1].name: Duplicate value: \"a\"",
    );
    check(
        "/spec/initContainers",
        json!([{"name": "a", "image": "x"}]),
        "spec.containers[0].name: Duplicate value: \"a\"",
    );
    check(
        "/spec/containers/0/image",
        json!(" x"),
        "spec.containers[0].image: Invalid value: \" x\": must not have leading or trailing whitespace",
    );
}

#[test]
fn enumerations_are_validated() {
    check(
        "/spec/restartPolicy",
        json!("always"),
        "spec.restartPolicy: Unsupported value: \"always\": supported values: \"Always\", \"OnFailure\", \"Never\"",
    );
    check(
        "/spec/dnsPolicy",
        json!("None"),
        "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None", // lang: keep
    );
    check(
        "/spec/containers/0/imagePullPolicy",
        json!("Sometimes"),
        "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
    );
}

#[test]
fn ports_are_in_range_and_unique() {
    let ports = "/spec/containers/0/ports";
    check(
        ports,
        json!([{"containerPort": 80, "name": "web"}, {"containerPort": 81, "name": "web"}]),
        "spec.containers[0].ports[1].name: Duplicate value: \"web\"",
    );
    check(
        ports,
        json!([{"containerPort": 70000}]),
        "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    );
    check(
        ports,
        json!([{"containerPort": 1, "protocol": "tcp"}]),
        "spec.containers[0].ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
    );
    check(
        ports,
        json!([{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}, {"containerPort": 2, "hostPort": 9, "protocol": "UDP"}]),
        "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//9\"",
    );
}

#[test]
fn mounts_refer_to_volumes_without_parent_path() {
    let mounts = "/spec/containers/0/volumeMounts";
    check(mounts, json!([{"name": "data", "mountPath": "/d"}]), "");
    check(
        mounts,
        json!([{"name": "other", "mountPath": "/d"}]),
        "spec.containers[0].volumeMounts[0].name: Not found: \"other\"",
    );
    check(
        mounts,
        json!([{"name": "data", "mountPath": "/d"}, {"name": "data", "mountPath": "/d"}]),
        "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/d\": must be unique",
    );
    check(
        mounts,
        json!([{"name": "data", "mountPath": "/d:ro"}]),
        "spec.containers[0].volumeMounts[0].mountPath: Invalid value: \"/d:ro\": must not contain ':'",
    );
    check(
        mounts,
        json!([{"name": "data", "mountPath": "/d", "subPath": "../x"}]),
        "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"../x\": must not contain '..'",
    );
    check(
        mounts,
        json!([{"name": "data", "mountPath": "/d", "mountPropagation": "Bidirectional"}]),
        "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
    );
    check(
        mounts,
        json!([{"name": "data", "mountPath": "/d", "recursiveReadOnly": "IfPossible"}]),
        "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
    );
    check(
        mounts,
        json!([{
            "name": "data", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "Enabled",
            "mountPropagation": "HostToContainer",
        }]),
        "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified", // lang: keep
    );
    check(
        mounts,
        json!([{"name": "data", "mountPath": "/d", "recursiveReadOnly": "Always"}]),
        "spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: \"Always\": supported values: \"Disabled\", \"Enabled\", \"IfPossible\"",
    );
}

#[test]
fn volumes_have_one_source_and_no_parent_path() {
    check(
        "/spec/volumes/-",
        json!({"name": "data"}),
        "spec.volumes[1].name: Duplicate value: \"data\"",
    );
    check(
        "/spec/volumes/-",
        json!({"name": "b", "emptyDir": {}, "hostPath": {"path": "/x"}}),
        "spec.volumes[1]: Forbidden: may not specify more than 1 volume type",
    );
    check(
        "/spec/volumes/-",
        json!({"name": "b", "hostPath": {"path": "/x/../../etc"}}),
        "spec.volumes[1].hostPath.path: Invalid value: \"/x/../../etc\": must not contain '..'",
    );
    check(
        "/spec/volumes/-",
        json!({"name": "b", "hostPath": {"path": "/x..y", "type": "Dir"}}),
        "spec.volumes[1].hostPath.type: Unsupported value: \"Dir\": supported values: \"\", \"DirectoryOrCreate\", \"Directory\", \"FileOrCreate\", \"File\", \"Socket\", \"CharDevice\", \"BlockDevice\"",
    );
    check(
        "/spec/volumes/-",
        json!({"name": "b", "downwardAPI": {"items": [{"path": "/p", "fieldRef": {"fieldPath": "status.podIP"}}]}}),
        "spec.volumes[1].downwardAPI.items[0].path: Invalid value: \"/p\": must be a relative path; spec.volumes[1].downwardAPI.items[0].fieldRef.fieldPath: Unsupported value: \"status.podIP\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"metadata.labels\", \"metadata.annotations\"",
    );
}

#[test]
fn environment_and_resources_are_validated() {
    check(
        "/spec/containers/0/env",
        json!([{"name": "A=B"}, {"name": "C", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        "spec.containers[0].env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='; spec.containers[0].env[1].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
    );
    check(
        "/spec/containers/0/resources",
        json!({"limits": {"cpu": "1", "memory": "lots"}, "requests": {"cpu": "1100m"}}),
        "spec.containers[0].resources.limits[memory]: Invalid value: \"lots\": must be a quantity such as 100m, 0.5 or 128Mi; spec.containers[0].resources.requests[memory]: Invalid value: \"lots\": must be a quantity such as 100m, 0.5 or 128Mi; spec.containers[0].resources.requests: Invalid value: \"1100m\": must be less than or equal to cpu limit of 1",
    );
    let huge = |limits: &str, requests: &str| json!({"limits": {"hugepages-2Mi": limits}, "requests": {"hugepages-2Mi": requests}});
    check(
        "/spec/containers/0/resources",
        huge("4Mi", "2Mi"),
        "spec.containers[0].resources.requests: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of 4Mi; spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
    );
    let mut odd = huge("3Mi", "3Mi");
    odd["limits"]["memory"] = "1Mi".into();
    check(
        "/spec/containers/0/resources",
        odd,
        "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi; spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
    );
    check(
        "/spec/containers/0/resources",
        json!({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi", "example.com/gpu": "1"}}),
        "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources; spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
    );
    check(
        "/spec/terminationGracePeriodSeconds",
        json!(-1),
        "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
    );
}

#[test]
fn probes_have_one_handler_and_init_containers_no_probes() {
    check(
        "/spec/containers/0/livenessProbe",
        json!({"successThreshold": 2}),
        "spec.containers[0].livenessProbe: Required value: must specify a handler type; spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
    );
    check(
        "/spec/containers/0/readinessProbe",
        json!({"httpGet": {"port": "Web"}, "tcpSocket": {"port": 0}}),
        "spec.containers[0].readinessProbe: Forbidden: may not specify more than 1 handler type; spec.containers[0].readinessProbe.httpGet.port: Invalid value: \"Web\": must contain only lower case alphanumeric characters and single '-', and must start and end with an alphanumeric character; spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
    );
    check(
        "/spec/initContainers",
        json!([{"name": "i", "image": "x", "livenessProbe": {"exec": {"command": ["true"]}}}]),
        "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
    );
    check(
        "/spec/initContainers",
        json!([{"name": "i", "image": "x", "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["true"]}}}]),
        "",
    );
}

#[test]
fn hook_actions_and_stop_signals_are_validated() {
    let lifecycle = "/spec/containers/0/lifecycle";
    check(
        lifecycle,
        json!({"preStop": {"sleep": {"seconds": 30}}}),
        "",
    );
    check(
        lifecycle,
        json!({"postStart": {}, "preStop": {"sleep": {"seconds": 31}}}),
        "spec.containers[0].lifecycle.postStart: Required value: must specify a handler type; spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
    );
    check(
        lifecycle,
        json!({"stopSignal": "SIGUSR1"}),
        "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
    );
    let of_system = |os: &str, signal: &str| {
        let mut pod = base();
        pod["spec"]["os"] = json!({"name": os});
        pod["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": signal});
        let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
        defaults::apply(&mut pod);
        let errors = validate(&pod);
        errors.first().map(ToString::to_string).unwrap_or_default()
    };
    assert_eq!(of_system("linux", "SIGRTMIN+3"), "");
    let rejected = "spec.containers[0].lifecycle.stopSignal: Unsupported value: \"USR1\"";
    assert!(of_system("linux", "USR1").starts_with(rejected));
    assert_eq!(
        of_system("windows", "SIGUSR1"),
        "spec.containers[0].lifecycle.stopSignal: Unsupported value: \"SIGUSR1\": supported values: \"SIGKILL\", \"SIGTERM\""
    );
}

#[test]
fn seccomp_profile_must_not_leave_directory() {
    check(
        "/spec/securityContext",
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}),
        "spec.securityContext.seccompProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'",
    );
    check(
        "/spec/securityContext",
        json!({"runAsUser": -1, "sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}),
        "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    );
}

#[test]
fn user_namespace_excludes_host_namespaces() {
    let check_spec = |more: Value, expected: &str| {
        let mut pod = base();
        for (key, value) in more.as_object().expect("fields") {
            pod["spec"][key] = value.clone();
        }
        let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
        defaults::apply(&mut pod);
        let errors: Vec<String> = validate(&pod).iter().map(ToString::to_string).collect();
        assert_eq!(errors.join("; "), expected);
    };
    check_spec(json!({"hostUsers": false}), "");
    check_spec(json!({"hostUsers": true, "hostNetwork": true}), "");
    check_spec(
        json!({"hostUsers": false, "hostNetwork": true, "hostPID": true, "hostIPC": true}),
        "spec.hostNetwork: Forbidden: when `pod.Spec.HostUsers` is false; \
         spec.hostPID: Forbidden: when `pod.Spec.HostUsers` is false; \
         spec.hostIPC: Forbidden: when `pod.Spec.HostUsers` is false",
    );
    let unmasked = json!([{
        "name": "a", "image": "x:1", "securityContext": {"procMount": "Unmasked"},
    }]);
    check_spec(json!({"hostUsers": false, "containers": unmasked}), "");
    check_spec(
        json!({"containers": unmasked}),
        "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": \
         `hostUsers` must be false to use `Unmasked`",
    );
    let admin = json!([{"name": "a", "image": "x:1", "securityContext": {
        "allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]},
    }}]);
    check_spec(
        json!({"containers": admin}),
        "spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: \
         cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
    );
    check_spec(
        json!({"securityContext": {"supplementalGroupsPolicy": "strict"}}),
        "spec.securityContext.supplementalGroupsPolicy: Unsupported value: \"strict\": \
         supported values: \"Merge\", \"Strict\"",
    );
    check_spec(json!({"hostnameOverride": "db.example.org"}), "");
    check_spec(
        json!({"hostnameOverride": "db", "hostNetwork": true, "setHostnameAsFQDN": true}),
        "spec.hostnameOverride: Forbidden: may not be set when `hostNetwork` is true; \
         spec.hostnameOverride: Forbidden: may not be set when `setHostnameAsFQDN` is true",
    );
}

#[test]
fn file_key_ref_requires_empty_dir() {
    let variable = |volume: &str, path: &str, key: &str| {
        json!({"name": "X", "valueFrom": {"fileKeyRef": {
            "volumeName": volume, "path": path, "key": key,
        }}})
    };
    let at = "spec.containers[0].env[0].valueFrom.fileKeyRef";
    let check_env = |variable: Value, expected: &str| {
        check("/spec/containers/0/env", json!([variable]), expected);
    };
    check_env(variable("data", "app/env", "KEY"), "");
    check_env(
        variable("none", "env", ""),
        &format!("{at}.key: Required value; {at}.volumeName: Not found: \"none\""),
    );
    check_env(
        variable("data", "../env", "KEY"),
        &format!("{at}.path: Invalid value: \"../env\": must not contain '..'"),
    );
}
