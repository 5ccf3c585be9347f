//! Token and access reviews, by default through the API server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use windlass_client::{ApiClient, ApiResult};
use windlass_types::{NodePermission, UserInfo};

/// The result of a TokenReview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenReviewResult {
    /// The user of the token.
    Authenticated(UserInfo),
    /// The token is invalid, with the error of the API server if any. The text may be logged.
    Rejected(Option<String>),
}

/// The result of a SubjectAccessReview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessReviewResult {
    /// The user has the permission.
    pub allowed: bool,
    /// The permission is explicitly denied.
    pub denied: bool,
}

/// Reviews tokens.
#[async_trait]
pub trait TokenReviews: fmt::Debug + Send + Sync + 'static {
    /// Sends one review.
    async fn review(&self, token: &str) -> ApiResult<TokenReviewResult>;
}

/// Reviews permissions.
#[async_trait]
pub trait AccessReviews: fmt::Debug + Send + Sync + 'static {
    /// Sends one review for the node of this name.
    async fn review(
        &self,
        user: &UserInfo,
        permission: NodePermission,
        node: &str,
    ) -> ApiResult<AccessReviewResult>;
}

/// The source of reviews.
#[derive(Clone, Debug)]
pub struct Reviews {
    /// For tokens.
    pub tokens: Arc<dyn TokenReviews>,
    /// For permissions.
    pub access: Arc<dyn AccessReviews>,
}

impl Reviews {
    /// Uses the API server of `client`.
    pub fn from_client(client: &ApiClient) -> Self {
        let api = Arc::new(ApiReviews(client.clone()));
        Self {
            tokens: api.clone(),
            access: api,
        }
    }
}

#[derive(Debug)]
struct ApiReviews(ApiClient);

#[async_trait]
impl TokenReviews for ApiReviews {
    async fn review(&self, token: &str) -> ApiResult<TokenReviewResult> {
        // no audiences: the server tries its own, as for the Go kubelet
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: None,
                token: token.to_owned(),
            },
            ..TokenReview::default()
        };
        let status = self.0.create(None, &review).await?.status;
        let status = status.unwrap_or_default();
        let user = status.user.unwrap_or_default();
        let name = user.username.filter(|name| !name.is_empty());
        Ok(match name {
            Some(name) if status.authenticated == Some(true) => {
                TokenReviewResult::Authenticated(UserInfo {
                    name,
                    uid: user.uid.unwrap_or_default(),
                    groups: user.groups.unwrap_or_default(),
                    extra: user.extra.unwrap_or_default(),
                })
            }
            _ => TokenReviewResult::Rejected(status.error.filter(|error| !error.is_empty())),
        })
    }
}

#[async_trait]
impl AccessReviews for ApiReviews {
    async fn review(
        &self,
        user: &UserInfo,
        permission: NodePermission,
        node: &str,
    ) -> ApiResult<AccessReviewResult> {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let attributes = ResourceAttributes {
            name: filled(node),
            resource: Some("nodes".to_owned()),
            subresource: filled(permission.subresource),
            verb: filled(permission.verb),
            version: Some("v1".to_owned()),
            ..ResourceAttributes::default()
        };
        let extra: BTreeMap<_, _> = user.extra.clone();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                extra: (!extra.is_empty()).then_some(extra),
                groups: Some(user.groups.clone()),
                resource_attributes: Some(attributes),
                uid: filled(&user.uid),
                user: Some(user.name.clone()),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let status = self.0.create(None, &review).await?.status;
        let status = status.unwrap_or_default();
        Ok(AccessReviewResult {
            allowed: status.allowed,
            denied: status.denied == Some(true),
        })
    }
}
