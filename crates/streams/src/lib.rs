//! Exec, attach and port-forward: a client's upgraded connection, joined to the container runtime's
//! streaming server byte for byte.
