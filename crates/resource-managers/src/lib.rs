//! Decisions of a kubelet's CPU, memory, device and topology managers: which CPUs, NUMA nodes and
//! devices a container gets. Pure.
//!
//! For agents that place containers like a kubelet: each manager is a value that its owner changes,
//! and whose state file it writes.
//!
//! * [`cpu::CpuManager`] assigns exclusive CPUs
//! * [`memory::MemoryManager`] assigns memory of NUMA nodes
//! * [`topology::TopologyManager`] merges their [`hints`] and those of devices
//! * [`assignment::ContainerAssignment`] is what a container gets
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use windlass_resource_managers::cpu::{CpuManager, CpuSettings};
//! use windlass_topology::fake::FakeMachine;
//!
//! let machine = FakeMachine { cores: 4, threads: 2, ..FakeMachine::default() }.build();
//! let settings = CpuSettings {
//!     is_static: true,
//!     reserved_milli: 500,
//!     ..CpuSettings::default()
//! };
//! let manager = CpuManager::new(&settings, Arc::new(machine))?;
//! assert_eq!(manager.allocatable().to_string(), "1-7");
//! # Ok::<(), windlass_resource_managers::cpu::CpuSettingsError>(())
//! ```

pub mod assignment;
pub mod cpu;
pub mod devices;
pub mod hints;
pub mod memory;
pub mod topology;
