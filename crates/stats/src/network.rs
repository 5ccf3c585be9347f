//! Interfaces of the node and of pods.

use std::path::{Path, PathBuf};

use windlass_types::Timestamp;

use crate::cgroup::{Cgroups, read_all};
use crate::parse::{parse_default_route, parse_net_dev};
use crate::usage::NetworkUsage;

/// Interface that pods have as a rule, for a namespace without a default route (upstream
/// `defaultNetworkInterfaceName`).
const USUAL: &str = "eth0";

/// The interfaces of a network namespace; `net` is the `net` directory of a process in it.
pub(crate) fn read_network(net: &Path, at: Timestamp) -> Option<NetworkUsage> {
    let interfaces = parse_net_dev(&read_all(&net.join("dev")).ok()?);
    let table = read_all(&net.join("route")).unwrap_or_default();
    let routed = parse_default_route(&table);
    let has = |name: &str| interfaces.iter().any(|it| it.name == name);
    let default = routed.filter(|name| has(name));
    let default = default.or_else(|| has(USUAL).then(|| USUAL.to_owned()));
    Some(NetworkUsage {
        at,
        interfaces,
        default,
    })
}

/// The network of a pod, by the first process of those cgroups that can be looked at: the
/// sandbox', or a container's where sandboxes have no process.
pub(crate) fn pod_network(
    cgroups: &Cgroups,
    proc: &Path,
    paths: &[&str],
    at: Timestamp,
) -> Option<NetworkUsage> {
    paths.iter().find_map(|path| {
        let pids = cgroups.pids(path);
        let net = |pid: &u32| -> PathBuf { proc.join(pid.to_string()).join("net") };
        let mut processes = pids.iter().filter(|pid| **pid > 0).map(net);
        processes.find_map(|net| read_network(&net, at))
    })
}
