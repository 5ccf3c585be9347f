//! Sandbox configurations, a line for each part that differs from the plain one.

use serde_json::{Value, json};
use windlass_types::cri::IdMapping;

use super::*;

fn pod(spec: Value) -> Pod {
    let pod = json!({
        "metadata": {
            "name": "web", "namespace": "ns", "uid": "u-1",
            "labels": {"app": "web", "io.kubernetes.pod.name": "forged"},
            "annotations": {"note": "kept"},
        },
        "spec": spec,
    });
    serde_json::from_value(pod).expect("pod")
}

fn config(spec: Value) -> Result<SandboxConfig, ConfigError> {
    config_with(spec, UserNamespace::Node)
}

fn config_with(spec: Value, users: UserNamespace) -> Result<SandboxConfig, ConfigError> {
    let node = NodeFacts {
        cluster_domain: "cluster.local".to_owned(),
        ..NodeFacts::default()
    };
    sandbox_config(SandboxInput {
        pod: &pod(spec),
        attempt: 2,
        node: &node,
        dns: &DnsConfig {
            servers: vec!["10.96.0.10".to_owned()],
            ..DnsConfig::default()
        },
        runtime_class_resolved: false,
        cgroup_parent: "",
        users,
        volumes: &[],
    })
}

/// The security part and host name in one line, or the error.
fn check(spec: Value, expected: &str) {
    let line = config(spec).map(|c| {
        let s = &c.security;
        let n = s.namespaces;
        format!(
            "host={:?} net={:?} pid={:?} ipc={:?} user={:?}:{:?}+{:?} privileged={} {:?}",
            c.hostname,
            n.network,
            n.pid,
            n.ipc,
            s.run_as_user,
            s.run_as_group,
            s.supplemental_groups,
            s.privileged,
            s.seccomp
        )
    });
    assert_eq!(line.unwrap_or_else(|e| e.to_string()), expected);
}

#[test]
fn identity_labels_annotations_and_log_directory_are_set() {
    let c = config(json!({"containers": [{"name": "c"}]})).expect("config");
    assert_eq!(
        (c.name.as_str(), c.namespace.as_str(), c.attempt),
        ("web", "ns", 2)
    );
    assert_eq!(c.log_directory, "/var/log/pods/ns_web_u-1");
    assert_eq!(
        format!("{:?}", c.labels),
        "{\"app\": \"web\", \"io.kubernetes.pod.name\": \"web\", \
         \"io.kubernetes.pod.namespace\": \"ns\", \"io.kubernetes.pod.uid\": \"u-1\"}"
    );
    assert_eq!(format!("{:?}", c.annotations), "{\"note\": \"kept\"}");
    assert_eq!(c.dns.expect("dns").servers, ["10.96.0.10"]);
    assert!(c.overhead.is_none());
    assert_eq!(c.resources.expect("resources").cpu_shares, 2);
}

#[test]
fn namespaces_and_identity_follow_the_pod() {
    check(
        json!({"containers": [{"name": "c"}]}),
        "host=\"web\" net=Pod pid=Container ipc=Pod user=None:None+[] privileged=false \
         RuntimeDefault",
    );
    check(
        json!({
            "hostNetwork": true, "hostPID": true, "hostIPC": true,
            "containers": [{"name": "c"}],
        }),
        "host=\"\" net=Node pid=Node ipc=Node user=None:None+[] privileged=false RuntimeDefault",
    );
    check(
        json!({
            "shareProcessNamespace": true,
            "subdomain": "s", "setHostnameAsFQDN": true,
            "securityContext": {
                "runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000,
                "supplementalGroups": [4000, 5000],
                "seccompProfile": {"type": "Unconfined"},
            },
            "containers": [{"name": "c"}],
            "initContainers": [{"name": "i", "securityContext": {"privileged": true}}],
        }),
        "host=\"web.s.ns.svc.cluster.local\" net=Pod pid=Pod ipc=Pod \
         user=Some(1000):Some(3000)+[2000, 4000, 5000] privileged=true RuntimeDefault",
    );
}

