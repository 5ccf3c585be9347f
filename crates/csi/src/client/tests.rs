//! Error classes, access modes, and a driver on a real socket.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};
use windlass_metrics::Metrics;
use windlass_plugin_proto::csi_v1::volume_capability::access_mode::Mode;
use windlass_testbed::csi_driver::{
    Capability, CsiDriver, DriverOptions, Fault, FaultKind, Method,
};

use super::{CSI_TIMEOUT, CsiClient, access_mode, classify, code_name};
use crate::port::{CsiError, CsiNode, NodeCapability, PublishRequest, StageRequest, UsageUnit};

#[test]
fn error_codes_are_uncertain_or_final_as_upstream() {
    fn check(code: Code, expected: &str) {
        let error = classify(&Status::new(code, "why"), false);
        let kind = match &error {
            CsiError::Uncertain { .. } => "uncertain",
            CsiError::Refused { .. } => "refused",
            _ => "other",
        };
        assert_eq!(format!("{kind}: {error}"), expected);
    }
    check(
        Code::Cancelled,
        "uncertain: rpc error: code = Canceled desc = why",
    );
    check(
        Code::DeadlineExceeded,
        "uncertain: rpc error: code = DeadlineExceeded desc = why",
    );
    check(
        Code::Unavailable,
        "uncertain: rpc error: code = Unavailable desc = why",
    );
    check(
        Code::ResourceExhausted,
        "uncertain: rpc error: code = ResourceExhausted desc = why",
    );
    check(
        Code::Aborted,
        "uncertain: rpc error: code = Aborted desc = why",
    );
    for code in [
        Code::Unknown,
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::FailedPrecondition,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::DataLoss,
        Code::Unauthenticated,
    ] {
        let expected = format!("refused: rpc error: code = {} desc = why", code_name(code));
        check(code, &expected);
    }
}

