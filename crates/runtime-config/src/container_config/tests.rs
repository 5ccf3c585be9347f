//! Container configurations, a line for each part that differs from the plain one.

use serde_json::{Value, json};
use windlass_types::corev1::HostPathVolumeSource;
use windlass_types::cri::{Device, IdMapping, Mount, SecurityProfile, SupplementalGroupsPolicy};
use windlass_types::{MountedContent, MountedVolume, PodExt};

use super::*;
use windlass_volume_plan::volume_source::{BoundPvc, VolumeSource};

struct Case {
    assignment: ContainerAssignment,
    pod: Pod,
    node: NodeFacts,
    user: ImageUser,
    ips: Vec<IpAddr>,
    volumes: MountedVolumes,
    pod_volumes: Vec<PodVolume>,
    users: UserNamespace,
    images: MountedImages,
    recursive_read_only: bool,
}

/// A pod `web` with this container and these further fields of its spec.
fn case(container: Value, spec: Value) -> Case {
    let mut whole = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u-1"},
        "spec": spec,
    });
    whole["spec"]["containers"] = json!([container]);
    Case {
        pod: serde_json::from_value(whole).expect("pod"),
        node: NodeFacts::default(),
        user: ImageUser {
            uid: Some(0),
            username: String::new(),
        },
        ips: vec!["10.0.0.7".parse().expect("ip")],
        volumes: [("data".to_owned(), volume("/vol/data", true))].into(),
        pod_volumes: Vec::new(),
        users: UserNamespace::Node,
        images: MountedImages::new(),
        recursive_read_only: false,
        assignment: ContainerAssignment::default(),
    }
}

/// The volume `data`, which is a path of the node that `pv-7` names.
fn node_path(group: Option<i64>) -> PodVolume {
    PodVolume {
        name: "data".to_owned(),
        source: VolumeSource::HostPath(HostPathVolumeSource::default()),
        read_only: false,
        mount_options: Vec::new(),
        pvc: Some(BoundPvc {
            name: "claim".to_owned(),
            volume: "pv-7".to_owned(),
            exclusive: false,
            group,
        }),
    }
}

fn volume(path: &str, relabel: bool) -> MountedVolume {
    MountedVolume {
        content: MountedContent::Path(path.into()),
        read_only: false,
        relabel,
    }
}

impl Case {
    fn config(&self) -> Result<ContainerConfig, ConfigError> {
        container_config(self.input())
    }

    fn input(&self) -> ContainerInput<'_> {
        const NO_ENV: &EnvSources = &EnvSources {
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
            services: BTreeMap::new(),
        };
        const NO_FILES: &EnvFiles = &EnvFiles(BTreeMap::new());
        ContainerInput {
            pod: &self.pod,
            container: &self.pod.containers()[0],
            restart_count: 3,
            image_ref: "sha256:abc",
            image_user: &self.user,
            pod_ips: &self.ips,
            node: &self.node,
            volumes: &self.volumes,
            pod_volumes: &self.pod_volumes,
            images: &self.images,
            recursive_read_only: self.recursive_read_only,
            hosts_file: Some(Path::new("/pods/u-1/etc-hosts")),
            termination_log: Some(Path::new("/pods/u-1/containers/c/0000beef")),
            env_sources: NO_ENV,
            env_files: NO_FILES,
            users: self.users,
            assignment: &self.assignment,
        }
    }

    /// Mounts as `container<-host flags`, or the error.
    fn mounts(&self) -> String {
        let line = |c: ContainerConfig| {
            let mounts = c.mounts.iter().map(|m| {
                let readonly = match (m.readonly, m.recursive_read_only) {
                    (true, true) => " rro",
                    (true, false) => " ro",
                    (false, _) => "",
                };
                let image = match &m.image {
                    Some(image) => format!("{}//{}", image.image, image.sub_path),
                    None => String::new(),
                };
                let relabel = if m.selinux_relabel { " Z" } else { "" };
                format!(
                    "{}<-{}{image}{readonly}{relabel} {:?}",
                    m.container_path, m.host_path, m.propagation
                )
            });
            mounts.collect::<Vec<_>>().join("; ")
        };
        self.config().map_or_else(|e| e.to_string(), line)
    }

    /// Who it runs as and what it may do, or the error.
    fn security(&self) -> String {
        let line = |c: ContainerConfig| {
            let s = c.security;
            let profile = |p: &SecurityProfile| match p {
                SecurityProfile::Localhost(name) => name.clone(),
                other => format!("{other:?}"),
            };
            format!(
                "user={:?}{}:{:?}+{:?} caps=+{:?}-{:?} priv={} ro={} nnp={} seccomp={} apparmor={} masked={}/{}",
                s.run_as_user,
                s.run_as_username,
                s.run_as_group,
                s.supplemental_groups,
                s.add_capabilities,
                s.drop_capabilities,
                s.privileged,
                s.readonly_rootfs,
                s.no_new_privs,
                profile(&s.seccomp),
                s.apparmor.as_ref().map_or("-".to_owned(), profile),
                s.masked_paths.len(),
                s.readonly_paths.len(),
            )
        };
        self.config().map_or_else(|e| e.to_string(), line)
    }
}

