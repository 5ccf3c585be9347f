//! Node settings from configuration and host.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_config::node::NodeIdentity;
use windlass_config::{Config, FeatureGates};
use windlass_metrics::Metrics;
use windlass_node_rules::admission::{AdmissionPolicy, SysctlAllowList};
use windlass_node_rules::node_conditions::NodeHealth;
use windlass_node_rules::node_object::{
    MachineFacts, NodeObjectInput, NodeSettings, ResourceSettings, RuntimeFacts, initial_node,
};
use windlass_node_rules::resize::ResizePolicy;
use windlass_objects::{CredentialProviders, CredentialProvidersError};
use windlass_pod_lifecycle::shutdown::{PriorityPeriod, ShutdownPeriods};
use windlass_runtime_config::port::ImageCredentials;
use windlass_types::corev1::{Node, Taint};
use windlass_types::{Clock, Timestamp};

use crate::cluster::ClusterParts;

/// The version of Kubernetes that this agent's interfaces follow.
pub const KUBERNETES_VERSION: &str = "v1.36.2";

/// Returns the `kubeletVersion` of the node status.
pub fn kubelet_version() -> String {
    format!(
        "{KUBERNETES_VERSION}+windlass.{}",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the node settings of configuration and flags, without the taint of an external cloud.
pub fn node_settings(config: &Config, identity: &NodeIdentity) -> NodeSettings {
    let kubelet = &config.kubelet;
    let taints = kubelet.register_with_taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.clone(),
        time_added: None,
    });
    let named = |ip: &str| !ip.is_empty() && ip != "0.0.0.0" && ip != "::";
    NodeSettings {
        name: identity.name.clone(),
        hostname: identity.name.clone(),
        ips: identity.ips.clone(),
        ips_specified: config.flags.node_ip.as_deref().is_some_and(named),
        external_cloud: config.flags.cloud_provider == "external",
        labels: config.flags.node_labels.clone().unwrap_or_default().0,
        taints: taints.collect(),
        unschedulable: false,
        provider_id: kubelet.provider_id.clone(),
        controller_attach_detach: kubelet.enable_controller_attach_detach,
        kubelet_version: kubelet_version(),
        kubelet_port: kubelet.port,
        max_images: usize::try_from(kubelet.node_status_max_images).ok(),
        declared_features: declared_features(&config.gates)
            .into_iter()
            .flatten()
            .collect(),
        resources: ResourceSettings {
            max_pods: u32::try_from(kubelet.max_pods).unwrap_or(0),
            pods_per_core: u32::try_from(kubelet.pods_per_core).unwrap_or(0),
            kube_reserved: kubelet.kube_reserved.clone(),
            system_reserved: kubelet.system_reserved.clone(),
            eviction_hard: kubelet.eviction_hard.clone(),
            local_storage: kubelet.local_storage_capacity_isolation,
        },
    }
}

/// Returns the node object to register, before the first response of the runtime.
pub fn node_before_registration(
    settings: &NodeSettings,
    machine: &MachineFacts,
    now: Timestamp,
) -> Node {
    let input = NodeObjectInput {
        settings,
        machine,
        runtime: &RuntimeFacts::default(),
        health: &NodeHealth::default(),
        volumes_in_use: None,
        plugin_resources: &Default::default(),
        now,
    };
    initial_node(&input).node
}

/// Returns what host and configuration allow pods.
pub(super) fn admission_policy(
    config: &Config,
    machine: &MachineFacts,
) -> anyhow::Result<Arc<AdmissionPolicy>> {
    let kernel = kernel_version(&machine.kernel_version);
    let sysctls = SysctlAllowList::new(kernel, &config.kubelet.allowed_unsafe_sysctls)?;
    // as upstream: on, mounted, and not inside a container
    let app_armor = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled")
        .is_ok_and(|text| text.starts_with('Y'))
        && Path::new("/sys/kernel/security/apparmor").exists()
        && std::env::var_os("container").is_none_or(|name| name.is_empty());
    Ok(Arc::new(AdmissionPolicy {
        sysctls,
        app_armor,
        pod_level_resources: config.gates.enabled("PodLevelResources"),
        declared_features: declared_features(&config.gates),
        resize: resize_policy(config),
    }))
}

fn resize_policy(config: &Config) -> ResizePolicy {
    let (gates, kubelet) = (&config.gates, &config.kubelet);
    ResizePolicy {
        init_containers: gates.enabled("InPlacePodVerticalScalingInitContainers"),
        pod_level: gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        exclusive_cpus: kubelet.cpu_manager_policy == "static"
            && !gates.enabled("InPlacePodVerticalScalingExclusiveCPUs"),
        exclusive_memory: kubelet.memory_manager_policy == "Static"
            && !gates.enabled("InPlacePodVerticalScalingExclusiveMemory"),
        swap: kubelet.memory_swap.swap_behavior == "LimitedSwap",
    }
}

