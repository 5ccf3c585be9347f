//! Cases of the device manager: choice, hints, capacity, health.

mod checkpoint;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use windlass_topology::NumaSet;
use windlass_types::PodUid;

use super::{
    CdiDevice, Choice, DeviceMount, DeviceNode, DeviceRequest, DeviceResponse, Devices,
    PluginDevice, PluginOptions, PodContainer, Registration, add_devices,
};
use crate::assignment::ContainerAssignment;
use crate::hints::{NotAdmitted, ResourceHints};

const GPU: &str = "vendor.example/gpu";

fn set(ids: &str) -> BTreeSet<String> {
    ids.split_whitespace().map(str::to_owned).collect()
}

fn nodes(list: &str) -> NumaSet {
    let nodes = list.split(',').filter(|it| !it.is_empty());
    nodes.map(|it| it.parse::<u32>().expect("a node")).collect()
}

/// Devices such as `a b- c@0,1`: `-` is unhealthy, `@` precedes NUMA nodes.
fn list(devices: &str) -> BTreeMap<String, PluginDevice> {
    let device = |text: &str| {
        let (id, at) = text.split_once('@').unwrap_or((text, ""));
        let healthy = !id.ends_with('-');
        let id = id.trim_end_matches('-').to_owned();
        (
            id,
            PluginDevice {
                healthy,
                nodes: nodes(at),
            },
        )
    };
    devices.split_whitespace().map(device).collect()
}

fn with(devices: &str) -> Devices {
    let mut state = Devices::default();
    assert!(state.registered(GPU, 1, PluginOptions::default()));
    assert!(state.listed(GPU, 1, list(devices)).is_some());
    state
}

fn give(state: &mut Devices, pod: &str, container: &str, ids: &str) {
    let pod = PodUid::from(pod);
    state.reserve(&pod, container, GPU, &set(ids));
    assert!(state.assign(&pod, container, GPU, DeviceResponse::default()));
}

fn request(amount: usize) -> DeviceRequest {
    DeviceRequest {
        pod: "p".into(),
        container: "c".to_owned(),
        resource: GPU.to_owned(),
        amount,
        reusable: BTreeSet::new(),
        affinity: None,
        runs: true,
    }
}

/// A choice as one line.
fn line(state: &Devices, request: &DeviceRequest, preferred: Option<&str>) -> String {
    let text = |ids: &BTreeSet<String>| ids.iter().cloned().collect::<Vec<_>>().join(" ");
    match state.choose(request, preferred.map(set).as_ref()) {
        Ok(Choice::Kept) => "kept".to_owned(),
        Ok(Choice::Take(ids)) => format!("take {}", text(&ids)),
        Ok(Choice::AskPlugin(it)) => format!(
            "ask for {} of [{}] with [{}]",
            it.size,
            text(&it.available),
            text(&it.must_include)
        ),
        Err(error) => error.to_string(),
    }
}

#[test]
fn devices_are_chosen_by_affinity_reuse_and_use() {
    for (devices, used, amount, reusable, affinity, expected) in [
        ("a b c", "", 2, "", "", "take a b"),
        ("a b c", "a", 2, "", "", "take b c"),
        ("a b- c", "", 2, "", "", "take a c"),
        ("a b c", "", 0, "", "", "kept"),
        (
            "a b",
            "a",
            2,
            "",
            "",
            "requested number of devices unavailable for vendor.example/gpu. Requested: 2, Available: 1",
        ),
        (
            "a- b-",
            "",
            1,
            "",
            "",
            "no healthy devices present; cannot allocate unhealthy devices vendor.example/gpu",
        ),
        // devices of init containers first
        ("a b c", "c", 1, "c", "", "take c"),
        ("a b c", "c", 2, "c", "", "take a c"),
        (
            "a b c",
            "c",
            4,
            "c",
            "",
            "requested number of devices unavailable for vendor.example/gpu. Requested: 3, Available: 2",
        ),
        // aligned, then others, then those without topology
        ("a@0 b@1 c", "", 1, "", "1", "take b"),
        ("a@0 b@1 c", "", 2, "", "1", "take a b"),
        ("a b@0 c@1", "", 2, "", "1", "take b c"),
        ("a b@0 c@1", "", 3, "", "1", "take a b c"),
        ("a@0,1 b@0", "", 1, "", "1", "take a"),
        ("a b", "", 1, "", "1", "take a"),
    ] {
        let mut state = with(devices);
        if !used.is_empty() {
            give(&mut state, "other", "c", used);
        }
        let affinity = (!affinity.is_empty()).then(|| nodes(affinity));
        let reusable = set(reusable);
        let request = DeviceRequest {
            reusable,
            affinity,
            ..request(amount)
        };
        assert_eq!(line(&state, &request, None), expected, "{devices} {amount}");
    }
}

