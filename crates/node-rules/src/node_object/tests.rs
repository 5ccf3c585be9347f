//! Objects and patches as JSON.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_types::corev1::{NodeAddress, NodeStatus};

use super::*;
use crate::node_conditions::RuntimeHealth;

impl fmt::Display for NodeStatusPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Patch {
                changed: true,
                patch,
            } => write!(f, "patch {patch}"),
            Self::Patch {
                changed: false,
                patch,
            } => write!(f, "heartbeat {patch}"),
        }
    }
}

thread_local! {
    /// Number of parts of nodes rendered as JSON on this thread.
    pub(super) static RENDERINGS: Cell<usize> = const { Cell::new(0) };
}

const GIB: u64 = 1 << 30;

struct Fixture {
    settings: NodeSettings,
    machine: MachineFacts,
    runtime: RuntimeFacts,
    health: NodeHealth,
    volumes_in_use: Option<Vec<String>>,
    plugin_resources: PluginResources,
    now: i64,
}

impl Fixture {
    fn new() -> Self {
        Self {
            settings: NodeSettings {
                name: "n1".into(),
                hostname: "n1".into(),
                ips: vec!["10.0.0.5".parse().expect("ip")],
                controller_attach_detach: true,
                kubelet_version: "v1.36.0+windlass.0.1.0".into(),
                kubelet_port: 10250,
                max_images: Some(50),
                resources: ResourceSettings {
                    max_pods: 110,
                    local_storage: true,
                    ..ResourceSettings::default()
                },
                ..NodeSettings::default()
            },
            machine: MachineFacts {
                machine_id: "m".into(),
                system_uuid: "u".into(),
                boot_id: "b1".into(),
                kernel_version: "6.1.0".into(),
                os_image: "Debian GNU/Linux 12 (bookworm)".into(),
                operating_system: "linux".into(),
                architecture: "amd64".into(),
                cpus: 2,
                memory: 4 * GIB,
                storage: 10 * GIB,
                ..MachineFacts::default()
            },
            runtime: RuntimeFacts {
                version: Some(RuntimeVersion {
                    name: "containerd".into(),
                    version: "1.6.20~ds1".into(),
                    api_version: "v1".into(),
                }),
                ..RuntimeFacts::default()
            },
            health: NodeHealth {
                runtime: RuntimeHealth::Ready,
                ..NodeHealth::default()
            },
            volumes_in_use: None,
            plugin_resources: PluginResources::default(),
            now: 100,
        }
    }

    fn input(&self) -> NodeObjectInput<'_> {
        NodeObjectInput {
            settings: &self.settings,
            machine: &self.machine,
            runtime: &self.runtime,
            health: &self.health,
            volumes_in_use: self.volumes_in_use.as_deref(),
            plugin_resources: &self.plugin_resources,
            now: Timestamp::from_second(self.now).expect("in range"),
        }
    }

    fn initial(&self) -> Node {
        initial_node(&self.input()).node
    }

    fn status(&self) -> Value {
        json_of(&self.initial())["status"].clone()
    }
}

fn json_of<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("serializable")
}

fn status_of(node: &mut Node) -> &mut NodeStatus {
    node.status.as_mut().expect("status")
}

fn quantity(text: &str) -> k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.into())
}

#[test]
fn new_node_has_all_fields() {
    let fixture = Fixture::new();
    let mut node = json_of(&fixture.initial());
    let conditions = node["status"]["conditions"].take();
    assert_eq!(conditions.as_array().map(Vec::len), Some(4));
    assert_eq!(
        node,
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "n1",
                "labels": {
                    "kubernetes.io/hostname": "n1",
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    "beta.kubernetes.io/arch": "amd64",
                },
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": {},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.5"},
                    {"type": "Hostname", "address": "n1"},
                ],
                "capacity": {
                    "cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "110",
                },
                "allocatable": {
                    "cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "110",
                },
                "conditions": null,
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "machineID": "m",
                    "systemUUID": "u",
                    "bootID": "b1",
                    "kernelVersion": "6.1.0",
                    "osImage": "Debian GNU/Linux 12 (bookworm)",
                    "containerRuntimeVersion": "containerd://1.6.20",
                    "kubeletVersion": "v1.36.0+windlass.0.1.0",
                    "kubeProxyVersion": "",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
            },
        })
    );
}

