//! Volumes of former in-tree types as volumes of the CSI drivers that replaced them (upstream
//! `csi-translation-lib`).
//!
//! The CSINode announces these types as migrated. The attach/detach controller translates them with
//! the same rules, so handles must be equal byte for byte: they are part of the names of
//! VolumeAttachments and of the entries in `volumesInUse` and `volumesAttached`.

use std::collections::{BTreeMap, BTreeSet};

use windlass_types::corev1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, GCEPersistentDiskVolumeSource,
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeSpec, PortworxVolumeSource, Volume, VsphereVirtualDiskVolumeSource,
};

use super::{CsiVolume, SecretRef};

/// Placeholder of the GCE driver for a project or zone that the source does not name.
const UNSPECIFIED: &str = "UNSPECIFIED";
/// Separator of several zones in one label.
const ZONES_SEPARATOR: &str = "__";
/// Annotation of a PersistentVolume with the resource group of an Azure file share.
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
/// Labels of zone and region: current and beta.
const TOPOLOGY_LABELS: [(&str, &str); 2] = [
    (
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ),
];

/// A field of an in-tree source that cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{owner}.{field}: {problem}")]
pub(super) struct InTreeError {
    /// The object and the path of the volume in it.
    owner: String,
    /// Path of the field in the volume.
    field: &'static str,
    /// Cause, and what to write.
    problem: String,
}