#[test]
fn plugin_is_asked_only_where_it_can_choose() {
    for (devices, amount, reusable, affinity, question, preferred, expected) in [
        (
            "a b c",
            1,
            "",
            "",
            "ask for 1 of [a b c] with []",
            "c",
            "take c",
        ),
        (
            "a b c",
            2,
            "",
            "",
            "ask for 2 of [a b c] with []",
            "c",
            "take a c",
        ),
        // of a device that is not available nothing is taken
        (
            "a b c",
            1,
            "",
            "",
            "ask for 1 of [a b c] with []",
            "x z",
            "take a",
        ),
        (
            "a b c",
            1,
            "",
            "",
            "ask for 1 of [a b c] with []",
            "",
            "take a",
        ),
        // among the aligned devices
        (
            "a@0 b@0 c@1",
            1,
            "",
            "0",
            "ask for 1 of [a b] with []",
            "b",
            "take b",
        ),
        (
            "a@0 b@0 c@1",
            1,
            "",
            "0",
            "ask for 1 of [a b] with []",
            "c",
            "take a",
        ),
        // all aligned ones are taken, the plugin chooses the rest
        (
            "a@0 b@1 c@1",
            2,
            "",
            "0",
            "ask for 2 of [a b c] with [a]",
            "c",
            "take a c",
        ),
        ("a@0 b@1 c@1", 1, "", "0", "take a", "", "take a"),
        // reused devices are included
        (
            "a b c",
            2,
            "b",
            "",
            "ask for 2 of [a b c] with [b]",
            "c",
            "take b c",
        ),
        ("a b c", 1, "b", "", "take b", "", "take b"),
    ] {
        let mut state = with(devices);
        let options = PluginOptions {
            preferred_allocation: true,
            ..PluginOptions::default()
        };
        assert!(state.registered(GPU, 1, options));
        let affinity = (!affinity.is_empty()).then(|| nodes(affinity));
        let reusable = set(reusable);
        let request = DeviceRequest {
            reusable,
            affinity,
            ..request(amount)
        };
        assert_eq!(line(&state, &request, None), question);
        assert_eq!(line(&state, &request, Some(preferred)), expected);
    }
}

#[test]
fn running_pod_keeps_devices_whatever_the_plugin_reports() {
    let mut state = with("a b");
    give(&mut state, "p", "c", "a b");
    assert_eq!(line(&state, &request(2), None), "kept");
    assert_eq!(
        line(&state, &request(1), None),
        "pod \"p\" container \"c\" changed request for resource \"vendor.example/gpu\" from 2 to 1"
    );
    assert!(state.listed(GPU, 1, list("b-")).is_some());
    assert_eq!(line(&state, &request(2), None), "kept");
    assert!(state.stopped(GPU, 1, Duration::ZERO));
    assert_eq!(line(&state, &request(2), None), "kept");
    let other = DeviceRequest {
        container: "d".to_owned(),
        ..request(1)
    };
    let no_device =
        "no healthy devices present; cannot allocate unhealthy devices vendor.example/gpu";
    assert_eq!(line(&state, &other, None), no_device);
    let unknown = DeviceRequest {
        resource: "a/b".to_owned(),
        ..request(1)
    };
    let error = state.choose(&unknown, None).expect_err("unknown");
    assert_eq!(
        NotAdmitted::from(error),
        NotAdmitted {
            reason: "UnexpectedAdmissionError".to_owned(),
            message: "Allocate failed due to cannot allocate unregistered device a/b, which is \
                      unexpected"
                .to_owned(),
        }
    );
}

