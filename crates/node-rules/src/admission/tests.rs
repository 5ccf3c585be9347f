//! Tables of pods and their admission results.

use serde_json::{Value, json};

use super::load::COMPUTED;
use super::*;

fn node() -> Node {
    node_with(json!({}), json!([]))
}

fn node_with(labels: Value, taints: Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "n1", "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {
            "cpu": "2", "memory": "1Gi", "ephemeral-storage": "10Gi", "pods": "3",
            "hugepages-2Mi": "4Mi", "example.com/gpu": "1",
        }},
    }))
    .expect("node")
}

fn policy() -> AdmissionPolicy {
    AdmissionPolicy {
        sysctls: SysctlAllowList::new((6, 1), &["kernel.msg*".to_owned()]).expect("patterns"),
        app_armor: false,
        pod_level_resources: true,
        declared_features: Some(BTreeSet::new()),
        resize: ResizePolicy::default(),
    }
}

/// A pod of the API; the fields of `patch` replace those of its spec.
fn pod(name: &str, patch: Value) -> Pod {
    let mut spec = json!({"containers": [{"name": "c"}]});
    for (key, value) in patch.as_object().expect("object") {
        spec[key] = value.clone();
    }
    let meta = json!({"name": name, "namespace": "ns", "uid": name});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("pod")
}

fn requests(name: &str, list: Value) -> Pod {
    let container = json!({"name": "c", "resources": {"requests": list}});
    pod(name, json!({"containers": [container]}))
}

fn made_static(mut pod: Pod) -> Pod {
    let annotations = [("kubernetes.io/config.source".to_owned(), "file".to_owned())];
    pod.metadata.annotations = Some(annotations.into());
    pod
}

struct Case {
    node: Node,
    others: Vec<Pod>,
    policy: AdmissionPolicy,
    pressure: Pressure,
    shutting_down: bool,
    strict_groups: Option<bool>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            node: node(),
            others: Vec::new(),
            policy: policy(),
            pressure: Pressure::default(),
            shutting_down: false,
            strict_groups: Some(false),
        }
    }
}

impl Case {
    fn on(labels: Value, taints: Value) -> Self {
        Self {
            node: node_with(labels, taints),
            ..Self::default()
        }
    }

    fn beside(others: Vec<Pod>) -> Self {
        Self {
            others,
            ..Self::default()
        }
    }

    fn check(&self, pod: &Pod, expected: &str) {
        let load = load_of(&self.others);
        let result = admit(AdmissionInput {
            pod,
            node: &self.node,
            load: &load,
            policy: &self.policy,
            pressure: self.pressure,
            shutting_down: self.shutting_down,
            strict_groups: self.strict_groups,
        });
        if let Err(rejection) = &result {
            let named = rejection.event_reason().as_str();
            let other = ["OutOfhugepages-", "OutOfexample.com/"];
            let is_other = other.iter().any(|r| rejection.reason.starts_with(r));
            let expected = if is_other {
                "OutOfResource"
            } else {
                rejection.reason.as_str()
            };
            assert_eq!(named, expected, "event reason");
        }
        let line = result.map_or_else(|r| r.to_string(), |()| "admitted".to_owned());
        assert_eq!(line, expected, "{:?}", pod.spec);
    }
}

fn check(pod: &Pod, expected: &str) {
    Case::default().check(pod, expected);
}

#[test]
fn insufficient_resource_is_rejected_with_numbers() {
    let used = requests("used", json!({"cpu": "100m", "memory": "512Mi"}));
    let case = Case::beside(vec![used]);
    case.check(&requests("a", json!({"cpu": "1900m"})), "admitted");
    case.check(
        &requests("a", json!({"cpu": "2"})),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 100, capacity: 2000",
    );
    case.check(
        &requests("a", json!({"memory": "513Mi"})),
        "OutOfmemory: Node didn't have enough resource: memory, requested: 537919488, used: 536870912, capacity: 1073741824",
    );
    case.check(
        &requests("a", json!({"ephemeral-storage": "11Gi"})),
        "OutOfephemeral-storage: Node didn't have enough resource: ephemeral-storage, requested: 11811160064, used: 0, capacity: 10737418240",
    );
    case.check(
        &requests("a", json!({"hugepages-2Mi": "6Mi"})),
        "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 6291456, used: 0, capacity: 4194304",
    );
    case.check(
        &requests("a", json!({"example.com/gpu": "2"})),
        "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1",
    );
}

