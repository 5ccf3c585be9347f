//! The checkpoint: files that Go kubelets wrote, damage, and the way to and fro.

use std::time::Duration;

use super::super::{Checkpoint, CheckpointError, DeviceResponse, Devices, Registration};
use super::{GPU, give, list, node, with};

/// Two files of Go kubelets: without a pod, and with a device without topology.
const FILES: [&str; 3] = [
    r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}"#,
    r#"{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}"#,
    concat!(
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":"9a15d2b5-c152-46b9-96e0-d57032629e1f","ContainerName":"app","ResourceName":"nvidia.com/gpu","#,
        r#""DeviceIDs":{"1":["GPU-9b341c59-f96b-ba85-c137-78c3652fea65","GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]},"AllocResp":""#,
        "CmsKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSUUdQVS1jMWU5ZjI0OS1iMzdiLTgxYzItYThkOS1iYTVjYTAyOTQ4NDEsR1BVLTliMzQxYzU5LWY5NmItYmE4NS1jMTM3LTc4YzM2NTJm",
        "ZWE2NRokCg4vZGV2L252aWRpYWN0bBIOL2Rldi9udmlkaWFjdGwaAnJ3GiYKDy9kZXYvbnZpZGlhLXV2bRIPL2Rldi9udmlkaWEtdXZtGgJydxoyChUvZGV2L252aWRpYS11dm0tdG9v",
        "bHMSFS9kZXYvbnZpZGlhLXV2bS10b29scxoCcncaLgoTL2Rldi9udmlkaWEtbW9kZXNldBITL2Rldi9udmlkaWEtbW9kZXNldBoCcncaIAoML2Rldi9udmlkaWExEgwvZGV2L252aWRp",
        "YTEaAnJ3GiAKDC9kZXYvbnZpZGlhMhIML2Rldi9udmlkaWEyGgJydw==",
        r#""}],"RegisteredDevices":{"nvidia.com/gpu":["GPU-77a702db-e37f-3a74-d46d-c5713f66058c","GPU-9b341c59-f96b-ba85-c137-78c3652fea65","#,
        r#""GPU-c1e9f249-b37b-81c2-a8d9-ba5ca0294841"]}},"Checksum":2530956716}"#,
    ),
];

#[test]
fn files_of_go_kubelets_are_read_and_written_the_same() {
    for file in FILES {
        let checkpoint = Checkpoint::parse(file).expect("a checkpoint");
        assert_eq!(checkpoint.to_text(), file);
    }
}

#[test]
fn restored_devices_have_response_and_expected_plugin() {
    let checkpoint = Checkpoint::parse(FILES[2]).expect("a checkpoint");
    let (mut state, damaged) = Devices::restore(checkpoint, Duration::from_secs(60));
    assert!(damaged.is_empty());
    let resource = "nvidia.com/gpu";
    let pod = "9a15d2b5-c152-46b9-96e0-d57032629e1f".into();
    let assigned = state.assigned(&pod, "app", resource).expect("devices");
    assert_eq!(assigned.ids().len(), 2);
    let response = assigned.response.as_ref().expect("a response");
    assert_eq!(response.devices.len(), 6);
    assert_eq!(response.devices[4].host_path, "/dev/nvidia1");
    assert_eq!(state.registration(resource), Registration::Expected);
    let node = state.node_devices(Duration::from_secs(360));
    assert_eq!(
        (node.capacity[resource], node.allocatable[resource]),
        (0, 0)
    );
    let node = state.node_devices(Duration::from_secs(361));
    assert!(node.removed.contains(resource));
    assert!(
        state.is_plugin_resource(resource),
        "a pod has devices of it"
    );
}

#[test]
fn state_survives_a_restart_without_reservations() {
    let mut state = with("a@0,1 b c-");
    give(&mut state, "p", "c", "a");
    let response = DeviceResponse {
        envs: [("A".to_owned(), "<a>&b".to_owned())].into(),
        ..DeviceResponse::default()
    };
    state.reserve(&"q".into(), "c", GPU, &super::set("b"));
    let text = state.checkpoint().to_text();
    assert!(!text.contains("\"q\""), "Allocate is in progress: {text}");
    assert!(state.assign(&"q".into(), "c", GPU, response));
    let text = state.checkpoint().to_text();
    let read = Checkpoint::parse(&text).expect("own file");
    let (mut restored, damaged) = Devices::restore(read, Duration::ZERO);
    assert!(damaged.is_empty());
    assert_eq!(
        restored.pods().collect::<Vec<_>>(),
        state.pods().collect::<Vec<_>>()
    );
    assert_eq!(node(&mut restored, 0), "0/0");
    restored.registered(GPU, 1, Default::default());
    restored.listed(GPU, 1, list("a@0,1 b c-"));
    assert_eq!(restored.checkpoint().to_text(), text);
}

#[test]
fn damaged_and_foreign_files_are_errors() {
    for (file, expected) in [
        (
            FILES[1].replace("tegra", "other"),
            "checksum of the device checkpoint is",
        ),
        (
            FILES[0].replace("3952659280", "1"),
            "checksum of the device checkpoint is 3952659280, not 1",
        ),
        (FILES[1][..80].to_owned(), "invalid device checkpoint: EOF"),
        (String::new(), "invalid device checkpoint: EOF"),
        // Kubernetes 1.19: devices without nodes
        (
            FILES[1].replace("{\"-1\":[\"tegra\"]}", "[\"tegra\"]"),
            "invalid device checkpoint: invalid type",
        ),
        (
            FILES[1].replace("Ch8K", "C?8K"),
            "invalid device checkpoint: Invalid",
        ),
    ] {
        let error = Checkpoint::parse(&file).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
    let error = Checkpoint::parse(&FILES[0].replace("0650", "0651")).expect_err("damaged");
    assert!(matches!(
        error,
        CheckpointError::Checksum {
            expected: 3_952_659_280,
            ..
        }
    ));
}

#[test]
fn entry_with_undecodable_response_is_left_out() {
    let mut checkpoint = Checkpoint::parse(FILES[1]).expect("a checkpoint");
    let entries = checkpoint.pod_device_entries.as_mut().expect("entries");
    let mut bad = entries[0].clone();
    bad.container_name = "bad".to_owned();
    bad.alloc_resp = Some("/////w==".to_owned());
    entries.push(bad.clone());
    let (state, damaged) = Devices::restore(checkpoint, Duration::ZERO);
    assert_eq!(damaged, [bad]);
    assert_eq!(
        state
            .pods()
            .map(|(_, containers)| containers.len())
            .sum::<usize>(),
        1
    );
}
