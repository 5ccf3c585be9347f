//! Drivers that register on real sockets, including faulty ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_metrics::Metrics;
use windlass_node_rules::plugin_registration::SocketId;
use windlass_plugins::{CSI_PLUGIN, Plugin, PluginHandler, PluginRegistry, run_plugin_registry};
use windlass_testbed::csi_driver::{CsiDriver, DriverOptions, Fault, FaultKind, Method};

use super::{Announcement, Announcements, CsiRegistration};
use crate::CsiDrivers;

/// Short on an idle host, longer on a busy one.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
const NAME: &str = "d.example.com";

/// The agent: a plugin registry and its drivers.
struct Agent {
    drivers: CsiDrivers,
    task: JoinHandle<()>,
}

impl Agent {
    fn start(root: &tempfile::TempDir, announcements: Option<Announcements>) -> Self {
        let drivers = CsiDrivers::default();
        let metrics = Metrics::new().unwrap();
        let handler = CsiRegistration::new(drivers.clone(), announcements, metrics.clone());
        let handler: Arc<dyn PluginHandler> = Arc::new(handler);
        let task = tokio::spawn(run_plugin_registry(PluginRegistry {
            directory: root.path().join("plugins_registry"),
            handlers: BTreeMap::from([(CSI_PLUGIN.to_owned(), handler)]),
            metrics,
        }));
        Self { drivers, task }
    }