#[test]
fn extended_resource_without_allocatable_is_not_counted() {
    check(
        &requests("a", json!({"example.com/token": "5"})),
        "admitted",
    );
    check(
        &requests("a", json!({"hugepages-1Gi": "1Gi"})),
        "OutOfhugepages-1Gi: Node didn't have enough resource: hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0",
    );
}

#[test]
fn extended_resource_of_a_claim_is_not_counted() {
    let resource = "deviceclass.resource.kubernetes.io/gpu";
    let mut pod = requests("a", json!({ resource: "1" }));
    let container = pod.spec.as_ref().expect("spec").containers[0].name.clone();
    let claim = json!({
        "resourceClaimName": "a-extended",
        "requestMappings": [
            { "containerName": container, "resourceName": resource, "requestName": "r" },
        ],
    });
    let status = pod.status.get_or_insert_default();
    status.extended_resource_claim_status = serde_json::from_value(claim).expect("claim");
    check(&pod, "admitted");
}

#[test]
fn number_of_pods_is_limited() {
    let others = ["a", "b", "c"].map(|n| pod(n, json!({})));
    let case = Case::beside(others.to_vec());
    case.check(
        &pod("d", json!({})),
        "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
    );
    // the pod is one of the three
    case.check(&pod("c", json!({})), "admitted");
}

#[test]
fn pod_without_requests_fits_overcommitted_node() {
    let case = Case::beside(vec![requests("big", json!({"cpu": "64"}))]);
    case.check(&pod("a", json!({})), "admitted");
}

#[test]
fn pod_request_includes_init_sidecar_and_overhead() {
    let cpu = |name: &str, amount: &str| json!({"name": name, "resources": {"requests": {"cpu": amount}}});
    let mut sidecar = cpu("s", "500m");
    sidecar["restartPolicy"] = json!("Always");
    let spec = |init: Value, overhead: &str| {
        json!({
            "initContainers": [sidecar.clone(), init],
            "containers": [cpu("c", "1")],
            "overhead": {"cpu": overhead},
        })
    };
    // max(500m + 1, 500m + 1400m) + 100m
    check(&pod("a", spec(cpu("i", "1400m"), "100m")), "admitted");
    check(
        &pod("a", spec(cpu("i", "1400m"), "200m")),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 2100, used: 0, capacity: 2000",
    );
    let pod_level = json!({"resources": {"requests": {"cpu": "3"}}, "containers": [cpu("c", "1")]});
    check(
        &pod("a", pod_level),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
    );
}

#[test]
fn critical_pod_is_rejected_for_resources_last() {
    let spec = json!({
        "priority": 2_000_000_000,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
    });
    check(
        &pod("a", spec.clone()),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000 (critical pod)",
    );
    let mut elsewhere = spec;
    elsewhere["nodeName"] = json!("n2");
    let why = "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name";
    check(&pod("a", elsewhere.clone()), why);
    elsewhere["priority"] = json!(0);
    check(
        &pod("a", elsewhere),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
    );
}

