//! Devices of a plugin on its sockets.

use std::path::Path;

use windlass_plugin_proto::deviceplugin_v1beta1::{ContainerAllocateResponse, DeviceSpec, Mount};
use windlass_testing::device_plugin::{DevicePlugin, DevicePluginSettings};

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, skipped};

const GPU: &str = "vendor.example/gpu";

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: IMAGE, command: [sh, -c, "HOLD"], resources: {limits: {vendor.example/gpu: 1}}}]
"#;

fn pod(name: &str) -> String {
    fill(&POD.replace("NAME", name))
}

/// Registers a plugin with one device, once the agent listens, and waits for its list.
async fn plugin(directory: &Path) -> DevicePlugin {
    let mut settings = DevicePluginSettings::new(directory, GPU, &["a"]);
    settings.pre_start_required = true;
    settings.response = ContainerAllocateResponse {
        devices: vec![DeviceSpec {
            container_path: "/dev/gpu0".to_owned(),
            host_path: "/dev/null".to_owned(),
            permissions: "rw".to_owned(),
        }],
        mounts: vec![Mount {
            container_path: "/driver".to_owned(),
            host_path: "/proc/sys".to_owned(),
            read_only: true,
        }],
        ..ContainerAllocateResponse::default()
    };
    let registered = eventually("the plugin, registered", SOON, async || {
        let plugin = DevicePlugin::start(settings.clone()).map_err(|it| it.to_string())?;
        plugin.register().await.map_err(|it| it.to_string())?;
        Ok(plugin)
    });
    let plugin = registered.await;
    let checkpoint = directory.join("kubelet_internal_checkpoint");
    let listed = eventually("its device, listed", SOON, async || {
        let text = std::fs::read_to_string(&checkpoint).map_err(|it| it.to_string())?;
        let listed = text.contains("\"vendor.example/gpu\":[\"a\"]");
        listed.then_some(()).ok_or(text)
    });
    listed.await;
    plugin
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pod_keeps_device_over_kill_of_agent_and_plugin() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("devices").await;
    let directory = env.agent.root_dir().join("device-plugins");
    let first = plugin(&directory).await;
    env.apply("one.yaml", &pod("one"));
    env.ready("one").await;
    let script = "echo $TEST_DEVICES; test -c /dev/gpu0 && ls /driver | grep kernel";
    assert_eq!(env.exec("one", "main", script).await, "a\nkernel\n");
    let calls = first.calls();
    assert!(
        calls.ends_with(&["Allocate a".to_owned(), "PreStart a".to_owned()]),
        "{calls:?}"
    );
    let before = env.running("one").await;

    first.die();
    env.kill_and_respawn().await;
    env.ready("one").await;
    let second = plugin(&directory).await;
    env.ready("one").await;
    let after = env.running("one").await;
    assert_eq!(after[0].id, before[0].id);
    assert_eq!(second.calls(), ["Options", "List"]);

    // the device is free for another pod
    env.remove("one.yaml");
    env.gone("one").await;
    env.apply("two.yaml", &pod("two"));
    env.ready("two").await;
    assert!(second.calls().contains(&"Allocate a".to_owned()));
    env.stop().await;
}
