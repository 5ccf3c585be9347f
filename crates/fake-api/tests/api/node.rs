//! Permissions of a node, and its tokens, reviews and certificates.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use windlass_fake_api::{FakeApiServer, User};

use crate::call::Caller;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

struct Cluster {
    server: FakeApiServer,
    admin: Caller,
    node: Caller,
}

/// A cluster with the nodes n1 and n2; the node is n1.
async fn cluster() -> (Cluster, Value) {
    let server = FakeApiServer::new();
    let admin = Caller::new(&server, User::admin());
    let node = Caller::new(&server, User::node("n1"));
    let (code, n1) = node
        .post("/api/v1/nodes", json!({ "metadata": { "name": "n1" } }))
        .await;
    assert_eq!(code, 201);
    admin
        .post("/api/v1/nodes", json!({ "metadata": { "name": "n2" } }))
        .await;
    (
        Cluster {
            server,
            admin,
            node,
        },
        n1["metadata"]["uid"].clone(),
    )
}

fn mirror(uid: &Value) -> Value {
    json!({
        "metadata": {
            "name": "static-n1",
            "annotations": { "kubernetes.io/config.mirror": "h" },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true,
            }],
        },
        "spec": { "nodeName": "n1", "containers": [{ "name": "a", "image": "b" }] },
    })
}