#[test]
fn flags_become_labels_taints_and_spec() {
    let mut fixture = Fixture::new();
    fixture.settings.labels = BTreeMap::from([
        ("team".into(), "a".into()),
        ("kubernetes.io/hostname".into(), "other".into()),
    ]);
    fixture.settings.taints = vec![Taint {
        key: "dedicated".into(),
        value: Some("gpu".into()),
        effect: "NoExecute".into(),
        time_added: None,
    }];
    fixture.settings.unschedulable = true;
    fixture.settings.external_cloud = true;
    fixture.settings.provider_id = "aws:///x".into();
    fixture.settings.controller_attach_detach = false;
    let node = json_of(&fixture.initial());
    assert_eq!(node["metadata"]["labels"]["team"], "a");
    assert_eq!(
        node["metadata"]["labels"]["kubernetes.io/hostname"],
        "other"
    );
    assert_eq!(node["metadata"]["annotations"], Value::Null);
    assert_eq!(
        node["spec"],
        json!({
            "providerID": "aws:///x",
            "unschedulable": true,
            "taints": [
                {"key": "dedicated", "value": "gpu", "effect": "NoExecute"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {
                    "key": "node.cloudprovider.kubernetes.io/uninitialized",
                    "value": "true",
                    "effect": "NoSchedule",
                },
            ],
        })
    );
}

#[test]
fn addresses_depend_on_flags_and_external_cloud() {
    let check = |fixture: &Fixture, old: &[&str], expected: &str| {
        let mut node = fixture.initial();
        status_of(&mut node).addresses = (!old.is_empty()).then(|| {
            let cloud = |address: &&str| NodeAddress {
                type_: "ExternalIP".into(),
                address: (*address).into(),
            };
            old.iter().map(cloud).collect()
        });
        let node = updated_node(&node, &fixture.input()).node;
        let list = node.status.and_then(|s| s.addresses).expect("addresses");
        let list: Vec<_> = list
            .iter()
            .map(|a| format!("{}={}", a.type_, a.address))
            .collect();
        let hint = node
            .metadata
            .annotations
            .and_then(|a| a.get(ANN_PROVIDED_IP).cloned())
            .unwrap_or_default();
        assert_eq!(format!("{} [{hint}]", list.join(" ")), expected);
    };
    let mut fixture = Fixture::new();
    check(&fixture, &["1.2.3.4"], "InternalIP=10.0.0.5 Hostname=n1 []");
    fixture
        .settings
        .ips
        .push("2001:db8::5".parse().expect("ip"));
    fixture.settings.ips_specified = true;
    check(
        &fixture,
        &[],
        "InternalIP=10.0.0.5 InternalIP=2001:db8::5 Hostname=n1 []",
    );
    fixture.settings.external_cloud = true;
    check(
        &fixture,
        &[],
        "InternalIP=10.0.0.5 InternalIP=2001:db8::5 Hostname=n1 [10.0.0.5,2001:db8::5]",
    );
    check(
        &fixture,
        &["1.2.3.4"],
        "ExternalIP=1.2.3.4 [10.0.0.5,2001:db8::5]",
    );
    fixture.settings.ips_specified = false;
    check(&fixture, &[], "Hostname=n1 []");
}

#[test]
fn allocatable_is_capacity_minus_reservations() {
    let check = |settings: &[(&str, &str, &str)], huge: u64, expected: [&str; 3]| {
        let mut fixture = Fixture::new();
        for (list, name, amount) in settings {
            let resources = &mut fixture.settings.resources;
            let list = match *list {
                "kube" => &mut resources.kube_reserved,
                "system" => &mut resources.system_reserved,
                _ => &mut resources.eviction_hard,
            };
            list.insert((*name).into(), (*amount).into());
        }
        if huge > 0 {
            fixture.machine.huge_pages.insert(2048, huge);
        }
        let allocatable = &fixture.status()["allocatable"];
        assert_eq!(
            ["cpu", "memory", "ephemeral-storage"].map(|name| allocatable[name].clone()),
            expected,
            "{settings:?}"
        );
    };
    check(&[], 0, ["2", "4Gi", "10Gi"]);
    check(
        &[
            ("kube", "cpu", "100m"),
            ("system", "cpu", "150m"),
            ("kube", "memory", "512Mi"),
            ("system", "memory", "256Mi"),
            ("hard", "memory.available", "100Mi"),
            ("hard", "nodefs.available", "10%"),
            ("hard", "imagefs.available", "15%"),
        ],
        0,
        ["1750m", "3228Mi", "9663676400"],
    );
    // disabled thresholds reserve nothing
    check(
        &[
            ("hard", "memory.available", "100%"),
            ("hard", "nodefs.available", "0%"),
        ],
        0,
        ["2", "4Gi", "10Gi"],
    );
    check(&[], 512, ["2", "3Gi", "10Gi"]);
    check(
        &[
            ("kube", "cpu", "3"),
            ("kube", "memory", "5Gi"),
            ("system", "ephemeral-storage", "11Gi"),
        ],
        0,
        ["0", "0", "0"],
    );
}

#[test]
fn excessive_reservations_are_named() {
    let map = |amounts: &[(&str, &str)]| {
        let own = |(name, amount): &(&str, &str)| ((*name).to_owned(), (*amount).to_owned());
        amounts.iter().map(own).collect::<BTreeMap<_, _>>()
    };
    let mut fixture = Fixture::new();
    let resources = &mut fixture.settings.resources;
    resources.kube_reserved = map(&[("cpu", "2"), ("memory", "2Gi")]);
    resources.system_reserved = map(&[("memory", "2Gi")]);
    resources.eviction_hard = map(&[("memory.available", "100Mi")]);
    let excessive = excessive_reservations(&fixture.machine, &fixture.settings.resources);
    assert_eq!(excessive, ["memory: 4196Mi of 4Gi"]);
}

#[test]
fn pods_per_core_and_huge_pages_set_capacity() {
    let mut fixture = Fixture::new();
    fixture.settings.resources.pods_per_core = 10;
    fixture.machine.huge_pages = BTreeMap::from([(2048, 4), (1_048_576, 0)]);
    let status = fixture.status();
    assert_eq!(status["capacity"]["pods"], "20");
    assert_eq!(status["capacity"]["hugepages-2Mi"], "8Mi");
    assert_eq!(status["capacity"]["hugepages-1Gi"], "0");
    assert_eq!(status["allocatable"]["memory"], "4088Mi");
    fixture.settings.resources.pods_per_core = 100;
    assert_eq!(fixture.status()["capacity"]["pods"], "110");
}

#[test]
fn node_with_unknown_capacity_is_not_ready() {
    let mut fixture = Fixture::new();
    fixture.machine = MachineFacts {
        operating_system: "linux".into(),
        architecture: "amd64".into(),
        ..MachineFacts::default()
    };
    let status = fixture.status();
    assert_eq!(status["capacity"], json!({"pods": "110"}));
    let message = "missing node capacity for resources: cpu, memory, ephemeral-storage";
    assert_eq!(status["conditions"][3]["message"], message);
    fixture.settings.resources.local_storage = false;
    let message = "missing node capacity for resources: cpu, memory";
    assert_eq!(fixture.status()["conditions"][3]["message"], message);
}

#[test]
fn largest_images_are_reported_with_five_names() {
    let image = |id: &str, size, names: usize| ImageInfo {
        id: id.into(),
        size,
        repo_digests: vec![format!("{id}@sha256:0")],
        repo_tags: (0..names).map(|n| format!("{id}:{n}")).collect(),
        ..ImageInfo::default()
    };
    let mut fixture = Fixture::new();
    fixture.runtime.images = Some(vec![image("a", 1, 0), image("b", 9, 7), image("c", 9, 1)]);
    let lines = |fixture: &Fixture| -> Vec<String> {
        let images = fixture.initial().status.and_then(|s| s.images);
        let line = |i: &windlass_types::corev1::ContainerImage| {
            let names = i.names.clone().unwrap_or_default().join(" ");
            format!("{} {names}", i.size_bytes.unwrap_or(-1))
        };
        images.unwrap_or_default().iter().map(line).collect()
    };
    assert_eq!(
        lines(&fixture),
        [
            "9 c@sha256:0 c:0",
            "9 b@sha256:0 b:0 b:1 b:2 b:3",
            "1 a@sha256:0"
        ]
    );
    fixture.settings.max_images = Some(1);
    assert_eq!(lines(&fixture), ["9 c@sha256:0 c:0"]);
    fixture.settings.max_images = Some(0);
    assert!(lines(&fixture).is_empty());
    fixture.settings.max_images = None;
    assert_eq!(lines(&fixture).len(), 3);
}

#[test]
fn unknown_runtime_facts_keep_reported_values() {
    let mut fixture = Fixture::new();
    fixture.runtime.handlers = Some(vec![RuntimeHandler {
        name: "runc".into(),
        recursive_read_only_mounts: true,
        user_namespaces: false,
    }]);
    fixture.runtime.supplemental_groups_policy = Some(true);
    fixture.settings.declared_features = vec!["B".into(), "A".into()];
    let node = fixture.initial();
    let status = json_of(&node)["status"].clone();
    let features = json!({"recursiveReadOnlyMounts": true, "userNamespaces": false});
    assert_eq!(
        status["runtimeHandlers"],
        json!([{"name": "runc", "features": features}])
    );
    assert_eq!(
        status["features"],
        json!({"supplementalGroupsPolicy": true})
    );
    assert_eq!(status["declaredFeatures"], json!(["A", "B"]));
    fixture.runtime = RuntimeFacts::default();
    assert_eq!(updated_node(&node, &fixture.input()).node, node);
}

#[test]
fn runtime_version_matches_upstream() {
    let check = |version: &str, expected: &str| {
        let mut fixture = Fixture::new();
        fixture.runtime.version.as_mut().expect("set").version = version.into();
        let version = fixture.status()["nodeInfo"]["containerRuntimeVersion"].clone();
        assert_eq!(version, expected);
    };
    check("v1.6.20", "containerd://1.6.20");
    check("1.6.20~ds1", "containerd://1.6.20");
    check("2.0.0-rc.1", "containerd://2.0.0-rc.1");
    check("2.1.0+k3s1", "containerd://2.1.0+k3s1");
    check("", "containerd://Unknown");
}

#[test]
fn os_label_is_of_host_or_node_labels() {
    let mut fixture = Fixture::new();
    let mut existing = fixture.initial();
    let labels = existing.metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/os".into(), "plan9".into());
    let os = |fixture: &Fixture| {
        let node = updated_node(&existing, &fixture.input()).node;
        node.metadata.labels.unwrap_or_default()["kubernetes.io/os"].clone()
    };
    assert_eq!(os(&fixture), "linux");
    let named = ("kubernetes.io/os".into(), "windlass".into());
    fixture.settings.labels = BTreeMap::from([named]);
    assert_eq!(os(&fixture), "windlass");
}

#[test]
fn existing_node_keeps_foreign_fields() {
    let mut fixture = Fixture::new();
    fixture.settings.labels = BTreeMap::from([
        ("team".into(), "new".into()),
        ("topology.kubernetes.io/zone".into(), "z1".into()),
    ]);
    let mut existing = fixture.initial();
    let labels = existing.metadata.labels.get_or_insert_default();
    labels.insert("team".into(), "old".into());
    labels.insert("foreign".into(), "1".into());
    labels.insert("topology.kubernetes.io/zone".into(), "z0".into());
    labels.remove("beta.kubernetes.io/arch");
    let annotations = existing.metadata.annotations.get_or_insert_default();
    annotations.clear();
    annotations.insert("foreign".into(), "2".into());
    let spec = existing.spec.get_or_insert_default();
    spec.pod_cidr = Some("10.1.0.0/24".into());
    spec.provider_id = Some("x".into());
    let status = status_of(&mut existing);
    status.volumes_in_use = Some(vec!["v".into()]);
    for list in [&mut status.capacity, &mut status.allocatable] {
        let list = list.get_or_insert_default();
        list.insert("example.com/dongle".into(), quantity("3"));
        list.insert("hugepages-64Ki".into(), quantity("0"));
        list.insert("attachable-volumes-x".into(), quantity("7"));
        list.insert("memory".into(), quantity("4194304Ki"));
    }
    let check = |reset, extended: Value| {
        let node = reconciled_node(&existing, &fixture.input(), reset).node;
        let mut lists = json!({"hugepages-64Ki": null});
        if extended != "3" {
            lists["example.com/dongle"] = extended;
        }
        assert_eq!(
            node_patch(&existing, &node),
            Some(json!({
                "metadata": {
                    "labels": {
                        "beta.kubernetes.io/arch": "amd64",
                        "topology.kubernetes.io/zone": "z1",
                    },
                    "annotations": {
                        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    },
                },
                "status": {"allocatable": lists.clone(), "capacity": lists},
            }))
        );
        assert_eq!(node.spec, existing.spec);
        let again = reconciled_node(&node, &fixture.input(), reset).node;
        assert_eq!(node_patch(&node, &again), None);
    };
    check(false, "3".into());
    check(true, "0".into());
}

#[test]
fn reboot_has_event_and_resets_extended_resources() {
    let mut fixture = Fixture::new();
    let mut node = fixture.initial();
    let status = status_of(&mut node);
    for list in [&mut status.capacity, &mut status.allocatable] {
        list.get_or_insert_default()
            .insert("example.com/dongle".into(), quantity("3"));
    }
    fixture.machine.boot_id = "b2".into();
    let report = updated_node(&node, &fixture.input());
    let event = &report.events[0];
    assert_eq!(event.reason, Reason::Rebooted);
    assert_eq!(event.message, "Node n1 has been rebooted, boot id: b2");
    assert_eq!(
        node_patch(&node, &report.node),
        Some(json!({"status": {
            "allocatable": {"example.com/dongle": "0"},
            "capacity": {"example.com/dongle": "0"},
            "nodeInfo": {"bootID": "b2"},
        }}))
    );
    assert!(
        updated_node(&report.node, &fixture.input())
            .events
            .is_empty()
    );
}

#[test]
fn patch_has_changed_fields_only() {
    let mut fixture = Fixture::new();
    let old = fixture.initial();
    fixture.now = 110;
    fixture.settings.ips = vec!["10.0.0.6".parse().expect("ip")];
    fixture.health.shutting_down = true;
    fixture.runtime.images = Some(vec![ImageInfo::default()]);
    let new = updated_node(&old, &fixture.input()).node;
    let mut patch = node_patch(&old, &new).expect("differs");
    let conditions = patch["status"]["conditions"].take();
    assert_eq!(
        conditions[3],
        json!({
            "type": "Ready",
            "status": "False",
            "reason": "KubeletNotReady",
            "message": "node is shutting down",
            "lastHeartbeatTime": "1970-01-01T00:01:50Z",
            "lastTransitionTime": "1970-01-01T00:01:50Z",
        })
    );
    assert_eq!(
        patch,
        json!({"status": {
            "$setElementOrder/conditions": [
                {"type": "MemoryPressure"},
                {"type": "DiskPressure"},
                {"type": "PIDPressure"},
                {"type": "Ready"},
            ],
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.6"},
                {"type": "Hostname", "address": "n1"},
                {"$patch": "replace"},
            ],
            "conditions": null,
            "images": [{"sizeBytes": 0}],
        }})
    );
}

