//! Probes from a pod to a verdict.
