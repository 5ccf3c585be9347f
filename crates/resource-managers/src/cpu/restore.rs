//! Decision about a state file: used, migrated to another configuration or machine, or set aside.
//! Upstream stops the kubelet instead (kubernetes/kubernetes#110478).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_topology::CpuSet;
use windlass_types::PodUid;

use super::checkpoint::{Checkpoint, Entry, PodEntry};
use super::{CpuManager, State};

/// Decision about a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Its assignments are in force, or it has none.
    Kept,
    /// Assignments that still fit are in force, with the reasons for the changes. Running containers
    /// of other pods must get their new CPUs.
    Migrated(Vec<String>),
    /// It is unusable, with the reason; there are no assignments.
    SetAside(String),
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("kept"),
            Self::Migrated(changes) => write!(f, "migrated: {}", changes.join("; ")),
            Self::SetAside(reason) => write!(f, "set aside: {reason}"),
        }
    }
}

impl CpuManager {
    /// Replaces the assignments by those of a state file. `container` returns pod and name of a
    /// container ID, which files of version 1 have.
    pub fn restore(
        &mut self,
        file: &[u8],
        container: impl Fn(&str) -> Option<(PodUid, String)>,
    ) -> Restored {
        let mut changes = Vec::new();
        let checkpoint = Checkpoint::parse(file);
        let read = checkpoint.and_then(|it| Ok((state_of(&it, container, &mut changes)?, it)));
        let (state, checkpoint) = match read {
            Ok(read) => read,
            Err(reason) => {
                self.state = self.fitting(State::default(), &mut Vec::new());
                return Restored::SetAside(reason);
            }
        };
        if checkpoint.policy_name != self.policy_name() {
            let (old, new) = (&checkpoint.policy_name, self.policy_name());
            changes.push(format!("policy changed from {old} to {new}"));
        }
        let shared = state.shared.clone();
        self.state = self.fitting(state, &mut changes);
        if self.is_static()
            && changes.is_empty()
            && !shared.is_empty()
            && shared != self.state.shared
        {
            changes.push(format!(
                "shared pool changed from {shared} to {}",
                self.state.shared
            ));
        }
        // without assignments nothing is lost
        let has_none = checkpoint.entries.is_empty() && checkpoint.pod_entries.is_empty();
        match has_none || changes.is_empty() {
            true => Restored::Kept,
            false => Restored::Migrated(changes),
        }
    }

    /// The content of the state file, in upstream's format.
    pub fn state_file(&self) -> String {
        let State {
            shared,
            containers,
            pods,
        } = &self.state;
        let of_pod = |cpus: &BTreeMap<String, CpuSet>| {
            let cpus = cpus
                .iter()
                .map(|(name, cpus)| (name.clone(), cpus.to_string()));
            Entry::Pod(cpus.collect())
        };
        let entries = containers
            .iter()
            .map(|(uid, cpus)| (uid.to_string(), of_pod(cpus)));
        let pod_entries = pods.iter().map(|(uid, cpus)| {
            let cpu_set = cpus.to_string();
            (uid.to_string(), PodEntry { cpu_set })
        });
        let checkpoint = Checkpoint {
            policy_name: self.policy_name().to_owned(),
            default_cpu_set: shared.to_string(),
            entries: entries.collect(),
            pod_entries: pod_entries.collect(),
            ..Checkpoint::default()
        };
        let has_pods = self.policy.as_ref().is_some_and(|it| it.pod_level) || !pods.is_empty();
        checkpoint.to_text(has_pods)
    }

    fn policy_name(&self) -> &'static str {
        match self.is_static() {
            true => "static",
            false => "none",
        }
    }

    /// The assignments that fit policy and machine, with reasons for the others.
    fn fitting(&self, state: State, changes: &mut Vec<String>) -> State {
        let mut fitting = State::default();
        let usable = self.usable();
        let uids: BTreeSet<&PodUid> = state.containers.keys().chain(state.pods.keys()).collect();
        let mut used = CpuSet::new();
        for uid in uids {
            let cpus = state.of_pod(uid);
            if let Some(reason) = self.misfit(&cpus, &used) {
                changes.push(format!("pod {uid} lost CPUs {cpus}: {reason}"));
                continue;
            }
            used.extend(cpus.iter());
            if let Some(containers) = state.containers.get(uid) {
                fitting.containers.insert(uid.clone(), containers.clone());
            }
            if let Some(cpus) = state.pods.get(uid) {
                fitting.pods.insert(uid.clone(), cpus.clone());
            }
        }
        fitting.shared = &usable - &used;
        fitting
    }

    /// Why the CPUs of a pod cannot stay assigned to it.
    fn misfit(&self, cpus: &CpuSet, used: &CpuSet) -> Option<String> {
        let Some(policy) = &self.policy else {
            return Some("policy none assigns no CPUs".to_owned());
        };
        let reasons = [
            (cpus - &self.machine.all_cpus(), "offline"),
            (cpus & &policy.reserved, "reserved"),
            (cpus & used, "assigned to another pod"),
        ];
        let reason = reasons.into_iter().find(|(cpus, _)| !cpus.is_empty());
        reason.map(|(cpus, reason)| format!("{cpus} {reason}"))
    }
}

/// The state in a file. A container ID that is unknown is dropped with a reason.
fn state_of(
    checkpoint: &Checkpoint,
    container: impl Fn(&str) -> Option<(PodUid, String)>,
    changes: &mut Vec<String>,
) -> Result<State, String> {
    let parse = |text: &str| text.parse::<CpuSet>().map_err(|error| error.to_string());
    let mut state = State {
        shared: parse(&checkpoint.default_cpu_set)?,
        ..State::default()
    };
    for (key, entry) in &checkpoint.entries {
        match entry {
            Entry::Pod(containers) => {
                for (name, cpus) in containers {
                    state.assign(&PodUid::from(key.as_str()), name, parse(cpus)?);
                }
            }
            Entry::Container(cpus) => match container(key) {
                Some((uid, name)) => state.assign(&uid, &name, parse(cpus)?),
                None => changes.push(format!("container {key} does not exist")),
            },
        }
    }
    for (uid, entry) in &checkpoint.pod_entries {
        let cpus = parse(&entry.cpu_set)?;
        state.pods.insert(PodUid::from(uid.as_str()), cpus);
    }
    Ok(state)
}
