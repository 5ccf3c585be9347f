//! Families of the CPU, memory and topology managers.

families! {
    /// Families of the CPU, memory and topology managers. Clones share them.
    ResourceManagerMetrics

    pub cpu_requests: counter("kubelet_cpu_manager_pinning_requests_total",
        "Number of requests of containers for exclusive CPUs.");
    pub cpu_errors: counter("kubelet_cpu_manager_pinning_errors_total",
        "Number of failed requests of containers for exclusive CPUs.");
    pub shared_pool: gauge("kubelet_cpu_manager_shared_pool_size_millicores",
        "Number of millicores of the shared CPU pool.");
    pub exclusive_cpus: gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "Number of CPUs that are allocated exclusively.");
    pub cpus_per_node: gauges("kubelet_cpu_manager_allocation_per_numa",
        "Number of CPUs that are allocated exclusively, by NUMA node.",
        &["numa_node"]);
    pub memory_requests: counter("kubelet_memory_manager_pinning_requests_total",
        "Number of requests of containers for memory of NUMA nodes.");
    pub memory_errors: counter("kubelet_memory_manager_pinning_errors_total",
        "Number of failed requests of containers for memory of NUMA nodes.");
    pub admissions: counter("kubelet_topology_manager_admission_requests_total",
        "Number of pods whose resources had to be allocated.");
    pub admission_errors: counter("kubelet_topology_manager_admission_errors_total",
        "Number of pods whose resources could not be allocated or aligned.");
    pub admission_duration: histogram("kubelet_topology_manager_admission_duration_ms",
        "Duration in milliseconds of the allocation of a pod's resources.",
        crate::exponential(0.05, 2.0, 15));
    pub aligned: counters("kubelet_container_aligned_compute_resources_count",
        "Number of allocations that are aligned, by scope and boundary.",
        &["scope", "boundary"]);
    pub misaligned: counters("kubelet_container_aligned_compute_resources_failure_count",
        "Number of allocations that could not be aligned, by scope and boundary.",
        &["scope", "boundary"]);
}
