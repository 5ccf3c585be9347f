//! The API server behind the fence of one agent run.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower::{BoxError, Service};
use windlass_fake_api::{ApiBody, InProcess};

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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fence = self.fence.clone();
        let call = self.server.call(request);
        Box::pin(async move { fence.pass(call).await })
    }
}
