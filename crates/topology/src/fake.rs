//! Machines that do not exist, for tests.

use crate::{Cpu, CpuSet, Machine, NumaNode};

/// Order in which the kernel numbers the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// The first threads of all cores, socket by socket, then the second threads.
    #[default]
    BySocket,
    /// The first threads of all cores, alternating between sockets, then the second threads.
    Alternating,
    /// The threads of a core have neighboring numbers.
    ByCore,
}

/// Shape of a machine. NUMA nodes, sockets and uncore caches divide the cores into equal parts.
///
/// ```
/// use windlass_topology::fake::FakeMachine;
///
/// let machine = FakeMachine {
///     nodes: 2,
///     sockets: 2,
///     cores: 8,
///     threads: 2,
///     ..FakeMachine::default()
/// }
/// .build();
/// assert_eq!(machine.cpus_of_nodes([1].into_iter().collect()).to_string(), "4-7,12-15");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeMachine {
    /// Number of NUMA nodes.
    pub nodes: u32,
    /// Number of sockets.
    pub sockets: u32,
    /// Number of uncore caches; 0 is one per socket.
    pub uncores: u32,
    /// Number of cores.
    pub cores: u32,
    /// Threads of each core.
    pub threads: u32,
    /// Order of the CPUs.
    pub numbering: Numbering,
    /// CPUs that are offline, which makes the machine asymmetric.
    pub offline: CpuSet,
    /// Memory of each NUMA node, without distances.
    pub memory: NumaNode,
}

impl Default for FakeMachine {
    /// One core, one thread, 4 GiB.
    fn default() -> Self {
        Self {
            nodes: 1,
            sockets: 1,
            uncores: 0,
            cores: 1,
            threads: 1,
            numbering: Numbering::default(),
            offline: CpuSet::new(),
            memory: NumaNode {
                memory: 4 << 30,
                ..NumaNode::default()
            },
        }
    }
}

impl FakeMachine {
    /// Returns the machine. Distances are 10 within a node, 12 within a socket and 20 beyond.
    pub fn build(&self) -> Machine {
        let mut machine = Machine::default();
        for core in 0..self.cores {
            let threads: CpuSet = (0..self.threads).map(|it| self.number(core, it)).collect();
            let threads = &threads - &self.offline;
            let Some(lowest) = threads.iter().next() else {
                continue;
            };
            let cpu = Cpu {
                core: lowest,
                socket: self.part(core, self.sockets),
                numa: self.part(core, self.nodes),
                uncore: self.part(
                    core,
                    if self.uncores == 0 {
                        self.sockets
                    } else {
                        self.uncores
                    },
                ),
            };
            machine.cpus.extend(threads.iter().map(|it| (it, cpu)));
        }
        for node in 0..self.nodes {
            let distances = (0..self.nodes).map(|other| (other, self.distance(node, other)));
            let memory = NumaNode {
                distances: distances.collect(),
                ..self.memory.clone()
            };
            machine.nodes.insert(node, memory);
        }
        machine
    }

    /// The one of some equal parts in which a core is.
    fn part(&self, core: u32, parts: u32) -> u32 {
        core * parts / self.cores
    }

    fn distance(&self, node: u32, other: u32) -> u32 {
        let socket = |node: u32| node * self.sockets / self.nodes;
        match (node == other, socket(node) == socket(other)) {
            (true, _) => 10,
            (_, true) => 12,
            _ => 20,
        }
    }

    fn number(&self, core: u32, thread: u32) -> u32 {
        match self.numbering {
            Numbering::BySocket => thread * self.cores + core,
            Numbering::ByCore => core * self.threads + thread,
            Numbering::Alternating => {
                let per_socket = self.cores / self.sockets;
                let (socket, index) = (core / per_socket, core % per_socket);
                thread * self.cores + index * self.sockets + socket
            }
        }
    }
}
