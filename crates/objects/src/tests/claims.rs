//! PVCs: reads, waiting pods, requeued pods.

use windlass_actors::NodeExpander;
use windlass_fake_api::On;
use windlass_types::corev1::{Node, PersistentVolume, PersistentVolumeClaim};
use windlass_types::storagev1::CSIDriver;
use windlass_types::{ExpansionTask, ExpansionDecision, Timestamp};

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

impl World {
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

    async fn refused(&self, pod: &SharedPod) -> String {
        self.inputs(pod).await.expect_err("refused")
    }

    fn requests_of(&self, path: &str) -> usize {
        let requests = self.server.requests();
        requests.iter().filter(|r| r.path == path).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_bound_claim_is_read_with_its_volume_by_a_node_that_may_watch_neither() {
    let world = World::of_node();
    world.server.create(&bound());
    world.create_volume(host_path());
    let inputs = world.inputs(&claim_pod("a")).await.expect("inputs");
    assert!(is_host_path(&inputs));
    assert_eq!(
        (world.requests_of(CLAIMS), world.requests_of(VOLUMES)),
        (1, 1)
    );
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.requests_of(CLAIMS), 1, "nobody waits for it");
}

#[tokio::test(start_paused = true)]
async fn pods_that_start_together_share_each_read_of_their_claim() {
    let world = World::new();
    world.server.create(&bound());
    world.create_volume(host_path());
    let pods: Vec<_> = (0..110).map(|n| claim_pod(&n.to_string())).collect();
    let inputs = futures::future::join_all(pods.iter().map(|pod| world.inputs(pod))).await;
    assert!(
        inputs
            .iter()
            .all(|one| one.as_ref().is_ok_and(is_host_path))
    );
    assert_eq!(inputs.len(), 110);
    assert_eq!(
        (world.requests_of(CLAIMS), world.requests_of(VOLUMES)),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_claim_and_then_for_its_volume() {
    let mut world = World::new();
    let pod = claim_pod("a");
    let fetch = "failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found";
    assert_eq!(world.refused(&pod).await, waits_for(fetch));
    assert_eq!(world.told().await, [""; 0]);
    world.server.create(&claim(json!({"phase": "Pending"})));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.told().await, ["a"]);
    assert_eq!(world.refused(&pod).await, waits_for("PVC is not bound"));
    let bind = |claim: &mut PersistentVolumeClaim| claim.status = bound().status;
    world.server.modify(Some("default"), "data", bind);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.told().await, ["a"]);
    let fetch = "failed to fetch PV pv-1 from API server: persistentvolumes \"pv-1\" not found";
    assert_eq!(world.refused(&pod).await, waits_for(fetch));
    world.create_volume(host_path());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.told().await, ["a"]);
    let inputs = world.inputs(&pod).await.expect("inputs");
    assert!(is_host_path(&inputs));
    world.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.requests_of(CLAIMS), 0, "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_binds_is_looked_at_less_and_less_and_not_for_pods_that_are_gone() {
    let world = World::new();
    world.server.create(&claim(json!({"phase": "Pending"})));
    for uid in ["a", "b"] {
        world.inputs(&claim_pod(uid)).await.expect_err("pending");
    }
    world.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let first = world.requests_of(CLAIMS);
    assert!((7..=10).contains(&first), "{first}");
    tokio::time::sleep(Duration::from_secs(590)).await;
    let rest = world.requests_of(CLAIMS) - first;
    assert!((50..=90).contains(&rest), "{rest}");
    world.cache.unregister(&"a".into());
    world.cache.unregister(&"b".into());
    world.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.requests_of(CLAIMS), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_its_volume_keeps_it_while_its_claim_is_being_deleted() {
    let world = World::new();
    world.server.create(&bound());
    world.create_volume(host_path());
    world.inputs(&claim_pod("a")).await.expect("inputs");
    let deleted: PersistentVolumeClaim = object(json!({
        "metadata": {"name": "x", "deletionTimestamp": "2026-11-22T00:00:00Z"},
    }));
    let deleted = deleted.metadata.deletion_timestamp;
    world
        .server
        .modify::<PersistentVolumeClaim>(Some("default"), "data", |claim| {
            claim.metadata.deletion_timestamp = deleted;
        });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let inputs = world.inputs(&claim_pod("a")).await.expect("inputs");
    assert!(is_host_path(&inputs));
    let refused = world.refused(&claim_pod("b")).await;
    assert_eq!(refused, waits_for("PVC is being deleted"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_read_once_serves_while_the_server_is_away() {
    let world = World::new();
    world.server.create(&bound());
    world.create_volume(host_path());
    world.inputs(&claim_pod("a")).await.expect("inputs");
    world.server.faults().down(On::any());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let inputs = world.inputs(&claim_pod("b")).await;
    // the services were read before, so only the PVC matters
    assert!(is_host_path(&inputs.expect("inputs")));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_holds_a_new_pod_up_for_ten_seconds() {
    let world = World::new();
    world.server.create(&bound());
    world
        .server
        .faults()
        .hang(On::path("*/persistentvolumeclaims/*"));
    let began = tokio::time::Instant::now();
    let refused = world.inputs(&claim_pod("a")).await.expect_err("hangs");
    assert!(
        refused.starts_with("FailedMount soon: Unable to attach or mount volumes: "),
        "{refused}"
    );
    assert!(
        refused.ends_with("failed to fetch PVC from API server: the API server did not respond"),
        "{refused}"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_claim_counts_although_its_volume_may_not_be_read_yet() {
    let mut world = World::new();
    // the node authorizer allows only volumes bound to a PVC of the node's pods
    world
        .server
        .authorize(|_, access| access.resource != "persistentvolumes");
    let pod = claim_pod("a");
    let fetch = "failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found";
    assert_eq!(world.refused(&pod).await, waits_for(fetch));
    world.server.create(&claim(json!({"phase": "Pending"})));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.told().await, ["a"]);
    assert_eq!(world.refused(&pod).await, waits_for("PVC is not bound"));
}

#[tokio::test(start_paused = true)]
async fn what_no_container_uses_is_neither_read_nor_waited_for() {
    let world = World::new();
    let pod = pod(
        "a",
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}),
    );
    let inputs = world.inputs(&pod).await.expect("inputs");
    assert!(inputs.volumes.is_empty());
    assert_eq!(world.requests_of(CLAIMS), 0);
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_another_node_is_refused_once_this_node_is_known() {
    let world = World::new();
    let node: Node = object(json!({"metadata": {
        "name": "n1", "labels": {"kubernetes.io/hostname": "n1"},
    }}));
    world.node.send_replace(NodeUpdate(Some(Arc::new(node))));
    world.server.create(&bound());
    world.create_volume(volume(json!({
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]},
        ]}]}},
    })));
    assert_eq!(
        world.refused(&claim_pod("a")).await,
        "FailedMount later: MountVolume.NodeAffinity check failed for volume \"pv-1\" : \
         no matching NodeSelectorTerms"
    );
}

