//! Conversions are lossless in both directions; fields that old runtimes omit have defaults.

use std::collections::BTreeMap;

use windlass_proto::cri_v1 as pb;
use windlass_testing::fake_runtime::convert::{
    auth_from_pb, container_config_from_pb, container_detail_to_pb, container_filter_from_pb,
    nanos, sandbox_config_from_pb, sandbox_detail_to_pb, sandbox_filter_from_pb,
};
use windlass_types::cri::{
    ContainerConfig, ContainerSecurity, Device, DnsConfig, IdMapping, ImageAuth, LinuxResources,
    ListFilter, Mount, MountPropagation, MountedImage, NamespaceMode, NamespaceOptions,
    PortMapping, Protocol, SandboxConfig, SandboxSecurity, SecurityProfile, SelinuxOptions,
    SupplementalGroupsPolicy, UserNamespace,
};
use windlass_types::{ContainerState, Timestamp, names};

use super::*;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn resources() -> LinuxResources {
    LinuxResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit: 1 << 30,
        memory_swap_limit: 1 << 31,
        huge_page_limits: [("2MB".to_owned(), 4 << 20), ("1GB".to_owned(), 0)].into(),
        oom_score_adj: -997,
        unified: map(&[("memory.min", "1024")]),
        cpuset_cpus: "0-2,7".into(),
        cpuset_mems: "0,2".into(),
    }
}

fn namespaces() -> NamespaceOptions {
    NamespaceOptions {
        network: NamespaceMode::Node,
        pid: NamespaceMode::Container,
        ipc: NamespaceMode::Pod,
        users: UserNamespace::Pod(IdMapping {
            host_id: 131_072,
            container_id: 0,
            length: 65_536,
        }),
    }
}

fn selinux() -> SelinuxOptions {
    SelinuxOptions {
        user: "u".into(),
        role: "r".into(),
        type_: "t".into(),
        level: "s0:c1,c2".into(),
    }
}

fn sandbox_config() -> SandboxConfig {
    SandboxConfig {
        name: "web".into(),
        namespace: "shop".into(),
        uid: "1234".into(),
        attempt: 3,
        hostname: "web-0".into(),
        log_directory: "/var/log/pods/shop_web_1234".into(),
        dns: Some(DnsConfig {
            servers: strings(&["10.0.0.10"]),
            searches: strings(&["cluster.local"]),
            options: strings(&["ndots:5"]),
        }),
        port_mappings: vec![PortMapping {
            protocol: Protocol::Sctp,
            container_port: 80,
            host_port: 8080,
            host_ip: "127.0.0.1".into(),
        }],
        labels: map(&[("a", "b")]),
        annotations: map(&[("c", "d")]),
        cgroup_parent: "/kubepods".into(),
        sysctls: map(&[("net.core.somaxconn", "1024")]),
        security: SandboxSecurity {
            namespaces: namespaces(),
            run_as_user: Some(0),
            run_as_group: Some(7),
            supplemental_groups: vec![1, 2],
            supplemental_groups_policy: SupplementalGroupsPolicy::Strict,
            privileged: true,
            readonly_rootfs: true,
            seccomp: SecurityProfile::Localhost("/seccomp/a.json".into()),
            selinux: Some(selinux()),
        },
        overhead: Some(resources()),
        resources: Some(LinuxResources::default()),
    }
}