#[test]
fn pod_that_does_not_run_keeps_only_healthy_devices() {
    let mut state = with("a b");
    give(&mut state, "p", "c", "a");
    let request = DeviceRequest {
        runs: false,
        ..request(1)
    };
    assert_eq!(line(&state, &request, None), "kept");
    assert!(state.listed(GPU, 1, list("a- b")).is_some());
    let error = "previously allocated devices are no longer healthy; cannot allocate unhealthy \
                 devices vendor.example/gpu";
    assert_eq!(line(&state, &request, None), error);
    assert!(state.listed(GPU, 1, list("b")).is_some());
    assert_eq!(line(&state, &request, None), error);
    assert!(state.stopped(GPU, 1, Duration::ZERO));
    let error = "no healthy devices present; cannot allocate unhealthy devices vendor.example/gpu";
    assert_eq!(line(&state, &request, None), error);
}

#[test]
fn reserved_devices_are_in_use_until_release() {
    let mut state = with("a b");
    let (p, q) = (PodUid::from("p"), PodUid::from("q"));
    state.reserve(&p, "c", GPU, &set("a"));
    let other = DeviceRequest {
        pod: q.clone(),
        ..request(1)
    };
    assert_eq!(line(&state, &other, None), "take b");
    assert!(state.release(&p));
    assert_eq!(line(&state, &other, None), "take a");
    assert!(
        !state.assign(&p, "c", GPU, DeviceResponse::default()),
        "released meanwhile"
    );
    give(&mut state, "p", "c", "a");
    give(&mut state, "q", "c", "b");
    assert!(state.release(&p));
    assert!(!state.release(&p));
    assert_eq!(state.in_use(GPU), BTreeSet::from(["b"]));
}

#[test]
fn init_containers_leave_devices_to_later_containers() {
    let mut state = with("a b c d");
    for (container, ids) in [("init", "a b"), ("sidecar", "b"), ("app", "a c")] {
        give(&mut state, "p", container, ids);
    }
    let container = |name: &str, completes| PodContainer {
        name: name.to_owned(),
        completes,
    };
    let order = [
        container("init", true),
        container("sidecar", false),
        container("app", false),
    ];
    let pod = PodUid::from("p");
    for (earlier, expected) in [(0, ""), (1, "a b"), (2, "a"), (3, "")] {
        assert_eq!(state.reusable(&pod, GPU, &order[..earlier]), set(expected));
    }
}

