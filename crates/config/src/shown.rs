//! Configuration and flags for `/configz` and `/flagz`, without header values (credentials).

use std::ffi::OsString;

use clap::CommandFactory;
use serde_json::{Value, json};

use crate::flags::{KubeletFlags, normalize};
use crate::load::Config;

/// Replacement of a credential, as upstream.
const MASK: &str = "<masked>";
/// The flag that mirrors `staticPodURLHeader`.
const HEADER_FLAG: &str = "manifest-url-header";

impl Config {
    /// Returns the effective KubeletConfiguration with kind and API version.
    pub fn configz(&self) -> Value {
        let mut shown = serde_json::to_value(&self.kubelet).unwrap_or_default();
        shown["kind"] = "KubeletConfiguration".into();
        shown["apiVersion"] = "kubelet.config.k8s.io/v1beta1".into();
        if let Some(headers) = shown["staticPodURLHeader"].as_object_mut() {
            for values in headers.values_mut() {
                *values = json!([MASK]);
            }
        }
        shown
    }
}

/// Returns all flags with their value or default, sorted by name. `args` starts with the program
/// name.
pub fn shown_flags(args: impl IntoIterator<Item = OsString>) -> Vec<(String, String)> {
    let command = KubeletFlags::command();
    let names: Vec<_> = command
        .get_arguments()
        .filter_map(|it| Some((it.get_id().clone(), it.get_long()?.to_owned())))
        .collect();
    // unreachable: an invalid command line does not start the agent
    let Ok(matches) = command.try_get_matches_from(normalize(args)) else {
        return Vec::new();
    };
    let shown = names.into_iter().filter_map(|(id, name)| {
        let values = matches.try_get_raw(id.as_str()).ok()?;
        let values: Vec<_> = values
            .into_iter()
            .flatten()
            .map(|value| value.to_string_lossy())
            .collect();
        let value = match name == HEADER_FLAG && !values.is_empty() {
            true => MASK.to_owned(),
            false => values.join(","),
        };
        Some((name, value))
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort();
    shown
}

#[cfg(test)]
mod tests {
    use super::{MASK, shown_flags};
    use crate::flags::KubeletFlags;

    #[test]
    fn flagz_lists_values_and_masks_credentials() {
        let line = "windlass --root_dir=/r --node-ip 10.0.0.1 --manifest-url-header=a:secret";
        let shown = shown_flags(line.split(' ').map(Into::into));
        let value = |name: &str| {
            let mut all = shown.iter();
            let found = all.find(|(it, _)| it == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("root-dir"), Some("/r"));
        assert_eq!(value("node-ip"), Some("10.0.0.1"));
        assert_eq!(value("cert-dir"), Some("/var/lib/kubelet/pki"));
        assert_eq!(value("kubeconfig"), Some(""));
        assert_eq!(value("manifest-url-header"), Some(MASK));
        assert!(shown.is_sorted());
    }

    #[test]
    fn configz_has_kind_and_masks_credentials() {
        let flags: Vec<_> = ["windlass", "--manifest-url-header=Authorization:secret"]
            .map(Into::into)
            .into();
        let flags = KubeletFlags::from_args(flags).expect("flags");
        let config = crate::load(&flags).expect("config");
        let shown = config.configz();
        assert_eq!(shown["kind"], "KubeletConfiguration");
        assert_eq!(shown["apiVersion"], "kubelet.config.k8s.io/v1beta1");
        assert_eq!(shown["staticPodURLHeader"]["Authorization"][0], MASK);
        assert_eq!(shown["port"], 10250);
        assert!(!shown.to_string().contains("secret"));
    }
}
