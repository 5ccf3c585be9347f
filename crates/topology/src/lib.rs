//! CPUs, NUMA nodes, caches and huge pages of a machine.
//!
//! For programs that place work on CPUs and memory: [`Machine`] is a value, so that decisions about
//! it are pure functions, and tests use machines that do not exist ([`fake`]).
//!
//! # The way in
//!
//! * [`Machine::read`] reads `/sys`; a kernel without NUMA gives one node
//! * [`CpuSet`] is a set of CPUs, [`NumaSet`] one of up to 64 NUMA nodes, both in the kernel's list
//!   format
//! * [`fake::FakeMachine`] builds machines with any number of nodes, sockets, cores, threads and
//!   caches
//!
//! # What it does not do
//!
//! It places nothing and pins nothing, and it does not notice CPUs that go offline after the read.
//!
//! # Example
//!
//! ```
//! use windlass_topology::fake::FakeMachine;
//!
//! let machine = FakeMachine { nodes: 2, cores: 4, threads: 2, ..FakeMachine::default() }.build();
//! assert_eq!(machine.all_cpus().to_string(), "0-7");
//! assert_eq!(machine.nodes_of_cpus(&"0,6".parse()?).to_string(), "0,1");
//! # Ok::<(), windlass_topology::CpuSetError>(())
//! ```

mod cpu_set;
pub mod fake;
mod machine;
mod numa_set;
mod read;

pub use cpu_set::{CpuSet, CpuSetError};
pub use machine::{Cpu, Machine, NumaNode};
pub use numa_set::NumaSet;
pub use read::TopologyError;
