//! API objects for mounting CSI volumes.

use windlass_csi::{Attachment, CsiDriverSpec, CsiObjects, FsGroupPolicy, TokenRequest};
use windlass_fake_api::On;
use windlass_types::storagev1::{CSIDriver, VolumeAttachment};
use windlass_volume_plan::volume_source::SecretRef;

use super::*;

const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";

fn driver(name: &str, spec: Value) -> CSIDriver {
    object(json!({"metadata": {"name": name}, "spec": spec}))
}

fn key() -> SecretRef {
    SecretRef {
        namespace: "default".to_owned(),
        name: "key".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn csi_drivers_are_watched_from_first_request() {
    let env = TestEnv::with_node_clients();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(env.watches(DRIVERS), 0);
    let none = env.csi.driver("a.example").await;
    assert_eq!(none, Ok(None), "a missing driver has the defaults");
    let modes = json!(["Ephemeral", "Persistent"]);
    env.server.create(&driver(
        "a.example",
        json!({
            "attachRequired": false, "podInfoOnMount": true, "fsGroupPolicy": "File",
            "requiresRepublish": true, "seLinuxMount": true, "serviceAccountTokenInSecrets": true,
            "volumeLifecycleModes": modes, "nodeAllocatableUpdatePeriodSeconds": 30,
            "tokenRequests": [{"audience": "vault", "expirationSeconds": 600}, {"audience": ""}],
        }),
    ));
    env.server
        .create(&driver("b.example", json!({"fsGroupPolicy": "None"})));
    settle().await;
    let token = |audience: &str, expiration_seconds| TokenRequest {
        audience: audience.to_owned(),
        expiration_seconds,
    };
    assert_eq!(
        env.csi.driver("a.example").await,
        Ok(Some(CsiDriverSpec {
            attach_required: false,
            pod_info_on_mount: true,
            fs_group_policy: FsGroupPolicy::File,
            persistent: true,
            ephemeral: true,
            token_requests: vec![token("vault", Some(600)), token("", None)],
            tokens_in_secrets: true,
            requires_republish: true,
            se_linux_mount: true,
            allocatable_update: Some(Duration::from_secs(30)),
        }))
    );
    assert_eq!(
        env.csi.driver("b.example").await,
        Ok(Some(CsiDriverSpec {
            fs_group_policy: FsGroupPolicy::None,
            ..CsiDriverSpec::default()
        }))
    );
    assert_eq!(env.watches(DRIVERS), 1);
}

#[tokio::test(start_paused = true)]
async fn unread_csi_drivers_return_soon_retry() {
    let env = TestEnv::new();
    env.server.faults().hang(On::path("*/csidrivers"));
    let error = env.csi.driver("a.example").await.expect_err("hangs");
    assert_eq!(
        format!("{}: {error}", error.retry),
        "soon: failed to read CSIDriver \"a.example\": the API server did not respond"
    );
}

#[tokio::test(start_paused = true)]
async fn attachment_state_comes_from_volume_attachment() {
    let env = TestEnv::with_node_clients();
    assert_eq!(env.csi.attachment("csi-1").await, Ok(None));
    let attachment = |status: Value| -> VolumeAttachment {
        object(json!({
            "metadata": {"name": "csi-1"},
            "spec": {"attacher": "d", "nodeName": "n1", "source": {}},
            "status": status,
        }))
    };
    let check = async |attached: bool, error: Option<&str>| {
        let found = env.csi.attachment("csi-1").await.expect("read");
        let expected = Attachment {
            attached,
            metadata: [("lun".to_owned(), "7".to_owned())].into(),
            error: error.map(str::to_owned),
            node_full: false,
        };
        assert_eq!(found, Some(expected));
    };
    let metadata = json!({"lun": "7"});
    env.server.create(&attachment(json!({
        "attached": false, "attachmentMetadata": metadata, "attachError": {"message": "no disk"},
    })));
    check(false, Some("no disk")).await;
    let full = attachment(json!({
        "attached": false, "attachmentMetadata": metadata,
        "attachError": {"message": "full", "errorCode": 8},
    }));
    env.server
        .modify::<VolumeAttachment>(None, "csi-1", |one| one.status = full.status);
    let found = env.csi.attachment("csi-1").await.expect("read");
    assert!(found.expect("found").node_full);
    let attached = attachment(json!({"attached": true, "attachmentMetadata": metadata}));
    env.server
        .modify::<VolumeAttachment>(None, "csi-1", |one| one.status = attached.status);
    check(true, None).await;
    let deleted: VolumeAttachment = object(json!({
        "metadata": {"deletionTimestamp": "2026-11-22T00:00:00Z"},
        "spec": {"attacher": "d", "nodeName": "n1", "source": {}},
    }));
    let deleted = deleted.metadata.deletion_timestamp;
    env.server.modify::<VolumeAttachment>(None, "csi-1", |one| {
        one.metadata.deletion_timestamp = deleted;
    });
    check(false, Some("volume attachment is being deleted")).await;
}

#[tokio::test(start_paused = true)]
async fn csi_secret_is_read_on_demand_and_never_in_errors() {
    let env = TestEnv::with_node_clients();
    let error = env.csi.secret(&key()).await.expect_err("missing");
    assert_eq!(
        error.to_string(),
        "failed to find the secret key in the namespace default with error: \
         secrets \"key\" not found"
    );
    env.server.create(&secret("key", "Opaque", "pw", "s3cret"));
    let data = env.csi.secret(&key()).await.expect("secret");
    assert_eq!(data, [("pw".to_owned(), b"s3cret".to_vec())].into());
    env.server.faults().error(On::any(), 500);
    let error = env.csi.secret(&key()).await.expect_err("refused");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn csi_token_is_cached_until_due_and_dropped_when_expired() {
    let env = TestEnv::with_node_clients();
    let account: ServiceAccount =
        object(json!({"metadata": {"namespace": "default", "name": "robot"}}));
    env.server.create(&account);
    let spec = json!({"nodeName": "n1", "serviceAccountName": "robot"});
    let pod = SharedPod::new(env.server.create(pod("a", spec).as_ref()));
    let request = TokenRequest {
        audience: "vault".to_owned(),
        expiration_seconds: Some(600),
    };
    let token = async || env.csi.token(&pod, &request).await.expect("token");
    let first = token().await;
    assert_eq!(first.expires, "2026-11-21T00:10:00Z");
    assert_eq!(format!("{first:?}"), "token until 2026-11-21T00:10:00Z");
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(token().await, first);
    tokio::time::sleep(Duration::from_secs(150)).await;
    let second = token().await;
    assert_ne!(second, first, "it was due");
    let tokens = env.server.requests();
    let tokens = tokens.iter().filter(|r| r.path.ends_with("/robot/token"));
    assert_eq!(tokens.count(), 2);
}
