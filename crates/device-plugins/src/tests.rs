//! Registration and calls, with a plugin on real sockets and a paused clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Code;
use windlass_metrics::Metrics;
use windlass_plugin_proto::deviceplugin_v1beta1::{ContainerAllocateResponse, DeviceSpec, Mount};
use windlass_plugins::{PluginHandler, PluginRegistry, run_plugin_registry};
use windlass_resource_managers::devices::PreferredQuestion;
use windlass_testbed::device_plugin as testbed;
use windlass_testbed::device_plugin::{DevicePluginSettings, PluginCall, PluginFault, TestDevice};

use crate::{
    DEVICE_PLUGIN, DevicePlugin, DevicePlugins, PluginEvent, open_registration, serve_registration,
};

const GPU: &str = "vendor.example/gpu";

/// A directory with `kubelet.sock`, and the events.
struct Node {
    directory: tempfile::TempDir,
    plugins: DevicePlugins,
    events: mpsc::Receiver<PluginEvent>,
    metrics: Metrics,
    _server: DropGuard,
}

impl Node {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let metrics = Metrics::new().expect("metrics");
        let (plugins, events) = DevicePlugins::new(directory.path(), metrics.clone());
        let listener = open_registration(directory.path()).expect("a socket");
        let stop = CancellationToken::new();
        tokio::spawn(serve_registration(listener, plugins.clone(), stop.clone()));
        Self {
            directory,
            plugins,
            events,
            metrics,
            _server: stop.drop_guard(),
        }
    }

    fn settings(&self) -> DevicePluginSettings {
        DevicePluginSettings::new(self.directory.path(), GPU, &["a", "b"])
    }

    async fn event(&mut self) -> PluginEvent {
        self.events.recv().await.expect("an event")
    }

    /// The next event as one line.
    async fn line(&mut self) -> String {
        match self.event().await {
            PluginEvent::Registered { plugin, options } => format!(
                "{} registered {} pre-start={} preferred={}",
                plugin.registration(),
                plugin.resource(),
                options.pre_start_required,
                options.preferred_allocation
            ),
            PluginEvent::Listed {
                registration,
                devices,
                ..
            } => {
                let text = |(id, device): (
                    &String,
                    &windlass_resource_managers::devices::PluginDevice,
                )| {
                    let health = if device.healthy { "+" } else { "-" };
                    format!("{id}{health}{}", device.nodes)
                };
                let devices: Vec<String> = devices.iter().map(text).collect();
                format!("{registration} listed {}", devices.join(" "))
            }
            PluginEvent::Gone { registration, .. } => format!("{registration} gone"),
        }
    }

    /// A registered plugin, both sides.
    async fn plugin(
        &mut self,
        settings: DevicePluginSettings,
    ) -> (testbed::DevicePlugin, DevicePlugin) {
        let own = testbed::DevicePlugin::start(settings).expect("a socket");
        own.register().await.expect("registered");
        match self.event().await {
            PluginEvent::Registered { plugin, .. } => (own, plugin),
            other => panic!("{other:?}"),
        }
    }
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn plugin_registers_lists_devices_and_ends() {
    let mut node = Node::start();
    let mut settings = node.settings();
    settings.pre_start_required = true;
    let plugin = testbed::DevicePlugin::start(settings).expect("a socket");
    plugin.register().await.expect("registered");
    assert_eq!(
        node.line().await,
        "1 registered vendor.example/gpu pre-start=true preferred=false"
    );
    assert_eq!(node.line().await, "1 listed a+ b+");
    let b = TestDevice::healthy("b", &[0, 1]);
    plugin.list(vec![b.clone(), TestDevice::healthy("c", &[3]).unhealthy()]);
    assert_eq!(node.line().await, "1 listed b+0,1 c-3");
    plugin.list(vec![b.unhealthy()]);
    assert_eq!(node.line().await, "1 listed b-0,1");
    plugin.die();
    assert_eq!(node.line().await, "1 gone");
    let text = node.metrics.render().expect("text");
    let count = "kubelet_device_plugin_registration_total{resource_name=\"vendor.example/gpu\"} 1";
    assert!(text.contains(count), "{text}");
}