/// A problem of one field.
type Problem = (&'static str, String);

/// A source of one of the seven migrated types.
enum Source<'a> {
    Ebs(&'a AWSElasticBlockStoreVolumeSource),
    Gce(&'a GCEPersistentDiskVolumeSource),
    AzureDisk(&'a AzureDiskVolumeSource),
    AzureFile(AzureFile<'a>),
    Cinder(Cinder<'a>),
    Portworx(&'a PortworxVolumeSource),
    Vsphere(&'a VsphereVirtualDiskVolumeSource),
}

/// Common fields of `azureFile` in pods and PersistentVolumes.
struct AzureFile<'a> {
    secret: &'a str,
    secret_namespace: Option<&'a str>,
    share: &'a str,
    read_only: bool,
}

/// Common fields of `cinder` in pods and PersistentVolumes.
struct Cinder<'a> {
    id: &'a str,
    fs_type: Option<&'a str>,
    read_only: bool,
}

/// Context for handle and Secret.
struct Owner<'a> {
    /// Name of the volume in the pod, or of the PersistentVolume.
    name: &'a str,
    /// Namespace of the pod or of the bound PVC.
    namespace: &'a str,
    labels: Option<&'a BTreeMap<String, String>>,
    annotations: Option<&'a BTreeMap<String, String>>,
}

/// An inline volume of a migrated type.
pub(super) struct InlineVolume {
    /// The volume of the driver.
    pub(super) volume: CsiVolume,
    /// `readOnly` of the source.
    pub(super) read_only: bool,
}

/// Returns true for a volume of a migrated type.
pub(super) fn is_migrated(volume: &Volume) -> bool {
    pod_source(volume).is_some()
}

/// Translates an inline volume of a pod; `None` if it is of another type.
pub(super) fn inline_volume(
    namespace: &str,
    volume: &Volume,
) -> Option<Result<InlineVolume, InTreeError>> {
    let source = pod_source(volume)?;
    let owner = Owner {
        name: &volume.name,
        namespace: match namespace {
            "" => "default",
            namespace => namespace,
        },
        labels: None,
        annotations: None,
    };
    let translated = source.translate(&owner).map(|mut csi| {
        let read_only = source.read_only();
        let mode = match &source {
            Source::AzureFile(_) => "ReadWriteMany",
            Source::Gce(_) | Source::Portworx(_) if read_only => "ReadOnlyMany",
            _ => "ReadWriteOnce",
        };
        csi.access_modes = vec![mode.to_owned()];
        // a host path, escaped as upstream
        csi.volume_name = source.unique_name(&csi).replace('/', "~");
        InlineVolume {
            volume: csi,
            read_only,
        }
    });
    Some(translated.map_err(|(field, problem)| InTreeError {
        owner: format!("spec.volumes[{}]", volume.name),
        field,
        problem,
    }))
}

/// Translates a PersistentVolume and its required node affinity; `None` if it is of another type.
/// The caller sets name, size and mode.
pub(super) fn persistent_volume(
    volume: &PersistentVolume,
    spec: &PersistentVolumeSpec,
) -> Option<Result<(CsiVolume, Option<NodeSelector>), InTreeError>> {
    let source = persistent_source(spec)?;
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let claim_ref = spec.claim_ref.as_ref();
    let owner = Owner {
        name,
        namespace: claim_ref
            .and_then(|claim| claim.namespace.as_deref())
            .unwrap_or_default(),
        labels: volume.metadata.labels.as_ref(),
        annotations: volume.metadata.annotations.as_ref(),
    };
    let translated = source.translate(&owner).map(|mut csi| {
        let modes = spec.access_modes.clone().unwrap_or_default();
        csi.access_modes = match &source {
            Source::Gce(_) => gce_access_modes(modes),
            _ => modes,
        };
        (csi, source.nodes(&owner, spec))
    });
    Some(translated.map_err(|(field, problem)| InTreeError {
        owner: format!("PersistentVolume {name:?}: spec"),
        field,
        problem,
    }))
}

fn pod_source(volume: &Volume) -> Option<Source<'_>> {
    let cinder = volume.cinder.as_ref().map(|cinder| Cinder {
        id: &cinder.volume_id,
        fs_type: cinder.fs_type.as_deref(),
        read_only: cinder.read_only == Some(true),
    });
    let azure_file = volume.azure_file.as_ref().map(|file| AzureFile {
        secret: &file.secret_name,
        secret_namespace: None,
        share: &file.share_name,
        read_only: file.read_only == Some(true),
    });
    let ebs = volume.aws_elastic_block_store.as_ref().map(Source::Ebs);
    ebs.or(volume.gce_persistent_disk.as_ref().map(Source::Gce))
        .or(volume.azure_disk.as_ref().map(Source::AzureDisk))
        .or(azure_file.map(Source::AzureFile))
        .or(cinder.map(Source::Cinder))
        .or(volume.portworx_volume.as_ref().map(Source::Portworx))
        .or(volume.vsphere_volume.as_ref().map(Source::Vsphere))
}

fn persistent_source(spec: &PersistentVolumeSpec) -> Option<Source<'_>> {
    let cinder = spec.cinder.as_ref().map(|cinder| Cinder {
        id: &cinder.volume_id,
        fs_type: cinder.fs_type.as_deref(),
        read_only: cinder.read_only == Some(true),
    });
    let azure_file = spec.azure_file.as_ref().map(|file| AzureFile {
        secret: &file.secret_name,
        secret_namespace: file.secret_namespace.as_deref(),
        share: &file.share_name,
        read_only: file.read_only == Some(true),
    });
    let ebs = spec.aws_elastic_block_store.as_ref().map(Source::Ebs);
    ebs.or(spec.gce_persistent_disk.as_ref().map(Source::Gce))
        .or(spec.azure_disk.as_ref().map(Source::AzureDisk))
        .or(azure_file.map(Source::AzureFile))
        .or(cinder.map(Source::Cinder))
        .or(spec.portworx_volume.as_ref().map(Source::Portworx))
        .or(spec.vsphere_volume.as_ref().map(Source::Vsphere))
}

impl Source<'_> {
    /// Returns the name of the driver that replaced the type.
    fn driver(&self) -> &'static str {
        match self {
            Self::Ebs(_) => "ebs.csi.aws.com",
            Self::Gce(_) => "pd.csi.storage.gke.io",
            Self::AzureDisk(_) => "disk.csi.azure.com",
            Self::AzureFile(_) => "file.csi.azure.com",
            Self::Cinder(_) => "cinder.csi.openstack.org",
            Self::Portworx(_) => "pxd.portworx.com",
            Self::Vsphere(_) => "csi.vsphere.vmware.com",
        }
    }

    fn fs_type(&self) -> Option<&str> {
        match self {
            Self::Ebs(disk) => disk.fs_type.as_deref(),
            Self::Gce(disk) => disk.fs_type.as_deref(),
            Self::AzureDisk(disk) => disk.fs_type.as_deref(),
            Self::AzureFile(_) => None,
            Self::Cinder(disk) => disk.fs_type,
            Self::Portworx(volume) => volume.fs_type.as_deref(),
            Self::Vsphere(disk) => disk.fs_type.as_deref(),
        }
    }

    fn read_only(&self) -> bool {
        match self {
            Self::Ebs(disk) => disk.read_only == Some(true),
            Self::Gce(disk) => disk.read_only == Some(true),
            Self::AzureDisk(disk) => disk.read_only == Some(true),
            Self::AzureFile(file) => file.read_only,
            Self::Cinder(disk) => disk.read_only,
            Self::Portworx(volume) => volume.read_only == Some(true),
            Self::Vsphere(_) => false,
        }
    }

    /// Returns the field that identifies the volume, and its value.
    fn id(&self) -> (&'static str, &str) {
        match self {
            Self::Ebs(disk) => ("awsElasticBlockStore.volumeID", &disk.volume_id),
            Self::Gce(disk) => ("gcePersistentDisk.pdName", &disk.pd_name),
            Self::AzureDisk(disk) => ("azureDisk.diskURI", &disk.disk_uri),
            Self::AzureFile(file) => ("azureFile.shareName", file.share),
            Self::Cinder(disk) => ("cinder.volumeID", disk.id),
            Self::Portworx(volume) => ("portworxVolume.volumeID", &volume.volume_id),
            Self::Vsphere(disk) => ("vsphereVolume.volumePath", &disk.volume_path),
        }
    }

    /// Returns the name of an inline volume: that of upstream's generated PersistentVolume.
    fn unique_name(&self, csi: &CsiVolume) -> String {
        let handle = csi.handle.as_deref().unwrap_or_default();
        let unique = match self {
            Self::AzureFile(_) => return handle.to_owned(),
            Self::Gce(disk) => &disk.pd_name,
            Self::AzureDisk(disk) => &disk.disk_name,
            _ => handle,
        };
        format!("{}-{unique}", self.driver())
    }

    /// Returns the volume of the driver, without name, mode and access modes.
    fn translate(&self, owner: &Owner<'_>) -> Result<CsiVolume, Problem> {
        let (field, id) = self.id();
        if id.is_empty() {
            return Err((field, "is empty; name the volume".to_owned()));
        }
        Ok(CsiVolume {
            volume_name: String::new(),
            driver: self.driver().to_owned(),
            handle: Some(self.handle(owner)?),
            fs_type: self.fs_type().unwrap_or_default().to_owned(),
            attributes: self.attributes(),
            block: false,
            access_modes: Vec::new(),
            stage_secret: self.stage_secret(owner)?,
            publish_secret: None,
            expand_secret: None,
            size: None,
            attach_required: true,
        })
    }

    fn handle(&self, owner: &Owner<'_>) -> Result<String, Problem> {
        let (field, id) = self.id();
        match self {
            Self::Ebs(_) => ebs_volume_id(id).map_err(|problem| (field, problem)),
            Self::Gce(_) => gce_handle(id, owner),
            Self::AzureFile(file) => {
                let annotations = owner.annotations;
                let group = annotations.and_then(|all| all.get(RESOURCE_GROUP));
                let group = group.map_or("", String::as_str);
                let account = storage_account(file.secret);
                let namespace = file.namespace(owner)?;
                Ok(format!("{group}#{account}#{id}#{}#{namespace}", owner.name))
            }
            _ => Ok(id.to_owned()),
        }
    }

    /// Returns `volumeAttributes`.
    fn attributes(&self) -> BTreeMap<String, String> {
        let mut attributes = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            attributes.insert(key.to_owned(), value.to_owned());
        };
        match self {
            Self::Ebs(disk) => add("partition", &disk.partition.unwrap_or(0).to_string()),
            Self::Gce(disk) => {
                let partition = disk.partition.filter(|partition| *partition != 0);
                add(
                    "partition",
                    &partition.map_or(String::new(), |it| it.to_string()),
                );
            }
            Self::AzureDisk(disk) => {
                add("kind", disk.kind.as_deref().unwrap_or("Managed"));
                add("csi-migration", "true");
                let optional = [
                    ("cachingMode", &disk.caching_mode),
                    ("fsType", &disk.fs_type),
                ];
                for (key, value) in optional {
                    if let Some(value) = value {
                        add(key, value);
                    }
                }
            }
            Self::AzureFile(file) => add("sharename", file.share),
            Self::Vsphere(disk) => {
                let policy = disk.storage_policy_name.as_deref();
                if let Some(policy) = policy.filter(|policy| !policy.is_empty()) {
                    add("storagepolicyname", policy);
                }
            }
            Self::Cinder(_) | Self::Portworx(_) => {}
        }
        attributes
    }

    fn stage_secret(&self, owner: &Owner<'_>) -> Result<Option<SecretRef>, Problem> {
        let Self::AzureFile(file) = self else {
            return Ok(None);
        };
        if file.secret.is_empty() {
            let problem = "is empty; name the Secret with the storage account's key";
            return Err(("azureFile.secretName", problem.to_owned()));
        }
        Ok(Some(SecretRef {
            namespace: file.namespace(owner)?.to_owned(),
            name: file.secret.to_owned(),
        }))
    }

    /// Translates `nodeAffinity` of a PersistentVolume to the topology keys of the driver, which
    /// are labels of the Node.
    fn nodes(&self, owner: &Owner<'_>, spec: &PersistentVolumeSpec) -> Option<NodeSelector> {
        let affinity = spec.node_affinity.as_ref();
        let required = affinity.and_then(|affinity| affinity.required.clone());
        let keys = match self {
            Self::Ebs(_) => ("topology.ebs.csi.aws.com/zone", None),
            Self::Gce(_) => ("topology.gke.io/zone", None),
            Self::Cinder(_) => ("topology.cinder.csi.openstack.org/zone", None),
            Self::Vsphere(_) => (
                "topology.csi.vmware.com/zone",
                Some("topology.csi.vmware.com/region"),
            ),
            Self::AzureDisk(_) | Self::AzureFile(_) | Self::Portworx(_) => return required,
        };
        translated_topology(required, owner.labels, keys)
    }
}

