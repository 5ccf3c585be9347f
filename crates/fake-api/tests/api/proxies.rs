//! The clients of a node through a proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde_json::{Value, from_value, json};
use windlass_client::{
    ApiClients, ApiErrorKind, ApiServerConfig, ClientLimits, ObjectKey, ReflectEvent, Selector,
    reflect,
};
use windlass_fake_api::{FakeApiServer, ForwardProxy, KubeconfigUser, TlsServer};

const SOON: Duration = Duration::from_secs(10);

struct Scene {
    api: FakeApiServer,
    tls: TlsServer,
    proxy: ForwardProxy,
    directory: tempfile::TempDir,
}

impl Scene {
    async fn start() -> Self {
        let api = FakeApiServer::new();
        api.create::<Node>(&from_value(json!({ "metadata": { "name": "n1" } })).unwrap());
        Self {
            tls: api.serve_tls().await.unwrap(),
            proxy: ForwardProxy::start().await.unwrap(),
            directory: tempfile::tempdir().unwrap(),
            api,
        }
    }

    /// A kubeconfig with this `proxy-url`, for a server that only the proxy resolves.
    fn kubeconfig(&self, proxy_url: &str) -> PathBuf {
        let pem = self
            .tls
            .issue_client_cert("system:node:n1", &["system:nodes"], SOON * 60);
        let path = self.directory.path().join("kubeconfig");
        let pem = pem.unwrap();
        self.tls
            .kubeconfig(&path, KubeconfigUser::Certificate(&pem))
            .unwrap();
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let cluster = &mut config["clusters"][0]["cluster"];
        cluster["server"] = "https://api.invalid:6443".into();
        cluster["tls-server-name"] = "127.0.0.1".into();
        cluster["proxy-url"] = proxy_url.into();
        std::fs::write(&path, config.to_string()).unwrap();
        self.proxy.resolve("api.invalid", self.tls.address());
        path
    }

    fn clients(&self, proxy_url: &str) -> ApiClients {
        let config = ApiServerConfig::from_kubeconfig(&self.kubeconfig(proxy_url)).unwrap();
        ApiClients::connect(&config, &ClientLimits::default()).unwrap()
    }
}

fn url(scheme: &str, user: &str, address: SocketAddr) -> String {
    format!("{scheme}://{user}{address}")
}

#[tokio::test]
async fn proxy_carries_requests_heartbeats_and_watches() {
    for scheme in ["http", "socks5"] {
        let scene = Scene::start().await;
        let clients = scene.clients(&url(scheme, "", scene.proxy.address()));
        clients
            .main
            .get::<Node>(ObjectKey::cluster("n1"))
            .await
            .unwrap();
        let lease = json!({ "metadata": { "name": "n1", "namespace": "kube-node-lease" } });
        let lease: Lease = from_value(lease).unwrap();
        clients
            .heartbeat
            .create(Some("kube-node-lease"), &lease)
            .await
            .unwrap();
        let node = Selector {
            fields: Some("metadata.name=n1".to_owned()),
            ..Selector::default()
        };
        let mut watch = Box::pin(reflect::<Node>(clients.watch.clone(), node));
        let event = tokio::time::timeout(SOON, watch.next()).await.unwrap();
        assert!(matches!(event, Some(ReflectEvent::Synced(nodes)) if nodes.len() == 1));
        scene.api.modify::<Node>(None, "n1", |node| {
            node.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        });
        let event = tokio::time::timeout(SOON, watch.next()).await.unwrap();
        assert!(matches!(event, Some(ReflectEvent::Applied(_))), "{event:?}");
        let requests = scene.proxy.requests();
        assert_eq!(
            requests.len(),
            3,
            "one connection for each client: {requests:?}"
        );
        for request in requests {
            assert_eq!(request.target, "api.invalid:6443", "{scheme}");
            assert!(request.accepted && request.credentials.is_none());
        }
        let users = scene.api.requests().into_iter().map(|request| request.user);
        assert!(users.into_iter().all(|user| user == "system:node:n1"));
    }
}

#[tokio::test]
async fn proxy_credentials_are_sent_and_not_logged() {
    for scheme in ["http", "socks5"] {
        let scene = Scene::start().await;
        scene.proxy.require("agent:hunter@2");
        let right = url(scheme, "agent:hunter%402@", scene.proxy.address());
        let clients = scene.clients(&right);
        clients
            .main
            .get::<Node>(ObjectKey::cluster("n1"))
            .await
            .unwrap();
        let requests = scene.proxy.requests();
        assert_eq!(requests[0].credentials.as_deref(), Some("agent:hunter@2"));
        let config = ApiServerConfig::from_kubeconfig(&scene.kubeconfig(&right)).unwrap();
        assert!(!format!("{config:?} {clients:?}").contains("hunter"));

        let clients = scene.clients(&url(scheme, "agent:wrong@", scene.proxy.address()));
        let error = clients
            .main
            .get::<Node>(ObjectKey::cluster("n1"))
            .await
            .unwrap_err();
        assert_eq!(error.kind, ApiErrorKind::Connection);
        let text = error.to_string();
        assert!(text.contains("proxy") && !text.contains("wrong"), "{text}");
        if scheme == "http" {
            let expected = "HTTP 407 Proxy Authentication Required; set user and password in the \
                            URL of the proxy";
            assert!(text.contains(expected), "{text}");
        }
    }
}

#[tokio::test]
async fn unreachable_proxy_is_named_in_the_error() {
    let scene = Scene::start().await;
    let address = scene.proxy.address();
    let path = scene.kubeconfig(&url("http", "agent:hunter2@", address));
    let config = ApiServerConfig::from_kubeconfig(&path).unwrap();
    scene.proxy.stop().await;
    let clients = ApiClients::connect(&config, &ClientLimits::default()).unwrap();
    let error = clients
        .main
        .get::<ConfigMap>(ObjectKey::namespaced("default", "a"))
        .await
        .unwrap_err();
    assert!(error.is_unreachable());
    let text = error.to_string();
    assert!(
        text.contains(&address.to_string()) && !text.contains("hunter2"),
        "{text}"
    );
}

#[tokio::test]
async fn proxy_is_kept_in_a_written_kubeconfig() {
    let scene = Scene::start().await;
    let proxy = url("http", "agent:hunter2@", scene.proxy.address());
    let path = scene.kubeconfig(&proxy);
    let config = ApiServerConfig::from_kubeconfig(&path).unwrap();
    let written = scene.directory.path().join("written");
    config.write_kubeconfig(&written, &path, &path).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(written).unwrap()).unwrap();
    assert_eq!(written["clusters"][0]["cluster"]["proxy-url"], proxy);
}
