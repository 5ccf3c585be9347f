//! PVCs: reads, waiting pods, requeued pods.

use windlass_actors::NodeExpander;
use windlass_fake_api::On;
use windlass_types::corev1::{Node, PersistentVolume, PersistentVolumeClaim};
use windlass_types::storagev1::CSIDriver;
use windlass_types::{ExpansionDecision, ExpansionTask, Timestamp};

use super::*;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data";
const VOLUMES: &str = "/api/v1/persistentvolumes/pv-1";

fn claim(status: Value) -> PersistentVolumeClaim {
    object(json!({
        "metadata": {"namespace": "default", "name": "data", "uid": "claim-uid"},
        "spec": {"volumeName": "pv-1"},
        "status": status,
    }))
}

fn bound() -> PersistentVolumeClaim {
    claim(json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}))
}

fn volume(spec: Value) -> PersistentVolume {
    let mut whole = json!({
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "default", "name": "data", "uid": "claim-uid"},
    });
    if let (Value::Object(whole), Value::Object(spec)) = (&mut whole, spec) {
        whole.extend(spec);
    }
    object(json!({"metadata": {"name": "pv-1"}, "spec": whole}))
}

fn host_path() -> PersistentVolume {
    volume(json!({"hostPath": {"path": "/data"}}))
}

fn csi() -> PersistentVolume {
    volume(json!({"csi": {"driver": "d.example", "volumeHandle": "h"}}))
}

