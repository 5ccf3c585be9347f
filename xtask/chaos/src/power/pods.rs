//! The pods of the machine, and the files that its system needs for them.

use std::path::Path;

use serde_json::{Value, json};
use windlass_testbed::agent::NODE_NAME;

use crate::fleet::{Kind, Member};

/// Directory of the hostPath volumes in the machine.
const HOST_DIR: &str = "/var/lib/windlass-power";
/// Directory of the manifests of static pods in the machine.
pub(crate) const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Name of the Secret of the pods of the API server.
pub(crate) const SECRET: &str = "password";

/// A file of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFile {
    /// Absolute path.
    pub path: String,
    /// Content.
    pub text: String,
}

/// Pods that exist during the whole run: half of them static; servers with probes and an emptyDir,
/// crash loops, a pod with layers and a task.
pub(crate) fn members(count: usize) -> Vec<Member> {
    let member = |number: usize| {
        let (kind, api) = match number % 6 {
            0 => (Kind::Web, false),
            1 => (Kind::Web, true),
            2 => (Kind::CrashLoop, true),
            3 => (Kind::Layered, false),
            4 => (Kind::Task, true),
            _ => (Kind::CrashLoop, false),
        };
        Member {
            name: format!("p{number}"),
            kind,
            api,
        }
    };
    (0..count).map(member).collect()
}

/// A pod that is created during the run.
pub(crate) fn created(number: usize) -> Member {
    Member {
        name: format!("e{number}"),
        kind: Kind::Web,
        api: true,
    }
}

/// The pod object; pods of the API server have a Secret volume too.
pub(crate) fn manifest(member: &Member) -> Value {
    let mut manifest = member.manifest(Path::new(HOST_DIR));
    if member.api {
        let spec = &mut manifest["spec"];
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.push(json!({ "name": SECRET, "secret": { "secretName": SECRET } }));
        }
        if let Some(mounts) = spec["containers"][0]["volumeMounts"].as_array_mut() {
            mounts.push(json!({ "name": SECRET, "mountPath": "/password" }));
        }
    }
    manifest
}

/// Configuration of the agent and its unit, and the manifests of static pods.
pub(crate) fn files(members: &[Member], kubeconfig: &Value) -> Vec<MachineFile> {
    let file = |path: &str, text: String| MachineFile {
        path: path.to_owned(),
        text,
    };
    let mut files = vec![
        file(
            "/etc/windlass/kubelet.yaml",
            format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\n\
                 kind: KubeletConfiguration\n\
                 staticPodPath: {MANIFESTS}\n\
                 containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n\
                 cgroupDriver: systemd\n\
                 failSwapOn: false\n\
                 evictionHard: {{memory.available: 1Mi}}\n"
            ),
        ),
        file("/etc/windlass/kubeconfig", kubeconfig.to_string()),
        file(
            "/etc/systemd/system/windlass.service.d/power.conf",
            // the emulated processor is slower than the unit expects
            format!(
                "[Service]\n\
                 ExecStart=\n\
                 ExecStart=/usr/local/bin/windlass --config /etc/windlass/kubelet.yaml \
                 --kubeconfig /etc/windlass/kubeconfig --hostname-override {NODE_NAME}\n\
                 TimeoutStartSec=600\n\
                 WatchdogSec=300s\n"
            ),
        ),
        file(&format!("{HOST_DIR}/.keep"), String::new()),
    ];
    for member in members.iter().filter(|member| !member.api) {
        let path = format!("{MANIFESTS}/{}.yaml", member.name);
        files.push(file(&path, manifest(member).to_string()));
    }
    files
}

#[cfg(test)]
mod tests {
    use windlass_types::Pod;

    use super::*;

    #[test]
    fn six_pods_have_every_kind_from_both_sources() {
        let six = members(6);
        for kind in [Kind::Web, Kind::Layered, Kind::CrashLoop, Kind::Task] {
            assert!(six.iter().any(|member| member.kind == kind), "{kind:?}");
        }
        assert_eq!(six.iter().filter(|member| member.api).count(), 3);
    }

    #[test]
    fn every_manifest_of_the_machine_is_a_pod() {
        for member in members(6).iter().chain([&created(1)]) {
            let pod: Pod = serde_json::from_value(manifest(member)).unwrap();
            let volumes = pod.spec.unwrap().volumes.unwrap_or_default();
            let secrets = volumes.iter().filter(|volume| volume.secret.is_some());
            assert_eq!(secrets.count(), usize::from(member.api), "{}", member.name);
        }
    }

    #[test]
    fn static_pods_are_files_and_others_are_not() {
        let files = files(&members(6), &json!({}));
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let manifests = paths.iter().filter(|path| path.starts_with(MANIFESTS));
        assert_eq!(manifests.count(), 3);
        assert!(paths.contains(&"/etc/kubernetes/manifests/p0.yaml"));
    }
}