#[test]
fn patch_is_sent_on_change_or_report_frequency() {
    let minute = Duration::from_secs(60);
    let mut fixture = Fixture::new();
    let old = fixture.initial();
    let check = |fixture: &Fixture, since: Option<Duration>, expected: &str| {
        let new = updated_node(&old, &fixture.input()).node;
        let plan = plan_node_status(&old, &new, since, 5 * minute);
        let line = plan.to_string();
        let word = line.split(' ').next().unwrap_or_default();
        assert_eq!(word, expected, "{line}");
    };
    check(&fixture, Some(minute), "keep");
    check(&fixture, Some(9 * minute), "keep"); // the heartbeat times have not changed
    fixture.now = 400;
    check(&fixture, Some(minute), "keep");
    check(&fixture, Some(5 * minute), "heartbeat");
    check(&fixture, None, "heartbeat");
    fixture.health.memory_pressure = true;
    check(&fixture, Some(Duration::ZERO), "patch");
    fixture.health.memory_pressure = false;
    fixture.machine.os_image = "Debian 13".into();
    check(&fixture, Some(Duration::ZERO), "patch");
}

#[test]
fn unchanged_node_is_not_rendered_again_before_its_report() {
    let fixture = Fixture::new();
    let old = fixture.initial();
    let new = updated_node(&old, &fixture.input()).node;
    let minute = Duration::from_secs(60);
    let renderings = |since: Duration| {
        RENDERINGS.set(0);
        plan_node_status(&old, &new, Some(since), 5 * minute);
        RENDERINGS.get()
    };
    // the comparison renders, and so does the patch of a report
    let (kept, reported) = (renderings(minute), renderings(5 * minute));
    assert_eq!(reported, 2 * kept);
}