#[test]
fn error_after_the_timeout_is_deadline_exceeded() {
    let error = classify(&Status::internal("why"), true);
    let expected = "rpc error: code = DeadlineExceeded desc = why";
    assert!(matches!(error, CsiError::Uncertain { .. }));
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn access_mode_follows_first_mode_and_driver_capability() {
    async fn check(modes: &[&str], multi_writer: bool, expected: Mode) {
        let modes: Vec<_> = modes.iter().map(|&mode| mode.to_owned()).collect();
        let mode = access_mode(&modes, || async { Ok(multi_writer) }).await;
        assert_eq!(mode, Ok(expected), "{modes:?}");
    }
    check(&[], false, Mode::SingleNodeWriter).await;
    check(
        &["ReadWriteOnce", "ReadOnlyMany"],
        false,
        Mode::SingleNodeWriter,
    )
    .await;
    check(&["ReadWriteOnce"], true, Mode::SingleNodeMultiWriter).await;
    check(&["ReadWriteOncePod"], false, Mode::SingleNodeWriter).await;
    check(&["ReadWriteOncePod"], true, Mode::SingleNodeSingleWriter).await;
    check(&["ReadOnlyMany"], true, Mode::MultiNodeReaderOnly).await;
    check(&["ReadWriteMany"], true, Mode::MultiNodeMultiWriter).await;
    check(&["Sometimes"], true, Mode::Unknown).await;
}

/// A driver that makes no mounts and needs no root.
struct Fixture {
    root: tempfile::TempDir,
    driver: CsiDriver,
    metrics: Metrics,
}

impl Fixture {
    fn new(change: impl FnOnce(&mut DriverOptions)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut options = DriverOptions::new(root.path(), "d.example.com");
        options.storage = root.path().join("storage");
        options.mounts = false;
        change(&mut options);
        Self {
            root,
            driver: CsiDriver::start(options).unwrap(),
            metrics: Metrics::new().unwrap(),
        }
    }

    fn client(&self) -> CsiClient {
        let socket = self.driver.options().socket();
        CsiClient::new("d.example.com", &socket, self.metrics.clone())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn staged(&self) -> StageRequest {
        StageRequest {
            handle: "volume".to_owned(),
            publish_context: map("attached", "yes"),
            staging_path: Some(self.at("staging")),
            fs_type: "ext4".to_owned(),
            mount_flags: vec!["noatime".to_owned()],
            mount_group: Some(2000),
            access_modes: vec!["ReadWriteOnce".to_owned()],
            secrets: BTreeMap::from([("key".to_owned(), b"value".to_vec())]),
            context: map("pool", "fast"),
            ..StageRequest::default()
        }
    }

    fn published(&self) -> PublishRequest {
        PublishRequest {
            volume: self.staged(),
            target_path: self.at("target"),
            read_only: true,
        }
    }
}

fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[tokio::test]
async fn calls_transfer_all_fields_in_both_directions() {
    let fixture = Fixture::new(|options| {
        options.topology = map("topology.example.com/zone", "z1");
        options.max_volumes = 12;
        options
            .capabilities
            .insert(Capability::SingleNodeMultiWriter);
        options.capabilities.insert(Capability::VolumeCondition);
    });
    let client = fixture.client();
    let info = client.info().await.unwrap();
    assert_eq!(info.node_id, "node-of-the-driver");
    assert_eq!(info.max_volumes, Some(12));
    assert_eq!(info.topology, map("topology.example.com/zone", "z1"));
    let expected = BTreeSet::from([
        NodeCapability::Stage,
        NodeCapability::Usage,
        NodeCapability::Expand,
        NodeCapability::Condition,
        NodeCapability::SingleNodeMultiWriter,
    ]);
    assert_eq!(client.capabilities().await.unwrap(), expected);

    // changing the group needs root
    let stage = StageRequest {
        mount_group: None,
        ..fixture.staged()
    };
    let publish = PublishRequest {
        volume: stage.clone(),
        ..fixture.published()
    };
    for _ in 0..2 {
        client.stage(stage.clone()).await.unwrap();
        client.publish(publish.clone()).await.unwrap();
    }
    let call = fixture.driver.calls_of(Method::NodePublishVolume).remove(0);
    assert_eq!(call.volume, "volume");
    assert_eq!(
        (call.path, call.staging),
        (fixture.at("target"), fixture.at("staging"))
    );
    assert!(call.read_only && !call.block);
    assert_eq!(call.access_mode, "SINGLE_NODE_MULTI_WRITER");
    assert_eq!(
        (call.fs_type, call.mount_flags),
        ("ext4".into(), vec!["noatime".into()])
    );
    assert_eq!(call.publish_context, map("attached", "yes"));
    assert_eq!(
        (call.context, call.secrets),
        (map("pool", "fast"), map("key", "value"))
    );

    let expanded = client.expand(stage, 32 << 20, fixture.at("target")).await;
    assert_eq!(expanded, Ok(32 << 20));
    fixture.driver.set_abnormal("volume", "the disk is tired");
    let usage = client
        .usage("volume", &fixture.at("target"), None)
        .await
        .unwrap();
    assert_eq!(usage.abnormal.as_deref(), Some("the disk is tired"));
    let units: Vec<_> = usage.entries.iter().map(|it| (it.unit, it.total)).collect();
    assert_eq!(
        units,
        [(UsageUnit::Bytes, 32 << 20), (UsageUnit::Inodes, 1000)]
    );

    for _ in 0..2 {
        client
            .unpublish("volume", &fixture.at("target"))
            .await
            .unwrap();
        client
            .unstage("volume", &fixture.at("staging"))
            .await
            .unwrap();
    }
    assert_eq!(fixture.driver.violations(), Vec::<String>::new());
    let text = fixture.metrics.render().unwrap();
    let counted = "method_name=\"/csi.v1.Node/NodePublishVolume\",migrated=\"false\"} 2";
    assert!(text.contains(counted), "{text}");
}

#[tokio::test]
async fn publish_sends_mount_group_and_block_access() {
    let fixture = Fixture::new(|options| {
        options.capabilities = BTreeSet::from([Capability::VolumeMountGroup]);
    });
    let (group, block) = (fixture.published(), fixture.published());
    let group = PublishRequest {
        volume: StageRequest {
            staging_path: None,
            mount_group: Some(own_group()),
            ..group.volume
        },
        ..group
    };
    let block = PublishRequest {
        volume: StageRequest {
            staging_path: None,
            block: true,
            ..block.volume
        },
        target_path: fixture.at("device"),
        ..block
    };
    fixture.client().publish(group).await.unwrap();
    fixture.client().publish(block).await.unwrap();
    let calls = fixture.driver.calls_of(Method::NodePublishVolume);
    assert_eq!(calls[0].mount_group, own_group().to_string());
    assert!(calls[1].block && calls[1].mount_group.is_empty());
    assert_eq!(calls[0].staging, Path::new(""));
}

/// The group of the test process.
fn own_group() -> u32 {
    use std::os::unix::fs::MetadataExt;
    let here = tempfile::tempdir().unwrap();
    std::fs::metadata(here.path()).unwrap().gid()
}

#[tokio::test]
async fn hung_driver_call_times_out_as_uncertain() {
    let fixture = Fixture::new(|_| ());
    let client = fixture.client();
    fixture
        .driver
        .fault(Method::NodeStageVolume, Fault::before(FaultKind::Hang));
    let stage = client.stage(fixture.staged());
    let passes = async {
        let begin = Instant::now();
        while fixture.driver.calls_of(Method::NodeStageVolume).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "not called");
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(CSI_TIMEOUT).await;
        tokio::time::resume();
    };
    let (staged, ()) = tokio::join!(stage, passes);
    let error = staged.unwrap_err();
    assert!(
        matches!(&error, CsiError::Uncertain { code, .. } if code == "DeadlineExceeded"),
        "{error}"
    );
    // the next call uses a new connection
    client.capabilities().await.unwrap();
}

#[tokio::test]
async fn call_to_killed_driver_is_uncertain_and_repeatable() {
    for fault in [
        Fault::before(FaultKind::Exit),
        Fault::after(FaultKind::Exit),
    ] {
        let done = fault.timing == windlass_testbed::csi_driver::FaultTiming::After;
        let mut fixture = Fixture::new(|_| ());
        let client = fixture.client();
        let stage = StageRequest {
            mount_group: None,
            ..fixture.staged()
        };
        fixture.driver.fault(Method::NodeStageVolume, fault);
        let error = client.stage(stage.clone()).await.unwrap_err();
        assert!(
            matches!(&error, CsiError::Uncertain { code, .. } if code == "Unavailable"),
            "{error}"
        );
        assert_eq!(!fixture.driver.staged("volume").is_empty(), done);
        let error = client.stage(stage.clone()).await.unwrap_err();
        assert!(matches!(&error, CsiError::Uncertain { .. }), "{error}");
        fixture.driver.restart().unwrap();
        client.stage(stage).await.unwrap();
        assert_eq!(fixture.driver.staged("volume"), [fixture.at("staging")]);
        assert_eq!(fixture.driver.violations(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn error_of_missing_driver_names_its_socket() {
    let mut fixture = Fixture::new(|_| ());
    fixture.driver.uninstall();
    let error = fixture.client().info().await.unwrap_err();
    let socket = fixture.driver.options().socket();
    let expected = format!(
        "rpc error: code = Unavailable desc = connection error: desc = \"transport: dial unix {}: ",
        socket.display()
    );
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[tokio::test]
async fn driver_error_keeps_its_text_up_to_a_limit() {
    let fixture = Fixture::new(|_| ());
    let refusal = |text: String| Fault::before(FaultKind::Reject(Code::NotFound, text));
    fixture.driver.fault(
        Method::NodeUnpublishVolume,
        refusal("no such volume".into()),
    );
    let error = fixture
        .client()
        .unpublish("volume", &fixture.at("target"))
        .await;
    assert_eq!(
        error,
        Err(CsiError::Refused {
            code: "NotFound".into(),
            message: "no such volume".into(),
        })
    );
    fixture
        .driver
        .fault(Method::NodeUnpublishVolume, refusal("ö".repeat(6000)));
    let error = fixture
        .client()
        .unpublish("volume", &fixture.at("target"))
        .await;
    assert!(error.unwrap_err().to_string().len() < 4200);
}

#[tokio::test]
async fn incomplete_request_fails_without_a_call() {
    let fixture = Fixture::new(|_| ());
    let client = fixture.client();
    let nameless = StageRequest {
        handle: String::new(),
        ..fixture.staged()
    };
    let homeless = StageRequest {
        staging_path: None,
        ..fixture.staged()
    };
    let secret = StageRequest {
        secrets: BTreeMap::from([("key".to_owned(), vec![0xff])]),
        ..fixture.staged()
    };
    for (request, expected) in [
        (nameless, "missing volume id"),
        (homeless, "missing staging target path"),
        (secret, "the value of \"key\" in the secret is not UTF-8"),
    ] {
        let error = client.stage(request).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert!(fixture.driver.calls_of(Method::NodeStageVolume).is_empty());
}
