//! Network interfaces of the node and of pods.

use std::path::{Path, PathBuf};

use windlass_types::Timestamp;

use crate::cgroup::{Cgroups, read_all};
use crate::parse::{parse_default_route, parse_net_dev};
use crate::usage::NetworkUsage;

/// Default interface of a namespace without a default route (upstream
/// `defaultNetworkInterfaceName`).
const DEFAULT_INTERFACE: &str = "eth0";

/// Reads the interfaces of a network namespace; `net` is the `net` directory of a process in it.
pub(crate) fn read_network(net: &Path, at: Timestamp) -> Option<NetworkUsage> {
    let interfaces = parse_net_dev(&read_all(&net.join("dev")).ok()?);
    let table = read_all(&net.join("route")).unwrap_or_default();
    let routed = parse_default_route(&table);
    let has = |name: &str| interfaces.iter().any(|it| it.name == name);
    let default = routed.filter(|name| has(name));
    let default = default.or_else(|| has(DEFAULT_INTERFACE).then(|| DEFAULT_INTERFACE.to_owned()));
    Some(NetworkUsage {
        at,
        interfaces,
        default,
    })
}

/// Reads the network of a pod from the first readable process of these cgroups: of the sandbox, or
/// of a container if the sandbox has no process.
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
