//! The manifests, decoded as strictly as by the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, Toleration};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use windlass_config::{KubeletFlags, load};
use windlass_manifests::yaml;
use windlass_testing::control_plane::Assets;
use windlass_testing::kustomize::OVERLAYS;
use windlass_testing::node_images::{AGENT, RUNTIME};

use crate::kustomize::{check_strictly, folder, overlay, typed};

/// Ports of a kubelet on the same host network.
const TAKEN: [i32; 3] = [10250, 10248, 10255];

fn daemon_set(name: &str) -> PodSpec {
    let daemon_set: DaemonSet = typed(&overlay(name), "DaemonSet");
    daemon_set.spec.unwrap().template.spec.unwrap()
}

fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

fn agent_args(name: &str) -> Vec<String> {
    let pod = daemon_set(name);
    let agent = pod.containers.iter().find(|it| it.name == "windlass");
    agent.unwrap().args.clone().unwrap()
}

#[test]
fn manifests_have_only_known_kubernetes_fields() {
    for name in OVERLAYS {
        let objects = overlay(name);
        objects.iter().for_each(check_strictly);
        assert_eq!(objects.len(), 7, "{name}");
    }
}

#[test]
fn kubectl_kustomize_matches_overlays() {
    let Some(kubectl) = Assets::from_env().and_then(|assets| assets.program("kubectl")) else {
        eprintln!("skipped: KUBEBUILDER_ASSETS has no kubectl");
        return;
    };
    for name in OVERLAYS {
        let path = folder().join("overlays").join(name);
        let output = Command::new(&kubectl).arg("kustomize").arg(path).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut theirs = yaml::documents(&output.stdout).unwrap();
        let mut ours = overlay(name);
        let key = |object: &Value| object["kind"].to_string();
        theirs.sort_by_key(key);
        ours.sort_by_key(key);
        assert_eq!(theirs, ours, "{name}");
    }
}

#[test]
fn service_account_can_only_request_certificate() {
    let objects = overlay("side-by-side");
    let role: ClusterRole = typed(&objects, "ClusterRole");
    let mut rights = Vec::new();
    for rule in role.rules.unwrap() {
        assert_eq!(rule.api_groups.unwrap(), ["certificates.k8s.io"]);
        assert_eq!(rule.non_resource_urls, None);
        let resources = rule.resources.unwrap().join(",");
        rights.push(format!("{resources}: {}", rule.verbs.join(",")));
    }
    let expected = [
        "certificatesigningrequests: create,get,list,watch",
        "certificatesigningrequests/nodeclient: create",
    ];
    assert_eq!(rights, expected);
    let binding: ClusterRoleBinding = typed(&objects, "ClusterRoleBinding");
    assert_eq!(binding.role_ref.name, "windlass:join");
    let subjects = binding.subjects.unwrap();
    let names: Vec<_> = subjects.iter().map(|it| (&*it.kind, &*it.name)).collect();
    assert_eq!(names, [("ServiceAccount", "windlass")]);

    // the token is in the agent's container only
    for (name, holders) in [("side-by-side", vec!["windlass"]), ("cleanup", vec![])] {
        let pod = daemon_set(name);
        assert_eq!(pod.automount_service_account_token, Some(false));
        let volumes = pod.volumes.iter().flatten();
        let tokens: Vec<_> = volumes
            .filter(|volume| {
                let sources = volume.projected.iter().flat_map(|it| &it.sources).flatten();
                let mut sources = sources.filter(|it| it.service_account_token.is_some());
                sources.next().is_some()
            })
            .map(|volume| &volume.name)
            .collect();
        let mounts = |container: &&Container| {
            let mut mounts = container.volume_mounts.iter().flatten();
            mounts.any(|mount| tokens.contains(&&mount.name))
        };
        let with_token = containers(&pod).filter(mounts).map(|it| &*it.name);
        assert_eq!(with_token.collect::<Vec<_>>(), holders, "{name}");
    }
}

#[test]
fn images_match_xtask_names_and_version() {
    let version = env!("CARGO_PKG_VERSION");
    let ours = [AGENT, RUNTIME].map(|name| format!("{name}:{version}"));
    for name in OVERLAYS {
        for container in containers(&daemon_set(name)) {
            let image = container.image.as_ref().unwrap();
            assert!(ours.contains(image), "{name}: {image}");
            // the owner of the registry domain could serve another image
            assert_eq!(container.image_pull_policy.as_deref(), Some("Never"));
        }
    }
}

