//! The API server behind the fence of one agent run.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body::Body;
use tower::{BoxError, Service};
use windlass_fake_api::{ApiBody, InProcess};
use windlass_types::mutation::{Mutation, mutated};

use super::fence::Fence;

/// An HTTP service behind the fence.
#[derive(Clone, Debug)]
pub(super) struct FencedApi {
    pub(super) server: InProcess,
    pub(super) fence: Fence,
}

impl<B> Service<Request<B>> for FencedApi
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<ApiBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ApiBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if mutated(Mutation::StaleList) {
            accept_any_version(&mut request);
        }
        let fence = self.fence.clone();
        let call = self.server.call(request);
        Box::pin(async move { fence.pass(call).await })
    }
}

/// Lets a list, or a watch that begins with one, start at any version.
fn accept_any_version<B>(request: &mut Request<B>) {
    let query = request.uri().query().unwrap_or_default();
    let is_list = request.method() == Method::GET
        && (query.contains("fieldSelector") || query.contains("sendInitialEvents"))
        && !query.contains("resourceVersion=");
    let uri = format!("{}?{query}&resourceVersion=0", request.uri().path());
    if let (true, Ok(uri)) = (is_list, uri.parse()) {
        *request.uri_mut() = uri;
    }
}