    /// Waits until exactly these drivers are registered, by name and node ID.
    async fn has(&self, expected: &[(&str, &str)]) {
        let mut drivers = self.drivers.subscribe();
        let same = drivers.wait_for(|drivers| {
            let drivers = drivers.iter();
            drivers
                .map(|(name, driver)| (name.as_str(), driver.info.node_id.as_str()))
                .eq(expected.iter().copied())
        });
        let waited = tokio::time::timeout(TEST_TIMEOUT, same).await.is_ok();
        assert!(waited, "{expected:?}: registered are {:?}", self.drivers);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn options(root: &tempfile::TempDir, name: &str) -> DriverOptions {
    DriverOptions {
        storage: root.path().join("storage").join(name),
        mounts: false,
        ..DriverOptions::new(root.path(), name)
    }
}

fn start(root: &tempfile::TempDir, name: &str) -> CsiDriver {
    CsiDriver::start(options(root, name)).unwrap()
}

#[tokio::test]
async fn driver_is_registered_while_its_socket_exists() {
    let root = tempfile::tempdir().unwrap();
    let agent = Agent::start(&root, None);
    let mut driver = start(&root, NAME);
    assert_eq!(driver.registered(1, TEST_TIMEOUT).await, Ok(()));
    agent.has(&[(NAME, "node-of-the-driver")]).await;
    let known = agent.drivers.get(NAME).unwrap();
    assert!(!known.node.capabilities().await.unwrap().is_empty());
    driver.uninstall();
    agent.has(&[]).await;
    assert_eq!(
        agent.drivers.get(NAME).unwrap_err().to_string(),
        "driver name d.example.com not found in the list of registered CSI drivers"
    );
}

#[tokio::test]
async fn drivers_register_again_after_their_or_an_agent_restart() {
    let root = tempfile::tempdir().unwrap();
    let agent = Agent::start(&root, None);
    let mut driver = start(&root, NAME);
    driver.registered(1, TEST_TIMEOUT).await.unwrap();
    driver.restart().unwrap();
    driver.registered(2, TEST_TIMEOUT).await.unwrap();
    agent.has(&[(NAME, "node-of-the-driver")]).await;
    drop(agent);
    let agent = Agent::start(&root, None);
    driver.registered(3, TEST_TIMEOUT).await.unwrap();
    agent.has(&[(NAME, "node-of-the-driver")]).await;
}

#[tokio::test]
async fn driver_without_node_info_does_not_delay_other_drivers() {
    let root = tempfile::tempdir().unwrap();
    let agent = Agent::start(&root, None);
    let faulty = |name: &str, trouble| {
        let always = BTreeMap::from([(Method::NodeGetInfo, Fault::before(trouble))]);
        CsiDriver::start(DriverOptions {
            always,
            ..options(&root, name)
        })
        .unwrap()
    };
    let silent = faulty("silent.example.com", FaultKind::Hang);
    let refusal = FaultKind::Reject(tonic::Code::Internal, "not today".to_owned());
    let refusing = faulty("refusing.example.com", refusal);
    let nameless = DriverOptions {
        node_id: String::new(),
        ..options(&root, "nameless.example.com")
    };
    let nameless = CsiDriver::start(nameless).unwrap();
    let driver = start(&root, NAME);
    assert_eq!(driver.registered(1, TEST_TIMEOUT).await, Ok(()));
    let begin = "RegisterPlugin error -- plugin registration failed with err: ";
    assert_eq!(
        nameless.registered(1, TEST_TIMEOUT).await,
        Err(format!(
            "{begin}error adding CSI driver node info: driverNodeID must not be empty"
        ))
    );
    assert_eq!(
        refusing.registered(1, TEST_TIMEOUT).await,
        Err(format!(
            "{begin}rpc error: code = Internal desc = not today"
        ))
    );
    assert!(silent.registrations().is_empty());
    agent.has(&[(NAME, "node-of-the-driver")]).await;
    // the registry retries
    refusing.always(Method::NodeGetInfo, None);
    let both = [
        (NAME, "node-of-the-driver"),
        ("refusing.example.com", "node-of-the-driver"),
    ];
    agent.has(&both).await;
}

#[tokio::test]
async fn driver_name_that_is_a_path_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let agent = Agent::start(&root, None);
    let options = DriverOptions {
        registered_name: Some("../../../etc".to_owned()),
        ..options(&root, NAME)
    };
    let driver = CsiDriver::start(options).unwrap();
    let error = driver.registered(1, TEST_TIMEOUT).await.unwrap_err();
    assert!(
        error.ends_with("a CSI driver name must be a DNS subdomain"),
        "{error}"
    );
    agent.has(&[]).await;
}

#[tokio::test]
async fn same_name_is_taken_over_only_by_a_higher_version() {
    let root = tempfile::tempdir().unwrap();
    let agent = Agent::start(&root, None);
    let mut first = start(&root, NAME);
    first.registered(1, TEST_TIMEOUT).await.unwrap();

    // another socket of the same name, which serves the second driver's endpoint
    let other = tempfile::tempdir().unwrap();
    let second = |versions: &str, socket: &str| {
        let options = DriverOptions {
            node_id: format!("node-of-{versions}"),
            versions: vec![versions.to_owned()],
            ..options(&other, NAME)
        };
        let driver = CsiDriver::start(options.clone()).unwrap();
        let link = root.path().join("plugins_registry").join(socket);
        std::os::unix::fs::symlink(options.registration(), link).unwrap();
        driver
    };
    let same = second("1.0.0", "same.sock");
    let error = same.registered(1, TEST_TIMEOUT).await.unwrap_err();
    let why = "Another driver with the same name is already registered with a higher supported \
               version: \"1.0.0\"";
    assert!(error.ends_with(why), "{error}");
    agent.has(&[(NAME, "node-of-the-driver")]).await;
    // a freed name triggers a retry
    first.uninstall();
    agent.has(&[(NAME, "node-of-1.0.0")]).await;
    drop(same);
    std::fs::remove_file(root.path().join("plugins_registry/same.sock")).unwrap();
    agent.has(&[]).await;

    let mut first = start(&root, NAME);
    first.registered(1, TEST_TIMEOUT).await.unwrap();
    let higher = second("1.1.0", "higher.sock");
    assert_eq!(higher.registered(1, TEST_TIMEOUT).await, Ok(()));
    agent.has(&[(NAME, "node-of-1.1.0")]).await;
    // the name belongs to the second driver
    first.uninstall();
    let third = start(&root, "third.example.com");
    third.registered(1, TEST_TIMEOUT).await.unwrap();
    let both = [
        (NAME, "node-of-1.1.0"),
        ("third.example.com", "node-of-the-driver"),
    ];
    agent.has(&both).await;
}

#[tokio::test]
async fn driver_is_usable_before_csi_node_update_and_notified_after() {
    let root = tempfile::tempdir().unwrap();
    let announcements = Announcements::default();
    let agent = Agent::start(&root, Some(announcements.clone()));
    let driver = start(&root, NAME);
    agent.has(&[(NAME, "node-of-the-driver")]).await;
    assert!(driver.registrations().is_empty());
    let info = agent.drivers.get(NAME).unwrap().info;
    let announce = |outcome| {
        let info = info.clone();
        announcements.publish(BTreeMap::from([(
            NAME.to_owned(),
            Announcement { info, outcome },
        )]));
    };
    announce(Ok(()));
    assert_eq!(driver.registered(1, TEST_TIMEOUT).await, Ok(()));

    drop(driver);
    std::fs::remove_file(options(&root, NAME).registration()).unwrap();
    agent.has(&[]).await;
    announce(Err("the labels collide".to_owned()));
    let driver = start(&root, NAME);
    let error = driver.registered(1, TEST_TIMEOUT).await;
    let why = "RegisterPlugin error -- plugin registration failed with err: the labels collide";
    assert_eq!(error, Err(why.to_owned()));
    agent.has(&[]).await;
}

#[test]
fn invalid_plugins_are_rejected_with_upstream_errors() {
    fn check(name: &str, endpoint: &str, versions: &[&str], expected: &str) {
        let drivers = CsiDrivers::default();
        let handler = CsiRegistration::new(drivers, None, Metrics::new().unwrap());
        let plugin = Plugin {
            socket: PathBuf::from("/s"),
            id: SocketId::default(),
            name: name.to_owned(),
            endpoint: PathBuf::from(endpoint),
            versions: versions.iter().map(|&it| it.to_owned()).collect(),
        };
        let outcome = handler.validate(&plugin);
        let result = outcome.err().unwrap_or_else(|| "valid".to_owned());
        assert_eq!(result, expected);
    }
    let failed = "validation failed for CSI Driver d at endpoint /e: kubernetes.io/csi: \
                  ValidatePlugin for CSI driver \"d\" failed. ";
    check("d", "/e", &["0.3.0", "1.5.0"], "valid");
    check(
        "d",
        "/e",
        &[],
        &format!("{failed}Plugin returned an empty list for supported versions"),
    );
    check(
        "d",
        "/e",
        &["0.3.0"],
        &format!(
            "{failed}None of the versions specified [\"0.3.0\"] are supported. err=highest \
             supported version reported is 0.3.0, must be v1.x"
        ),
    );
    check(
        "d",
        "csi.sock",
        &["1.0.0"],
        "validation failed for CSI Driver d at endpoint csi.sock: the endpoint is not an absolute path",
    );
}