#[test]
fn containers_declare_resources_and_known_mounts() {
    for name in OVERLAYS {
        let pod = daemon_set(name);
        let volumes = pod.volumes.clone().unwrap();
        let volumes: BTreeSet<_> = volumes.iter().map(|volume| volume.name.clone()).collect();
        let mut used = BTreeSet::new();
        for container in containers(&pod) {
            let resources = container.resources.clone().unwrap();
            let requests = resources.requests.unwrap();
            assert!(requests.contains_key("cpu") && requests.contains_key("memory"));
            assert!(resources.limits.unwrap().contains_key("memory"));
            let security = container.security_context.clone().unwrap();
            assert_eq!(security.read_only_root_filesystem, Some(true));
            let mounts = container.volume_mounts.clone().unwrap();
            used.extend(mounts.into_iter().map(|mount| mount.name));
        }
        // cleanup replaces the agent and keeps all of its volumes
        assert_eq!(used, volumes, "{name}");
        assert_eq!(
            pod.priority_class_name.as_deref(),
            Some("system-node-critical")
        );
        assert_eq!((pod.host_network, pod.host_pid), (Some(true), Some(true)));
    }
}

#[test]
fn pods_share_only_required_host_resources() {
    let pod = daemon_set("side-by-side");
    let mut writable = BTreeMap::new();
    for volume in pod.volumes.iter().flatten() {
        if let Some(host) = &volume.host_path {
            writable.insert(host.path.clone(), volume.name.clone());
        }
    }
    writable.retain(|_, name| {
        let mounts = containers(&pod).flat_map(|it| it.volume_mounts.iter().flatten());
        let mut mounts = mounts.filter(|mount| mount.name == *name);
        mounts.any(|mount| mount.read_only != Some(true))
    });
    let outside: Vec<_> = writable
        .keys()
        .filter(|path| !path.starts_with("/var/lib/windlass") && !path.starts_with("/run/windlass"))
        .collect();
    assert_eq!(outside, ["/sys/fs/cgroup"]);
}