fn container_config() -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        attempt: 2,
        image: "sha256:abc".into(),
        user_specified_image: "nginx:1".into(),
        command: strings(&["/bin/sh"]),
        args: strings(&["-c", "true"]),
        working_dir: "/srv".into(),
        envs: vec![("B".into(), "2".into()), ("A".into(), "1".into())],
        mounts: vec![Mount {
            container_path: "/data".into(),
            host_path: "/var/lib/data".into(),
            readonly: true,
            selinux_relabel: true,
            propagation: MountPropagation::Bidirectional,
            recursive_read_only: true,
            image: Some(MountedImage {
                image: "sha256:def".into(),
                user_specified_image: "model:1".into(),
                runtime_handler: "kata".into(),
                annotations: map(&[("p", "1")]),
                sub_path: "weights".into(),
            }),
        }],
        devices: vec![Device {
            container_path: "/dev/block".into(),
            host_path: "/var/lib/kubelet/pods/1/volumeDevices/p/v".into(),
            permissions: "mrw".into(),
        }],
        cdi_devices: strings(&["vendor.com/gpu=0"]),
        labels: map(&[("l", "1")]),
        annotations: map(&[("a", "1")]),
        log_path: "app/2.log".into(),
        stdin: true,
        stdin_once: true,
        tty: true,
        stop_signal: "SIGRTMIN+3".into(),
        resources: resources(),
        security: ContainerSecurity {
            pid_target: None,
            namespaces: namespaces(),
            add_capabilities: strings(&["NET_ADMIN"]),
            drop_capabilities: strings(&["ALL"]),
            privileged: true,
            run_as_user: Some(0),
            run_as_username: "nobody".into(), // lang: keep
            run_as_group: Some(5),
            supplemental_groups: vec![3],
            supplemental_groups_policy: SupplementalGroupsPolicy::Strict,
            readonly_rootfs: true,
            no_new_privs: true,
            seccomp: SecurityProfile::Unconfined,
            apparmor: Some(SecurityProfile::RuntimeDefault),
            selinux: Some(selinux()),
            masked_paths: strings(&["/proc/kcore"]),
            readonly_paths: strings(&["/proc/sys"]),
        },
    }
}

#[test]
fn sandbox_config_round_trips() {
    let config = sandbox_config();
    assert_eq!(
        sandbox_config_from_pb(sandbox_config_to_pb(&config)),
        config
    );
}

#[test]
fn container_config_round_trips() {
    let config = container_config();
    assert_eq!(
        container_config_from_pb(container_config_to_pb(&config)),
        config
    );
}

#[test]
#[expect(deprecated, reason = "what older runtimes read")]
fn apparmor_profile_is_sent_in_both_forms() {
    let check = |profile: Option<SecurityProfile>, expected: &str| {
        let mut config = container_config();
        config.security.apparmor = profile;
        let linux = container_config_to_pb(&config).linux.expect("linux");
        let sent = linux.security_context.expect("security");
        assert_eq!(sent.apparmor_profile, expected);
        assert_eq!(sent.apparmor.is_some(), !expected.is_empty());
    };
    check(None, "");
    check(Some(SecurityProfile::RuntimeDefault), "runtime/default");
    check(Some(SecurityProfile::Unconfined), "unconfined");
    check(
        Some(SecurityProfile::Localhost("k8s-web".to_owned())),
        "localhost/k8s-web",
    );
}

#[test]
fn ephemeral_container_joins_pid_namespace_of_its_target() {
    let mut config = container_config();
    config.security.pid_target = Some("c1".into());
    config.security.namespaces.pid = NamespaceMode::Container;
    let sent = container_config_to_pb(&config);
    let security = sent
        .linux
        .as_ref()
        .and_then(|l| l.security_context.as_ref());
    let options = security.and_then(|s| s.namespace_options.as_ref());
    let options = options.expect("namespaces");
    assert_eq!(options.pid(), pb::NamespaceMode::Target);
    assert_eq!(options.target_id, "c1");
    assert_eq!(container_config_from_pb(sent), config);
}

#[test]
fn mounts_use_the_id_mapping_of_their_container() {
    let mut config = container_config();
    let ids = pb::IdMapping {
        host_id: 131_072,
        container_id: 0,
        length: 65_536,
    };
    let sent = container_config_to_pb(&config);
    assert_eq!(sent.mounts[0].uid_mappings, [ids]);
    assert_eq!(sent.mounts[0].gid_mappings, [ids]);
    config.security.namespaces.users = UserNamespace::Node;
    let sent = container_config_to_pb(&config);
    assert!(sent.mounts[0].uid_mappings.is_empty());
    let security = sent.linux.and_then(|linux| linux.security_context);
    let namespaces = security.and_then(|security| security.namespace_options);
    let users = namespaces.and_then(|namespaces| namespaces.userns_options);
    assert_eq!(
        users.map(|users| users.mode()),
        Some(pb::NamespaceMode::Node)
    );
}

