//! `volumeDevices`, a line for each device or the error.

use serde_json::{Value, json};
use windlass_types::{MountedContent, MountedVolume, Retry};

use super::{case, volume};

fn check(devices: &Value, read_only: bool, expected: &str) {
    let container = json!({"name": "c", "image": "i", "volumeDevices": devices});
    let mut case = case(container, json!({}));
    let raw = MountedVolume {
        content: MountedContent::Device("/pods/u-1/volumeDevices/p/raw".into()),
        read_only,
        relabel: false,
    };
    case.volumes.insert("raw".to_owned(), raw);
    case.volumes
        .insert("data".to_owned(), volume("/vol/data", true));
    let line = match case.config() {
        Ok(config) => {
            let devices = config.devices.iter();
            let lines =
                devices.map(|d| format!("{}<-{} {}", d.container_path, d.host_path, d.permissions));
            lines.collect::<Vec<_>>().join("; ")
        }
        Err(error) => {
            let never = if error.retry() == Retry::Never {
                " (never)"
            } else {
                ""
            };
            format!("{error}{never}")
        }
    };
    assert_eq!(line, expected);
}

#[test]
fn block_volume_becomes_container_device() {
    let one = |name: &str, path: &str| json!([{"name": name, "devicePath": path}]);
    check(&json!([]), false, "");
    check(
        &one("raw", "/dev/xvda"),
        false,
        "/dev/xvda<-/pods/u-1/volumeDevices/p/raw mrw",
    );
    check(
        &one("raw", "/dev/xvda"),
        true,
        "/dev/xvda<-/pods/u-1/volumeDevices/p/raw r",
    );
    check(
        &one("raw", "xvda"),
        false,
        "error DevicePath `xvda` must be an absolute path (never)",
    );
    check(
        &one("gone", "/dev/xvda"),
        false,
        "cannot find volume \"gone\" to pass into container \"c\"",
    );
    check(
        &one("data", "/dev/xvda"),
        false,
        "cannot find volume \"data\" to pass into container \"c\"",
    );
}