fn check_security(container: Value, spec: Value, expected: &str) {
    assert_eq!(case(container, spec).security(), expected);
}

#[test]
fn container_config_follows_spec() {
    let case = case(
        json!({
            "name": "c", "image": "busybox:1",
            "command": ["sh", "-c", "$(GREETING)"], "args": ["$$(GREETING)", "$(NONE)"],
            "workingDir": "/w", "stdin": true, "stdinOnce": true, "tty": true,
            "env": [{"name": "GREETING", "value": "hi"}],
        }),
        json!({}),
    );
    let c = case.config().expect("config");
    assert_eq!((c.name.as_str(), c.attempt), ("c", 3));
    assert_eq!(
        (c.image.as_str(), c.user_specified_image.as_str()),
        ("sha256:abc", "busybox:1")
    );
    assert_eq!(c.command, ["sh", "-c", "hi"]);
    assert_eq!(c.args, ["$(GREETING)", "$(NONE)"]);
    assert_eq!(c.working_dir, "/w");
    assert_eq!(c.log_path, "c/3.log");
    assert_eq!((c.stdin, c.stdin_once, c.tty), (true, true, true));
    assert_eq!(c.resources.cpu_shares, 2);
    let labels: Vec<_> = c.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        labels,
        [
            "io.kubernetes.container.name=c",
            "io.kubernetes.pod.name=web",
            "io.kubernetes.pod.namespace=ns",
            "io.kubernetes.pod.uid=u-1",
        ]
    );
}

fn annotations(container: Value, spec: Value) -> Vec<String> {
    let c = case(container, spec).config().expect("config");
    let mut lines = Vec::new();
    let of_kubelet = |key: &str| key.starts_with("io.kubernetes.");
    for (key, value) in c.annotations.iter().filter(|(key, _)| of_kubelet(key)) {
        lines.push(format!(
            "{}={value}",
            key.trim_start_matches("io.kubernetes.")
        ));
    }
    lines
}

#[test]
fn annotations_match_go_kubelet() {
    assert_eq!(
        annotations(
            json!({"name": "test_container", "image": "foo/image:v1"}),
            json!({})
        ),
        [
            "container.hash=8e45cbd0",
            "container.restartCount=3",
            "container.terminationMessagePath=/dev/termination-log",
            "container.terminationMessagePolicy=File",
        ]
    );
    assert_eq!(
        annotations(
            json!({
                "name": "test_container", "image": "foo/image:v1",
                "terminationMessagePath": "/tmp/last", "terminationMessagePolicy": "FallbackToLogsOnError",
                "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "a && b > c"]}}},
                "ports": [
                    {"containerPort": 80, "hostPort": 8080, "name": "http", "hostIP": "127.0.0.1"},
                    {"containerPort": 53, "protocol": "UDP"},
                ],
            }),
            json!({"terminationGracePeriodSeconds": 7}),
        ),
        [
            "container.hash=8e45cbd0",
            "container.ports=[{\"name\":\"http\",\"hostPort\":8080,\"containerPort\":80,\
             \"protocol\":\"TCP\",\"hostIP\":\"127.0.0.1\"},{\"containerPort\":53,\"protocol\":\"UDP\"}]",
            "container.preStopHandler={\"exec\":{\"command\":[\"sh\",\"-c\",\
             \"a \\u0026\\u0026 b \\u003e c\"]}}",
            "container.restartCount=3",
            "container.terminationMessagePath=/tmp/last",
            "container.terminationMessagePolicy=FallbackToLogsOnError",
            "pod.terminationGracePeriod=7",
        ]
    );
}