#[test]
fn user_zero_is_sent_and_no_user_is_omitted() {
    let mut config = container_config();
    let sent = container_config_to_pb(&config)
        .linux
        .expect("linux")
        .security_context;
    assert_eq!(
        sent.expect("security").run_as_user,
        Some(pb::Int64Value { value: 0 })
    );
    config.security.run_as_user = None;
    let sent = container_config_to_pb(&config)
        .linux
        .expect("linux")
        .security_context;
    assert_eq!(sent.expect("security").run_as_user, None);
}

#[test]
fn filters_round_trip_and_empty_filter_is_none() {
    let filter = ListFilter {
        id: Some("c1".into()),
        sandbox: Some("s1".into()),
        labels: map(&[("x", "y")]),
    };
    assert_eq!(
        container_filter_from_pb(container_filter_to_pb(&filter)),
        filter
    );
    assert!(container_filter_to_pb(&ListFilter::default()).is_none());
    assert!(sandbox_filter_to_pb(&ListFilter::default()).is_none());
    let of_pod = ListFilter::of_pod(&"1234".into());
    assert_eq!(
        sandbox_filter_from_pb(sandbox_filter_to_pb(&of_pod)),
        of_pod
    );
}

#[test]
fn credentials_round_trip() {
    let auth = ImageAuth {
        username: "u".into(),
        password: "p".into(),
        auth: "a".into(),
        server_address: "r".into(),
        identity_token: "i".into(),
        registry_token: "t".into(),
    };
    assert!(auth_from_pb(auth_to_pb(&auth)) == auth);
}

#[test]
fn zero_time_is_none() {
    assert_eq!(moment(0), None);
    assert_eq!(nanos(None), 0);
    let time: Timestamp = "2026-01-02T03:04:05.000000006Z".parse().expect("time");
    assert_eq!(moment(nanos(Some(time))), Some(time));
}

#[test]
fn container_status_includes_annotations() {
    let detail = container_detail_from_pb(pb::ContainerStatus {
        id: "c1".into(),
        metadata: Some(pb::ContainerMetadata {
            name: "app".into(),
            attempt: 9,
        }),
        state: 2,
        created_at: 1_000_000_000,
        started_at: 0,
        finished_at: 3_000_000_000,
        exit_code: 137,
        image: Some(pb::ImageSpec {
            image: "nginx:1".into(),
            ..Default::default()
        }),
        image_ref: "nginx@sha256:abc".into(),
        reason: "OOMKilled".into(),
        annotations: map(&[
            (names::ANN_CONTAINER_HASH, "fe12ab"),
            (names::ANN_RESTART_COUNT, "4"),
        ]),
        resources: Some(pb::ContainerResources {
            linux: Some(pb::LinuxContainerResources {
                cpu_shares: 512,
                memory_limit_in_bytes: 64 << 20,
                ..Default::default()
            }),
        }),
        user: Some(pb::ContainerUser {
            linux: Some(pb::LinuxContainerUser {
                uid: 1000,
                gid: 3000,
                supplemental_groups: vec![3000, 4000],
            }),
        }),
        stop_signal: pb::Signal::Sigusr1 as i32,
        mounts: vec![pb::Mount {
            container_path: "/data".into(),
            host_path: "/var/lib/data".into(),
            readonly: true,
            recursive_read_only: true,
            ..Default::default()
        }],
        ..Default::default()
    });
    let observed = &detail.observed;
    assert_eq!(observed.state, ContainerState::Exited);
    assert_eq!(observed.started_at, None);
    assert_eq!(observed.finished_at.map(|t| t.as_second()), Some(3));
    assert_eq!(
        (observed.hash, observed.restart_count),
        (Some(0x00fe_12ab), 4)
    );
    assert_eq!(observed.image_id, "nginx@sha256:abc");
    let user = observed.user.as_ref().expect("user");
    assert_eq!((user.uid, user.gid), (1000, 3000));
    assert_eq!(user.supplemental_groups, [3000, 4000]);
    assert_eq!(observed.stop_signal, "SIGUSR1");
    assert_eq!(observed.recursive_read_only, ["/data"]);
    let resources = observed.resources.as_ref().expect("resources");
    assert_eq!(
        (resources.cpu_shares, resources.memory_limit),
        (512, 64 << 20)
    );
    assert_eq!(
        container_detail_from_pb(container_detail_to_pb(&detail, 9)),
        detail
    );
}