fn claim_pod(uid: &str) -> SharedPod {
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    pod(
        uid,
        json!({
            "containers": [{"name": "c", "image": "i", "volumeMounts": mounts}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        }),
    )
}

/// Returns the source of volume `v`.
fn source(inputs: &PodInputs) -> &VolumeSource {
    let volume = inputs.volumes.iter().find(|volume| volume.name == "v");
    &volume.expect("the volume").source
}

fn is_host_path(inputs: &PodInputs) -> bool {
    matches!(source(inputs), VolumeSource::HostPath(path) if path.path == "/data")
}

fn waits_for(why: &str) -> String {
    format!(
        "FailedMount later: Unable to attach or mount volumes: unmounted volumes=[v], unattached \
         volumes=[], failed to process volumes=[v]: error processing PVC default/data: {why}"
    )
}

impl TestEnv {
    /// Creates the PersistentVolume, bound to the existing PVC.
    fn create_volume(&self, mut volume: PersistentVolume) {
        let claim = self
            .server
            .get::<PersistentVolumeClaim>(Some("default"), "data");
        let spec = volume.spec.as_mut().expect("spec");
        let reference = spec.claim_ref.as_mut().expect("claimRef");
        reference.uid = claim.expect("claim").metadata.uid;
        self.server.create(&volume);
    }

    async fn inputs_error(&self, pod: &SharedPod) -> String {
        self.inputs(pod).await.expect_err("refused")
    }

    fn requests_of(&self, path: &str) -> usize {
        let requests = self.server.requests();
        requests.iter().filter(|r| r.path == path).count()
    }
}

#[tokio::test(start_paused = true)]
async fn bound_pvc_and_volume_are_read_without_watch() {
    let env = TestEnv::with_node_clients();
    env.server.create(&bound());
    env.create_volume(host_path());
    let inputs = env.inputs(&claim_pod("a")).await.expect("inputs");
    assert!(is_host_path(&inputs));
    assert_eq!((env.requests_of(CLAIMS), env.requests_of(VOLUMES)), (1, 1));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(env.requests_of(CLAIMS), 1, "no pod waits for it");
}

#[tokio::test(start_paused = true)]
async fn pods_starting_together_share_pvc_reads() {
    let env = TestEnv::new();
    env.server.create(&bound());
    env.create_volume(host_path());
    let pods: Vec<_> = (0..110).map(|n| claim_pod(&n.to_string())).collect();
    let inputs = futures::future::join_all(pods.iter().map(|pod| env.inputs(pod))).await;
    assert!(
        inputs
            .iter()
            .all(|one| one.as_ref().is_ok_and(is_host_path))
    );
    assert_eq!(inputs.len(), 110);
    assert_eq!((env.requests_of(CLAIMS), env.requests_of(VOLUMES)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_pvc_then_for_volume() {
    let mut env = TestEnv::new();
    let pod = claim_pod("a");
    let fetch = "failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found";
    assert_eq!(env.inputs_error(&pod).await, waits_for(fetch));
    assert_eq!(env.requeued().await, [""; 0]);
    env.server.create(&claim(json!({"phase": "Pending"})));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(env.requeued().await, ["a"]);
    assert_eq!(env.inputs_error(&pod).await, waits_for("PVC is not bound"));
    let bind = |claim: &mut PersistentVolumeClaim| claim.status = bound().status;
    env.server.modify(Some("default"), "data", bind);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(env.requeued().await, ["a"]);
    let fetch = "failed to fetch PV pv-1 from API server: persistentvolumes \"pv-1\" not found";
    assert_eq!(env.inputs_error(&pod).await, waits_for(fetch));
    env.create_volume(host_path());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(env.requeued().await, ["a"]);
    let inputs = env.inputs(&pod).await.expect("inputs");
    assert!(is_host_path(&inputs));
    env.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(env.requests_of(CLAIMS), 0, "no pod waits");
}

#[tokio::test(start_paused = true)]
async fn unbound_pvc_is_polled_with_backoff_until_pod_is_deleted() {
    let env = TestEnv::new();
    env.server.create(&claim(json!({"phase": "Pending"})));
    for uid in ["a", "b"] {
        env.inputs(&claim_pod(uid)).await.expect_err("pending");
    }
    env.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let first = env.requests_of(CLAIMS);
    assert!((7..=10).contains(&first), "{first}");
    tokio::time::sleep(Duration::from_secs(590)).await;
    let rest = env.requests_of(CLAIMS) - first;
    assert!((50..=90).contains(&rest), "{rest}");
    env.cache.unregister(&"a".into());
    env.cache.unregister(&"b".into());
    env.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(env.requests_of(CLAIMS), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_keeps_volume_while_pvc_is_being_deleted() {
    let env = TestEnv::new();
    env.server.create(&bound());
    env.create_volume(host_path());
    env.inputs(&claim_pod("a")).await.expect("inputs");
    let deleted: PersistentVolumeClaim = object(json!({
        "metadata": {"name": "x", "deletionTimestamp": "2026-11-22T00:00:00Z"},
    }));
    let deleted = deleted.metadata.deletion_timestamp;
    env.server
        .modify::<PersistentVolumeClaim>(Some("default"), "data", |claim| {
            claim.metadata.deletion_timestamp = deleted;
        });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let inputs = env.inputs(&claim_pod("a")).await.expect("inputs");
    assert!(is_host_path(&inputs));
    let error = env.inputs_error(&claim_pod("b")).await;
    assert_eq!(error, waits_for("PVC is being deleted"));
}

#[tokio::test(start_paused = true)]
async fn read_pvc_serves_during_api_server_outage() {
    let env = TestEnv::new();
    env.server.create(&bound());
    env.create_volume(host_path());
    env.inputs(&claim_pod("a")).await.expect("inputs");
    env.server.faults().down(On::any());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let inputs = env.inputs(&claim_pod("b")).await;
    // the services were read before, so only the PVC matters
    assert!(is_host_path(&inputs.expect("inputs")));
}

#[tokio::test(start_paused = true)]
async fn hung_pvc_read_delays_new_pod_by_ten_seconds() {
    let env = TestEnv::new();
    env.server.create(&bound());
    env.server
        .faults()
        .hang(On::path("*/persistentvolumeclaims/*"));
    let began = tokio::time::Instant::now();
    let error = env.inputs(&claim_pod("a")).await.expect_err("hangs");
    assert!(
        error.starts_with("FailedMount soon: Unable to attach or mount volumes: "),
        "{error}"
    );
    assert!(
        error.ends_with("failed to fetch PVC from API server: the API server did not respond"),
        "{error}"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn pvc_is_reported_while_its_volume_is_forbidden() {
    let mut env = TestEnv::new();
    // the node authorizer allows only volumes bound to a PVC of the node's pods
    env.server
        .authorize(|_, access| access.resource != "persistentvolumes");
    let pod = claim_pod("a");
    let fetch = "failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found";
    assert_eq!(env.inputs_error(&pod).await, waits_for(fetch));
    env.server.create(&claim(json!({"phase": "Pending"})));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(env.requeued().await, ["a"]);
    assert_eq!(env.inputs_error(&pod).await, waits_for("PVC is not bound"));
}

#[tokio::test(start_paused = true)]
async fn unused_pvc_is_not_read() {
    let env = TestEnv::new();
    let pod = pod(
        "a",
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}),
    );
    let inputs = env.inputs(&pod).await.expect("inputs");
    assert!(inputs.volumes.is_empty());
    assert_eq!(env.requests_of(CLAIMS), 0);
}

#[tokio::test(start_paused = true)]
async fn volume_with_other_node_affinity_is_rejected() {
    let env = TestEnv::new();
    let node: Node = object(json!({"metadata": {
        "name": "n1", "labels": {"kubernetes.io/hostname": "n1"},
    }}));
    env.node.send_replace(NodeUpdate(Some(Arc::new(node))));
    env.server.create(&bound());
    env.create_volume(volume(json!({
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]},
        ]}]}},
    })));
    assert_eq!(
        env.inputs_error(&claim_pod("a")).await,
        "FailedMount later: MountVolume.NodeAffinity check failed for volume \"pv-1\" : \
         no matching NodeSelectorTerms"
    );
}