#[test]
fn sizes_are_stored_in_an_annotation() {
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"memory": "1Ki"}});
    let container = json!({"name": "c", "resources": resources});
    let pod_level = json!({"resources": {"limits": {"cpu": "1"}}});
    let c = case(container, pod_level).config().expect("config");
    let sizes = c.annotations.get("windlass.dev/sizes");
    let expected = "cpu=100/1000 memory=1024/1024";
    assert_eq!(sizes.map(String::as_str), Some(expected));
}

#[test]
fn pre_stop_hook_is_stored_in_annotations() {
    let spec = json!({
        "name": "c",
        "lifecycle": {
            "postStart": {"sleep": {"seconds": 1}},
            "preStop": {"httpGet": {"path": "/bye?a=1&b=<2>", "port": "http"}},
        },
        "ports": [{"containerPort": 80, "name": "http"}],
    });
    let written = case(spec, json!({})).config().expect("config").annotations;
    let restored = restored_container("c", &written);
    assert_eq!(
        serde_json::to_value(&restored).expect("JSON"),
        json!({
            "name": "c",
            "lifecycle": {"preStop": {"httpGet": {"path": "/bye?a=1&b=<2>", "port": "http"}}},
            "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
        })
    );
    // what others wrote there is theirs
    let foreign = [(
        names::ANN_PRE_STOP_HANDLER.to_owned(),
        "{nonsense".to_owned(),
    )]
    .into();
    let lifecycle = restored_container("c", &foreign).lifecycle;
    assert_eq!(lifecycle.expect("made").pre_stop, None);
}

#[test]
fn stop_signal_requires_feature_gate() {
    let spec = json!({"name": "c", "lifecycle": {"stopSignal": "SIGUSR1"}});
    let mut case = case(spec, json!({"os": {"name": "linux"}}));
    assert_eq!(case.config().expect("config").stop_signal, "");
    case.node.stop_signals = true;
    assert_eq!(case.config().expect("config").stop_signal, "SIGUSR1");
}

#[test]
fn deletion_grace_period_is_stored_in_annotations() {
    let mut case = case(json!({"name": "c"}), json!({}));
    case.pod.metadata.deletion_grace_period_seconds = Some(4);
    let c = case.config().expect("config");
    assert_eq!(
        c.annotations
            .get(names::ANN_DELETION_GRACE)
            .map(String::as_str),
        Some("4")
    );
}

const HOSTS: &str = "/etc/hosts<-/pods/u-1/etc-hosts Private";
const TERMINATION_LOG: &str = "/dev/termination-log<-/pods/u-1/containers/c/0000beef Private";

fn mounting(mount: Value) -> Case {
    case(json!({"name": "c", "volumeMounts": [mount]}), json!({}))
}

#[test]
fn mounts_are_volumes_then_hosts_and_termination_log() {
    let check = |case: &Case, expected: String| assert_eq!(case.mounts(), expected);
    check(
        &case(json!({"name": "c"}), json!({})),
        format!("{HOSTS}; {TERMINATION_LOG}"),
    );
    check(
        &mounting(json!({
            "name": "data", "mountPath": "srv", "readOnly": true,
            "mountPropagation": "HostToContainer",
        })),
        format!("/srv<-/vol/data ro HostToContainer; {HOSTS}; {TERMINATION_LOG}"),
    );
    check(
        &mounting(json!({"name": "data", "mountPath": "/etc/hosts"})),
        format!("/etc/hosts<-/vol/data Private; {TERMINATION_LOG}"),
    );
    check(
        &mounting(json!({"name": "gone", "mountPath": "/x"})),
        "cannot find volume \"gone\" to mount into container \"c\"".to_owned(),
    );
    check(
        &mounting(json!({"name": "data", "mountPath": "/x", "mountPropagation": "Both"})),
        "volumeMounts[data].mountPropagation: \"Both\" is not valid: use None, HostToContainer \
         or Bidirectional"
            .to_owned(),
    );
}