#[test]
fn fields_missing_in_old_runtimes_are_none() {
    let told = container_detail_from_pb(pb::ContainerStatus::default()).observed;
    assert_eq!((told.user, told.resources), (None, None));
    assert_eq!(told.stop_signal, "");
    let unknown = pb::ContainerStatus {
        stop_signal: 999,
        ..Default::default()
    };
    assert_eq!(container_detail_from_pb(unknown).observed.stop_signal, "");
}

#[test]
fn unknown_enum_value_is_state_unknown() {
    let status = pb::ContainerStatus {
        state: 99,
        ..Default::default()
    };
    assert_eq!(
        container_detail_from_pb(status).observed.state,
        ContainerState::Unknown
    );
}

#[test]
fn host_network_sandbox_has_no_pod_addresses() {
    let mut status = pb::PodSandboxStatus {
        network: Some(pb::PodSandboxNetworkStatus {
            ip: "10.1.0.2".into(),
            additional_ips: vec![
                pb::PodIp {
                    ip: "fd00::2".into(),
                },
                pb::PodIp {
                    ip: "nonsense".into(),
                },
            ],
        }),
        ..Default::default()
    };
    let detail = sandbox_detail_from_pb(status.clone());
    assert_eq!(format!("{:?}", detail.ips), "[10.1.0.2, fd00::2]");
    assert_eq!(
        sandbox_detail_from_pb(sandbox_detail_to_pb(&detail)),
        detail
    );

    status.linux = Some(pb::LinuxPodSandboxStatus {
        namespaces: Some(pb::Namespace {
            options: Some(pb::NamespaceOption {
                network: 2,
                ..Default::default()
            }),
        }),
    });
    let detail = sandbox_detail_from_pb(status);
    assert!(detail.host_network && detail.ips.is_empty(), "{detail:?}");
}

#[test]
fn handlers_are_sorted_and_missing_features_are_false() {
    let handler = |name: &str, features| pb::RuntimeHandler {
        name: name.into(),
        features,
    };
    let all = pb::RuntimeHandlerFeatures {
        recursive_read_only_mounts: true,
        user_namespaces: true,
    };
    let handlers = runtime_handlers_from_pb(vec![handler("runc", Some(all)), handler("", None)]);
    let line = |h: &windlass_types::cri::RuntimeHandler| {
        format!(
            "{}:{}:{}",
            h.name, h.recursive_read_only_mounts, h.user_namespaces
        )
    };
    let lines: Vec<_> = handlers.iter().map(line).collect();
    assert_eq!(lines, [":false:false", "runc:true:true"]);
}

#[test]
fn false_or_missing_condition_has_an_error() {
    let status = runtime_status_from_pb(pb::RuntimeStatus {
        conditions: vec![pb::RuntimeCondition {
            r#type: "NetworkReady".into(),
            status: false,
            reason: "NetworkPluginNotReady".into(),
            message: "cni plugin not initialized".into(),
        }],
    });
    assert_eq!(
        status.network_error.as_deref(),
        Some("NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized")
    );
    assert_eq!(
        status.runtime_error.as_deref(),
        Some("the runtime does not report RuntimeReady")
    );
}
