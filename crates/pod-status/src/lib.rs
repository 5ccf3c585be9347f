//! Pod status as values: generation, blockers, status patches, mirror pods, event correlation, timelines.

pub mod event_correlator;
pub mod mirror;
pub mod status;
pub mod status_sync;
pub mod timeline;
