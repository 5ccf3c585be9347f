//! What monitoring agents on the node ask: PodResources v1, and the Pods API, on Unix sockets.
