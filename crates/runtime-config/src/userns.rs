//! User namespaces: host IDs of pods with `hostUsers: false` (KEP-127), as upstream's
//! `pkg/kubelet/userns`.
//!
//! A pod gets `userNamespaces.idsPerPod` exclusive IDs, the same for users and groups; ID 0 in its
//! containers is the first of them. The IDs are in `<root>/pods/<uid>/userns` as long as the pod
//! directory exists, and are persisted before use.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use windlass_types::PodUid;
use windlass_types::cri::{IdMapping, RuntimeHandler};

/// Unit of ID ranges; also the default number of IDs per pod.
pub(crate) const ID_UNIT: u32 = 65_536;

/// Range of host IDs for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    first: u32,
    length: u32,
    per_pod: u32,
}

/// Error of the range of host IDs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The IDs of a pod are not a multiple of the unit.
    #[error("kubelet user namespace length {0} is not a multiple of {ID_UNIT}")]
    PerPod(u32),
    /// The first ID is not a multiple of the IDs per pod.
    #[error("kubelet user assigned ID {first} is not a multiple of {per_pod}")]
    First {
        /// First ID.
        first: u32,
        /// IDs of a pod.
        per_pod: u32,
    },
    /// The range includes root of the host.
    #[error("kubelet user assigned ID {first} must be greater or equal to {per_pod}")]
    Root {
        /// First ID.
        first: u32,
        /// IDs of a pod.
        per_pod: u32,
    },
    /// The length is not a multiple of the IDs per pod.
    #[error("kubelet user assigned IDs length {length} is not a multiple of {per_pod}")]
    Length {
        /// Number of IDs.
        length: u32,
        /// IDs of a pod.
        per_pod: u32,
    },
    /// Too few IDs for the maximum number of pods.
    #[error("kubelet user assigned IDs are not enough to support {0} pods")]
    TooFew(u32),
    /// The IDs of the node are unknown.
    #[error("{0}")]
    Unknown(String),
}

impl Default for IdRange {
    /// Returns all IDs above those of the host.
    fn default() -> Self {
        Self {
            first: ID_UNIT,
            length: u32::MAX - ID_UNIT + 1,
            per_pod: ID_UNIT,
        }
    }
}

impl IdRange {
    /// Creates the range from `subordinate`, or from all IDs above those of the host, for
    /// `max_pods` pods with `per_pod` IDs each.
    ///
    /// # Errors
    /// The range violates upstream's rules or is too small.
    pub fn new(
        subordinate: Option<(u32, u32)>,
        per_pod: u32,
        max_pods: u32,
    ) -> Result<Self, RangeError> {
        if per_pod == 0 || !per_pod.is_multiple_of(ID_UNIT) {
            return Err(RangeError::PerPod(per_pod));
        }
        // 2^32 less what is below, which fits
        let (first, length) = subordinate.unwrap_or((per_pod, u32::MAX - per_pod + 1));
        if !first.is_multiple_of(per_pod) {
            return Err(RangeError::First { first, per_pod });
        }
        if first < per_pod {
            return Err(RangeError::Root { first, per_pod });
        }
        if !length.is_multiple_of(per_pod) {
            return Err(RangeError::Length { length, per_pod });
        }
        if length / per_pod < max_pods || first.checked_add(length - 1).is_none() {
            return Err(RangeError::TooFew(max_pods));
        }
        Ok(Self {
            first,
            length,
            per_pod,
        })
    }

    fn slots(self) -> usize {
        (self.length / self.per_pod) as usize
    }

    fn mapping(self, slot: usize) -> IdMapping {
        IdMapping {
            // a slot is below length / per_pod: the sum is an ID of the range
            host_id: self.first + slot as u32 * self.per_pod,
            container_id: 0,
            length: self.per_pod,
        }
    }
}

/// Parses the output of `getsubids kubelet`: one line, `0: kubelet <first> <length>`.
///
/// # Errors
/// The output is invalid; the text is upstream's.
pub fn parse_getsubids(output: &str) -> Result<(u32, u32), RangeError> {
    let unknown = |what: String| RangeError::Unknown(what);
    let mut lines = output.trim_matches('\n').lines();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        let what = format!("error parsing line {output:?}: it must contain only one line");
        return Err(unknown(what));
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, first, length] = words.as_slice() else {
        return Err(unknown(format!("invalid line {output:?}")));
    };
    let number = |text: &str| {
        text.parse::<u32>()
            .map_err(|error| unknown(format!("error parsing line {output:?}: {error}")))
    };
    Ok((number(first)?, number(length)?))
}

