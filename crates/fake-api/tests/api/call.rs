//! Plain in-process HTTP calls.

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::{BoxError, ServiceExt};
use windlass_fake_api::{ApiBody, FakeApiServer, InProcess, User};

pub(crate) struct Caller {
    service: InProcess,
    token: Option<String>,
}

impl Caller {
    pub(crate) fn new(server: &FakeApiServer, user: User) -> Self {
        Self {
            service: server.service(user),
            token: None,
        }
    }

    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<Value>,
    ) -> Result<Response<ApiBody>, BoxError> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = request
            .header("content-type", content_type)
            .body(Full::new(Bytes::from(body)))?;
        self.service.clone().oneshot(request).await
    }

    async fn json(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let response = self.send(method, path, kind, body).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.json(Method::GET, path, "", None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.json(Method::POST, path, "application/json", Some(body))
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.json(Method::PUT, path, "application/json", Some(body))
            .await
    }

    pub(crate) async fn patch(&self, path: &str, content_type: &str, body: Value) -> (u16, Value) {
        self.json(Method::PATCH, path, content_type, Some(body))
            .await
    }

    pub(crate) async fn delete(&self, path: &str, body: Value) -> (u16, Value) {
        self.json(Method::DELETE, path, "application/json", Some(body))
            .await
    }
}

/// The events of one watch.
pub(crate) struct Events {
    body: ApiBody,
    buffer: BytesMut,
}

impl Events {
    pub(crate) async fn begin(api: &Caller, path: &str) -> Self {
        let response = api.send(Method::GET, path, "", None).await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            buffer: BytesMut::new(),
        }
    }

    /// The next event, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// The next event as `TYPE name`, or its substitute.
    pub(crate) async fn next_line(&mut self) -> String {
        match self.next().await {
            None => "end".to_owned(),
            Some(event) => {
                let object = &event["object"];
                let name = object["metadata"]["name"].as_str();
                let code = object["code"].as_u64().map(|code| code.to_string());
                let name = name.map(str::to_owned).or(code).unwrap_or_default();
                let kind = event["type"].as_str().unwrap();
                format!("{kind} {name}").trim_end().to_owned()
            }
        }
    }
}