mod devices;
mod mounts;

#[test]
fn api_object_volumes_are_always_read_only() {
    let mount = json!({"name": "data", "mountPath": "/x", "readOnly": false});
    let mut case = case(json!({"name": "c", "volumeMounts": [mount]}), json!({}));
    if let Some(volume) = case.volumes.get_mut("data") {
        volume.read_only = true;
    }
    let expected = format!("/x<-/vol/data ro Private; {HOSTS}; {TERMINATION_LOG}");
    assert_eq!(case.mounts(), expected);
}

#[test]
fn hosts_file_requires_address_or_host_network() {
    let mut pod_network = case(json!({"name": "c"}), json!({}));
    pod_network.ips.clear();
    assert_eq!(pod_network.mounts(), TERMINATION_LOG);
    let mut host_network = case(json!({"name": "c"}), json!({"hostNetwork": true}));
    host_network.ips.clear();
    assert_eq!(host_network.mounts(), format!("{HOSTS}; {TERMINATION_LOG}"));
}

#[test]
fn selinux_relabels_pod_volumes_only() {
    let mut case = case(
        json!({"name": "c", "volumeMounts": [
            {"name": "data", "mountPath": "/a"}, {"name": "host", "mountPath": "/b"},
        ]}),
        json!({"volumes": [
            {"name": "data", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/h"}},
        ]}),
    );
    case.volumes.insert("host".to_owned(), volume("/h", false));
    case.node.selinux_enabled = true;
    assert!(
        case.mounts()
            .starts_with("/a<-/vol/data Z Private; /b<-/h Private; /etc/hosts")
    );
    assert!(case.mounts().contains("etc-hosts Z Private"));
}

#[test]
fn security_defaults_are_upstreams() {
    check_security(
        json!({"name": "c"}),
        json!({}),
        "user=Some(0):None+[] caps=+[]-[] priv=false ro=false nnp=false seccomp=Unconfined \
         apparmor=- masked=12/5",
    );
    let mut strict = case(json!({"name": "c"}), json!({}));
    strict.node.seccomp_default = true;
    strict.node.thermal_throttle_paths =
        vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".into()];
    assert!(
        strict
            .security()
            .ends_with("seccomp=RuntimeDefault apparmor=- masked=13/5")
    );
}

#[test]
fn supplemental_groups_include_volume_groups() {
    let check = |groups: &[i64], volumes: &[Option<i64>], expected: &[i64]| {
        let spec = json!({"securityContext": {"fsGroup": 2000, "supplementalGroups": groups}});
        let mut case = case(json!({"name": "c"}), spec);
        case.pod_volumes = volumes.iter().map(|group| node_path(*group)).collect();
        let security = case.config().expect("config").security;
        assert_eq!(security.supplemental_groups, expected);
    };
    check(&[], &[None], &[2000]);
    check(
        &[4000],
        &[Some(7), None, Some(5), Some(7)],
        &[2000, 4000, 5, 7],
    );
    check(&[7], &[Some(7)], &[2000, 7]);
}

#[test]
fn container_security_overrides_pod_security() {
    let pod = json!({"securityContext": {
        "runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000],
        "seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "RuntimeDefault"},
    }});
    check_security(
        json!({"name": "c"}),
        pod.clone(),
        "user=Some(1000):Some(3000)+[2000, 4000] caps=+[]-[] priv=false ro=false nnp=false \
         seccomp=RuntimeDefault apparmor=RuntimeDefault masked=12/5",
    );
    check_security(
        json!({"name": "c", "securityContext": {
            "runAsUser": 7, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "p/a.json"},
            "appArmorProfile": {"type": "Localhost", "localhostProfile": "k8s-web"},
        }}),
        pod,
        "user=Some(7):Some(3000)+[2000, 4000] caps=+[\"NET_ADMIN\"]-[\"ALL\"] priv=false ro=true \
         nnp=true seccomp=/var/lib/kubelet/seccomp/p/a.json apparmor=k8s-web masked=12/5",
    );
    check_security(
        json!({"name": "c", "securityContext": {"privileged": true}}),
        json!({}),
        "user=Some(0):None+[] caps=+[]-[] priv=true ro=false nnp=false seccomp=Unconfined \
         apparmor=- masked=12/5",
    );
}

