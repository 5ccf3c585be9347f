//! Claims of this node: which pods use them, and which devices drivers prepared for them.

use std::collections::{BTreeMap, BTreeSet};

use windlass_types::resourcev1::ResourceClaim;

use crate::port::{ClaimDevice, ClaimRef};

/// One claim (upstream `ClaimInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimInfo {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// UIDs of the pods that use it.
    pub(crate) pods: BTreeSet<String>,
    /// Prepared devices by driver, for all drivers of the allocation.
    pub(crate) drivers: BTreeMap<String, Vec<ClaimDevice>>,
    /// This agent run prepared it.
    pub(crate) prepared: bool,
}

/// Namespace and name of a claim.
pub(crate) type ClaimKey = (String, String);

impl ClaimInfo {
    /// The claim of an API object.
    ///
    /// # Errors
    /// It has no allocation.
    pub(crate) fn new(claim: &ResourceClaim) -> Result<Self, String> {
        let metadata = claim.metadata.clone();
        let name = metadata.name.unwrap_or_default();
        let allocation = claim.status.as_ref().and_then(|it| it.allocation.as_ref());
        let Some(allocation) = allocation else {
            return Err(format!("ResourceClaim {name}: not allocated"));
        };
        let results = allocation.devices.iter();
        let results = results.flat_map(|it| it.results.iter().flatten());
        Ok(Self {
            uid: metadata.uid.unwrap_or_default(),
            name,
            namespace: metadata.namespace.unwrap_or_default(),
            pods: BTreeSet::new(),
            drivers: results.map(|it| (it.driver.clone(), Vec::new())).collect(),
            prepared: false,
        })
    }

    pub(crate) fn key(&self) -> ClaimKey {
        (self.namespace.clone(), self.name.clone())
    }

    pub(crate) fn reference(&self) -> ClaimRef {
        ClaimRef {
            namespace: self.namespace.clone(),
            uid: self.uid.clone(),
            name: self.name.clone(),
        }
    }

    /// Devices for a request of the claim; all for an empty one. A subrequest stands for its
    /// request.
    pub(crate) fn devices<'a>(
        &'a self,
        request: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a ClaimDevice)> {
        let all = self.drivers.iter();
        let all = all.flat_map(|(driver, list)| list.iter().map(|it| (driver.as_str(), it)));
        all.filter(move |(_, device)| {
            let mut requests = device.requests.iter();
            request.is_empty()
                || device.requests.is_empty()
                || requests.any(|it| base_request(it) == base_request(request))
        })
    }
}

/// The request of a reference to a subrequest (upstream `BaseRequestRef`).
fn base_request(reference: &str) -> &str {
    reference.split('/').next().unwrap_or_default()
}

/// All claims of the node, by namespace and name (upstream `claimInfoCache`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimTable(BTreeMap<ClaimKey, ClaimInfo>);

impl FromIterator<ClaimInfo> for ClaimTable {
    fn from_iter<T: IntoIterator<Item = ClaimInfo>>(claims: T) -> Self {
        Self(claims.into_iter().map(|it| (it.key(), it)).collect())
    }
}

/// Calls to drivers, in order of their names.
pub(crate) type Batches = BTreeMap<String, Vec<ClaimRef>>;

impl ClaimTable {
    pub(crate) fn claims(&self) -> impl Iterator<Item = &ClaimInfo> {
        self.0.values()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&ClaimInfo> {
        self.0.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Keys of the claims that a pod uses.
    pub(crate) fn used_by(&self, pod: &str) -> Vec<ClaimKey> {
        let used = self.0.iter().filter(|(_, claim)| claim.pods.contains(pod));
        used.map(|(key, _)| key.clone()).collect()
    }

    /// Adds claims of a pod; returns the calls that prepare them.
    ///
    /// # Errors
    /// A claim of the same name was replaced while it was in use. Nothing is changed.
    pub(crate) fn add(&mut self, pod: &str, claims: Vec<ClaimInfo>) -> Result<Batches, String> {
        for claim in &claims {
            let known = self.0.get(&claim.key());
            if let Some(known) = known.filter(|known| known.uid != claim.uid) {
                let (name, uid) = (&claim.name, &known.uid);
                return Err(format!(
                    "old ResourceClaim with same name {name} and different UID {uid} still exists \
                     (previous pod force-deleted?!)"
                ));
            }
        }
        let mut batches = Batches::new();
        for claim in claims {
            let known = self.0.entry(claim.key()).or_insert(claim);
            known.pods.insert(pod.to_owned());
            if !known.prepared {
                for driver in known.drivers.keys() {
                    let batch = batches.entry(driver.clone()).or_default();
                    batch.push(known.reference());
                }
            }
        }
        Ok(batches)
    }

    /// Sets the devices that a driver prepared.
    pub(crate) fn set_devices(&mut self, claim: &ClaimRef, driver: &str, list: Vec<ClaimDevice>) {
        let key = (claim.namespace.clone(), claim.name.clone());
        if let Some(known) = self.0.get_mut(&key) {
            known.drivers.insert(driver.to_owned(), list);
        }
    }

    /// Marks claims as prepared.
    pub(crate) fn set_prepared(&mut self, claims: &[ClaimKey]) {
        for key in claims {
            if let Some(known) = self.0.get_mut(key) {
                known.prepared = true;
            }
        }
    }

    /// Removes a pod from claims that other pods use; returns the calls that unprepare the others.
    pub(crate) fn release(&mut self, pod: &str, claims: &[ClaimKey]) -> Batches {
        let mut batches = Batches::new();
        for key in claims {
            let Some(claim) = self.0.get_mut(key) else {
                continue;
            };
            if claim.pods.iter().any(|other| other != pod) {
                claim.pods.remove(pod);
                continue;
            }
            for driver in claim.drivers.keys() {
                let batch = batches.entry(driver.clone()).or_default();
                batch.push(claim.reference());
            }
        }
        batches
    }

    /// Removes the claims that only this pod used.
    pub(crate) fn remove(&mut self, pod: &str, claims: &[ClaimKey]) {
        for key in claims {
            let last = self.0.get(key);
            if last.is_some_and(|claim| claim.pods.iter().all(|it| it == pod)) {
                self.0.remove(key);
            }
        }
    }

    /// Number of claims with devices, by driver.
    pub(crate) fn in_use(&self) -> (usize, BTreeMap<&str, usize>) {
        let (mut all, mut by_driver) = (0, BTreeMap::new());
        // upstream forgets claims that an earlier run prepared
        let has_devices = |claim: &ClaimInfo| claim.drivers.values().any(|it| !it.is_empty());
        for claim in self.0.values().filter(|it| it.prepared || has_devices(it)) {
            all += 1;
            for driver in claim.drivers.keys() {
                *by_driver.entry(driver.as_str()).or_default() += 1;
            }
        }
        (all, by_driver)
    }

    /// UIDs of the pods that use a device.
    pub(crate) fn users(&self, driver: &str, pool: &str, device: &str) -> BTreeSet<&str> {
        let uses = |claim: &&ClaimInfo| {
            let mut devices = claim.drivers.get(driver).into_iter().flatten();
            devices.any(|it| it.pool == pool && it.device == device)
        };
        let claims = self.0.values().filter(uses);
        claims
            .flat_map(|it| it.pods.iter().map(String::as_str))
            .collect()
    }
}