impl AzureFile<'_> {
    /// Returns the namespace of the Secret: from the source, else that of the pod or PVC.
    fn namespace<'a>(&'a self, owner: &Owner<'a>) -> Result<&'a str, Problem> {
        match self.secret_namespace.unwrap_or(owner.namespace) {
            "" => Err((
                "azureFile.secretNamespace",
                "is missing and the volume has no PVC; name the Secret's namespace".to_owned(),
            )),
            namespace => Ok(namespace),
        }
    }
}

/// Returns `vol-…` from `vol-…`, `aws://ZONE/vol-…` and `aws:///vol-…`.
fn ebs_volume_id(id: &str) -> Result<String, String> {
    let Some(rest) = id.strip_prefix("aws://") else {
        return Ok(id.to_owned());
    };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let volume = path.trim_matches('/');
    match volume.strip_prefix("vol-") {
        Some(number) if !number.contains('/') => Ok(volume.to_owned()),
        _ => Err(format!(
            "{id:?} is not an EBS volume; write vol-ID or aws://ZONE/vol-ID"
        )),
    }
}

/// Returns `projects/…/disks/<disk>`, zonal or regional by the labels of the PersistentVolume.
fn gce_handle(disk: &str, owner: &Owner<'_>) -> Result<String, Problem> {
    let label = |name: &str| owner.labels.and_then(|labels| labels.get(name));
    let label = label("failure-domain.beta.kubernetes.io/zone")
        .filter(|zones| !zones.is_empty())
        .or_else(|| label("topology.kubernetes.io/zone"));
    let zones: Vec<_> = label
        .map_or("", String::as_str)
        .split(ZONES_SEPARATOR)
        .collect();
    let place = match zones.as_slice() {
        [] | [""] => format!("zones/{UNSPECIFIED}"),
        [zone] => format!("zones/{zone}"),
        zones => {
            let region = gce_region(zones).ok_or_else(|| {
                let problem = format!(
                    "the zones {zones:?} of the volume's zone label are not in one region; write \
                     them as LOCALE-REGION-ZONE, joined by {ZONES_SEPARATOR}"
                );
                ("gcePersistentDisk", problem)
            })?;
            format!("regions/{region}")
        }
    };
    Ok(format!("projects/{UNSPECIFIED}/{place}/disks/{disk}"))
}