#[test]
fn invalid_seccomp_profiles_are_rejected() {
    let seccomp = |name: &str| {
        json!({"name": "c", "securityContext": {
            "seccompProfile": {"type": "Localhost", "localhostProfile": name},
        }})
    };
    for name in ["", "/etc/passwd", "../x", "a/../../b", "a//b"] {
        let expected = format!(
            "seccompProfile.localhostProfile: {name:?} is not valid: it must name a file below \
             the seccomp directory"
        );
        check_security(seccomp(name), json!({}), &expected);
    }
    check_security(
        json!({"name": "c", "securityContext": {"procMount": "Unmasked"}}),
        json!({}),
        "securityContext.procMount: \"Unmasked\" is not valid: it requires hostUsers: false",
    );
    check_security(
        json!({"name": "c", "securityContext": {"seccompProfile": {"type": "runtime"}}}),
        json!({}),
        "seccompProfile.type: \"runtime\" is not valid",
    );
}

#[test]
fn unmasked_proc_requires_user_namespace() {
    let mut case = case(
        json!({"name": "c", "securityContext": {"procMount": "Unmasked"}}),
        json!({
            "hostUsers": false,
            "securityContext": {"supplementalGroupsPolicy": "Strict"},
        }),
    );
    case.users = UserNamespace::Pod(IdMapping {
        host_id: 65_536,
        container_id: 0,
        length: 65_536,
    });
    let security = case.config().expect("config").security;
    assert_eq!(security.namespaces.users, case.users);
    assert_eq!(security.masked_paths, Vec::<String>::new());
    assert_eq!(security.readonly_paths, Vec::<String>::new());
    assert_eq!(
        security.supplemental_groups_policy,
        SupplementalGroupsPolicy::Strict
    );
}

#[test]
fn masked_paths_match_upstream() {
    let mut case = case(json!({"name": "c"}), json!({}));
    case.node.thermal_throttle_paths = vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".into()];
    let security = case.config().expect("config").security;
    assert_eq!(
        security.masked_paths.join(" "),
        "/proc/asound /proc/acpi /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats \
         /proc/timer_list /proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware \
         /sys/devices/virtual/powercap /sys/devices/system/cpu/cpu0/thermal_throttle"
    );
    assert_eq!(
        security.readonly_paths.join(" "),
        "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger"
    );
}

#[test]
fn apparmor_annotation_is_supported() {
    let apparmor = |value: &str| {
        // it is the container's own, so it wins over the pod's field
        let pod = json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}});
        let mut case = case(json!({"name": "c"}), pod);
        let key = "container.apparmor.security.beta.kubernetes.io/c".to_owned();
        case.pod.metadata.annotations = Some([(key, value.to_owned())].into());
        case.config().map(|c| c.security.apparmor)
    };
    assert_eq!(
        apparmor("runtime/default"),
        Ok(Some(SecurityProfile::RuntimeDefault))
    );
    assert_eq!(
        apparmor("unconfined"),
        Ok(Some(SecurityProfile::Unconfined))
    );
    assert_eq!(
        apparmor("localhost/x"),
        Ok(Some(SecurityProfile::Localhost("x".to_owned())))
    );
    assert!(apparmor("localhost/").is_err());
}

fn check_user(container: Value, pod: Value, user: (Option<i64>, &str), expected: &str) {
    let mut case = case(
        json!({"name": "c", "securityContext": container}),
        json!({"securityContext": pod}),
    );
    case.user = ImageUser {
        uid: user.0,
        username: user.1.to_owned(),
    };
    let line = case.config().map_or_else(
        |e| e.to_string(),
        |c| {
            format!(
                "{:?} {:?}",
                c.security.run_as_user, c.security.run_as_username
            )
        },
    );
    assert_eq!(line, expected);
}