#[test]
fn invalid_sandbox_configs_are_rejected() {
    check(
        json!({"containers": [{"name": "../c"}]}),
        "container name \"../c\" cannot be used as a file name",
    );
    check(
        json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "x"}}}]}),
        "container c resources.limits.cpu: quantity \"x\" does not start with a decimal number",
    );
    check(
        json!({"hostname": "A", "containers": [{"name": "c"}]}),
        "spec.hostname \"A\" is not a valid DNS label",
    );
}

#[test]
fn pod_with_unsupported_isolation_is_rejected() {
    check(
        json!({"hostUsers": false, "containers": [{"name": "c"}]}),
        "the pod has no user namespace",
    );
    check(
        json!({"runtimeClassName": "gvisor", "containers": [{"name": "c"}]}),
        "runtimeClassName: RuntimeClass \"gvisor\" is an object of the API server, which this \
         agent is not connected to",
    );
    check(
        json!({
            "securityContext": {"supplementalGroupsPolicy": "strict"},
            "containers": [{"name": "c"}],
        }),
        "securityContext.supplementalGroupsPolicy: \"strict\" is not valid: use Merge or Strict",
    );
}

#[test]
fn user_namespace_and_strict_groups_are_set() {
    let ids = IdMapping {
        host_id: 196_608,
        container_id: 0,
        length: 65_536,
    };
    let own = UserNamespace::Pod(ids);
    let spec = json!({
        "hostUsers": false,
        "securityContext": {"supplementalGroupsPolicy": "Strict"},
        "containers": [{"name": "c"}],
    });
    let security = config_with(spec, own).expect("config").security;
    assert_eq!(security.namespaces.users, own);
    assert_eq!(
        security.supplemental_groups_policy,
        SupplementalGroupsPolicy::Strict
    );
    let plain = config(json!({"hostUsers": true, "containers": [{"name": "c"}]}));
    let security = plain.expect("config").security;
    assert_eq!(security.namespaces.users, UserNamespace::Node);
    assert_eq!(
        security.supplemental_groups_policy,
        SupplementalGroupsPolicy::Merge
    );
}

#[test]
fn ports_of_app_containers_are_mapped_once() {
    let c = config(json!({
        "initContainers": [{"name": "i", "ports": [{"containerPort": 9}]}],
        "containers": [
            {"name": "a", "ports": [
                {"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1", "name": "http"},
                {"containerPort": 81, "name": "http"},
                {"containerPort": 53, "protocol": "UDP"},
                {"containerPort": 53, "protocol": "UDP"},
            ]},
            {"name": "b", "ports": [{"containerPort": 53, "protocol": "SCTP"}]},
        ],
    }))
    .expect("config");
    let ports: Vec<_> = c
        .port_mappings
        .iter()
        .map(|p| {
            format!(
                "{:?} {}:{}->{}",
                p.protocol, p.host_ip, p.host_port, p.container_port
            )
        })
        .collect();
    assert_eq!(
        ports,
        ["Tcp 127.0.0.1:8080->80", "Udp :0->53", "Sctp :0->53"]
    );
}

#[test]
fn sysctls_are_written_with_dots() {
    let c = config(json!({
        "securityContext": {"sysctls": [
            {"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"},
            {"name": "net/ipv4/conf/eth0.1/rp_filter", "value": "1"},
            {"name": "net.ipv4.conf.eth1/2.rp_filter", "value": "2"},
        ]},
        "containers": [{"name": "c"}],
    }))
    .expect("config");
    let names: Vec<_> = c.sysctls.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "net.ipv4.conf.eth0/1.rp_filter",
            "net.ipv4.conf.eth1/2.rp_filter",
            "net.ipv4.ip_local_port_range",
        ]
    );
}
