//! Configuration of the CPU manager: policy, options, reserved CPUs.

use std::collections::BTreeMap;

use windlass_topology::{CpuSet, Machine};

use super::take::{Taking, take};

/// Configuration of the CPU manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSettings {
    /// Policy `static`; otherwise `none`.
    pub is_static: bool,
    /// `cpuManagerPolicyOptions`.
    pub options: BTreeMap<String, String>,
    /// Feature gate `CPUManagerPolicyAlphaOptions`.
    pub alpha_options: bool,
    /// Feature gate `CPUManagerPolicyBetaOptions`.
    pub beta_options: bool,
    /// Feature gates `PodLevelResourceManagers` and `PodLevelResources`.
    pub pod_level: bool,
    /// CPU of `systemReserved` and `kubeReserved`, in thousandths.
    pub reserved_milli: i64,
    /// `reservedSystemCPUs`; empty lets the manager choose.
    pub reserved: CpuSet,
    /// The topology manager's policy is `single-numa-node`.
    pub single_numa_node: bool,
}

/// Invalid configuration; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSettingsError {
    /// Policy `none` has options.
    #[error("None policy: received unsupported options=map[{0}]")]
    OptionsOfNone(String),
    /// Unknown option.
    #[error("unknown CPU Manager Policy option: {0:?}")]
    UnknownOption(String),
    /// An option's feature gate is off.
    #[error("CPU Manager Policy {level}-level Options not enabled, but option {option:?} provided")]
    GatedOption {
        /// `Alpha` or `Beta`.
        level: &'static str,
        /// The option.
        option: String,
    },
    /// An option's value is not a boolean.
    #[error(
        "bad value for option {option:?}: strconv.ParseBool: parsing {value:?}: invalid syntax"
    )]
    OptionValue {
        /// The option.
        option: String,
        /// Its value.
        value: String,
    },
    /// Two options exclude each other.
    #[error("static policy options {0} and {1} can not be used at the same time")]
    Conflict(&'static str, &'static str),
    /// An option conflicts with the topology manager's policy.
    #[error(
        "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket \
         policy option"
    )]
    SingleNumaNode,
    /// An option conflicts with the machine.
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than \
         number of NUMA"
    )]
    MoreSocketsThanNodes,
    /// No CPU is reserved.
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be \
         greater than zero"
    )]
    NothingReserved,
    /// The reserved CPUs do not exist, or are fewer than configured.
    #[error(
        "[cpumanager] unable to reserve the required amount of CPUs (size of {cpus} did not equal \
         {count})"
    )]
    Reserved {
        /// The CPUs.
        cpus: CpuSet,
        /// The required number.
        count: usize,
    },
    /// A reserved CPU is not online.
    #[error(
        "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown \
         CPU ID: {0}"
    )]
    UnknownReserved(u32),
}

impl CpuSettings {
    /// Checks what does not depend on the machine.
    ///
    /// # Errors
    /// An invalid option, options that exclude each other, or no reserved CPU.
    pub fn check(&self) -> Result<(), CpuSettingsError> {
        if self.is_static {
            Options::parse(self)?.check(self.single_numa_node)?;
            return match self.reserved_milli > 0 {
                true => Ok(()),
                false => Err(CpuSettingsError::NothingReserved),
            };
        }
        if self.options.is_empty() {
            return Ok(());
        }
        let options = self.options.iter();
        let options: Vec<String> = options.map(|(k, v)| format!("{k}:{v}")).collect();
        Err(CpuSettingsError::OptionsOfNone(options.join(" ")))
    }
}

const FULL_CORES: &str = "full-pcpus-only";
const ACROSS_NUMA: &str = "distribute-cpus-across-numa";
const BY_SOCKET: &str = "align-by-socket";
const ACROSS_CORES: &str = "distribute-cpus-across-cores";
const STRICT: &str = "strict-cpu-reservation";
const BY_UNCORE: &str = "prefer-align-cpus-by-uncorecache";

/// Policy `static` on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Static {
    pub(super) full_cores: bool,
    pub(super) by_socket: bool,
    pub(super) strict: bool,
    pub(super) pod_level: bool,
    pub(super) taking: Taking,
    /// CPUs that no container gets exclusively.
    pub(super) reserved: CpuSet,
    /// The reserved CPUs and their siblings.
    pub(super) reserved_cores: CpuSet,
}