#[test]
fn unknown_volumes_in_use_keep_reported_values() {
    let mut fixture = Fixture::new();
    let mut node = fixture.initial();
    let mut report = |names: Option<&[&str]>| {
        fixture.volumes_in_use = names.map(|names| names.iter().map(ToString::to_string).collect());
        node = updated_node(&node, &fixture.input()).node;
        status_of(&mut node.clone()).volumes_in_use.clone()
    };
    assert_eq!(report(None), None);
    let (a, b) = ("kubernetes.io/csi/d^a", "kubernetes.io/csi/d^b");
    assert_eq!(report(Some(&[a, b])), Some(vec![a.into(), b.into()]));
    assert_eq!(report(None), Some(vec![a.into(), b.into()]));
    assert_eq!(report(Some(&[])), None);
}

#[test]
fn plugin_resources_are_capacity_and_allocatable() {
    let mut fixture = Fixture::new();
    let mut node = fixture.initial();
    let mut check = |plugins: PluginResources, expected: [Option<&str>; 2]| {
        fixture.plugin_resources = plugins;
        node = updated_node(&node, &fixture.input()).node;
        let status = json_of(&node)["status"].clone();
        let amount = |list: &str| status[list]["vendor.com/gpu"].as_str().map(str::to_owned);
        let amounts = [amount("capacity"), amount("allocatable")];
        assert_eq!(amounts, expected.map(|it| it.map(str::to_owned)));
    };
    let gpu = "vendor.com/gpu".to_owned();
    let known = PluginResources {
        capacity: [(gpu.clone(), 4)].into(),
        allocatable: [(gpu.clone(), 3)].into(),
        ..PluginResources::default()
    };
    check(PluginResources::default(), [None, None]);
    check(known, [Some("4"), Some("3")]);
    let removed = PluginResources {
        removed: [gpu].into(),
        ..PluginResources::default()
    };
    check(removed, [Some("0"), Some("0")]);
}