/// Returns the common region of zones such as `europe-west1-b`, if any.
fn gce_region(zones: &[&str]) -> Option<String> {
    let region = |zone: &&str| -> Option<String> {
        let (region, _) = zone.rsplit_once('-')?;
        (region.matches('-').count() == 1).then(|| region.to_owned())
    };
    let regions: Option<BTreeSet<String>> = zones.iter().map(region).collect();
    let mut regions = regions?.into_iter();
    let first = regions.next()?;
    regions.next().is_none().then_some(first)
}

/// Returns the access modes that the GCE driver supports; the in-tree type did not check them.
fn gce_access_modes(modes: Vec<String>) -> Vec<String> {
    let has = |mode: &str| modes.iter().any(|one| one == mode);
    if modes.is_empty() {
        return modes;
    }
    let writable = has("ReadWriteOnce") || has("ReadWriteMany");
    let mode = match has("ReadOnlyMany") && !writable {
        true => "ReadOnlyMany",
        false => "ReadWriteOnce",
    };
    vec![mode.to_owned()]
}

/// Returns the account of a Secret `azure-storage-account-<account>-secret`, else its name.
fn storage_account(secret: &str) -> &str {
    let account = secret
        .split_once("azure-storage-account-")
        .and_then(|(_, rest)| rest.rsplit_once("-secret"));
    match account {
        Some((account, _)) if !account.is_empty() => account,
        _ => secret,
    }
}