#[tokio::test(start_paused = true)]
async fn attach_required_comes_from_csi_driver() {
    let attach = async |driver: Option<Value>| {
        let env = TestEnv::new();
        env.server.create(&bound());
        env.create_volume(csi());
        if let Some(spec) = driver {
            let driver = json!({"metadata": {"name": "d.example"}, "spec": spec});
            env.server.create(&object::<CSIDriver>(driver));
        }
        let inputs = env.inputs(&claim_pod("a")).await.expect("inputs");
        match source(&inputs) {
            VolumeSource::Csi(csi) => csi.attach_required,
            other => panic!("{other:?}"),
        }
    };
    assert!(attach(None).await);
    assert!(attach(Some(json!({}))).await);
    assert!(!attach(Some(json!({"attachRequired": false}))).await);
}

#[tokio::test(start_paused = true)]
async fn volume_expansion_is_detected_and_reported() {
    let env = TestEnv::with_node_clients();
    env.server.create(&claim(json!({
        "phase": "Bound",
        "capacity": {"storage": "1Gi"},
        "conditions": [
            {"type": "FileSystemResizePending", "status": "True"},
            {"type": "Other", "status": "True"},
        ],
    })));
    env.create_volume(csi());
    let pod = claim_pod("a");
    let size = async || {
        let inputs = env.inputs(&pod).await.expect("inputs");
        match source(&inputs) {
            VolumeSource::Csi(csi) => csi.size.clone().map(|size| (size.reported, size.desired)),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(size().await, Some((1 << 30, 1 << 30)));
    let two: PersistentVolume = volume(json!({"capacity": {"storage": "2Gi"}}));
    env.server
        .modify::<PersistentVolume>(None, "pv-1", |volume| {
            let capacity = two.spec.and_then(|spec| spec.capacity);
            volume.spec.as_mut().expect("spec").capacity = capacity;
        });
    // the resizer has finished
    let done: PersistentVolumeClaim = claim(json!({
        "allocatedResources": {"storage": "2Gi"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    }));
    let in_namespace = Some("default");
    env.server
        .modify::<PersistentVolumeClaim>(in_namespace, "data", |claim| {
            let (status, done) = (claim.status.as_mut(), done.status.unwrap_or_default());
            let status = status.expect("status");
            status.allocated_resources = done.allocated_resources;
            status.allocated_resource_statuses = done.allocated_resource_statuses;
        });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(size().await, Some((1 << 30, 2 << 30)));
    let state = || {
        let state = env
            .server
            .get::<PersistentVolumeClaim>(in_namespace, "data");
        state.expect("claim").status.expect("status")
    };
    let stage = || {
        let statuses = state().allocated_resource_statuses;
        statuses.and_then(|all| all.get("storage").cloned())
    };
    let turn = ExpansionDecision::Expand(ExpansionTask {
        bytes: 2 << 30,
        reported: false,
        tracked: true,
        final_attempt: false,
    });
    assert_eq!(
        env.cache
            .expansion_decision(&pod, "data", 2 << 30, false)
            .await,
        Ok(turn)
    );
    assert_eq!(stage().as_deref(), Some("NodeResizeInProgress"));
    let failed = env
        .cache
        .report_failure(&pod, "data", true, "no", Timestamp::UNIX_EPOCH);
    assert_eq!(failed.await, Ok(()));
    assert_eq!(stage().as_deref(), Some("NodeResizeInfeasible"));
    let types = || -> Vec<_> {
        let conditions = state().conditions.unwrap_or_default();
        conditions.into_iter().map(|one| one.type_).collect()
    };
    assert_eq!(
        types(),
        ["FileSystemResizePending", "Other", "NodeResizeError"]
    );
    assert_eq!(
        env.cache
            .expansion_decision(&pod, "data", 2 << 30, true)
            .await,
        Ok(ExpansionDecision::Deferred)
    );
    // a failed patch returns upstream's error
    let faults = env.server.faults();
    faults.error(On::path("*/status").times(1), 500);
    let error = env.cache.report_expanded(&pod, "data", 2 << 30).await;
    let error = error.expect_err("500");
    assert!(
        error.starts_with("patchPVCStatus failed to patch PVC \"data\": "),
        "{error}"
    );
    assert_eq!(
        env.cache.report_expanded(&pod, "data", 2 << 30).await,
        Ok(())
    );
    assert_eq!(state().capacity.expect("capacity")["storage"].0, "2Gi");
    assert_eq!(stage(), None);
    assert_eq!(types(), ["Other"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(size().await, Some((2 << 30, 2 << 30)));
    env.server.clear_requests();
    assert_eq!(
        env.cache.report_expanded(&pod, "data", 2 << 30).await,
        Ok(())
    );
    let requests = env.server.requests();
    assert!(
        requests.iter().all(|r| r.method != "PATCH"),
        "already reported: {requests:?}"
    );
    env.server
        .delete::<PersistentVolumeClaim>(in_namespace, "data", None);
    let error = env
        .cache
        .expansion_decision(&pod, "data", 2 << 30, false)
        .await;
    assert_eq!(
        error,
        Err("mountVolume.NodeExpandVolume get PVC failed : not found".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn pvc_forbidden_by_lagging_informers_is_read_soon() {
    let env = TestEnv::with_node_clients();
    env.server.create(&bound());
    env.create_volume(host_path());
    let lag = Duration::from_millis(100);
    env.server.faults().informer_lag(lag);
    let mut pod = Pod::clone(&claim_pod("a"));
    pod.spec.as_mut().expect("spec").node_name = Some("n1".to_owned());
    let pod = SharedPod::new(env.server.create(&pod));
    let began = tokio::time::Instant::now();
    let inputs = env.inputs(&pod).await.expect("inputs");
    assert!(is_host_path(&inputs));
    // after 10, 20, 40 and 80 ms
    assert_eq!(began.elapsed().as_millis(), 150);
    assert_eq!(env.requests_of(CLAIMS), 5);
}