#[tokio::test(start_paused = true)]
async fn node_creates_only_its_own_mirror_pods() {
    let (Cluster { server, node, .. }, uid) = cluster().await;
    type Change = fn(&mut Value);
    let wrong: [(&str, Change); 6] = [
        ("no annotation", |pod| {
            pod["metadata"]["annotations"] = json!({})
        }),
        ("another node", |pod| pod["spec"]["nodeName"] = json!("n2")),
        ("no owner", |pod| {
            pod["metadata"]["ownerReferences"] = json!([])
        }),
        ("old owner", |pod| {
            pod["metadata"]["ownerReferences"][0]["uid"] = json!("x")
        }),
        ("no controller", |pod| {
            pod["metadata"]["ownerReferences"][0]["controller"] = json!(false)
        }),
        ("a secret", |pod| {
            pod["spec"]["volumes"] = json!([{ "name": "s", "secret": {} }])
        }),
    ];
    for (what, change) in wrong {
        let mut pod = mirror(&uid);
        change(&mut pod);
        assert_eq!(node.post(PODS, pod).await.0, 403, "{what}");
    }
    assert_eq!(node.post(PODS, mirror(&uid)).await.0, 201);
    let path = format!("{PODS}/static-n1");
    let merge = "application/merge-patch+json";
    let running = json!({ "status": { "phase": "Running" } });
    assert_eq!(
        node.patch(&format!("{path}/status"), merge, running.clone())
            .await
            .0,
        200
    );
    assert_eq!(node.patch(&path, merge, json!({ "spec": {} })).await.0, 403);
    let other = Caller::new(&server, User::node("n2"));
    assert_eq!(
        other
            .patch(&format!("{path}/status"), merge, running)
            .await
            .0,
        403
    );
    assert_eq!(
        other
            .delete(&path, json!({ "gracePeriodSeconds": 0 }))
            .await
            .0,
        403
    );
    assert_eq!(
        node.delete(&path, json!({ "gracePeriodSeconds": 0 }))
            .await
            .0,
        200
    );
    assert_eq!(node.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn node_updates_only_itself_without_restricted_labels() {
    let (Cluster { server, node, .. }, _) = cluster().await;
    let merge = "application/merge-patch+json";
    for (name, label, code) in [
        ("n1", "kubernetes.io/os", 200),
        ("n1", "example.com/mine", 200),
        ("n1", "node.kubernetes.io/x", 200),
        ("n1", "node-restriction.kubernetes.io/x", 403),
        ("n1", "node-role.kubernetes.io/control-plane", 403),
        ("n2", "example.com/mine", 403),
    ] {
        let change = json!({ "metadata": { "labels": { label: "v" } } });
        let (got, _) = node
            .patch(&format!("/api/v1/nodes/{name}"), merge, change)
            .await;
        assert_eq!(got, code, "{name} {label}");
    }
    assert_eq!(node.delete("/api/v1/nodes/n1", json!({})).await.0, 403);
    let leases = "/apis/coordination.k8s.io/v1/namespaces";
    for (namespace, name, code) in [
        ("kube-node-lease", "n1", 201),
        ("kube-node-lease", "n2", 403),
        ("default", "n1", 403),
    ] {
        let lease = json!({ "metadata": { "name": name } });
        let (got, _) = node
            .post(&format!("{leases}/{namespace}/leases"), lease)
            .await;
        assert_eq!(got, code, "{namespace}/{name}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(node.get(secrets).await.0, 403);
    assert_eq!(
        node.get(&format!("{secrets}?fieldSelector=metadata.name%3Da"))
            .await
            .0,
        200
    );
    server.restrict_nodes(false);
    assert_eq!(node.get(secrets).await.0, 200);
    server.authorize(|user, access| user.node_name().is_none() || access.resource != "secrets");
    assert_eq!(node.get(secrets).await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn node_reads_pvcs_and_volumes_but_cannot_list_them() {
    let (Cluster { admin, node, .. }, _) = cluster().await;
    for (set, spec) in [
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({}),
        ),
        ("/api/v1/persistentvolumes", json!({})),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            json!({ "attacher": "d", "nodeName": "n1", "source": {} }),
        ),
    ] {
        let object = json!({ "metadata": { "name": "a" }, "spec": spec });
        assert_eq!(node.post(set, object.clone()).await.0, 403, "{set}");
        assert_eq!(admin.post(set, object).await.0, 201, "{set}");
        assert_eq!(node.get(&format!("{set}/a")).await.0, 200, "{set}");
        assert_eq!(node.get(set).await.0, 403, "{set}");
        let by_name = format!("{set}?watch=true&fieldSelector=metadata.name%3Da");
        assert_eq!(node.get(&by_name).await.0, 403, "{set}");
    }
    let claim = "/api/v1/namespaces/default/persistentvolumeclaims/a";
    let merge = "application/merge-patch+json";
    let grown = json!({ "status": { "capacity": { "storage": "2Gi" } } });
    let (code, _) = node.patch(claim, merge, grown.clone()).await;
    assert_eq!(code, 403, "only its status");
    let (code, claim) = node.patch(&format!("{claim}/status"), merge, grown).await;
    assert_eq!(code, 200);
    assert_eq!(claim["status"]["capacity"]["storage"], "2Gi");
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    let driver = json!({ "metadata": { "name": "d" }, "spec": {} });
    let (_, driver) = admin.post(drivers, driver).await;
    assert_eq!(driver["spec"]["attachRequired"], true);
    assert_eq!(node.get(drivers).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn pod_is_bound_once_and_evicted_with_its_grace_period() {
    let (Cluster { admin, .. }, _) = cluster().await;
    admin
        .post(
            PODS,
            json!({ "metadata": { "name": "a" }, "spec": { "containers": [] } }),
        )
        .await;
    let binding = json!({ "target": { "name": "n1" } });
    assert_eq!(
        admin
            .post(&format!("{PODS}/a/binding"), binding.clone())
            .await
            .0,
        201
    );
    assert_eq!(
        admin.post(&format!("{PODS}/a/binding"), binding).await.0,
        409
    );
    let (_, bound) = admin.get(&format!("{PODS}/a")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let eviction = json!({ "deleteOptions": { "gracePeriodSeconds": 4 } });
    assert_eq!(
        admin.post(&format!("{PODS}/a/eviction"), eviction).await.0,
        201
    );
    let (_, leaving) = admin.get(&format!("{PODS}/a")).await;
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 4);
}

#[tokio::test(start_paused = true)]
async fn token_is_issued_for_a_pod_of_the_node_and_expires() {
    let (
        Cluster {
            server,
            admin,
            node,
        },
        _,
    ) = cluster().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin
        .post(accounts, json!({ "metadata": { "name": "default" } }))
        .await;
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n1" } });
    let (_, pod) = admin.post(PODS, pod).await;
    let token = format!("{accounts}/default/token");
    let request = |uid: &Value, seconds: i64| {
        json!({ "spec": {
            "audiences": ["api"], "expirationSeconds": seconds,
            "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid },
        } })
    };
    let uid = &pod["metadata"]["uid"];
    for (body, code) in [
        (json!({ "spec": { "audiences": ["api"] } }), 403),
        (request(uid, 10), 422),
        (request(&json!("old"), 600), 403),
    ] {
        assert_eq!(node.post(&token, body.clone()).await.0, code, "{body}");
    }
    let missing = format!("{accounts}/other/token");
    assert_eq!(node.post(&missing, request(uid, 600)).await.0, 404);
    let (code, issued) = node.post(&token, request(uid, 600)).await;
    assert_eq!(code, 201);
    let text = issued["status"]["token"].as_str().unwrap();
    let payload = URL_SAFE_NO_PAD
        .decode(text.split('.').nth(1).unwrap())
        .unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(payload["sub"], "system:serviceaccount:default:default");
    assert_eq!(payload["aud"], json!(["api"]));

    let review = json!({ "spec": { "token": text, "audiences": ["api"] } });
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (_, known) = admin.post(reviews, review.clone()).await;
    assert_eq!(
        known["status"]["user"]["username"],
        "system:serviceaccount:default:default"
    );
    let bearer = Caller::new(&server, User::anonymous()).with_token(text);
    assert_eq!(bearer.get(PODS).await.0, 200);
    assert_eq!(
        server.requests().pop().unwrap().user,
        "system:serviceaccount:default:default"
    );
    tokio::time::advance(Duration::from_secs(600)).await;
    let (_, expired) = admin.post(reviews, review).await;
    assert_eq!(expired["status"]["authenticated"], Value::Null);
    assert_eq!(bearer.get(PODS).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn access_reviews_use_the_configured_rule() {
    let (Cluster { server, admin, .. }, _) = cluster().await;
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let review = |user: &str| json!({ "spec": { "user": user } });
    let (_, anybody) = admin.post(reviews, review("eve")).await;
    assert_eq!(anybody["status"]["allowed"], true);
    server.review_access(|spec| spec.user.as_deref() == Some("alice"));
    for (user, allowed) in [("alice", true), ("eve", false)] {
        let (_, answer) = admin.post(reviews, review(user)).await;
        assert_eq!(answer["status"]["allowed"], allowed);
    }
}

fn csr(name: &str, signer: &str, common_name: &str, names: Vec<String>, usage: &str) -> Value {
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    let request = params
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap();
    json!({
        "metadata": { "name": name },
        "spec": {
            "request": STANDARD.encode(request.pem().unwrap()),
            "signerName": format!("kubernetes.io/{signer}"),
            "usages": ["digital signature", usage],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn csrs_are_signed_by_the_rules_of_their_signers() {
    let (Cluster { server, node, .. }, _) = cluster().await;
    let hour = Duration::from_secs(3600);
    let (client, serving) = ("kube-apiserver-client-kubelet", "kubelet-serving");
    let dns = || vec!["n1".to_owned()];
    for (n, (signer, common_name, names, usage, why)) in [
        (client, "system:node:n1", vec![], "client auth", None),
        (serving, "system:node:n1", dns(), "server auth", None),
        (client, "eve", vec![], "client auth", Some("common name")),
        (
            client,
            "system:node:n1",
            dns(),
            "client auth",
            Some("alternative names"),
        ),
        (
            serving,
            "system:node:n1",
            vec![],
            "server auth",
            Some("alternative name is required"),
        ),
        (
            client,
            "system:node:n1",
            vec![],
            "server auth",
            Some("usages"),
        ),
        (
            "other",
            "system:node:n1",
            vec![],
            "client auth",
            Some("no signer for"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("csr-{n}");
        let body = csr(&name, signer, common_name, names, usage);
        let (code, made) = node.post(CSRS, body).await;
        assert_eq!(code, 201);
        assert_eq!(made["spec"]["username"], "system:node:n1");
        let signed = server.approve_csr(&name, hour);
        let (_, csr) = node.get(&format!("{CSRS}/{name}")).await;
        assert_eq!(csr["status"]["conditions"][0]["type"], "Approved");
        match why {
            None => {
                let pem = csr["status"]["certificate"].as_str().unwrap();
                let pem = String::from_utf8(STANDARD.decode(pem).unwrap()).unwrap();
                assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"));
            }
            Some(why) => {
                assert!(signed.unwrap_err().contains(why), "{why}");
                assert_eq!(csr["status"]["conditions"][1]["type"], "Failed");
            }
        }
    }
    let body = csr("no", client, "system:node:n1", vec![], "client auth");
    node.post(CSRS, body).await;
    server.deny_csr("no", "not today").unwrap();
    let (_, denied) = node.get(&format!("{CSRS}/no")).await;
    assert_eq!(denied["status"]["conditions"][0]["type"], "Denied");
    server.auto_approve_csrs(Some(hour));
    node.post(
        CSRS,
        csr("auto", client, "system:node:n1", vec![], "client auth"),
    )
    .await;
    let (_, signed) = node.get(&format!("{CSRS}/auto")).await;
    assert!(signed["status"]["certificate"].is_string());
}

#[tokio::test(start_paused = true)]
async fn lagging_informers_reject_requests_for_new_pods() {
    let (
        Cluster {
            server,
            admin,
            node,
        },
        _,
    ) = cluster().await;
    let namespace = "/api/v1/namespaces/default";
    let accounts = format!("{namespace}/serviceaccounts");
    for name in ["old", "new"] {
        let account = json!({ "metadata": { "name": name } });
        assert_eq!(admin.post(&accounts, account).await.0, 201);
    }
    let secret = json!({ "metadata": { "name": "key" } });
    let secrets = format!("{namespace}/secrets");
    assert_eq!(admin.post(&secrets, secret).await.0, 201);
    let pod = |name: &str, account: &str| {
        json!({
            "metadata": { "name": name },
            "spec": {
                "serviceAccountName": account,
                "containers": [{ "name": "a", "image": "b" }],
                "volumes": [{ "name": "s", "secret": { "secretName": "key" } }],
            },
        })
    };
    let bind = async |name: &str| {
        let binding = json!({ "target": { "kind": "Node", "name": "n1" } });
        let bound = admin.post(&format!("{PODS}/{name}/binding"), binding).await;
        assert_eq!(bound.0, 201);
    };
    let token = async |account: &str, pod: &Value| {
        let bound = json!({
            "apiVersion": "v1", "kind": "Pod",
            "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
        });
        let body = json!({ "spec": { "audiences": [], "boundObjectRef": bound } });
        let (code, answer) = node
            .post(&format!("{accounts}/{account}/token"), body)
            .await;
        let message = answer["message"].as_str().unwrap_or_default();
        format!("{code} {message}")
    };
    let read = async || {
        let (code, answer) = node.get(&format!("{secrets}/key")).await;
        format!("{code} {}", answer["message"].as_str().unwrap_or_default())
    };

    let first = admin.post(PODS, pod("first", "old")).await.1;
    server.faults().informer_lag(Duration::from_millis(100));
    bind("first").await;
    assert_eq!(
        token("old", &first).await,
        "403 serviceaccounts \"old\" is forbidden: User \"system:node:n1\" cannot create resource \
         \"serviceaccounts/token\" in API group \"\" in the namespace \"default\": no relationship \
         found between node 'n1' and this object"
    );
    assert_eq!(
        read().await,
        "403 secrets \"key\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" \
         in API group \"\" in the namespace \"default\": no relationship found between node 'n1' \
         and this object"
    );
    tokio::time::sleep(Duration::from_millis(99)).await;
    assert!(token("old", &first).await.starts_with("403 "));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(token("old", &first).await, "201 ");
    assert_eq!(read().await, "200 ");

    // the node is related to the service account by its first pod; the second is not known yet
    let second = admin.post(PODS, pod("second", "old")).await.1;
    assert_eq!(token("old", &second).await, "404 pod \"second\" not found");
    tokio::time::sleep(Duration::from_millis(100)).await;
    bind("second").await;
    assert_eq!(
        token("old", &second).await,
        "403 serviceaccounts \"old\" is forbidden: node requested token bound to a pod scheduled on \
         a different node"
    );
    assert_eq!(read().await, "200 ");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(token("old", &second).await, "201 ");
}
