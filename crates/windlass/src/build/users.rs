//! Host user IDs for pods with `hostUsers: false`.

use std::process::Command;

use windlass_config::KubeletConfiguration;
use windlass_runtime_config::userns::{IdRange, RangeError, parse_getsubids};

/// User whose subordinate IDs pods get.
const USER: &str = "kubelet";
/// Program that prints them, also from a directory service.
const GETSUBIDS: &str = "getsubids";

/// Returns the subordinate IDs of the user `kubelet`. Without that user or `getsubids`, returns all
/// IDs above those of the host.
///
/// # Errors
/// The user's IDs are unknown or cannot be divided among pods. Pods that require user namespaces
/// are then rejected; upstream does not start.
pub(super) fn user_namespaces(kubelet: &KubeletConfiguration) -> Result<IdRange, RangeError> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let subordinate = if has_user(&passwd, USER) && is_installed(GETSUBIDS) {
        Some(subordinate_ids()?)
    } else {
        None
    };
    let number = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
    IdRange::new(
        subordinate,
        number(kubelet.user_namespaces.ids_per_pod),
        number(kubelet.max_pods.into()),
    )
}

/// Requires the same range for users and groups.
fn subordinate_ids() -> Result<(u32, u32), RangeError> {
    let users = getsubids(&[USER], "uids")?;
    let groups = getsubids(&["-g", USER], "gids")?;
    if users != groups {
        let what = format!("mismatched subuids and subgids for user {USER:?}");
        return Err(RangeError::Unknown(what));
    }
    parse_getsubids(&users)
}

fn getsubids(args: &[&str], what: &str) -> Result<String, RangeError> {
    let failed = |why: String| {
        RangeError::Unknown(format!(
            "error retrieving additional {what} for user {USER:?}: {why}"
        ))
    };
    let output = Command::new(GETSUBIDS).args(args).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, stderr.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn has_user(passwd: &str, name: &str) -> bool {
    let mut users = passwd.lines().filter_map(|line| line.split(':').next());
    users.any(|user| user == name)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::has_user;

    #[test]
    fn has_user_compares_whole_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\nkubelet2:x:5:5::/:/bin/false\n";
        assert!(has_user(passwd, "root"));
        assert!(!has_user(passwd, "kubelet"));
        assert!(!has_user(passwd, "x"));
    }
}
