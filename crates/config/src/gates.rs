//! Feature gates: their names, stages and defaults in Kubernetes 1.36.

mod table;

use std::collections::BTreeMap;
use std::fmt;

use table::{DEPENDENCIES, GATES};

/// Maturity of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off by default.
    Alpha,
    /// Usually on.
    Beta,
    /// Generally available.
    Ga,
    /// Will be removed.
    Deprecated,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "GA",
            Self::Deprecated => "DEPRECATED",
        })
    }
}

/// One gate.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Name.
    pub name: &'static str,
    /// Stage.
    pub stage: Stage,
    /// State if not set.
    pub default: bool,
    /// Whether the state cannot be changed.
    pub locked: bool,
    /// Whether the Go kubelet reads it.
    pub in_kubelet: bool,
}

/// A requested gate is unknown, locked or lacks a dependency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate.
    #[error("unknown feature gate {0}; remove it{hint}", hint = hint(.0))]
    Unknown(String),
    /// The gate is locked to its default.
    #[error("cannot set feature gate {name} to {requested}: locked to {default}; remove it")]
    Locked {
        /// Name.
        name: &'static str,
        /// Requested state.
        requested: bool,
        /// Locked state.
        default: bool,
    },
    /// The gate is on, but gates that it depends on are off.
    #[error(
        "{name} is enabled, but depends on features that are disabled: [{}]; disable {name} too",
        disabled.join(" ")
    )]
    Dependency {
        /// Name.
        name: &'static str,
        /// Disabled dependencies.
        disabled: Vec<&'static str>,
    },
}

impl GateError {
    /// Returns the name of the gate.
    pub fn gate(&self) -> &str {
        match self {
            Self::Unknown(name) => name,
            Self::Locked { name, .. } | Self::Dependency { name, .. } => name,
        }
    }
}