impl Static {
    pub(super) fn new(settings: &CpuSettings, machine: &Machine) -> Result<Self, CpuSettingsError> {
        let options = Options::parse(settings)?;
        options.check_machine(machine)?;
        let taking = Taking {
            spread: options.has(ACROSS_CORES),
            by_uncore: options.has(BY_UNCORE),
            across_numa: options.has(ACROSS_NUMA),
            group: match options.has(FULL_CORES) {
                true => machine.threads_per_core().max(1),
                false => 1,
            },
        };
        let reserved = reserved_cpus(settings, machine, taking)?;
        let mut cores = CpuSet::new();
        for cpu in reserved.iter() {
            let known = machine.cpus.get(&cpu);
            cores.insert(known.ok_or(CpuSettingsError::UnknownReserved(cpu))?.core);
        }
        Ok(Self {
            full_cores: options.has(FULL_CORES),
            by_socket: options.has(BY_SOCKET),
            strict: options.has(STRICT),
            pod_level: settings.pod_level,
            taking,
            reserved,
            reserved_cores: machine.cpus_where(|cpu| cores.contains(cpu.core)),
        })
    }
}

fn reserved_cpus(
    settings: &CpuSettings,
    machine: &Machine,
    taking: Taking,
) -> Result<CpuSet, CpuSettingsError> {
    // a part of a CPU cannot be reserved, so it is rounded up
    let count = usize::try_from(settings.reserved_milli.div_euclid(1000)).unwrap_or(0)
        + usize::from(settings.reserved_milli.rem_euclid(1000) > 0);
    let cpus = match settings.reserved.is_empty() {
        true => take(machine, &machine.all_cpus(), count, taking).unwrap_or_default(),
        false => settings.reserved.clone(),
    };
    match cpus.len() == count {
        true => Ok(cpus),
        false => Err(CpuSettingsError::Reserved { cpus, count }),
    }
}

/// The options that are on.
struct Options(Vec<&'static str>);

impl Options {
    fn parse(settings: &CpuSettings) -> Result<Self, CpuSettingsError> {
        let mut on = Vec::new();
        for (option, value) in &settings.options {
            let gated = |level| CpuSettingsError::GatedOption {
                level,
                option: option.clone(),
            };
            let known = match option.as_str() {
                FULL_CORES => FULL_CORES,
                STRICT => STRICT,
                BY_UNCORE => BY_UNCORE,
                ACROSS_NUMA if settings.beta_options => ACROSS_NUMA,
                ACROSS_NUMA => return Err(gated("Beta")),
                BY_SOCKET if settings.alpha_options => BY_SOCKET,
                ACROSS_CORES if settings.alpha_options => ACROSS_CORES,
                BY_SOCKET | ACROSS_CORES => return Err(gated("Alpha")),
                _ => return Err(CpuSettingsError::UnknownOption(option.clone())),
            };
            match value.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => on.push(known),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => {}
                _ => {
                    return Err(CpuSettingsError::OptionValue {
                        option: option.clone(),
                        value: value.clone(),
                    });
                }
            }
        }
        Ok(Self(on))
    }

    fn has(&self, option: &str) -> bool {
        self.0.contains(&option)
    }

    fn check(&self, single_numa_node: bool) -> Result<(), CpuSettingsError> {
        for (one, other) in [
            (FULL_CORES, ACROSS_CORES),
            (ACROSS_NUMA, ACROSS_CORES),
            (BY_UNCORE, ACROSS_CORES),
            (BY_UNCORE, ACROSS_NUMA),
        ] {
            if self.has(one) && self.has(other) {
                return Err(CpuSettingsError::Conflict(one, other));
            }
        }
        match single_numa_node && self.has(BY_SOCKET) {
            true => Err(CpuSettingsError::SingleNumaNode),
            false => Ok(()),
        }
    }

    fn check_machine(&self, machine: &Machine) -> Result<(), CpuSettingsError> {
        let has_more_sockets = machine.sockets().len() > machine.cpu_nodes().len();
        match self.has(BY_SOCKET) && has_more_sockets {
            true => Err(CpuSettingsError::MoreSocketsThanNodes),
            false => Ok(()),
        }
    }
}
