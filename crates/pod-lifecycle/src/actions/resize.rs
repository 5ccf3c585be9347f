//! Containers that an in-place resize restarts: `resizePolicy` with `RestartContainer`.
//!
//! A resource with this policy never changes in a running container, so the recorded sizes of the
//! creation are the current ones. Without a record the reported resources count.

use windlass_pod_inputs::resources::{container_cpu_shares, container_sizes, milli_cpu_of_quota};
use windlass_types::ObservedContainer;
use windlass_types::corev1::Container;
use windlass_types::pod::restarts_on_resize;

use super::Decision;

impl Decision<'_> {
    /// True if a running container has other sizes than allocated and must be restarted to change
    /// them.
    pub(super) fn restarts_to_resize(
        &self,
        spec: &Container,
        instance: &ObservedContainer,
    ) -> bool {
        let restarts = |resource| restarts_on_resize(spec, resource);
        let (by_cpu, by_memory) = (restarts("cpu"), restarts("memory"));
        if !by_cpu && !by_memory {
            return false;
        }
        let wanted = container_sizes(self.input.pod, spec);
        let (cpu, memory) = if let Some(created) = instance.created_sizes {
            (
                (created.cpu_request, created.cpu_limit) != (wanted.cpu_request, wanted.cpu_limit),
                (created.memory_request, created.memory_limit)
                    != (wanted.memory_request, wanted.memory_limit),
            )
        } else if let Some(reported) = &instance.resources {
            let limit = milli_cpu_of_quota(reported.cpu_quota, reported.cpu_period);
            (
                (wanted.cpu_limit > MIN_CPU_LIMIT && limit != wanted.cpu_limit)
                    || reported.cpu_shares != container_cpu_shares(self.input.pod, spec),
                wanted.memory_limit > 0 && reported.memory_limit != wanted.memory_limit,
            )
        } else {
            (false, false)
        };
        (by_cpu && cpu) || (by_memory && memory)
    }
}

/// Limits up to this have the same effect, in thousandths of a CPU.
const MIN_CPU_LIMIT: i64 = 10;

#[cfg(test)]
mod tests {
    //! Restarts by resize policy.

    use serde_json::json;
    use windlass_pod_inputs::node_facts::NodeFacts;
    use windlass_pod_inputs::resources::container_resources;
    use windlass_pod_text::{at, observed, pod};
    use windlass_types::{Pod, PodExt, PodProbeResults};

    use super::*;
    use crate::actions::{ActionsInput, compute_pod_actions};
    use crate::backoff::{BackoffPolicy, BackoffTable};

    /// The pod with the sizes of its container `a`, whose memory changes with a restart.
    fn sized(cpu: &str, memory: &str) -> Pod {
        let mut pod = pod("Always a b");
        let spec = pod.spec.get_or_insert_default();
        spec.containers[0].resources = serde_json::from_value(json!({
            "requests": {"cpu": cpu, "memory": memory},
            "limits": {"cpu": cpu, "memory": memory},
        }))
        .ok();
        spec.containers[0].resize_policy = serde_json::from_value(json!([
            {"resourceName": "memory", "restartPolicy": "RestartContainer"},
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        ]))
        .ok();
        pod
    }

    fn check(to: &Pod, recorded: bool, expected: &str) {
        check_from(&sized("100m", "10Mi"), to, recorded, expected);
    }

    fn check_from(from: &Pod, to: &Pod, recorded: bool, expected: &str) {
        let mut observed = observed(from, "sb0 a=run b=run");
        let spec = &from.containers()[0];
        for instance in observed.containers.iter_mut().filter(|c| c.name == "a") {
            instance.created_sizes = recorded.then(|| container_sizes(from, spec));
            instance.resources = Some(container_resources(from, spec, &NodeFacts::default()));
        }
        let actions = compute_pod_actions(ActionsInput {
            pod: to,
            observed: &observed,
            backoff: &BackoffTable::default(),
            probe_results: &PodProbeResults::default(),
            policy: BackoffPolicy::DEFAULT,
            now: at(100),
        });
        assert_eq!(actions.to_string(), expected);
    }

    #[test]
    fn request_of_zero_is_not_that_of_the_limit() {
        let with = |resources: serde_json::Value| {
            let mut pod = sized("0", "10Mi");
            let container = &mut pod.spec.get_or_insert_default().containers[0];
            container.resources = serde_json::from_value(resources).ok();
            for policy in container.resize_policy.iter_mut().flatten() {
                policy.restart_policy = "RestartContainer".to_owned();
            }
            pod
        };
        let zero = with(json!({"requests": {"cpu": "0"}, "limits": {"cpu": "100m"}}));
        let default = with(json!({"limits": {"cpu": "100m"}}));
        // created by the Go kubelet, without a record
        for pod in [&zero, &default] {
            check_from(pod, pod, false, "nothing");
        }
        check_from(&zero, &default, false, "kill(a) start(a#1)");
    }

    #[test]
    fn container_is_restarted_if_its_policy_requires_it() {
        for recorded in [true, false] {
            check(&sized("100m", "10Mi"), recorded, "nothing");
            check(&sized("200m", "10Mi"), recorded, "nothing");
            check(&sized("200m", "20Mi"), recorded, "kill(a) start(a#1)");
        }
        // no runtime reports the memory request
        let mut request = sized("100m", "10Mi");
        let spec = request.spec.get_or_insert_default();
        spec.containers[0].resources = serde_json::from_value(json!({
            "requests": {"cpu": "100m", "memory": "5Mi"},
            "limits": {"cpu": "100m", "memory": "10Mi"},
        }))
        .ok();
        check(&request, true, "kill(a) start(a#1)");
        check(&request, false, "nothing");
    }
}