#[test]
fn agent_args_and_probes_match_configuration() {
    let map: ConfigMap = typed(&overlay("side-by-side"), "ConfigMap");
    let text = &map.data.as_ref().unwrap()["kubelet.yaml"];
    let folder = std::env::temp_dir().join(format!("windlass-t-deploy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("kubelet.yaml");
    std::fs::write(&file, text).unwrap();
    let args = agent_args("opt-in")
        .into_iter()
        .map(|arg| match arg.starts_with("--config=") {
            true => format!("--config={}", file.display()),
            false => arg
                .replace("$(NODE_NAME)", "n1")
                .replace("$(HOST_IP)", "127.0.0.1"),
        });
    let args = std::iter::once("windlass".to_owned()).chain(args);
    let flags = KubeletFlags::from_args(args.map(Into::into)).unwrap();
    let config = load(&flags);
    std::fs::remove_dir_all(&folder).unwrap();
    let config = config.unwrap();
    let kubelet = &config.kubelet;
    let socket = flags.root_dir.join("windlass.sock");
    let inert = &config.warnings;
    assert!(inert.is_empty(), "without effect: {inert:?}");
    assert!(
        kubelet.register_with_taints.is_empty(),
        "opt-in is not tainted"
    );
    assert_eq!(kubelet.cgroup_root, "/windlass");
    assert!(!TAKEN.contains(&kubelet.port) && !TAKEN.contains(&kubelet.healthz_port));

    let pod = daemon_set("side-by-side");
    let agent = &pod.containers[0];
    let environment = agent.env.iter().flatten();
    let mut environment = environment.filter(|it| it.name == "WINDLASS_SOCKET");
    let told = environment.next().unwrap().value.clone();
    assert_eq!(told.as_deref(), socket.to_str(), "where windlassctl looks");
    for probe in [
        &agent.startup_probe,
        &agent.liveness_probe,
        &agent.readiness_probe,
    ] {
        let get = probe.as_ref().unwrap().http_get.as_ref().unwrap();
        assert_eq!(get.port, IntOrString::Int(kubelet.healthz_port));
        assert_eq!(get.host.as_deref(), Some("127.0.0.1"));
    }
    let port = &agent.ports.as_ref().unwrap()[0];
    assert_eq!(
        (port.container_port, port.host_port),
        (kubelet.port, Some(kubelet.port))
    );
    let containerd = &pod.init_containers.as_ref().unwrap()[1];
    let socket = kubelet
        .container_runtime_endpoint
        .trim_start_matches("unix://");
    let asked = containerd
        .startup_probe
        .as_ref()
        .unwrap()
        .exec
        .clone()
        .unwrap();
    assert!(asked.command.unwrap().iter().any(|arg| arg == socket));
    assert!(map.data.unwrap()["containerd.toml"].contains(socket));
}

#[test]
fn side_by_side_taint_and_label_restrict_scheduling() {
    let map: ConfigMap = typed(&overlay("side-by-side"), "ConfigMap");
    let text = &map.data.unwrap()["kubelet.yaml"];
    let config = &yaml::documents(text.as_bytes()).unwrap()[0];
    let taint = &config["registerWithTaints"][0];
    assert_eq!(taint["key"], "windlass.dev/side-by-side");
    assert_eq!(taint["effect"], "NoSchedule");
    let args = agent_args("side-by-side");
    assert!(args.contains(&"--hostname-override=$(NODE_NAME)-windlass".to_owned()));
    let labels = args
        .iter()
        .find(|arg| arg.starts_with("--node-labels="))
        .unwrap();
    for system in [
        "kubernetes.io/os=windlass",
        "beta.kubernetes.io/os=windlass",
    ] {
        assert!(labels.contains(&format!(",{system},")), "{labels}");
    }
    // and it is not scheduled onto its own node
    let rules = required_affinity("side-by-side");
    let rule = "windlass.dev/side-by-side DoesNotExist ".to_owned();
    assert!(rules.contains(&rule), "{rules:?}");
}

/// Node selector expressions of the overlay's DaemonSet: `key operator values`.
fn required_affinity(name: &str) -> Vec<String> {
    let affinity = daemon_set(name).affinity.unwrap().node_affinity.unwrap();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .unwrap();
    let terms = required.node_selector_terms;
    assert_eq!(terms.len(), 1, "one of several terms would do");
    let rules = terms[0].match_expressions.iter().flatten();
    let rules = rules.map(|it| {
        let values = it.values.clone().unwrap_or_default().join(",");
        format!("{} {} {values}", it.key, it.operator)
    });
    rules.collect()
}

#[test]
fn overlays_select_nodes_by_architecture_and_label() {
    let selector = |name: &str| {
        let selector = daemon_set(name).node_selector.unwrap();
        let pairs: Vec<_> = selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.join(" ")
    };
    let all = "kubernetes.io/os=linux";
    assert_eq!(selector("side-by-side"), all);
    assert_eq!(
        selector("opt-in"),
        format!("{all} windlass.dev/opt-in=true")
    );
    assert_eq!(selector("cleanup"), "windlass.dev/cleanup=true");
    // architectures with images
    let architectures = "kubernetes.io/arch In amd64,arm64".to_owned();
    for name in ["side-by-side", "opt-in", "cleanup"] {
        let rules = required_affinity(name);
        assert!(rules.contains(&architectures), "{name}: {rules:?}");
    }
    // taints added later
    let tolerations = daemon_set("cleanup").tolerations.unwrap();
    let everything = Toleration {
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    };
    assert_eq!(tolerations, [everything]);
}

#[test]
fn cleanup_overlay_removes_pods_before_files() {
    let pod = daemon_set("cleanup");
    let names: Vec<_> = containers(&pod).map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["prepare", "containerd", "cleanup", "clean"]);
    let flags = pod.init_containers.as_ref().unwrap()[2]
        .args
        .clone()
        .unwrap();
    let args = std::iter::once("windlass".to_owned()).chain(flags);
    let flags = KubeletFlags::from_args(args.map(Into::into)).unwrap();
    assert!(flags.cleanup_and_exit && flags.kubeconfig.is_none());
    let installed = agent_args("side-by-side");
    assert!(installed.contains(&format!("--root-dir={}", flags.root_dir.display())));
}