/// Error of the user namespace of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsernsError {
    /// Not supported by the runtime or the handler of the RuntimeClass. The text is upstream's.
    #[error("can't set `spec.hostUsers: false`, {0}")]
    Unsupported(String),
    /// No IDs are free.
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    Exhausted,
    /// The range of host IDs is invalid.
    #[error("create user namespace: {0}")]
    Range(#[from] RangeError),
    /// The file of the pod is invalid.
    #[error("user namespace: {0}")]
    File(#[from] MappingError),
    /// Another pod has these IDs.
    #[error("user namespace: range picked for pod {uid:?} already taken")]
    Taken {
        /// The pod.
        uid: String,
    },
}

/// Checks that a handler supports user namespaces. `handler` is that of the RuntimeClass; empty is
/// the default.
///
/// # Errors
/// The handler does not report support.
pub fn check_handler(handlers: &[RuntimeHandler], handler: &str) -> Result<(), UsernsError> {
    let found = handlers.iter().find(|known| known.name == handler);
    let why = match found {
        Some(known) if known.user_namespaces => return Ok(()),
        Some(_) => String::new(),
        // an old runtime without the message, as upstream
        None if handlers.is_empty() => String::new(),
        None => format!(": the handler {handler:?} is not known"),
    };
    let who = match handler {
        "" => "runtime".to_owned(),
        handler => format!("RuntimeClass handler {handler:?}"),
    };
    Err(UsernsError::Unsupported(format!(
        "{who} does not support user namespaces{why}"
    )))
}

/// The allocated IDs, by pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNamespaces {
    range: IdRange,
    /// One bit per slot; a slot has the IDs of one pod.
    taken: Vec<u64>,
    pods: BTreeMap<PodUid, Allocation>,
    unusable: BTreeMap<PodUid, UsernsError>,
}

/// Slots of a pod. IDs of another configuration may overlap several slots, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allocation {
    assigned: AssignedIds,
    slots: Range<usize>,
}

/// IDs of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedIds {
    /// The IDs.
    pub ids: IdMapping,
    /// The file of the pod has the IDs.
    pub persisted: bool,
}

impl UserNamespaces {
    /// Creates the allocator without allocations.
    pub fn new(range: IdRange) -> Self {
        Self {
            taken: vec![0; range.slots().div_ceil(64)],
            pods: BTreeMap::new(),
            unusable: BTreeMap::new(),
            range,
        }
    }

    /// Returns the IDs of a pod, or allocates the first free ones. Persist them before use.
    ///
    /// # Errors
    /// No IDs are free, or the IDs of the pod are unknown.
    pub fn allocate(&mut self, uid: &PodUid) -> Result<AssignedIds, UsernsError> {
        if let Some(allocation) = self.pods.get(uid) {
            return Ok(allocation.assigned);
        }
        if let Some(error) = self.unusable.get(uid) {
            return Err(error.clone());
        }
        let words = self.taken.iter().enumerate();
        let free = words
            .filter(|(_, word)| **word != u64::MAX)
            .map(|(index, word)| index * 64 + word.trailing_ones() as usize)
            .next();
        // the last integer has bits beyond the last slot
        let slot = free
            .filter(|slot| *slot < self.range.slots())
            .ok_or(UsernsError::Exhausted)?;
        let assigned = AssignedIds {
            ids: self.range.mapping(slot),
            persisted: false,
        };
        self.hold(uid, assigned, slot..slot + 1);
        Ok(assigned)
    }

    /// Records that the file of the pod was written.
    pub fn mark_persisted(&mut self, uid: &PodUid) {
        if let Some(allocation) = self.pods.get_mut(uid) {
            allocation.assigned.persisted = true;
        }
    }