/// Features to declare in the node status, which scheduler and API server check. `None` without the
/// gate.
fn declared_features(gates: &FeatureGates) -> Option<BTreeSet<String>> {
    let features = [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ];
    let on = features.into_iter().filter(|name| gates.enabled(name));
    gates
        .enabled("NodeDeclaredFeatures")
        .then(|| on.map(str::to_owned).collect())
}

/// Major and minor version of `6.1.0-18-amd64`; 0.0 if malformed.
fn kernel_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Returns the shutdown grace periods by priority.
pub(super) fn shutdown_periods(config: &Config) -> ShutdownPeriods {
    let kubelet = &config.kubelet;
    if !config.gates.enabled("GracefulNodeShutdown") {
        return ShutdownPeriods::default();
    }
    let by_priority = &kubelet.shutdown_grace_period_by_pod_priority;
    if by_priority.is_empty()
        || !config
            .gates
            .enabled("GracefulNodeShutdownBasedOnPodPriority")
    {
        return ShutdownPeriods::from_totals(
            kubelet.shutdown_grace_period.to_std(),
            kubelet.shutdown_grace_period_critical_pods.to_std(),
        );
    }
    let periods = by_priority.iter().map(|entry| {
        let seconds = u64::try_from(entry.shutdown_grace_period_seconds).unwrap_or(0);
        PriorityPeriod {
            priority: entry.priority,
            period: Duration::from_secs(seconds),
        }
    });
    ShutdownPeriods::by_priority(periods.collect())
}

/// Returns the directories of the node's registry credentials.
pub(super) fn credential_dirs(root_dir: &Path) -> windlass_objects::CredentialDirs {
    windlass_objects::CredentialDirs {
        root_dir: root_dir.to_owned(),
        work_dir: std::env::current_dir().unwrap_or_default(),
        home: std::env::var_os("HOME").map(Into::into),
    }
}

/// Loads the credential provider plugins of the flags. Blocks on the disk.
pub(super) fn credential_providers(
    config: &Config,
    metrics: &Metrics,
) -> Result<Option<CredentialProviders>, CredentialProvidersError> {
    let flags = &config.flags;
    let file = flags.image_credential_provider_config.as_deref();
    let bin_dir = flags.image_credential_provider_bin_dir.as_deref();
    let Some((file, bin_dir)) = file.zip(bin_dir) else {
        return Ok(None);
    };
    let tokens = "KubeletServiceAccountTokenForCredentialProviders";
    let tokens = config.gates.enabled(tokens);
    CredentialProviders::load(file, bin_dir, tokens, metrics.plugins.clone()).map(Some)
}

/// Adds API server access to the plugins, unless standalone.
pub(super) fn image_credentials(
    providers: CredentialProviders,
    cluster: Option<&ClusterParts>,
    clock: &Arc<dyn Clock>,
) -> Arc<dyn ImageCredentials> {
    Arc::new(match cluster {
        Some(cluster) => providers.with_api(&cluster.clients, Arc::clone(clock)),
        None => providers,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{declared_features, kernel_version};
    use windlass_config::FeatureGates;

    #[test]
    fn node_declares_features_of_enabled_gates() {
        let restarts_all = "RestartAllContainersOnContainerExits";
        let websockets = "ExtendWebSocketsToKubelet";
        let check = |off: &[&str], expected: Option<&[&str]>| {
            let asked: BTreeMap<String, bool> =
                off.iter().map(|&name| (name.to_owned(), false)).collect();
            let gates = FeatureGates::new(&asked).expect("gates");
            let declared = declared_features(&gates);
            let expected =
                expected.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            assert_eq!(declared, expected, "{off:?}");
        };
        let sizes = [
            "InPlacePodLevelResourcesVerticalScaling",
            "InPlacePodVerticalScalingInitContainers",
        ];
        let [pod_level, init] = sizes;
        check(&[], Some(&[websockets, pod_level, init, restarts_all]));
        check(&[restarts_all], Some(&[websockets, pod_level, init]));
        check(&[websockets], Some(&[pod_level, init, restarts_all]));
        check(&sizes, Some(&[websockets, restarts_all]));
        // with every gate that depends on it
        check(
            &[
                "NodeDeclaredFeatures",
                websockets,
                "InPlacePodLevelResourcesVerticalScaling",
                "InPlacePodVerticalScalingInitContainers",
                "UserNamespacesHostNetworkSupport",
                restarts_all,
            ],
            None,
        );
    }

    #[test]
    fn kernel_version_has_major_and_minor() {
        assert_eq!(kernel_version("6.1.0-18-amd64"), (6, 1));
        assert_eq!(kernel_version("5.15"), (5, 15));
        assert_eq!(kernel_version(""), (0, 0));
    }
}