#[tokio::test(start_paused = true)]
async fn second_registration_replaces_first_without_gone() {
    let mut node = Node::start();
    let (first, _) = node.plugin(node.settings()).await;
    assert_eq!(node.line().await, "1 listed a+ b+");
    let mut settings = node.settings();
    settings.socket = "second.sock".to_owned();
    settings.devices = Some(vec![TestDevice::healthy("z", &[])]);
    let (second, _) = node.plugin(settings).await;
    assert_eq!(node.line().await, "2 listed z+");
    first.list(vec![]);
    first.die();
    // the same plugin again
    second.register().await.expect("registered");
    assert!(node.line().await.starts_with("3 registered"));
    assert_eq!(node.line().await, "3 listed z+");
    second.die();
    assert_eq!(node.line().await, "3 gone");
}

#[tokio::test(start_paused = true)]
async fn plugin_that_listens_after_its_registration_is_connected() {
    let mut node = Node::start();
    let early = testbed::DevicePlugin::start(node.settings()).expect("a socket");
    let mut settings = node.settings();
    settings.socket = "late.sock".to_owned();
    let late = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        testbed::DevicePlugin::start(settings).expect("a socket")
    };
    let (registered, late) = tokio::join!(early.register_as("late.sock"), late);
    assert!(registered.is_ok(), "{registered:?}");
    assert!(node.line().await.starts_with("1 registered"));
    assert!(late.calls().contains(&"Options".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn bad_registrations_are_rejected_with_text() {
    let node = Node::start();
    let outside = format!("{}/gpu.sock", node.directory.path().display());
    for (resource, version, endpoint, text) in [
        (
            GPU,
            "v1alpha1",
            "x",
            "requested API version \"v1alpha1\" is not supported by kubelet. Supported version is [\"v1beta1\"]",
        ),
        ("gpu", "v1beta1", "x", "the ResourceName \"gpu\" is invalid"),
        (
            "kubernetes.io/gpu",
            "v1beta1",
            "x",
            "the ResourceName \"kubernetes.io/gpu\" is invalid",
        ),
        (
            "requests.a/b",
            "v1beta1",
            "x",
            "the ResourceName \"requests.a/b\" is invalid",
        ),
        (
            "a b/c",
            "v1beta1",
            "x",
            "the ResourceName \"a b/c\" is invalid",
        ),
        (
            GPU,
            "v1beta1",
            "",
            "endpoint \"\" is not the name of a socket",
        ),
        (
            GPU,
            "v1beta1",
            "../gpu.sock",
            "endpoint \"../gpu.sock\" is not the name of a socket",
        ),
        (
            GPU,
            "v1beta1",
            outside.as_str(),
            "gpu.sock\" is not the name of a socket",
        ),
        (
            GPU,
            "v1beta1",
            "missing.sock",
            "failed to dial device plugin: dial unix",
        ),
    ] {
        let mut settings = node.settings();
        settings.resource = resource.to_owned();
        settings.version = version.to_owned();
        settings.socket = "gpu.sock".to_owned();
        let plugin = testbed::DevicePlugin::start(settings).expect("a socket");
        let status = plugin.register_as(endpoint).await.expect_err(endpoint);
        assert_eq!(status.code(), Code::Unknown);
        assert!(status.message().contains(text), "{status:?}, not {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn plugin_that_fails_or_hangs_at_options_is_not_registered() {
    let mut node = Node::start();
    let plugin = testbed::DevicePlugin::start(node.settings()).expect("a socket");
    for (fault, text) in [
        (
            PluginFault::Fail(Code::Internal, "not today".to_owned()),
            "code = Internal desc = not today",
        ),
        (
            PluginFault::Hang,
            "code = DeadlineExceeded desc = context deadline exceeded",
        ),
    ] {
        plugin.fault(PluginCall::Options, Some(fault));
        let status = plugin.register().await.expect_err("rejected");
        let expected = format!("failed to get device plugin options: rpc error: {text}");
        assert_eq!(status.message(), expected);
    }
    plugin.fault(PluginCall::Options, None);
    plugin.fault(
        PluginCall::List,
        Some(PluginFault::Fail(Code::Internal, "no list".to_owned())),
    );
    plugin.register().await.expect("registered");
    assert!(node.line().await.starts_with("3 registered"));
    assert_eq!(node.line().await, "3 gone");
}

#[tokio::test(start_paused = true)]
async fn allocate_returns_response_or_fault() {
    let mut node = Node::start();
    let mut settings = node.settings();
    settings.response = ContainerAllocateResponse {
        mounts: vec![Mount {
            container_path: "/lib".to_owned(),
            host_path: "/opt/lib".to_owned(),
            read_only: true,
        }],
        ..ContainerAllocateResponse::default()
    };
    let (own, plugin) = node.plugin(settings).await;
    let response = plugin
        .allocate(&ids(&["a", "b"]))
        .await
        .expect("a response");
    assert_eq!(response.envs["TEST_DEVICES"], "a,b");
    assert_eq!(response.mounts[0].host_path, "/opt/lib");
    assert!(own.calls().contains(&"Allocate a,b".to_owned()));
    for (fault, text) in [
        (
            PluginFault::Fail(Code::Unknown, "broken".to_owned()),
            "rpc error: code = Unknown desc = broken",
        ),
        (
            PluginFault::Hang,
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        ),
        (
            PluginFault::Lie,
            "no containers return in allocation response",
        ),
    ] {
        own.fault(PluginCall::Allocate, Some(fault));
        let error = plugin.allocate(&ids(&["a"])).await.expect_err(text);
        assert_eq!(error.to_string(), text);
    }
    own.fault(PluginCall::Allocate, Some(PluginFault::Die));
    assert_eq!(node.line().await, "1 listed a+ b+");
    let error = plugin.allocate(&ids(&["a"])).await.expect_err("ended");
    assert!(
        error.to_string().starts_with("rpc error: code ="),
        "{error}"
    );
    assert_eq!(node.line().await, "1 gone");
    let text = node.metrics.render().expect("text");
    let count = "kubelet_device_plugin_alloc_duration_seconds_count{resource_name=\"vendor.example/gpu\"} 5";
    assert!(text.contains(count), "{text}");
}

#[tokio::test(start_paused = true)]
async fn responses_that_no_runtime_accepts_are_errors() {
    let device = |permissions: &str| DeviceSpec {
        container_path: "/dev/x".to_owned(),
        host_path: "/dev/x".to_owned(),
        permissions: permissions.to_owned(),
    };
    let response = ContainerAllocateResponse::default;
    let envs = BTreeMap::from([("A=B".to_owned(), String::new())]);
    for (response, text) in [
        (
            ContainerAllocateResponse { envs, ..response() },
            "environment variable \"A=B\"",
        ),
        (
            ContainerAllocateResponse {
                mounts: vec![Mount::default()],
                ..response()
            },
            "mount to \"\"",
        ),
        (
            ContainerAllocateResponse {
                devices: vec![device("rwx")],
                ..response()
            },
            "device permissions \"rwx\"",
        ),
    ] {
        let mut node = Node::start();
        let settings = DevicePluginSettings {
            response,
            ..node.settings()
        };
        let (_own, plugin) = node.plugin(settings).await;
        let error = plugin.allocate(&ids(&["a"])).await.expect_err(text);
        assert_eq!(
            error.to_string(),
            format!("invalid allocation response: {text}")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn preference_and_pre_start_reach_the_plugin() {
    let mut node = Node::start();
    let mut settings = node.settings();
    settings.preferred = vec!["b".to_owned()];
    let (own, plugin) = node.plugin(settings).await;
    let question = PreferredQuestion {
        available: ids(&["a", "b"]),
        must_include: ids(&[]),
        size: 1,
    };
    assert_eq!(plugin.preferred(&question).await, Ok(ids(&["b"])));
    assert_eq!(plugin.pre_start(&ids(&["b"])).await, Ok(()));
    let calls = own.calls();
    assert!(
        calls.ends_with(&["Preferred a,b".to_owned(), "PreStart b".to_owned()]),
        "{calls:?}"
    );
    own.fault(PluginCall::PreStart, Some(PluginFault::Hang));
    let error = plugin.pre_start(&ids(&["b"])).await.expect_err("hangs");
    let text = "device plugin PreStartContainer rpc failed with err: rpc error: code = \
                DeadlineExceeded desc = context deadline exceeded";
    assert_eq!(error.to_string(), text);
    own.fault(
        PluginCall::Preferred,
        Some(PluginFault::Fail(Code::Internal, "?".to_owned())),
    );
    let error = plugin.preferred(&question).await.expect_err("fails");
    let text = "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = \
                Internal desc = ?";
    assert_eq!(error.to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn nonsense_in_a_list_is_left_out() {
    let mut node = Node::start();
    let mut settings = node.settings();
    settings.devices = None;
    let (own, _) = node.plugin(settings).await;
    own.die();
    assert_eq!(node.line().await, "1 gone");
    let liar = testbed::DevicePlugin::start(node.settings()).expect("a socket");
    liar.fault(PluginCall::List, Some(PluginFault::Lie));
    liar.register().await.expect("registered");
    assert!(node.line().await.starts_with("2 registered"));
    assert_eq!(node.line().await, "2 listed a+ b+");
    let odd = |id: &str| TestDevice {
        id: id.to_owned(),
        health: "Fine".to_owned(),
        nodes: vec![64, -1],
    };
    liar.list(vec![odd("a"), odd("b"), TestDevice::healthy("b", &[])]);
    assert_eq!(node.line().await, "2 listed a- b+");
}

#[tokio::test(start_paused = true)]
async fn plugin_watcher_registers_and_deregisters_plugins() {
    let mut node = Node::start();
    let registry = tempfile::tempdir().expect("a directory");
    let handler: Arc<dyn PluginHandler> = Arc::new(node.plugins.clone());
    let registrations = tokio::spawn(run_plugin_registry(PluginRegistry {
        directory: registry.path().to_owned(),
        handlers: BTreeMap::from([(DEVICE_PLUGIN.to_owned(), handler)]),
        metrics: node.metrics.clone(),
    }));
    let settings = DevicePluginSettings::new(registry.path(), GPU, &["a"]);
    let plugin = testbed::DevicePlugin::start(settings.clone()).expect("a socket");
    assert!(node.line().await.starts_with("1 registered"));
    assert_eq!(node.line().await, "1 listed a+");
    std::fs::remove_file(registry.path().join(&settings.socket)).expect("removed");
    assert_eq!(node.line().await, "1 gone");
    assert!(plugin.calls().contains(&"Registered".to_owned()));
    registrations.abort();
}

#[tokio::test(start_paused = true)]
async fn watched_plugin_of_other_version_is_rejected() {
    let node = Node::start();
    let plugin = |name: &str, version: &str| windlass_plugins::Plugin {
        socket: "/x.sock".into(),
        id: Default::default(),
        name: name.to_owned(),
        endpoint: "/x.sock".into(),
        versions: vec![version.to_owned(), "v2".to_owned()],
    };
    assert_eq!(node.plugins.validate(&plugin(GPU, "v1beta1")), Ok(()));
    assert_eq!(
        node.plugins.validate(&plugin(GPU, "v1alpha1")),
        Err(
            "manager version, v1beta1, is not among plugin supported versions [v1alpha1 v2]"
                .to_owned()
        )
    );
    assert_eq!(
        node.plugins.validate(&plugin("gpu", "v1beta1")),
        Err("invalid name of device plugin socket: the ResourceName \"gpu\" is invalid".to_owned())
    );
}

#[tokio::test]
async fn open_registration_removes_sockets_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("device-plugins");
    drop(open_registration(&path).expect("a socket"));
    drop(tokio::net::UnixListener::bind(path.join("old.sock")).expect("a socket"));
    for name in ["DEPRECATION", "kubelet_internal_checkpoint"] {
        std::fs::write(path.join(name), "{}").expect("written");
    }
    let _listener = open_registration(&path).expect("a socket again");
    let names = std::fs::read_dir(&path).expect("a list");
    let names: BTreeSet<String> = names
        .map(|it| {
            it.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(names, ids(&["kubelet.sock", "kubelet_internal_checkpoint"]));
}
