//! Decisions of a kubelet's CPU, memory, device and topology managers: which CPUs, NUMA nodes and
//! devices a container gets. Pure.

pub mod assignment;
pub mod cpu;
pub mod devices;
pub mod hints;
pub mod memory;
pub mod topology;