#[tokio::test(start_paused = true)]
async fn whether_a_controller_attaches_a_volume_is_its_drivers_word() {
    let attach = async |driver: Option<Value>| {
        let world = World::new();
        world.server.create(&bound());
        world.create_volume(csi());
        if let Some(spec) = driver {
            let driver = json!({"metadata": {"name": "d.example"}, "spec": spec});
            world.server.create(&object::<CSIDriver>(driver));
        }
        let inputs = world.inputs(&claim_pod("a")).await.expect("inputs");
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
async fn a_volume_that_grew_is_seen_with_the_next_sync_and_told_when_its_file_system_did() {
    let world = World::of_node();
    world.server.create(&claim(json!({
        "phase": "Bound",
        "capacity": {"storage": "1Gi"},
        "conditions": [
            {"type": "FileSystemResizePending", "status": "True"},
            {"type": "Other", "status": "True"},
        ],
    })));
    world.create_volume(csi());
    let pod = claim_pod("a");
    let size = async || {
        let inputs = world.inputs(&pod).await.expect("inputs");
        match source(&inputs) {
            VolumeSource::Csi(csi) => csi.size.clone().map(|size| (size.known, size.wanted)),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(size().await, Some((1 << 30, 1 << 30)));
    let two: PersistentVolume = volume(json!({"capacity": {"storage": "2Gi"}}));
    world
        .server
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
    world
        .server
        .modify::<PersistentVolumeClaim>(in_namespace, "data", |claim| {
            let (status, done) = (claim.status.as_mut(), done.status.unwrap_or_default());
            let status = status.expect("status");
            status.allocated_resources = done.allocated_resources;
            status.allocated_resource_statuses = done.allocated_resource_statuses;
        });
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(size().await, Some((1 << 30, 2 << 30)));
    let told = || {
        let told = world
            .server
            .get::<PersistentVolumeClaim>(in_namespace, "data");
        told.expect("claim").status.expect("status")
    };
    let stage = || {
        let statuses = told().allocated_resource_statuses;
        statuses.and_then(|all| all.get("storage").cloned())
    };
    let turn = ExpansionDecision::Expand(ExpansionTask {
        bytes: 2 << 30,
        reported: false,
        tracked: true,
        final_attempt: false,
    });
    assert_eq!(
        world.cache.turn(&pod, "data", 2 << 30, false).await,
        Ok(turn)
    );
    assert_eq!(stage().as_deref(), Some("NodeResizeInProgress"));
    let failed = world
        .cache
        .not_grown(&pod, "data", true, "no", Timestamp::UNIX_EPOCH);
    assert_eq!(failed.await, Ok(()));
    assert_eq!(stage().as_deref(), Some("NodeResizeInfeasible"));
    let types = || -> Vec<_> {
        let conditions = told().conditions.unwrap_or_default();
        conditions.into_iter().map(|one| one.type_).collect()
    };
    assert_eq!(
        types(),
        ["FileSystemResizePending", "Other", "NodeResizeError"]
    );
    assert_eq!(
        world.cache.turn(&pod, "data", 2 << 30, true).await,
        Ok(ExpansionDecision::Deferred)
    );
    // a failed patch returns upstream's error
    let faults = world.server.faults();
    faults.error(On::path("*/status").times(1), 500);
    let error = world.cache.grown(&pod, "data", 2 << 30).await;
    let error = error.expect_err("500");
    assert!(
        error.starts_with("patchPVCStatus failed to patch PVC \"data\": "),
        "{error}"
    );
    assert_eq!(world.cache.grown(&pod, "data", 2 << 30).await, Ok(()));
    assert_eq!(told().capacity.expect("capacity")["storage"].0, "2Gi");
    assert_eq!(stage(), None);
    assert_eq!(types(), ["Other"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(size().await, Some((2 << 30, 2 << 30)));
    world.server.clear_requests();
    assert_eq!(world.cache.grown(&pod, "data", 2 << 30).await, Ok(()));
    let requests = world.server.requests();
    assert!(
        requests.iter().all(|r| r.method != "PATCH"),
        "it says so already: {requests:?}"
    );
    world
        .server
        .delete::<PersistentVolumeClaim>(in_namespace, "data", None);
    let error = world.cache.turn(&pod, "data", 2 << 30, false).await;
    assert_eq!(
        error,
        Err("mountVolume.NodeExpandVolume get PVC failed : not found".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn claim_refused_by_lagging_informers_is_read_soon() {
    let world = World::of_node();
    world.server.create(&bound());
    world.create_volume(host_path());
    let lag = Duration::from_millis(100);
    world.server.faults().informer_lag(lag);
    let mut pod = Pod::clone(&claim_pod("a"));
    pod.spec.as_mut().expect("spec").node_name = Some("n1".to_owned());
    let pod = SharedPod::new(world.server.create(&pod));
    let began = tokio::time::Instant::now();
    let inputs = world.inputs(&pod).await.expect("inputs");
    assert!(is_host_path(&inputs));
    // after 10, 20, 40 and 80 ms
    assert_eq!(began.elapsed().as_millis(), 150);
    assert_eq!(world.requests_of(CLAIMS), 5);
}
