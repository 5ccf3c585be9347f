//! Disk usage of container logs for `/metrics`.

use windlass_types::PodUid;

use crate::exposition::{Text, gauge};

/// Estimated bytes of a sample, so that the text is allocated once.
const SAMPLE: usize = 200;

/// Logs of one container: the current file and the rotated ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogUsage {
    /// UID of the pod.
    pub uid: PodUid,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Allocated bytes.
    pub bytes: u64,
}

/// Returns `kubelet_container_log_filesystem_used_bytes{uid,namespace,pod,container}`; empty
/// without logs.
pub fn log_metrics(logs: &[LogUsage]) -> String {
    let mut text = Text::with_capacity(logs.len() * SAMPLE);
    text.family(gauge(
        "kubelet_container_log_filesystem_used_bytes",
        "[ALPHA] Bytes used by the container's logs on the filesystem.",
    ));
    for log in logs {
        let labels = [
            ("container", log.container.as_str()),
            ("namespace", &log.namespace),
            ("pod", &log.pod),
            ("uid", log.uid.as_str()),
        ];
        text.sample(&[&labels], log.bytes as f64, None);
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::{LogUsage, log_metrics};

    #[test]
    fn log_metrics_are_by_container_and_empty_without_logs() {
        let log = LogUsage {
            uid: "u1".into(),
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            container: "app".to_owned(),
            bytes: 8192,
        };
        assert_eq!(
            log_metrics(&[log]),
            "# HELP kubelet_container_log_filesystem_used_bytes [ALPHA] Bytes used by the \
             container's logs on the filesystem.\n\
             # TYPE kubelet_container_log_filesystem_used_bytes gauge\n\
             kubelet_container_log_filesystem_used_bytes{container=\"app\",namespace=\"default\",\
             pod=\"web\",uid=\"u1\"} 8192\n"
        );
        assert_eq!(log_metrics(&[]), "");
    }
}
