//! Cgroup paths of containers.

/// Name of the cgroup of all pods, alone or after the name of its parent slice.
const ALL_PODS: &str = "kubepods";
/// Suffix of systemd's slices.
const SLICE: &str = ".slice";

/// Returns the cgroup of the container that `path` is in: the one below the cgroup of the pod.
/// Outside of pods, and for the pod itself, it is `path`.
///
/// The first match counts: a container names only what is below its own cgroup.
pub fn container_cgroup(path: &str) -> &str {
    let (mut end, mut in_pods, mut in_pod) = (0, false, false);
    for name in path.split_inclusive('/') {
        end += name.len();
        let name = name.trim_end_matches('/');
        if in_pod {
            return path.get(..end).unwrap_or(path).trim_end_matches('/');
        }
        match in_pods {
            true => in_pod = is_pod(name),
            false => in_pods = is_all_pods(name),
        }
    }
    path
}

/// True for the cgroup of all pods, with either cgroup driver.
fn is_all_pods(name: &str) -> bool {
    let slice = name.strip_suffix(SLICE);
    name == ALL_PODS || slice.is_some_and(|it| it.rsplit('-').next() == Some(ALL_PODS))
}

/// True for the cgroup of a pod, with either cgroup driver.
pub(crate) fn is_pod(name: &str) -> bool {
    match name.strip_suffix(SLICE) {
        Some(slice) => slice
            .rsplit('-')
            .next()
            .is_some_and(|it| it.starts_with("pod")),
        None => name.starts_with("pod"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        assert_eq!(container_cgroup(path), expected, "{path}");
    }

    #[test]
    fn container_is_below_its_pod() {
        check("/kubepods/burstable/podu/c", "/kubepods/burstable/podu/c");
        check("/kubepods/podu/c/nested/deep", "/kubepods/podu/c");
        check(
            "/windlass/kubepods/besteffort/podu/c/",
            "/windlass/kubepods/besteffort/podu/c",
        );
        let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";
        let container = format!("{pod}/cri-containerd-c.scope");
        check(&container, &container);
        check(&format!("{container}/init.scope"), &container);
        let pod = "/a.slice/a-kubepods.slice/a-kubepods-podu.slice";
        check(
            &format!("{pod}/crio-c.scope/x"),
            &format!("{pod}/crio-c.scope"),
        );
    }

    #[test]
    fn names_within_a_container_do_not_count() {
        check("/kubepods/podu/c/kubepods/podv/d", "/kubepods/podu/c");
        check("/podman/kubepods/podu/c/d", "/podman/kubepods/podu/c");
    }

    #[test]
    fn other_paths_are_unchanged() {
        for path in [
            "",
            "/",
            "/kubepods",
            "/kubepods/burstable/podu",
            "/system.slice/a.service",
        ] {
            check(path, path);
        }
    }
}
