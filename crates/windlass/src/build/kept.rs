//! The encrypted copy of the node's objects, and its key.

use std::path::PathBuf;

use windlass_config::Config;
use windlass_objects::KeptObjects;
use windlass_store::{Store, StoreError};

use super::STATE_DIR;

/// Name of the systemd credential with the key (`LoadCredentialEncrypted=`).
const CREDENTIAL: &str = "windlass-kept-objects-key";

/// Opens the copy, or removes it if the node is not to have one. Blocks on the disk. The agent starts
/// without it if that fails.
pub(super) fn kept_objects(config: &Config, node_name: &str) -> Option<KeptObjects> {
    let in_cluster = config.flags.kubeconfig.is_some();
    let result = if in_cluster && config.flags.start_pods_offline {
        open(config, node_name).map(Some)
    } else {
        remove(config).map(|()| None)
    };
    result.unwrap_or_else(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        tracing::error!(%error, ?cause, "kept objects unusable, nothing is kept");
        None
    })
}

fn store(config: &Config) -> Result<Store, StoreError> {
    Store::open(config.flags.root_dir.join(STATE_DIR))
}

fn open(config: &Config, node_name: &str) -> Result<KeptObjects, StoreError> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let credential = credentials.map(|dir| dir.join(CREDENTIAL));
    KeptObjects::open(store(config)?, node_name, credential)
}

fn remove(config: &Config) -> Result<(), StoreError> {
    KeptObjects::remove(&store(config)?)
}

#[cfg(test)]
mod tests {
    use windlass_config::KubeletFlags;

    use super::*;

    fn config(root: &std::path::Path, more: &[&str]) -> Config {
        let root = format!("--root-dir={}", root.display());
        let args = ["windlass", &root].into_iter().chain(more.iter().copied());
        let flags = KubeletFlags::from_args(args.map(Into::into)).expect("flags");
        windlass_config::load(&flags).expect("valid")
    }

    #[test]
    fn copy_exists_only_with_the_flag_and_a_cluster() {
        let dir = tempfile::tempdir().expect("temp dir");
        let key = dir.path().join("windlass/kept_objects.key");
        let check = |args: &[&str], expected: bool| {
            let opened = kept_objects(&config(dir.path(), args), "n1").is_some();
            assert_eq!((opened, key.exists()), (expected, expected), "{args:?}");
        };
        let kubeconfig = "--kubeconfig=/etc/kubelet.conf";
        check(&[kubeconfig], false);
        check(&[kubeconfig, "--start-pods-offline"], true);
        check(&["--start-pods-offline"], false);
        check(&[kubeconfig, "--start-pods-offline"], true);
        check(&[kubeconfig, "--start-pods-offline=false"], false);
        // a key that cannot be used disables it
        std::fs::create_dir_all(&key).expect("a directory");
        assert!(
            kept_objects(
                &config(dir.path(), &[kubeconfig, "--start-pods-offline"]),
                "n1"
            )
            .is_none()
        );
    }
}