#[test]
fn user_is_from_spec_or_image() {
    check_user(json!({}), json!({}), (Some(33), ""), "Some(33) \"\"");
    check_user(
        json!({}),
        json!({}),
        (None, "www-data"),
        "None \"www-data\"",
    );
    check_user(json!({}), json!({}), (None, ""), "Some(0) \"\"");
    check_user(
        json!({"runAsUser": 5}),
        json!({}),
        (None, "www-data"),
        "Some(5) \"\"",
    );
}

#[test]
fn run_as_non_root_is_checked_with_upstreams_messages() {
    let pod = "(pod: \"web_ns(u-1)\", container: c)";
    let non_root = || json!({"runAsNonRoot": true});
    check_user(non_root(), json!({}), (Some(33), ""), "Some(33) \"\"");
    check_user(
        json!({"runAsNonRoot": true, "runAsUser": 0}),
        json!({}),
        (Some(33), ""),
        &format!("container's runAsUser breaks non-root policy {pod}"),
    );
    check_user(
        json!({"runAsUser": 9}),
        non_root(),
        (Some(0), ""),
        "Some(9) \"\"",
    );
    check_user(
        json!({"runAsNonRoot": false}),
        non_root(),
        (Some(0), ""),
        "Some(0) \"\"",
    );
    for image in [(Some(0), ""), (None, "")] {
        check_user(
            json!({}),
            non_root(),
            image,
            &format!("container has runAsNonRoot and image will run as root {pod}"),
        );
    }
    check_user(
        json!({}),
        non_root(),
        (None, "www-data"),
        &format!(
            "container has runAsNonRoot and image has non-numeric user (www-data), cannot verify \
             user is non-root {pod}"
        ),
    );
}

#[test]
fn missing_variable_source_is_retryable_config_error() {
    use windlass_types::{Reason, Retry};
    let error = case(
        json!({"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}),
        json!({}),
    )
    .config()
    .expect_err("missing");
    assert_eq!(error.to_string(), "secret \"s\" not found");
    assert_eq!(
        (error.reason(), error.retry()),
        (Reason::CreateContainerConfigError, Retry::Later)
    );
}

#[test]
fn assignment_is_added_to_the_configuration() {
    let text = |text: &str| text.to_owned();
    let container = json!({
        "name": "c",
        "image": "app",
        "env": [{"name": "OWN", "value": "spec"}],
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
    });
    let mut case = case(container, json!({}));
    case.assignment = ContainerAssignment {
        cpus: Some([2, 3].into_iter().collect()),
        exclusive_cpus: true,
        memory_nodes: Some([1].into_iter().collect()),
        devices: vec![Device {
            container_path: text("/dev/gpu0"),
            host_path: text("/dev/gpu0"),
            permissions: text("rw"),
        }],
        mounts: vec![Mount {
            container_path: text("/lib/gpu"),
            host_path: text("/opt/gpu"),
            readonly: true,
            ..Mount::default()
        }],
        envs: [("GPU", "0"), ("OWN", "plugin")]
            .map(|(k, v)| (text(k), text(v)))
            .into(),
        annotations: [(text("vendor.com/gpu"), text("0"))].into(),
        cdi_devices: vec![text("vendor.com/gpu=0")],
    };
    let config = case.config().expect("valid");
    let resources = &config.resources;
    let sets = (
        resources.cpuset_cpus.as_str(),
        resources.cpuset_mems.as_str(),
    );
    assert_eq!((sets, resources.cpu_quota), (("2-3", "1"), -1));
    assert_eq!(config.devices[0].host_path, "/dev/gpu0");
    assert_eq!(config.mounts[0].host_path, "/opt/gpu");
    let expected = [("GPU", "0"), ("OWN", "spec")];
    assert_eq!(config.envs, expected.map(|(k, v)| (text(k), text(v))));
    assert_eq!(config.annotations["vendor.com/gpu"], "0");
    assert_eq!(config.cdi_devices, ["vendor.com/gpu=0"]);
}
