//! User namespaces: which host IDs a pod with `hostUsers: false` has (KEP-127).
//!
//! A pod gets `userNamespaces.idsPerPod` IDs that no other pod and no host user has, the same for users
//! and groups; ID 0 in its containers is the first of them. The IDs are in `<root>/pods/<uid>/userns`
//! while the pod has a directory, and are persisted before they are used. Upstream: `pkg/kubelet/userns`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use windlass_types::PodUid;
use windlass_types::cri::{IdMapping, RuntimeHandler};

/// IDs come in multiples of this; also how many a pod gets unless the node says otherwise.
pub(crate) const ID_UNIT: u32 = 65_536;

/// IDs of the node that pods may have, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    first: u32,
    length: u32,
    per_pod: u32,
}

/// The node's IDs cannot be assigned to pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The IDs of a pod are not a multiple of the unit.
    #[error("kubelet user namespace length {0} is not a multiple of {ID_UNIT}")]
    PerPod(u32),
    /// The first ID is in the middle of what a pod gets.
    #[error("kubelet user assigned ID {first} is not a multiple of {per_pod}")]
    First {
        /// First ID.
        first: u32,
        /// IDs of a pod.
        per_pod: u32,
    },
    /// Root of the node is among the IDs.
    #[error("kubelet user assigned ID {first} must be greater or equal to {per_pod}")]
    Root {
        /// First ID.
        first: u32,
        /// IDs of a pod.
        per_pod: u32,
    },
    /// The last pod would get less than the others.
    #[error("kubelet user assigned IDs length {length} is not a multiple of {per_pod}")]
    Length {
        /// Number of IDs.
        length: u32,
        /// IDs of a pod.
        per_pod: u32,
    },
    /// More pods may run than there are IDs for.
    #[error("kubelet user assigned IDs are not enough to support {0} pods")]
    TooFew(u32),
    /// The IDs of the node are unknown.
    #[error("{0}")]
    Unknown(String),
}

impl Default for IdRange {
    /// Everything but the node's own.
    fn default() -> Self {
        Self {
            first: ID_UNIT,
            length: u32::MAX - ID_UNIT + 1,
            per_pod: ID_UNIT,
        }
    }
}

impl IdRange {
    /// The IDs `from..from + length` of `subordinate`, or all of the node's above its own, for
    /// `max_pods` pods with `per_pod` each.
    ///
    /// # Errors
    /// They do not divide into pods as upstream wants it, or are too few.
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

/// Reads what `getsubids kubelet` says: one line, `0: kubelet <first> <length>`.
///
/// # Errors
/// Upstream's words for anything else.
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

/// A pod cannot have user IDs of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsernsError {
    /// The runtime, or the handler of the pod's RuntimeClass, cannot do it. Upstream's sentence.
    #[error("can't set `spec.hostUsers: false`, {0}")]
    Unsupported(String),
    /// All are taken.
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    Exhausted,
    /// The node's IDs cannot be used.
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

/// Whether a handler gives pods IDs of their own. `handler` is the one of the pod's RuntimeClass,
/// empty for the default one.
///
/// # Errors
/// It does not, or does not say so.
pub fn check_handler(handlers: &[RuntimeHandler], handler: &str) -> Result<(), UsernsError> {
    let found = handlers.iter().find(|known| known.name == handler);
    let why = match found {
        Some(known) if known.user_namespaces => return Ok(()),
        Some(_) => String::new(),
        // an old runtime that does not know the message, as upstream
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
    /// One bit for each pod's worth of IDs.
    taken: Vec<u64>,
    pods: BTreeMap<PodUid, Allocation>,
    unusable: BTreeMap<PodUid, UsernsError>,
}

/// Slots of a pod. IDs of another configuration may cover several slots, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allocation {
    assigned: AssignedIds,
    slots: Range<usize>,
}

/// IDs of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedIds {
    /// Its IDs.
    pub ids: IdMapping,
    /// True once the file of the pod has them.
    pub persisted: bool,
}

impl UserNamespaces {
    /// Nothing is taken.
    pub fn new(range: IdRange) -> Self {
        Self {
            taken: vec![0; range.slots().div_ceil(64)],
            pods: BTreeMap::new(),
            unusable: BTreeMap::new(),
            range,
        }
    }

    /// Returns the IDs of a pod, or allocates the first free ones. They must be persisted before use.
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
        // the last word has bits beyond the last slot
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

    /// Restores the IDs of a pod from a file of a previous agent run, maybe of another configuration. A
    /// pod with an invalid file gets no IDs until it is removed.
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

    /// The pod is gone; what it had is free.
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

    /// Slots of which some ID is in the mapping; empty if it is beside the range.
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

/// The file of a pod, in upstream's format.
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

/// The file of a pod cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// It is not what this agent or upstream writes.
    #[error("invalid user namespace mappings file: {0}")]
    Syntax(String),
    /// Other than one mapping, the same for users and groups, from ID 0 on.
    #[error("invalid user namespace configuration: {0}")]
    Content(&'static str),
}

/// What the file of a pod says.
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
    // numbers and fixed names: nothing in it can fail to be written
    serde_json::to_string(&file).unwrap_or_default()
}

/// Reads the file of a pod.
///
/// # Errors
/// It says something that neither this agent nor upstream writes.
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
