//! Reviews, their cache and their limits.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::advance;
use windlass_auth::access::AccessSettings;
use windlass_auth::{Auth, AuthSettings, Authorization};
use windlass_client::ObjectKey;
use windlass_fake_api::{FakeApiServer, On, User};
use windlass_metrics::Metrics;

use crate::kit::{TestClock, ask, asked, gate, grant, request, settings, with_token};

const UNAUTHORIZED: &str = "Unauthorized";
const BUSY: &str = "Too many requests, please try again later.";
const PROMETHEUS: &str = r#"prometheus ["monitoring", "system:authenticated"]"#;

/// An API server that knows a token of prometheus, who may read metrics.
fn api() -> FakeApiServer {
    let api = FakeApiServer::new();
    api.add_token("good", User::new("prometheus", &["monitoring"]));
    grant(
        &api,
        &[
            ("prometheus", "get nodes/metrics"),
            ("system:anonymous", "get nodes/healthz"),
        ],
    );
    api
}

#[tokio::test(start_paused = true)]
async fn token_and_access_reviews_are_cached_for_their_ttl() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    for (seconds, reviews, rights) in [(0, 1, 1), (119, 1, 1), (2, 2, 1), (178, 3, 1), (2, 3, 2)] {
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
        let counted = (
            asked(&api, "tokenreviews"),
            asked(&api, "subjectaccessreviews"),
        );
        assert_eq!(counted, (reviews, rights), "after {seconds} s more");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_with_one_token_share_one_review() {
    let api = api();
    let (auth, metrics) = gate(&api, settings());
    let asking: Vec<_> = (0..1000)
        .map(|_| {
            let auth = auth.clone();
            tokio::spawn(async move { with_token(&auth, "good").await })
        })
        .collect();
    for one in asking {
        assert_eq!(one.await.expect("no panic"), PROMETHEUS);
    }
    assert_eq!(asked(&api, "tokenreviews"), 1);
    assert_eq!(asked(&api, "subjectaccessreviews"), 1);
    let text = metrics.render().expect("text");
    for line in [
        "apiserver_delegated_authn_request_total{code=\"201\"} 1",
        "apiserver_delegated_authz_request_total{code=\"201\"} 1",
        "authentication_token_cache_fetch_total{status=\"ok\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains("good"), "a token is nowhere to be seen");
    assert!(!format!("{auth:?}").contains("good"), "not even here");
}

#[tokio::test(start_paused = true)]
async fn wrong_token_is_rejected_and_cached_for_ten_seconds() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    for (seconds, reviews) in [(0, 1), (9, 1), (2, 2)] {
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(with_token(&auth, "wrong").await, UNAUTHORIZED);
        assert_eq!(
            asked(&api, "tokenreviews"),
            reviews,
            "after {seconds} s more"
        );
    }
    api.add_token("wrong", User::new("prometheus", &[]));
    advance(Duration::from_secs(11)).await;
    assert!(with_token(&auth, "wrong").await.starts_with("prometheus "));
}

/// A token of a service account for an audience; empty for the API server's own.
pub(crate) async fn issue(api: &FakeApiServer, audiences: &[&str]) -> String {
    let request = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": { "audiences": audiences, "expirationSeconds": 600 },
    });
    let at = ObjectKey::namespaced("default", "robot");
    let main = &api.clients().main;
    let answer = main.post::<ServiceAccount, _>(at, "token", &request).await;
    let answer = answer.expect("issued");
    answer["status"]["token"]
        .as_str()
        .expect("a token")
        .to_owned()
}

