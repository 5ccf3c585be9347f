//! The in-process server with the agent's client, on paused time.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;
use windlass_client::{ApiErrorKind, Delete, List, ObjectKey, Patch, Selector, Watch, WatchEvent};
use windlass_fake_api::{FakeApiServer, On};

fn pod(name: &str, node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": node, "containers": [{ "name": "a", "image": "busybox" }] },
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn node_watches_its_pods_from_creation_to_deletion() {
    let server = FakeApiServer::new();
    let client = server.clients().main;
    server.create(&pod("one", "n1"));
    server.create(&pod("other", "n2"));
    let mine = Selector {
        fields: Some("spec.nodeName=n1".to_owned()),
        ..Selector::default()
    };
    let (pods, version) = client.list::<Pod>(&mine, &List::default()).await.unwrap();
    assert_eq!(pods.len(), 1);
    let watch = Watch {
        resource_version: version,
        initial_events: false,
    };
    let mut events = client.watch::<Pod>(&mine, &watch).await.unwrap();
    server.create(&pod("two", "n1"));
    let Some(Ok(WatchEvent::Applied(two))) = events.next().await else {
        panic!("the new pod");
    };
    assert_eq!(two.metadata.name.as_deref(), Some("two"));

    let at = ObjectKey::namespaced("default", "two");
    let status = Patch::StrategicMerge(json!({
        "metadata": { "uid": two.metadata.uid },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    }));
    client
        .patch::<Pod>(at, Some("status"), &status)
        .await
        .unwrap();
    let Some(Ok(WatchEvent::Applied(two))) = events.next().await else {
        panic!("the new status");
    };
    assert_eq!(two.status.unwrap().phase.as_deref(), Some("Running"));

    assert!(server.delete::<Pod>(Some("default"), "two", None));
    let Some(Ok(WatchEvent::Applied(two))) = events.next().await else {
        panic!("the mark of its deletion");
    };
    assert_eq!(two.metadata.deletion_grace_period_seconds, Some(30));
    let at_once = Delete {
        grace_seconds: Some(0),
        uid: two.metadata.uid,
    };
    client.delete::<Pod>(at, &at_once).await.unwrap();
    assert!(matches!(
        events.next().await,
        Some(Ok(WatchEvent::Applied(_)))
    ));
    assert!(matches!(
        events.next().await,
        Some(Ok(WatchEvent::Deleted(_)))
    ));
    assert_eq!(server.get::<Pod>(Some("default"), "two"), None);
    let last = server.requests().pop().unwrap();
    assert_eq!((last.method.as_str(), last.status), ("DELETE", 200));
    assert_eq!(last.path, "/api/v1/namespaces/default/pods/two");
}

#[tokio::test(start_paused = true)]
async fn hung_call_times_out_and_counted_error_ends() {
    let server = FakeApiServer::new();
    let client = server.clients().main;
    let at = ObjectKey::namespaced("default", "c");
    let hung = server.faults().hang(On::path("/api/v1/*").method("GET"));
    let error = client.get::<ConfigMap>(at).await.unwrap_err();
    assert_eq!(error.kind, ApiErrorKind::Timeout);
    server.faults().lift(hung);

    server
        .faults()
        .error_retry_after(On::any().times(1), 429, 7);
    let error = client.get::<ConfigMap>(at).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    let error = client.get::<ConfigMap>(at).await.unwrap_err();
    assert_eq!(error.kind, ApiErrorKind::NotFound);
}
