//! `Debug` for messages that carry secrets, so that no log line can print them.

use std::fmt;

use crate::cri_v1::{AuthConfig, KeyValue};

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

/// An environment variable: its value often comes from a Secret.
impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::cri_v1::{AuthConfig, ContainerConfig, KeyValue, PullImageRequest};

    #[test]
    fn a_container_configuration_prints_no_value_of_its_environment() {
        let config = ContainerConfig {
            envs: vec![KeyValue {
                key: "TOKEN".into(),
                value: "secret".into(),
            }],
            ..Default::default()
        };
        let text = format!("{config:?}");
        assert!(text.contains("TOKEN") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn a_pull_request_prints_no_secret() {
        let request = PullImageRequest {
            auth: Some(AuthConfig {
                username: "user-secret".into(),
                password: "secret".into(),
                auth: "secret".into(),
                server_address: "registry.example".into(),
                identity_token: "secret".into(),
                registry_token: "secret".into(),
            }),
            ..Default::default()
        };
        let text = format!("{request:?}");
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("registry.example"), "{text}");
    }
}