/// Translates zone and region to the keys of the driver. Labels complete the affinity. A driver
/// without a region key keeps the region under its current label.
fn translated_topology(
    required: Option<NodeSelector>,
    labels: Option<&BTreeMap<String, String>>,
    (zone_key, region_key): (&str, Option<&str>),
) -> Option<NodeSelector> {
    let [current, beta] = TOPOLOGY_LABELS;
    let selected = |key: &str| required.as_ref().is_some_and(|it| selects(it, key));
    let labeled = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
    let is_beta =
        !selected(current.0) && (selected(beta.0) || (!labeled(current.0) && labeled(beta.0)));
    let (zone, region) = if is_beta { beta } else { current };
    // only the driver with regions has single values in its labels
    let values = |key: &str| -> Vec<String> {
        let label = labels.and_then(|labels| labels.get(key));
        let label = label.map_or("", String::as_str);
        let values: BTreeSet<&str> = match region_key {
            Some(_) => BTreeSet::from([label.trim()]),
            None => label.split(ZONES_SEPARATOR).map(str::trim).collect(),
        };
        let values = values.into_iter().filter(|value| !value.is_empty());
        values.map(str::to_owned).collect()
    };
    let mut topology = Topology(required);
    topology.translate(zone, zone_key, values(zone));
    match region_key {
        Some(key) => topology.translate(region, key, values(region)),
        None => topology.rename(region, current.1),
    }
    topology.0
}

/// The node selector of a PersistentVolume.
struct Topology(Option<NodeSelector>);

impl Topology {
    /// Renames a key, or adds it with values if it is missing.
    fn translate(&mut self, key: &str, new_key: &str, values: Vec<String>) {
        if self.0.as_ref().is_some_and(|it| selects(it, key)) {
            self.rename(key, new_key);
        } else if !values.is_empty() {
            self.add(new_key, &values);
        }
    }

    fn rename(&mut self, key: &str, new_key: &str) {
        let terms = self.0.iter_mut().flat_map(|it| &mut it.node_selector_terms);
        let expressions = terms.flat_map(|term| term.match_expressions.iter_mut().flatten());
        for expression in expressions.filter(|expression| expression.key == key) {
            expression.key = new_key.to_owned();
        }
    }

    fn add(&mut self, key: &str, values: &[String]) {
        let terms = &mut self.0.get_or_insert_default().node_selector_terms;
        if terms.is_empty() {
            terms.push(NodeSelectorTerm::default());
        }
        for term in terms {
            let expressions = term.match_expressions.get_or_insert_default();
            expressions.push(NodeSelectorRequirement {
                key: key.to_owned(),
                operator: "In".to_owned(),
                values: Some(values.to_vec()),
            });
        }
    }
}

/// Returns true if an expression of the selector has the key.
fn selects(selector: &NodeSelector, key: &str) -> bool {
    let terms = selector.node_selector_terms.iter();
    let mut expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    expressions.any(|expression| expression.key == key)
}