/// Makes the service account that [`issue`] makes tokens of.
pub(crate) fn robot(api: &FakeApiServer) {
    api.create(&ServiceAccount {
        metadata: ObjectMeta {
            name: Some("robot".to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    });
}

#[tokio::test(start_paused = true)]
async fn token_for_another_audience_or_expired_is_rejected() {
    let api = api();
    robot(&api);
    let open = AuthSettings {
        authorization: Authorization::AlwaysAllow,
        ..settings()
    };
    let (auth, _) = gate(&api, open);
    let other = issue(&api, &["vault"]).await;
    assert_eq!(with_token(&auth, &other).await, UNAUTHORIZED);
    let own = issue(&api, &[]).await;
    let answer = with_token(&auth, &own).await;
    assert!(
        answer.starts_with("system:serviceaccount:default:robot "),
        "{answer}"
    );
    advance(Duration::from_secs(601)).await;
    assert_eq!(with_token(&auth, &own).await, UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn permissions_are_reviewed_in_order_and_one_is_enough() {
    let api = FakeApiServer::new();
    api.add_token("special", User::new("special", &[]));
    api.add_token("proxy", User::new("proxy", &[]));
    api.add_token("reader", User::new("reader", &[]));
    grant(
        &api,
        &[
            ("special", "get nodes/pods"),
            ("proxy", "get nodes/proxy"),
            ("reader", "get nodes/stats"),
        ],
    );
    let (auth, _) = gate(&api, settings());
    let get = async |token: &str, path: &str| {
        let header = format!("Bearer {token}");
        ask(&auth, request("GET", path, &[("authorization", &header)])).await
    };
    assert!(get("special", "/pods").await.starts_with("special "));
    assert!(get("proxy", "/pods").await.starts_with("proxy "));
    assert!(get("reader", "/stats/summary").await.starts_with("reader "));
    assert_eq!(
        get("reader", "/pods").await,
        "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    );
    assert_eq!(
        get("proxy", "/exec/ns/p/c").await,
        "Forbidden (user=proxy, verb=create, resource=nodes, subresource(s)=[proxy])\n"
    );
    let upstream = AuthSettings {
        access: AccessSettings {
            exec_needs_create: false,
        },
        ..settings()
    };
    let (auth, _) = gate(&api, upstream);
    let exec = request("GET", "/exec/ns/p/c", &[("authorization", "Bearer proxy")]);
    assert!(ask(&auth, exec).await.starts_with("proxy "));
}

#[tokio::test(start_paused = true)]
async fn permission_granted_later_takes_effect_after_30_seconds() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    grant(&api, &[]);
    let forbidden =
        "Forbidden (user=prometheus, verb=get, resource=nodes, subresource(s)=[metrics])\n";
    assert_eq!(with_token(&auth, "good").await, forbidden);
    grant(&api, &[("prometheus", "get nodes/metrics")]);
    advance(Duration::from_secs(29)).await;
    assert_eq!(with_token(&auth, "good").await, forbidden);
    advance(Duration::from_secs(2)).await;
    assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
}

#[tokio::test(start_paused = true)]
async fn unreachable_api_server_allows_only_cached_callers() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
    let outage = api.faults().outage();
    assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
    assert_eq!(with_token(&auth, "other").await, UNAUTHORIZED);
    let pods = request("GET", "/pods", &[("authorization", "Bearer good")]);
    assert_eq!(
        ask(&auth, pods).await,
        "Authorization error (user=prometheus, verb=get, resource=nodes, subresource=pods)"
    );
    api.faults().lift(outage);
    // a failed review is not cached
    api.add_token("other", User::new("prometheus", &["monitoring"]));
    assert_eq!(with_token(&auth, "other").await, PROMETHEUS);
}

#[tokio::test(start_paused = true)]
async fn transient_error_is_tried_five_times_and_a_hang_times_out() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    let failing = api
        .faults()
        .error(On::path("**/tokenreviews").times(4), 500);
    assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
    assert_eq!(asked(&api, "tokenreviews"), 5);
    api.faults().lift(failing);
    api.faults().error(On::path("**/tokenreviews"), 403);
    assert_eq!(with_token(&auth, "second").await, UNAUTHORIZED);
    assert_eq!(asked(&api, "tokenreviews"), 6);
    api.faults().clear();
    api.faults().hang(On::path("**/tokenreviews"));
    let begun = tokio::time::Instant::now();
    assert_eq!(with_token(&auth, "third").await, UNAUTHORIZED);
    assert!(
        begun.elapsed() <= Duration::from_secs(31),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn anonymous_caller_needs_permission_and_no_wrong_token() {
    let api = api();
    let healthz = || request("GET", "/healthz", &[]);
    let (closed, _) = gate(&api, settings());
    assert_eq!(ask(&closed, healthz()).await, UNAUTHORIZED);
    let open = AuthSettings {
        anonymous: true,
        ..settings()
    };
    let (open, _) = gate(&api, open);
    let anonymous = r#"system:anonymous ["system:unauthenticated"]"#;
    assert_eq!(ask(&open, healthz()).await, anonymous);
    let wrong = request("GET", "/healthz", &[("authorization", "Bearer wrong")]);
    assert_eq!(ask(&open, wrong).await, UNAUTHORIZED);
    assert_eq!(
        ask(&open, request("GET", "/pods", &[])).await,
        "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    );
}

#[tokio::test(start_paused = true)]
async fn accepted_token_is_removed_and_other_headers_are_kept() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    let mut by_header = request(
        "GET",
        "/metrics",
        &[("authorization", "Bearer good"), ("accept", "text/plain")],
    );
    assert!(auth.authorize(&mut by_header).await.is_ok());
    let left: Vec<_> = by_header
        .headers()
        .keys()
        .map(|name| name.as_str())
        .collect();
    assert_eq!(left, ["accept"]);
    let protocol = format!(
        "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{}",
        URL_SAFE_NO_PAD.encode("good")
    );
    let mut by_protocol = request(
        "GET",
        "/metrics",
        &[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", &protocol),
        ],
    );
    assert!(auth.authorize(&mut by_protocol).await.is_ok());
    let left = by_protocol.headers().get("sec-websocket-protocol");
    assert_eq!(
        left.and_then(|it| it.to_str().ok()),
        Some("v4.channel.k8s.io")
    );
    let mut refused = request("GET", "/pods", &[("authorization", "Bearer wrong")]);
    assert!(auth.authorize(&mut refused).await.is_err());
    assert!(refused.headers().contains_key("authorization"));
}

#[tokio::test(start_paused = true)]
async fn standalone_node_allows_callers_only_with_always_allow() {
    let gate = |settings| {
        let metrics = Metrics::new().expect("no two families share a name");
        Auth::new(settings, None, metrics.access.clone(), TestClock::new())
    };
    let webhook = gate(AuthSettings {
        anonymous: true,
        ..settings()
    });
    assert_eq!(
        ask(&webhook, request("GET", "/healthz", &[])).await,
        "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[healthz proxy])\n"
    );
    let allowing = gate(AuthSettings {
        authorization: Authorization::AlwaysAllow,
        ..settings()
    });
    assert_eq!(with_token(&allowing, "good").await, UNAUTHORIZED);
    let open = gate(AuthSettings {
        anonymous: true,
        authorization: Authorization::AlwaysAllow,
        ..settings()
    });
    let answer = ask(&open, request("GET", "/healthz", &[])).await;
    assert!(answer.starts_with("system:anonymous "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn unknown_tokens_are_rate_limited_and_known_ones_are_not() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
    let flood: Vec<_> = (0..1000)
        .map(|number| {
            let auth = auth.clone();
            tokio::spawn(async move { with_token(&auth, &format!("invented-{number}")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let begun = tokio::time::Instant::now();
    assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let mut refused = 0;
    for one in flood {
        match one.await.expect("no panic").as_str() {
            UNAUTHORIZED => refused += 1,
            other => assert_eq!(other, BUSY),
        }
    }
    // the limit of one network
    assert_eq!(refused, 16);
    assert_eq!(asked(&api, "tokenreviews"), 17);
}

#[tokio::test(start_paused = true)]
async fn recent_token_is_reviewed_while_its_network_is_at_the_limit() {
    let api = api();
    let (auth, _) = gate(&api, settings());
    assert_eq!(with_token(&auth, "good").await, PROMETHEUS);
    // its review is no longer cached
    advance(Duration::from_secs(121)).await;
    api.faults().hang(On::path("**/tokenreviews"));
    let asking = |token: String| {
        let auth = auth.clone();
        tokio::spawn(async move { with_token(&auth, &token).await })
    };
    let mut under_way: Vec<_> = (0..64).map(|it| asking(format!("invented-{it}"))).collect();
    let reviews = async |expected: usize| {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(asked(&api, "tokenreviews"), expected);
    };
    reviews(1 + 16).await;
    assert_eq!(with_token(&auth, "new").await, BUSY);
    under_way.push(asking("good".to_owned()));
    reviews(1 + 16 + 1).await;
    for one in under_way {
        one.abort();
    }
}