/// The state of every gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    changed: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Applies the requested changes to the defaults, or returns all errors.
    ///
    /// `AllAlpha` and `AllBeta` set all gates of a stage that are not set individually.
    pub fn new(requested: &BTreeMap<String, bool>) -> Result<Self, Vec<GateError>> {
        match Self::from_valid(requested) {
            (gates, errors) if errors.is_empty() => Ok(gates),
            (_, errors) => Err(errors),
        }
    }

    /// Applies the valid changes to the defaults and returns the errors of the others.
    pub(crate) fn from_valid(requested: &BTreeMap<String, bool>) -> (Self, Vec<GateError>) {
        let mut changed = BTreeMap::new();
        let mut errors = Vec::new();
        for (group, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            if let Some(&on) = requested.get(group) {
                let of_stage = GATES.iter().filter(|g| g.stage == stage && !g.locked);
                changed.extend(of_stage.map(|g| (g.name, on)));
            }
        }
        for (name, &on) in requested {
            if matches!(name.as_str(), "AllAlpha" | "AllBeta") {
                continue;
            }
            match find(name) {
                None => errors.push(GateError::Unknown(name.clone())),
                Some(gate) if gate.locked && gate.default != on => {
                    errors.push(GateError::Locked {
                        name: gate.name,
                        requested: on,
                        default: gate.default,
                    });
                }
                Some(gate) => {
                    changed.insert(gate.name, on);
                }
            }
        }
        let gates = Self { changed };
        if errors.is_empty() {
            errors = gates.missing_dependencies();
        }
        (gates, errors)
    }

    fn missing_dependencies(&self) -> Vec<GateError> {
        let enabled = DEPENDENCIES.iter().filter(|(name, _)| self.enabled(name));
        let disabled = enabled.map(|&(name, needed)| GateError::Dependency {
            name,
            disabled: needed
                .iter()
                .copied()
                .filter(|it| !self.enabled(it))
                .collect(),
        });
        disabled
            .filter(|error| matches!(error, GateError::Dependency { disabled, .. } if !disabled.is_empty()))
            .collect()
    }

    /// Whether a gate is on; an unknown name is off.
    pub fn enabled(&self, name: &str) -> bool {
        match self.changed.get(name) {
            Some(&on) => on,
            None => find(name).is_some_and(|gate| gate.default),
        }
    }

    /// All gates.
    pub fn all(&self) -> impl Iterator<Item = (&'static Gate, bool)> + '_ {
        GATES.iter().map(|gate| (gate, self.enabled(gate.name)))
    }

    /// Gates that differ from their default.
    pub fn changed(&self) -> impl Iterator<Item = (&'static Gate, bool)> + '_ {
        self.changed
            .iter()
            .filter_map(|(name, &on)| find(name).map(|gate| (gate, on)))
            .filter(|(gate, on)| gate.default != *on)
    }
}

/// Returns a gate by name.
pub fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

/// Suggests the gate whose name differs in case only.
fn hint(name: &str) -> String {
    GATES
        .iter()
        .find(|gate| gate.name.eq_ignore_ascii_case(name))
        .map(|gate| format!(" or write {}", gate.name))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{DEPENDENCIES, FeatureGates, GATES, Stage, find};

    fn check(requested: &[(&str, bool)], gate: &str, expected: &str) {
        let requested = requested
            .iter()
            .map(|(n, on)| ((*n).to_owned(), *on))
            .collect();
        let line = match FeatureGates::new(&requested) {
            Ok(gates) => gates.enabled(gate).to_string(),
            Err(errors) => errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn gates_follow_defaults_changes_and_locks() {
        check(&[], "EventedPLEG", "false");
        check(&[], "ContainerCheckpoint", "true");
        check(&[("EventedPLEG", true)], "EventedPLEG", "true");
        check(&[("NodeSwap", true)], "NodeSwap", "true");
        check(
            &[
                ("NodeSwap", false),
                ("eventedpleg", true),
                ("Nonsense", true),
            ],
            "NodeSwap",
            "cannot set feature gate NodeSwap to false: locked to true; remove it; \
             unknown feature gate Nonsense; remove it; \
             unknown feature gate eventedpleg; remove it or write EventedPLEG",
        );
        check(&[("AllAlpha", true)], "EventedPLEG", "true");
        check(
            &[("AllAlpha", true), ("EventedPLEG", false)],
            "EventedPLEG",
            "false",
        );
        check(&[("AllAlpha", true)], "NoSuchGate", "false");
    }

    #[test]
    fn gates_of_other_components_are_accepted_and_checked() {
        check(&[("WatchListClient", false)], "WatchListClient", "false");
        check(&[("ContextualLogging", true)], "ContextualLogging", "true");
        check(&[("NFTablesProxyMode", true)], "NFTablesProxyMode", "true");
        check(&[("AllAlpha", true)], "StorageVersionAPI", "true");
        check(&[("AllBeta", false)], "WatchList", "false");
        check(
            &[("NFTablesProxyMode", false)],
            "NFTablesProxyMode",
            "cannot set feature gate NFTablesProxyMode to false: locked to true; remove it",
        );
    }

    #[test]
    fn gate_with_disabled_dependency_is_rejected() {
        check(
            &[("GracefulNodeShutdown", false)],
            "GracefulNodeShutdown",
            "GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are \
             disabled: [GracefulNodeShutdown]; disable GracefulNodeShutdownBasedOnPodPriority too; \
             WindowsGracefulNodeShutdown is enabled, but depends on features that are disabled: \
             [GracefulNodeShutdown]; disable WindowsGracefulNodeShutdown too",
        );
        check(
            &[
                ("GracefulNodeShutdown", false),
                ("GracefulNodeShutdownBasedOnPodPriority", false),
                ("WindowsGracefulNodeShutdown", false),
            ],
            "GracefulNodeShutdown",
            "false",
        );
    }

    #[test]
    fn gate_table_is_sorted_and_consistent() {
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(GATES.len(), 239);
        for (name, needed) in DEPENDENCIES {
            assert!(find(name).is_some(), "{name}");
            assert!(needed.iter().all(|it| find(it).is_some()), "{name}");
        }
        for stage in [Stage::Alpha, Stage::Beta] {
            // the groups AllAlpha and AllBeta would change a locked gate
            assert!(GATES.iter().all(|gate| gate.stage != stage || !gate.locked));
        }
    }
}
