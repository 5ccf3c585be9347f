//! Parts of volumes, images as volumes, and what mounts may ask of the runtime.

use serde_json::{Value, json};
use windlass_types::cri::MountedImage;
use windlass_types::{MountedContent, MountedVolume};

use super::super::sub_paths;
use super::{Case, HOSTS, TERMINATION_LOG, case, mounting, node_path, volume};

/// A container `c` with these variables and one mount of the volume `data`.
fn with_env(env: Value, mount: Value) -> Case {
    let container = json!({"name": "c", "env": env, "volumeMounts": [mount]});
    case(container, json!({}))
}

/// What is bound before the container is made, then its mounts; or the error.
fn bound_and_mounted(case: &Case) -> String {
    match sub_paths(case.input()) {
        Ok(parts) => {
            let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
            let mounts = case.mounts();
            let mounts = mounts
                .split(&format!("; {HOSTS}"))
                .next()
                .unwrap_or(&mounts);
            format!("{} | {mounts}", parts.join("; "))
        }
        Err(error) => {
            assert_eq!(
                case.mounts(),
                error.to_string(),
                "the same error for each caller"
            );
            error.to_string()
        }
    }
}

#[test]
fn sub_path_is_bound_and_bind_target_is_mounted() {
    const TARGET: &str = "/var/lib/kubelet/pods/u-1/volume-subpaths/data/c/0";
    let check = |env: Value, mount: Value, expected: &str| {
        let found = bound_and_mounted(&with_env(env, mount));
        assert_eq!(found, expected.replace("TARGET", TARGET));
    };
    check(
        json!([]),
        json!({"name": "data", "mountPath": "/x", "subPath": "a//./b", "readOnly": true}),
        "TARGET<-/vol/data//a/b | /x<-TARGET ro Private",
    );
    check(
        json!([]),
        json!({"name": "data", "mountPath": "/x", "subPath": "."}),
        "TARGET<-/vol/data// | /x<-TARGET Private",
    );
    check(
        json!([]),
        json!({"name": "data", "mountPath": "/x"}),
        " | /x<-/vol/data Private",
    );
    let env = json!([
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "UP", "value": ".."},
        {"name": "ROOT", "value": "/etc"},
        {"name": "EMPTY", "value": ""},
    ]);
    let expression = |text: &str| json!({"name": "data", "mountPath": "/x", "subPathExpr": text});
    check(
        env.clone(),
        expression("logs/$(POD)/$$(POD)"),
        "TARGET<-/vol/data//logs/web/$(POD) | /x<-TARGET Private",
    );
    check(
        env.clone(),
        expression("$(POD)/$(UNSET)/$(EMPTY)/$(UNSET)"),
        "missing value for EMPTY, UNSET",
    );
    check(
        env.clone(),
        expression("a/$(UP)/b"),
        "unable to provision SubPath `a/../b`: must not contain '..'",
    );
    check(
        env,
        expression("$(ROOT)"),
        "error SubPath `/etc` must not be an absolute path",
    );
}

#[test]
fn bind_mounts_are_named_after_the_volume_directory() {
    let check = |source: &str, expected: &str| {
        let mut case = mounting(json!({"name": "data", "mountPath": "/x", "subPath": "a"}));
        let volumes = "/var/lib/kubelet/pods/u-1/volumes";
        let source = source.replace("VOLUMES", volumes);
        case.volumes
            .insert("data".to_owned(), volume(&source, false));
        let parts = sub_paths(case.input()).expect("parts");
        let below = parts[0].target.strip_prefix("/var/lib/kubelet/pods/u-1");
        assert_eq!(below.expect("of the pod").to_str(), Some(expected));
    };
    check(
        "VOLUMES/kubernetes.io~csi/pv-7/mount",
        "volume-subpaths/pv-7/c/0",
    );
    check(
        "VOLUMES/kubernetes.io~empty-dir/data",
        "volume-subpaths/data/c/0",
    );
    check("/srv/data", "volume-subpaths/data/c/0");
    let mut case = mounting(json!({"name": "data", "mountPath": "/x", "subPath": "a"}));
    case.pod_volumes = vec![node_path(None)];
    let parts = sub_paths(case.input()).expect("parts");
    assert!(parts[0].target.ends_with("volume-subpaths/pv-7/c/0"));
    let mounts = case.config().expect("config").mounts;
    assert!(mounts[0].host_path.ends_with("volume-subpaths/pv-7/c/0"));
}

