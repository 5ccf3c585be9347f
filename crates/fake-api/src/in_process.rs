//! The server as an HTTP service in the same process.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use hyper::body::Body;
use tower::{BoxError, Service};

use crate::http::{ApiBody, handle};
use crate::identity::User;
use crate::server::Shared;

/// An HTTP service without sockets: it works on paused time, and deterministically.
#[derive(Clone, Debug)]
pub struct InProcess {
    shared: Arc<Shared>,
    user: User,
}

impl InProcess {
    pub(crate) fn new(shared: Arc<Shared>, user: User) -> Self {
        Self { shared, user }
    }
}

impl<B> Service<Request<B>> for InProcess
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
        Box::pin(handle(
            self.shared.clone(),
            Some(self.user.clone()),
            request,
        ))
    }
}
