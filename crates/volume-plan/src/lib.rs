//! Volume decisions: sources, PVCs, expansion, SELinux, and the volume reconciler as a state machine.

pub mod empty_dir;
pub mod selinux_mount;
pub mod volume_reconciler;
pub mod volume_source;
pub mod volume_usage;
