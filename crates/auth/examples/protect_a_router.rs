//! Sends requests to a router behind [`require_auth`]. `StaticReviews` decides about tokens and
//! permissions in place of an API server (`Reviews::from_client`).
//!
//! `cargo run -p windlass-auth --example protect_a_router`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use axum::{Extension, Router};
use http::Request;
use tower::ServiceExt;
use windlass_auth::access::AccessSettings;
use windlass_auth::{
    AccessReviewResult, AccessReviews, Auth, AuthSettings, Authorization, Reviews,
    TokenReviewResult, TokenReviews, require_auth,
};
use windlass_client::ApiResult;
use windlass_mailboxes::SystemClock;
use windlass_metrics::Metrics;
use windlass_types::{NodePermission, UserInfo};

#[derive(Debug)]
struct StaticReviews;

#[async_trait]
impl TokenReviews for StaticReviews {
    async fn review(&self, token: &str) -> ApiResult<TokenReviewResult> {
        println!("  TokenReview");
        Ok(match token {
            "prometheus" | "intern" => TokenReviewResult::Authenticated(UserInfo {
                name: token.to_owned(),
                ..UserInfo::default()
            }),
            _ => TokenReviewResult::Rejected(None),
        })
    }
}

#[async_trait]
impl AccessReviews for StaticReviews {
    async fn review(
        &self,
        user: &UserInfo,
        right: NodePermission,
        _: &str,
    ) -> ApiResult<AccessReviewResult> {
        println!("  SubjectAccessReview: may {} {right}?", user.name);
        Ok(AccessReviewResult {
            allowed: user.name == "prometheus" && right.subresource == "metrics",
            denied: false,
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let settings = AuthSettings {
        node_name: "n1".to_owned(),
        anonymous: false,
        token_ttl: Some(Duration::from_secs(120)),
        authorization: Authorization::Webhook {
            allowed: Duration::from_secs(300),
            refused: Duration::from_secs(30),
        },
        access: AccessSettings::default(),
    };
    let static_reviews = Arc::new(StaticReviews);
    let reviews = Reviews {
        tokens: static_reviews.clone(),
        access: static_reviews,
    };
    let metrics = Metrics::new()?.access;
    let auth = Auth::new(settings, Some(reviews), metrics, Arc::new(SystemClock));
    let hello =
        |Extension(user): Extension<UserInfo>| async move { format!("hello {}", user.name) };
    let service = require_auth(Router::new().fallback(get(hello)), auth);

    let requests = [
        ("/metrics", "prometheus"),
        ("/metrics", "prometheus"), // both reviews are cached
        ("/metrics", "intern"),
        ("/pods", "prometheus"),
        ("/pods/../metrics", "prometheus"),
        ("/metrics", "guessed"),
    ];
    for (path, token) in requests {
        println!("GET {path} with the token {token:?}");
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        let response = service
            .clone()
            .oneshot(request.body(Body::empty())?)
            .await?;
        let status = response.status();
        let text = to_bytes(response.into_body(), 1 << 16).await?;
        println!("  {status}: {}", String::from_utf8_lossy(&text).trim());
    }
    Ok(())
}
