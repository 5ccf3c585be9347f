//! Volumes on this machine.
//!
//! Which plugin does what; each has a file of its own.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::paths::{NodePaths, check_component};
use windlass_core::volume_source::VolumeSource;
use windlass_types::{DeviceName, MountedContent, MountedVolume, PodExt, PodUid};

use crate::error::VolumeError;
use crate::lane::Lanes;
use crate::pod_volumes::{set_up_volume, tear_down_volume};
use crate::port::{FoundVolume, VolumePlugins, VolumeRequest};
use crate::shown::{Digest, Shown};

/// Implementation of [`VolumePlugins`] on the node.
#[derive(Debug)]
pub struct HostVolumes {
    paths: NodePaths,
    lanes: Arc<Lanes>,
    shown: Shown,
}

impl HostVolumes {
    /// Works below `paths.root_dir`; nothing is touched yet. `lanes` may be shared with other work
    /// on files.
    pub fn new(paths: NodePaths, lanes: Arc<Lanes>) -> Self {
        Self {
            paths,
            lanes,
            shown: Shown::default(),
        }
    }
}

#[async_trait]
impl VolumePlugins for HostVolumes {
    async fn find(&self, uid: &PodUid) -> Result<Vec<FoundVolume>, VolumeError> {
        check_uid(uid)?;
        let dir = self.paths.pod_dir(uid);
        self.lanes
            .run(&lane(uid), "looking for volumes", move || {
                let mut found = volumes_in(&dir, "volumes", false)?;
                found.extend(volumes_in(&dir, "volumeDevices", true)?);
                Ok(found)
            })
            .await
    }

    async fn find_pods(&self) -> Result<Vec<PodUid>, VolumeError> {
        let dir = self.paths.pods_dir();
        self.lanes
            .run("node:volumes", "looking for pods", move || {
                Ok(names_in(&dir)?.into_iter().map(PodUid::from).collect())
            })
            .await
    }

    async fn find_devices(&self) -> Result<Vec<DeviceName>, VolumeError> {
        Ok(Vec::new())
    }

    async fn stage(&self, _: &VolumeRequest) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn unstage(&self, _: &DeviceName) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError> {
        let uid = request.pod.uid();
        check_uid(&uid)?;
        let (dir, request) = (self.paths.pod_dir(&uid), request.clone());
        let (name, digest) = (request.volume.name.clone(), digest(&request));
        if let Some(digest) = digest {
            if self.shown.is(&uid, &name, digest) {
                return shown_already(&dir, &request);
            }
            // until it is done nobody knows what is shown
            self.shown.forget(&uid, &name);
        }
        let mounted = self
            .lanes
            .run(&lane(&uid), "setting up volumes", move || {
                set_up_volume(&dir, &request.pod, &request.volume, request.now)
            })
            .await?;
        if let Some(digest) = digest {
            self.shown.set(&uid, &name, digest);
        }
        Ok(mounted)
    }

    async fn expand(&self, _: &VolumeRequest) -> Result<Option<u64>, VolumeError> {
        Ok(None)
    }

    async fn tear_down(&self, uid: &PodUid, volume: &FoundVolume) -> Result<(), VolumeError> {
        check_uid(uid)?;
        self.shown.forget(uid, &volume.name);
        let (dir, volume) = (self.paths.pod_dir(uid), volume.clone());
        self.lanes
            .run(&lane(uid), "releasing volumes", move || {
                tear_down_volume(&dir, &volume)
            })
            .await
    }
}

/// The lane of a pod's volumes: its other files do not wait for a volume that hangs.
fn lane(uid: &PodUid) -> String {
    format!("{uid}/volumes")
}

fn check_uid(uid: &PodUid) -> Result<(), VolumeError> {
    check_component("pod UID", uid.as_str()).map_err(|error| VolumeError::Invalid {
        volume: String::new(),
        message: error.to_string(),
    })
}

fn digest(request: &VolumeRequest) -> Option<Digest> {
    match &request.volume.source {
        VolumeSource::Payload(_, payload) => Some(Digest::of(payload)),
        _ => None,
    }
}

fn shown_already(pod_dir: &Path, request: &VolumeRequest) -> Result<MountedVolume, VolumeError> {
    let volume = &request.volume;
    let dir = volume.dir(pod_dir).ok_or_else(|| VolumeError::Invalid {
        volume: volume.name.clone(),
        message: "lies nowhere".to_owned(),
    })?;
    Ok(MountedVolume {
        content: MountedContent::Path(dir),
        read_only: true,
        relabel: true,
    })
}

/// `<pod>/<above>/<kind>/<volume>`.
fn volumes_in(pod_dir: &Path, above: &str, block: bool) -> Result<Vec<FoundVolume>, VolumeError> {
    let mut found = Vec::new();
    for plugin_dir in names_in(&pod_dir.join(above))? {
        for name in names_in(&pod_dir.join(above).join(&plugin_dir))? {
            found.push(FoundVolume {
                plugin_dir: plugin_dir.clone(),
                name,
                block,
                device: None,
            });
        }
    }
    Ok(found)
}

/// Sorted; none if the directory is missing. A name that is not text is not one of ours.
fn names_in(dir: &Path) -> Result<Vec<String>, VolumeError> {
    let failed = |error| VolumeError::io("list", dir, error);
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}