/// Hints as text, preferred ones with `!`.
fn hints(hints: ResourceHints) -> String {
    match hints {
        ResourceHints::Any => "any".to_owned(),
        ResourceHints::Of(list) => {
            let text = |hint: &crate::hints::Hint| {
                let nodes = hint.nodes.map(|it| it.to_string()).unwrap_or_default();
                format!("{nodes}{}", if hint.preferred { "!" } else { "" })
            };
            list.iter().map(text).collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn hints_follow_free_and_all_devices() {
    for (devices, used, amount, reusable, expected) in [
        ("a b", "", 1, "", "any"),
        ("a@0 b@1", "", 1, "", "0! 1! 0,1"),
        ("a@0 b@1", "a", 1, "", "1! 0,1"),
        ("a@0 b@1", "", 2, "", "0,1!"),
        // one node has enough devices, but they are used: no hint is preferred
        ("a@0 b@0 c@1", "a", 2, "", "0,1"),
        ("a@0 b@1", "a", 2, "", ""),
        ("a@0 b-@1 c@1", "", 2, "", "0,1"),
        ("a@0,1 b@0", "", 2, "", "0! 0,1"),
        // devices of init containers have to be on the nodes
        ("a@0 b@1 c@1", "a", 1, "a", "0! 0,1"),
        ("a@0 b@1 c@1", "a", 2, "a", "0,1"),
        // devices without topology count for no node
        ("a@0 b", "", 1, "", "0!"),
        ("a@0 b", "", 2, "", ""),
        // nodes that the machine does not have
        ("a@7", "", 1, "", ""),
        ("a@0 b@7", "", 1, "", "0!"),
    ] {
        let mut state = with(devices);
        if !used.is_empty() {
            give(&mut state, "other", "c", used);
        }
        let pod = PodUid::from("p");
        let found =
            state.container_hints(nodes("0,1,2"), (&pod, "c"), (GPU, amount), &set(reusable));
        assert_eq!(
            hints(found),
            expected,
            "{devices} used {used} amount {amount}"
        );
        if reusable.is_empty() {
            let found = state.pod_hints(nodes("0,1,2"), &pod, (GPU, amount));
            assert_eq!(hints(found), expected, "of the pod");
        }
    }
}

#[test]
fn hints_of_assigned_devices_are_regenerated() {
    let mut state = with("a@0 b@1 c@1");
    give(&mut state, "p", "c", "b");
    give(&mut state, "p", "d", "a");
    let pod = PodUid::from("p");
    let none = BTreeSet::new();
    let of = |container, amount| {
        hints(state.container_hints(nodes("0,1"), (&pod, container), (GPU, amount), &none))
    };
    assert_eq!(of("c", 1), "1! 0,1");
    assert_eq!(of("c", 2), "", "another number than before");
    assert_eq!(hints(state.pod_hints(nodes("0,1"), &pod, (GPU, 2))), "0,1");
    assert_eq!(hints(state.pod_hints(nodes("0,1"), &pod, (GPU, 3))), "");
}

#[test]
fn hints_on_large_machine_prefer_single_nodes() {
    let devices: Vec<String> = (0..256).map(|n| format!("d{n:03}@{}", n % 8)).collect();
    let state = with(&devices.join(" "));
    let found = state.container_hints(
        nodes("0,1,2,3,4,5,6,7"),
        (&"p".into(), "c"),
        (GPU, 16),
        &BTreeSet::new(),
    );
    let ResourceHints::Of(found) = found else {
        panic!("no hints")
    };
    assert_eq!(found.len(), 255);
    assert_eq!(found.iter().filter(|hint| hint.preferred).count(), 8);
}

/// Capacity, allocatable and removed resources as text.
fn node(state: &mut Devices, seconds: u64) -> String {
    let node = state.node_devices(Duration::from_secs(seconds));
    let value = |it: &BTreeMap<String, u64>| it.get(GPU).map_or("-".to_owned(), u64::to_string);
    let removed = if node.removed.contains(GPU) {
        " removed"
    } else {
        ""
    };
    format!(
        "{}/{}{removed}",
        value(&node.allocatable),
        value(&node.capacity)
    )
}

#[test]
fn resource_is_removed_five_minutes_after_its_plugin_ended() {
    let mut state = Devices::default();
    assert_eq!(node(&mut state, 0), "-/-");
    state.registered(GPU, 3, PluginOptions::default());
    assert_eq!(node(&mut state, 0), "0/0");
    state.listed(GPU, 3, list("a b- c"));
    assert_eq!(node(&mut state, 0), "2/3");
    assert!(state.stopped(GPU, 3, Duration::from_secs(10)));
    assert_eq!(state.registration(GPU), Registration::Stopped);
    assert_eq!(node(&mut state, 310), "0/3");
    assert_eq!(state.next_removal(), Some(Duration::from_secs(310)));
    // a new registration in time, without devices until its list
    state.registered(GPU, 4, PluginOptions::default());
    assert_eq!(node(&mut state, 400), "0/3");
    assert_eq!(state.registration(GPU), Registration::Connected);
    state.listed(GPU, 4, list("a"));
    assert_eq!(node(&mut state, 400), "1/1");
    // messages of the old one
    assert!(!state.stopped(GPU, 3, Duration::from_secs(400)));
    assert_eq!(state.listed(GPU, 3, list("a b c d")), None);
    assert!(!state.registered(GPU, 3, PluginOptions::default()));
    assert_eq!(node(&mut state, 400), "1/1");
    assert_eq!(state.next_removal(), None);
    state.stopped(GPU, 4, Duration::from_secs(500));
    assert_eq!(node(&mut state, 801), "-/- removed");
    assert_eq!(node(&mut state, 802), "-/-");
    assert_eq!(state.registration(GPU), Registration::Unknown);
    assert!(!state.is_plugin_resource(GPU));
}

#[test]
fn replaced_plugin_keeps_devices_until_the_new_list() {
    let mut state = with("a b");
    state.registered(
        GPU,
        2,
        PluginOptions {
            pre_start_required: true,
            ..Default::default()
        },
    );
    assert_eq!(node(&mut state, 0), "2/2");
    assert!(state.pre_start_required(GPU));
    state.listed(GPU, 2, list("c"));
    assert_eq!(node(&mut state, 0), "1/1");
}

#[test]
fn health_changes_name_the_pods_that_use_the_device() {
    let mut state = with("a b");
    give(&mut state, "p", "c", "a");
    let pods = |changed: Option<BTreeSet<PodUid>>| -> Vec<String> {
        let pods = changed.expect("current").into_iter();
        pods.map(|pod| pod.to_string()).collect()
    };
    let health = |state: &Devices| {
        let all = state.health(&"p".into(), "c");
        let of = |(id, healthy): (&String, &bool)| format!("{id}={healthy}");
        all[GPU].iter().map(of).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(health(&state), "a=true");
    assert!(pods(state.listed(GPU, 1, list("a b-"))).is_empty());
    assert_eq!(pods(state.listed(GPU, 1, list("a- b"))), ["p"]);
    assert_eq!(health(&state), "a=false");
    assert!(pods(state.listed(GPU, 1, list("b"))).is_empty());
    assert_eq!(health(&state), "a=true", "unknown devices count as healthy");
    assert_eq!(
        pods(state.listed(GPU, 1, list("a- b"))),
        ["p"],
        "it is back"
    );
    state.stopped(GPU, 1, Duration::ZERO);
    assert_eq!(health(&state), "a=false", "as last reported");
    assert!(state.health(&"p".into(), "other").is_empty());
}

#[test]
fn allocatable_has_healthy_devices_with_their_nodes() {
    let state = with("a@0 b- c@0,1");
    let all = state.allocatable();
    let text: Vec<String> = all[GPU]
        .iter()
        .map(|(id, at)| format!("{id}@{at}"))
        .collect();
    assert_eq!(text, ["a@0", "c@0,1"]);
}

#[test]
fn responses_are_merged_and_the_first_wins() {
    let response = |value: &str, cdi: &str| DeviceResponse {
        envs: [("A".to_owned(), value.to_owned())].into(),
        annotations: [("k".to_owned(), value.to_owned())].into(),
        mounts: vec![DeviceMount {
            container_path: "/lib".to_owned(),
            host_path: format!("/{value}"),
            read_only: true,
        }],
        devices: vec![DeviceNode {
            container_path: "/dev/x".to_owned(),
            host_path: format!("/dev/{value}"),
            permissions: "rw".to_owned(),
        }],
        cdi_devices: vec![
            CdiDevice {
                name: cdi.to_owned(),
            },
            CdiDevice {
                name: "v/c=0".to_owned(),
            },
        ],
    };
    let pod = PodUid::from("p");
    let mut state = Devices::default();
    for (resource, value, cdi) in [("a/1", "one", "v/c=1"), ("a/2", "two", "v/c=2")] {
        state.reserve(&pod, "c", resource, &set("x"));
        assert!(state.assign(&pod, "c", resource, response(value, cdi)));
    }
    state.reserve(&pod, "c", "a/3", &set("y"));
    let mut assignment = ContainerAssignment::default();
    let conflicts = add_devices(
        &mut assignment,
        state.container(&pod, "c").expect("devices"),
    );
    let lines: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "env A: used one, ignored two",
            "device /dev/x: used /dev/one, ignored /dev/two",
            "mount /lib: used /one, ignored /two",
            "annotation k: used one, ignored two",
        ]
    );
    assert_eq!(assignment.envs["A"], "one");
    assert_eq!(assignment.cdi_devices, ["v/c=1", "v/c=0", "v/c=2"]);
    assert_eq!(assignment.devices.len(), 1);
    assert_eq!(assignment.mounts[0].host_path, "/one");
    assert!(assignment.mounts[0].readonly);
    // the same values twice do not conflict
    let mut again = assignment.clone();
    let first: BTreeMap<_, _> = [(
        "a/1".to_owned(),
        state.container(&pod, "c").expect("devices")["a/1"].clone(),
    )]
    .into();
    assert!(add_devices(&mut again, &first).is_empty());
    assert_eq!(again, assignment);
}