#[test]
fn mount_is_recursively_read_only_if_supported() {
    let check = |mount: Value, supported: bool, expected: &str| {
        let mut mount = mount;
        mount["name"] = "data".into();
        mount["mountPath"] = "/x".into();
        let mut case = mounting(mount);
        case.recursive_read_only = supported;
        let mounts = case.mounts();
        assert_eq!(mounts.split(&format!("; {HOSTS}")).next(), Some(expected));
    };
    let mount = |mode: &str| json!({"readOnly": true, "recursiveReadOnly": mode});
    check(mount("Disabled"), true, "/x<-/vol/data ro Private");
    check(mount("IfPossible"), true, "/x<-/vol/data rro Private");
    check(mount("IfPossible"), false, "/x<-/vol/data ro Private");
    check(mount("Enabled"), true, "/x<-/vol/data rro Private");
    check(
        mount("Enabled"),
        false,
        "failed to resolve recursive read-only mode: volume \"data\" requested recursive \
         read-only mode, but it is not supported by the runtime",
    );
    check(
        json!({"recursiveReadOnly": "Enabled"}),
        true,
        "failed to resolve recursive read-only mode: volume \"data\" requested recursive \
         read-only mode, but it is not read-only",
    );
    check(
        json!({
            "readOnly": true, "recursiveReadOnly": "IfPossible",
            "mountPropagation": "HostToContainer",
        }),
        true,
        "failed to resolve recursive read-only mode: volume \"data\" requested recursive \
         read-only mode, but it is not compatible with propagation \"HostToContainer\"",
    );
    check(
        mount("Sometimes"),
        true,
        "failed to resolve recursive read-only mode: unknown recursive read-only mode \
         \"Sometimes\"",
    );
}

#[test]
fn image_volume_mounts_resolved_image() {
    let image = || MountedVolume {
        content: MountedContent::Image {
            reference: "registry/model:1".to_owned(),
            pull_policy: "IfNotPresent".to_owned(),
        },
        read_only: true,
        relabel: true,
    };
    let mut case = mounting(json!({"name": "model", "mountPath": "/m", "subPath": "weights"}));
    case.volumes.insert("model".to_owned(), image());
    assert_eq!(
        case.mounts(),
        "cannot find volume \"model\" to mount into container \"c\"",
        "not pulled"
    );
    let resolved = MountedImage {
        image: "sha256:abc".to_owned(),
        ..MountedImage::default()
    };
    case.images.insert("model".to_owned(), resolved);
    let expected = format!("/m<-sha256:abc//weights ro Private; {HOSTS}; {TERMINATION_LOG}");
    assert_eq!(case.mounts(), expected);
    let parts = sub_paths(case.input()).expect("parts");
    assert_eq!(parts, [], "the runtime finds the part itself");
}

#[test]
fn mount_propagation_requires_shared_mount() {
    let check = |source: &str, expected: &str| {
        let mut case = mounting(json!({
            "name": "data", "mountPath": "/x", "mountPropagation": "Bidirectional",
        }));
        case.node.root_shared = false;
        case.volumes
            .insert("data".to_owned(), volume(source, false));
        let mounts = case.mounts();
        assert_eq!(mounts.split(&format!("; {HOSTS}")).next(), Some(expected));
    };
    check(
        "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/data",
        "volume \"data\": mount propagation needs shared mounts, and /var/lib/kubelet is not on one",
    );
    // what lies elsewhere is the runtime's to judge
    check("/srv", "/x<-/srv Bidirectional");
}
