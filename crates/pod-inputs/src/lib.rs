//! What a pod gets from its node, its spec and the API: references, environment, projected files, resources.

pub mod cache_lag;
pub mod env;
pub mod node_facts;
pub mod object_polling;
pub mod paths;
pub mod pod_references;
pub mod projection;
pub mod resources;
pub mod service_env;
