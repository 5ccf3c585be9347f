//! Labels, annotations and paths that other programs read (`crictl`, log shippers, the Go kubelet).

/// Sandbox and container label: the pod's name.
pub const LABEL_POD_NAME: &str = "io.kubernetes.pod.name";
/// Sandbox and container label: the pod's namespace.
pub const LABEL_POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Sandbox and container label: the pod's UID.
pub const LABEL_POD_UID: &str = "io.kubernetes.pod.uid";
/// Container label: the container's name in the pod spec.
pub const LABEL_CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Container annotation: lower-case hex FNV-1a-32 of the container's name and image.
pub const ANN_CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// Container annotation: decimal restart count of this instance.
pub const ANN_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Container annotation: path inside the container of the termination message.
pub const ANN_TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Container annotation: `File` or `FallbackToLogsOnError`.
pub const ANN_TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Container annotation: JSON of the preStop handler.
pub const ANN_PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// Container annotation: JSON of the container's ports.
pub const ANN_PORTS: &str = "io.kubernetes.container.ports";
/// Container annotation: `terminationGracePeriodSeconds` of the pod, decimal.
pub const ANN_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Container annotation: `deletionGracePeriodSeconds` of the pod, decimal.
pub const ANN_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";

/// Pod annotation: source of the pod (`file`, `http`, `api`).
pub const ANN_CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Pod annotation: when this agent first received the pod, RFC 3339 with nanoseconds.
pub const ANN_CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Pod annotation: hash of a static pod's manifest, equal to its UID.
pub const ANN_CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Pod annotation: on a mirror pod, the hash of the static pod it mirrors.
pub const ANN_CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Condition of a pod whose resize is not allocated.
pub const RESIZE_PENDING: &str = "PodResizePending";
/// CPU and memory with which a container was created, see `ContainerSizes`.
pub const ANN_SIZES: &str = "windlass.dev/sizes";
/// Internal annotation: the pod is from the checkpoint, and the API server has not confirmed it.
pub const ANN_RESTORED: &str = "windlass.dev/restored";

/// Default directory of container logs, `podLogsDir`.
pub const DEFAULT_POD_LOGS_DIR: &str = "/var/log/pods";
/// Directory of the per-container log symlinks that log shippers read.
pub const CONTAINER_LOGS_DIR: &str = "/var/log/containers";

/// `net/ipv4/conf/eth0.1/x` and `net.ipv4.conf.eth0/1.x` name the same parameter: whichever
/// separator comes first is the separator. The runtime wants dots.
pub fn dotted_sysctl(name: &str) -> String {
    if name
        .find(['.', '/'])
        .is_none_or(|at| name.as_bytes()[at] == b'.')
    {
        return name.to_owned();
    }
    name.chars()
        .map(|c| match c {
            '/' => '.',
            '.' => '/',
            c => c,
        })
        .collect()
}
