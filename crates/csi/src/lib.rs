//! CSI on a node: which drivers are registered, calls to them, and the mounts made through them.
//!
//! * [`port`] what a driver can be asked ([`CsiNode`]), and what is asked of the API server for it
//!   ([`CsiObjects`])
//! * [`drivers`] who is registered
//! * [`register`] how a driver gets there ([`CsiRegistration`])
//! * [`client`] the calls over its socket ([`CsiClient`])
//! * [`attach_limits`] what changes of what a driver said ([`keep_attach_limits`])
//! * [`mount`] staging, publishing, and taking back ([`CsiVolumes`])

pub mod attach_limits;
pub mod client;
pub mod drivers;
pub mod mount;
pub mod port;
pub mod register;

pub use attach_limits::keep_attach_limits;
pub use client::CsiClient;
pub use drivers::{CsiDrivers, RegisteredDriver};
pub use mount::{
    CsiPaths, CsiVolumes, CsiVolumesDeps, FileLane, FileWork, MountError, VolumeHost,
    attachment_name, inline_handle, is_csi_device,
};
pub use port::{
    Attachment, CsiDriverSpec, CsiError, CsiNode, CsiObjects, FsGroupPolicy, NodeAbility, NodeInfo,
    ObjectError, PodToken, PublishRequest, StageRequest, TokenRequest, UsageEntry, UsageUnit,
    VolumeUsage,
};
pub use register::{Announcement, Announcements, CsiRegistration};