#[test]
fn host_ports_conflict_by_protocol_number_and_address() {
    const TAKEN: &str = "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    let with = |name: &str, port: Value| {
        pod(
            name,
            json!({"containers": [{"name": "c", "ports": [port]}]}),
        )
    };
    let all = json!({"containerPort": 80, "hostPort": 80});
    let one = json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"});
    let two = json!({"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.2", "protocol": "TCP"});
    let udp = json!({"containerPort": 80, "hostPort": 80, "protocol": "UDP"});
    let none = json!({"containerPort": 80});
    let cases = [
        (&all, &all, TAKEN),
        (&all, &one, TAKEN),
        (&one, &all, TAKEN),
        (&one, &one, TAKEN),
        (&one, &two, "admitted"),
        (&all, &udp, "admitted"),
        (&all, &none, "admitted"),
        (&none, &none, "admitted"),
    ];
    for (held, wanted, expected) in cases {
        let case = Case::beside(vec![with("held", held.clone())]);
        case.check(&with("a", wanted.clone()), expected);
    }
    // the port of the pod itself is not a conflict
    Case::beside(vec![with("a", all.clone())]).check(&with("a", all.clone()), "admitted");
    let init = json!({"initContainers": [
        {"name": "i", "restartPolicy": "Always", "ports": [all.clone()]},
    ]});
    Case::beside(vec![pod("sidecar", init)]).check(&with("a", all), TAKEN);
}

#[test]
fn node_selector_and_affinity_operators() {
    const NO: &str = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    let case = Case::on(
        json!({"zone": "a", "size": "5", "kubernetes.io/os": "wrong"}),
        json!([]),
    );
    let selector = |s: Value| pod("a", json!({"nodeSelector": s}));
    case.check(&selector(json!({"zone": "a"})), "admitted");
    case.check(&selector(json!({"zone": "b"})), NO);
    case.check(&selector(json!({"zone": "a", "disk": "ssd"})), NO);
    case.check(&selector(json!({"kubernetes.io/os": "linux"})), "admitted");

    let required = |terms: Value| {
        let terms = json!({"nodeSelectorTerms": terms});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        pod("a", json!({"affinity": {"nodeAffinity": required}}))
    };
    let label = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let name = |operator: &str, values: Value| {
        let field = json!({"key": "metadata.name", "operator": operator, "values": values});
        json!({"matchFields": [field]})
    };
    let rows = [
        (label("zone", "In", json!(["a", "b"])), true),
        (label("zone", "In", json!(["b"])), false),
        (label("none", "In", json!(["b"])), false),
        (label("zone", "NotIn", json!(["a"])), false),
        (label("zone", "NotIn", json!(["b"])), true),
        (label("none", "NotIn", json!(["b"])), true),
        (label("zone", "NotIn", json!([])), false),
        (label("zone", "Exists", json!([])), true),
        (label("none", "Exists", json!([])), false),
        (label("none", "DoesNotExist", json!([])), true),
        (label("zone", "DoesNotExist", json!([])), false),
        (label("size", "Gt", json!(["4"])), true),
        (label("size", "Gt", json!(["5"])), false),
        (label("size", "Lt", json!(["6"])), true),
        (label("size", "Lt", json!(["5"])), false),
        (label("zone", "Gt", json!(["4"])), false),
        (label("size", "Gt", json!(["1", "2"])), false),
        (label("size", "Near", json!(["5"])), false),
        (name("In", json!(["n1"])), true),
        (name("In", json!(["n2"])), false),
        (name("NotIn", json!(["n1"])), false),
        (name("NotIn", json!(["n2"])), true),
        (name("Exists", json!([])), false),
        (json!({}), false),
    ];
    for (term, expected) in rows {
        let line = if expected { "admitted" } else { NO };
        case.check(&required(json!([term])), line);
    }
    let (no, yes) = (label("zone", "In", json!(["b"])), name("In", json!(["n1"])));
    case.check(&required(json!([no, yes])), "admitted");
    case.check(&required(json!([])), NO);
    let both = json!({
        "matchExpressions": [{"key": "zone", "operator": "Exists"}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
    });
    case.check(&required(json!([both])), NO);
}

#[test]
fn only_no_execute_taints_reject_non_static_pods() {
    const NO: &str = "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    let case = Case::on(
        json!({}),
        json!([
            {"key": "other", "effect": "NoSchedule"},
            {"key": "k", "value": "v", "effect": "NoExecute"},
        ]),
    );
    let tolerating = |t: Value| pod("a", json!({"tolerations": [t]}));
    case.check(&pod("a", json!({})), NO);
    case.check(&made_static(pod("a", json!({}))), "admitted");
    let rows = [
        (json!({"key": "k", "value": "v"}), true),
        (
            json!({"key": "k", "operator": "Equal", "value": "w"}),
            false,
        ),
        (
            json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
            true,
        ),
        (
            json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
            false,
        ),
        (json!({"operator": "Exists"}), true),
        (json!({"key": "j", "operator": "Exists"}), false),
        (json!({"key": "k", "operator": "Gt", "value": "v"}), false),
    ];
    for (toleration, expected) in rows {
        case.check(
            &tolerating(toleration),
            if expected { "admitted" } else { NO },
        );
    }
}

