//! Containers that an in-place resize restarts: `resizePolicy` with `RestartContainer`.
//!
//! A resource with this policy never changes in a running container, so the recorded sizes of the
//! creation are the current ones. Without a record the reported resources count.

use windlass_pod_inputs::resources::{container_sizes, cpu_shares, milli_cpu_of_quota};
use windlass_types::ObservedContainer;
use windlass_types::corev1::Container;

use super::Decision;

impl Decision<'_> {
    /// True if a running container has other sizes than allocated and must be restarted to change
    /// them.
    pub(super) fn restarts_to_resize(
        &self,
        spec: &Container,
        instance: &ObservedContainer,
    ) -> bool {
        let restarts = |resource| {
            let mut policies = spec.resize_policy.iter().flatten();
            policies.any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer")
        };
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
            let request = match wanted.cpu_request {
                0 => wanted.cpu_limit,
                request => request,
            };
            (
                (wanted.cpu_limit > MIN_CPU_LIMIT && limit != wanted.cpu_limit)
                    || reported.cpu_shares != cpu_shares(request),
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