    /// Restores the IDs of a pod from the file of a previous agent run, possibly with another
    /// configuration. A pod with an invalid file gets no IDs until it is removed.
    ///
    /// # Errors
    /// The file is invalid, or another pod has some of its IDs.
    pub fn restore(&mut self, uid: &PodUid, file: &str) -> Result<(), UsernsError> {
        let ids = parse_mapping_file(file).map_err(UsernsError::from);
        let free = ids.and_then(|ids| {
            let slots = self.slots_of(ids);
            if slots.clone().any(|slot| self.is_taken(slot)) {
                let uid = uid.to_string();
                return Err(UsernsError::Taken { uid });
            }
            Ok((ids, slots))
        });
        match free {
            Ok((ids, slots)) => {
                self.hold(
                    uid,
                    AssignedIds {
                        ids,
                        persisted: true,
                    },
                    slots,
                );
                Ok(())
            }
            Err(error) => {
                self.unusable.insert(uid.clone(), error.clone());
                Err(error)
            }
        }
    }

    /// Frees the IDs of a removed pod.
    pub fn release(&mut self, uid: &PodUid) {
        self.unusable.remove(uid);
        let Some(allocation) = self.pods.remove(uid) else {
            return;
        };
        for slot in allocation.slots {
            self.taken[slot / 64] &= !(1 << (slot % 64));
        }
    }

    fn hold(&mut self, uid: &PodUid, assigned: AssignedIds, slots: Range<usize>) {
        for slot in slots.clone() {
            self.taken[slot / 64] |= 1 << (slot % 64);
        }
        self.pods
            .insert(uid.clone(), Allocation { assigned, slots });
    }

    fn is_taken(&self, slot: usize) -> bool {
        self.taken[slot / 64] & (1 << (slot % 64)) != 0
    }

    /// Returns the slots that overlap the mapping; none outside the range.
    fn slots_of(&self, ids: IdMapping) -> Range<usize> {
        let (first, per_pod) = (u64::from(self.range.first), u64::from(self.range.per_pod));
        let start = u64::from(ids.host_id);
        let end = start + u64::from(ids.length);
        let from = start.saturating_sub(first) / per_pod;
        let to = end.saturating_sub(first).div_ceil(per_pod);
        let last = self.range.slots();
        (from as usize).min(last)..(to as usize).min(last)
    }
}

/// Serializes the file of a pod in upstream's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MappingFile {
    #[serde(rename = "uidMappings")]
    uids: Vec<FileMapping>,
    #[serde(rename = "gidMappings")]
    gids: Vec<FileMapping>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileMapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// Error of the file of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// Not the format of this agent or upstream.
    #[error("invalid user namespace mappings file: {0}")]
    Syntax(String),
    /// Not exactly one mapping from ID 0, equal for users and groups.
    #[error("invalid user namespace configuration: {0}")]
    Content(&'static str),
}

/// Content of the file of a pod.
pub fn mapping_file(ids: IdMapping) -> String {
    let mapping = FileMapping {
        host_id: ids.host_id,
        container_id: ids.container_id,
        length: ids.length,
    };
    let file = MappingFile {
        uids: vec![mapping],
        gids: vec![mapping],
    };
    // numbers and fixed names always serialize
    serde_json::to_string(&file).unwrap_or_default()
}

/// Parses the file of a pod.
///
/// # Errors
/// The content is not one that this agent or upstream writes.
fn parse_mapping_file(text: &str) -> Result<IdMapping, MappingError> {
    let file: MappingFile =
        serde_json::from_str(text).map_err(|error| MappingError::Syntax(error.to_string()))?;
    let [ids] = file.uids.as_slice() else {
        return Err(MappingError::Content("no more than one mapping allowed."));
    };
    if file.gids.as_slice() != [*ids] {
        return Err(MappingError::Content(
            "GID and UID mapping should be identical",
        ));
    }
    if ids.container_id != 0 {
        return Err(MappingError::Content("UID 0 must be mapped"));
    }
    if ids.host_id == 0 || ids.length == 0 || ids.host_id.checked_add(ids.length - 1).is_none() {
        return Err(MappingError::Content("invalid IDs of a pod"));
    }
    Ok(IdMapping {
        host_id: ids.host_id,
        container_id: ids.container_id,
        length: ids.length,
    })
}

#[cfg(test)]
mod tests;
