//! Responses of real API servers and load balancers that cannot serve a request: status, headers
//! and body.

/// A response in place of the server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawResponse {
    /// HTTP status code.
    pub status: u16,
    /// Names and values of headers.
    pub headers: Vec<(&'static str, &'static str)>,
    /// Body.
    pub body: &'static str,
}

const JSON: (&str, &str) = ("content-type", "application/json");
const HTML: (&str, &str) = ("content-type", "text/html");

impl RawResponse {
    /// Priority and fairness rejects the request: its queues are full. Not a `Status` object.
    pub fn too_many_requests() -> Self {
        Self {
            status: 429,
            headers: vec![
                ("content-type", "text/plain; charset=utf-8"),
                ("x-content-type-options", "nosniff"),
                ("retry-after", "1"),
                (
                    "x-kubernetes-pf-flowschema-uid",
                    "2c3d5c79-4d9c-4b1c-9e0f-0d7d3b8a4f10",
                ),
                (
                    "x-kubernetes-pf-prioritylevel-uid",
                    "6f1f6c0e-7a54-4d7b-8a3c-1d5c3e9b2a77",
                ),
            ],
            body: "Too many requests, please try again later.\n",
        }
    }

    /// The storage is being initialized: the watch cache of the resource is not filled yet.
    pub fn storage_initializing() -> Self {
        Self {
            status: 429,
            headers: vec![JSON, ("retry-after", "1")],
            body: r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#,
        }
    }

    /// The etcd leader changed during the request.
    pub fn etcd_leader_changed() -> Self {
        Self {
            status: 500,
            headers: vec![JSON],
            body: r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"etcdserver: leader changed","code":500}"#,
        }
    }

    /// etcd timed out.
    pub fn etcd_timeout() -> Self {
        Self {
            status: 500,
            headers: vec![JSON],
            body: r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"etcdserver: request timed out","code":500}"#,
        }
    }

    /// The request timed out at the server.
    pub fn server_timeout() -> Self {
        Self {
            status: 504,
            headers: vec![JSON],
            body: r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504}"#,
        }
    }

    /// The server has not seen a version that another one wrote.
    pub fn version_too_large() -> Self {
        Self {
            status: 504,
            headers: vec![JSON, ("retry-after", "1")],
            body: r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 4096, current: 12","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        }
    }

    /// A load balancer has no server behind it.
    pub fn bad_gateway() -> Self {
        Self {
            status: 502,
            headers: vec![HTML],
            body: "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
        }
    }

    /// A load balancer whose servers are all down.
    pub fn no_server_available() -> Self {
        Self {
            status: 503,
            headers: vec![HTML, ("cache-control", "no-cache")],
            body: "<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n</body></html>\n",
        }
    }

    /// A proxy responds with 200 in place of the server.
    pub fn login_page() -> Self {
        Self {
            status: 200,
            headers: vec![HTML],
            body: "<html><body><form>Log in to the network</form></body></html>\n",
        }
    }
}