#[test]
fn other_os_is_rejected_first() {
    let windows = json!({"os": {"name": "windows"}, "nodeName": "n2"});
    check(
        &pod("a", windows),
        "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
    );
    check(&pod("a", json!({"os": {"name": "linux"}})), "admitted");
    let mut labelled = pod("a", json!({}));
    labelled.metadata.labels = Some([(OS_LABEL.to_owned(), "windows".to_owned())].into());
    check(
        &labelled,
        "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
    );
}

#[test]
fn strict_supplemental_groups_require_runtime_support() {
    let pod = |policy: &str| {
        pod(
            "a",
            json!({"securityContext": {"supplementalGroupsPolicy": policy}}),
        )
    };
    check(
        &pod("Strict"),
        "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
    );
    check(&pod("Merge"), "admitted");
    // the runtime may support it before the Node object has the feature
    for strict_groups in [Some(true), None] {
        let case = Case {
            strict_groups,
            ..Case::default()
        };
        case.check(&pod("Strict"), "admitted");
    }
    let mut case = Case::default();
    let status = case.node.status.as_mut().expect("status");
    status.features =
        serde_json::from_value(json!({"supplementalGroupsPolicy": true})).expect("features");
    case.check(&pod("Strict"), "admitted");
}

#[test]
fn sysctls_must_be_allowed_and_in_pod_namespace() {
    let with = |name: &str, more: Value| {
        let mut spec = json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        for (key, value) in more.as_object().expect("object") {
            spec[key] = value.clone();
        }
        pod("a", spec)
    };
    let own = json!({});
    let (ipc, net) = (json!({"hostIPC": true}), json!({"hostNetwork": true}));
    let forbidden = "SysctlForbidden: forbidden sysctl: ";
    let rows = [
        ("kernel.shm_rmid_forced", &own, "admitted"),
        ("net/ipv4/tcp_syncookies", &own, "admitted"),
        ("net.ipv4.tcp_rmem", &own, "admitted"),
        ("kernel.msgmax", &own, "admitted"),
        ("kernel.sem", &own, "\"kernel.sem\" not allowlisted"),
        (
            "net/core/somaxconn",
            &own,
            "\"net.core.somaxconn\" not allowlisted",
        ),
        (
            "kernel.shm_rmid_forced",
            &ipc,
            "\"kernel.shm_rmid_forced\" not allowed with host ipc enabled",
        ),
        (
            "kernel/msgmax",
            &ipc,
            "\"kernel.msgmax\" not allowed with host ipc enabled",
        ),
        (
            "net.ipv4.tcp_syncookies",
            &net,
            "\"net.ipv4.tcp_syncookies\" not allowed with host net enabled",
        ),
        ("net.ipv4.tcp_syncookies", &ipc, "admitted"),
    ];
    for (name, more, expected) in rows {
        let line = match expected {
            "admitted" => expected.to_owned(),
            why => format!("{forbidden}{why}"),
        };
        check(&with(name, more.clone()), &line);
    }
}

#[test]
fn sysctl_list_depends_on_kernel_and_configuration() {
    let list = |kernel, patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        SysctlAllowList::new(kernel, &patterns)
    };
    let tcp = pod("a", json!({}));
    let old = list((4, 14), &[]).expect("list");
    assert!(old.check(&tcp, "net.ipv4.tcp_keepalive_time").is_ok());
    assert!(old.check(&tcp, "net.ipv4.tcp_rmem").is_err());
    let all = list((6, 1), &["net/core/*", "kernel.sem"]).expect("list");
    assert!(all.check(&tcp, "net.core.somaxconn").is_ok());
    let errors = [
        (
            "vm.swappiness",
            "allowedUnsafeSysctls: \"vm.swappiness\" is not known to be namespaced; set it on the node instead",
        ),
        (
            "kernel.*",
            "allowedUnsafeSysctls: \"kernel.*\" is not known to be namespaced; set it on the node instead",
        ),
        (
            "net.core.*.x",
            "allowedUnsafeSysctls: \"net.core.*.x\" is not a sysctl name or a prefix followed by *",
        ),
        (
            "net..x",
            "allowedUnsafeSysctls: \"net..x\" is not a sysctl name or a prefix followed by *",
        ),
        (
            "Net.x",
            "allowedUnsafeSysctls: \"Net.x\" is not a sysctl name or a prefix followed by *",
        ),
    ];
    for (pattern, expected) in errors {
        let error = list((6, 1), &[pattern]).expect_err(pattern);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn app_armor_profile_requires_host_support() {
    const OFF: &str = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
    let with = |profile: Value| {
        pod(
            "a",
            json!({"securityContext": {"appArmorProfile": profile}}),
        )
    };
    check(&with(json!({"type": "RuntimeDefault"})), OFF);
    check(&with(json!({"type": "Unconfined"})), "admitted");
    let container = json!({"name": "c", "securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}}});
    check(&pod("a", json!({"containers": [container]})), OFF);
    let mut legacy = pod("a", json!({}));
    let key = "container.apparmor.security.beta.kubernetes.io/c".to_owned();
    legacy.metadata.annotations = Some([(key, "runtime/default".to_owned())].into());
    check(&legacy, OFF);

    let mut running = with(json!({"type": "RuntimeDefault"}));
    running.status = serde_json::from_value(json!({"phase": "Running"})).expect("status");
    check(&running, "admitted");

    let mut on = Case::default();
    on.policy.app_armor = true;
    on.check(
        &with(json!({"type": "Localhost", "localhostProfile": "p"})),
        "admitted",
    );
    on.check(
        &with(json!({"type": "Localhost", "localhostProfile": " "})),
        "AppArmor: Cannot enforce AppArmor: invalid empty AppArmor profile name: \"\"",
    );
}

#[test]
fn missing_node_features_are_named() {
    let mut case = Case::default();
    let pod_level = pod("a", json!({"resources": {"limits": {"cpu": "1"}}}));
    case.check(&pod_level, "admitted");
    case.check(&pod("a", json!({"hostUsers": false})), "admitted");
    let rules = json!([{"action": "RestartAllContainers"}]);
    let restarts = pod(
        "a",
        json!({"containers": [{"name": "c", "restartPolicyRules": rules}]}),
    );
    case.check(
        &restarts,
        "PodFeatureUnsupported: Pod requires node features that are not available: RestartAllContainersOnContainerExits",
    );
    case.policy.declared_features = None;
    case.check(&restarts, "admitted");
    case.policy.pod_level_resources = false;
    case.check(
        &pod_level,
        "PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled",
    );
}

#[test]
fn shutdown_rejects_all_pods_last() {
    let case = Case {
        shutting_down: true,
        ..Case::default()
    };
    let why = "NodeShutdown: Pod was rejected as the node is shutting down.";
    case.check(&pod("a", json!({})), why);
    case.check(&made_static(pod("a", json!({}))), why);
    case.check(
        &pod("a", json!({"nodeName": "n2"})),
        "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
    );
}

#[test]
fn node_under_pressure_admits_critical_pods() {
    let memory = Case {
        pressure: Pressure {
            memory: true,
            ..Pressure::default()
        },
        ..Case::default()
    };
    let no = "Evicted: The node had condition: [MemoryPressure]. ";
    memory.check(&pod("a", json!({})), no);
    memory.check(&requests("a", json!({"cpu": "1m"})), "admitted");
    memory.check(&made_static(pod("a", json!({}))), "admitted");
    let tolerates = json!({"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]});
    memory.check(&pod("a", tolerates), "admitted");
    let disk = Case {
        pressure: Pressure {
            memory: true,
            disk: true,
            pid: false,
        },
        ..Case::default()
    };
    let no = "Evicted: The node had condition: [MemoryPressure DiskPressure]. ";
    disk.check(&requests("a", json!({"cpu": "1m"})), no);
}

#[test]
fn rejected_pod_is_failed_with_prefix_and_event() {
    let rejection = Rejection::new("OutOfpods", "no room");
    assert_eq!(rejection.event_reason(), Reason::OutOfPods);
    let phase_override = PhaseOverride::from(rejection);
    assert_eq!(
        (
            phase_override.phase,
            phase_override.reason.as_str(),
            phase_override.message.as_str()
        ),
        (Phase::Failed, "OutOfpods", "Pod was rejected: no room")
    );
    let gpu = Rejection::new("OutOfexample.com/gpu", "");
    assert_eq!(gpu.event_reason(), Reason::OutOfResource);
}

#[test]
fn removed_pod_is_not_in_load() {
    let full = json!({"containers": [{
        "name": "c", "resources": {"requests": {"cpu": "1"}},
        "ports": [{"containerPort": 1, "hostPort": 1}],
    }]});
    let mut load = NodeLoad::default();
    load.add(&pod("a", full.clone()));
    load.add(&pod("b", full.clone()));
    load.add(&pod("a", full));
    load.remove(&"a".into());
    load.remove(&"a".into());
    assert!(load.contains(&"b".into()) && !load.contains(&"a".into()));
    let rest = load.without(&"x".into());
    assert_eq!((rest.pods(), rest.requested("cpu")), (1, 1000));
    load.remove(&"b".into());
    let rest = load.without(&"x".into());
    let port = HostPort {
        protocol: "TCP".into(),
        port: 1,
        address: "0.0.0.0".into(),
    };
    assert_eq!((rest.pods(), rest.requested("cpu")), (0, 0));
    assert!(!rest.conflicts(&port));
}

#[test]
fn each_pod_is_summed_twice_in_a_burst() {
    let mut node = node();
    let status = node.status.as_mut().expect("status");
    let list = status.allocatable.as_mut().expect("allocatable");
    list.insert(
        "pods".to_owned(),
        serde_json::from_value(json!("300")).expect("quantity"),
    );
    let policy = policy();
    let small = |n: usize| requests(&format!("p{n}"), json!({"cpu": "1m"}));
    let before: Vec<Pod> = (0..110).map(small).collect();
    let mut load = load_of(&before);
    let sums = COMPUTED.with(std::cell::Cell::get);
    for n in 110..210 {
        let pod = small(n);
        admit(AdmissionInput {
            pod: &pod,
            node: &node,
            load: &load,
            policy: &policy,
            strict_groups: None,
            pressure: Pressure::default(),
            shutting_down: false,
        })
        .expect("room");
        load.add(&pod);
    }
    // once to admit, once to add
    assert_eq!(COMPUTED.with(std::cell::Cell::get) - sums, 200);
}

fn load_of(pods: &[Pod]) -> NodeLoad {
    let mut load = NodeLoad::default();
    for pod in pods {
        load.add(pod);
    }
    load
}
