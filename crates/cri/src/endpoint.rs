//! Socket path of `containerRuntimeEndpoint` and `imageServiceEndpoint`.

use std::path::PathBuf;

/// Invalid endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The endpoint is empty.
    #[error(
        "the runtime endpoint is empty; set a Unix socket such as unix:///run/containerd/containerd.sock"
    )]
    Empty,
    /// Only Unix sockets are supported.
    #[error(
        "runtime endpoint {endpoint:?}: scheme {scheme:?} is not supported, use unix:// and an absolute path"
    )]
    UnsupportedScheme {
        /// As configured.
        endpoint: String,
        /// Text before `://` or `:`.
        scheme: String,
    },
    /// `unix://host/path` or a relative path: upstream's `unix://` needs three slashes.
    #[error(
        "runtime endpoint {endpoint:?}: the socket path must be absolute, such as unix:///run/containerd/containerd.sock"
    )]
    NotAbsolute {
        /// As configured.
        endpoint: String,
    },
}

/// The socket path of `unix:///path`, `unix:/path` or a bare absolute path.
pub(crate) fn socket_path(endpoint: &str) -> Result<PathBuf, EndpointError> {
    if endpoint.is_empty() {
        return Err(EndpointError::Empty);
    }
    let path = match endpoint.split_once(':') {
        Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        Some((scheme, _)) if !scheme.contains('/') => {
            return Err(EndpointError::UnsupportedScheme {
                endpoint: endpoint.to_owned(),
                scheme: scheme.to_owned(),
            });
        }
        _ => endpoint,
    };
    if !path.starts_with('/') {
        return Err(EndpointError::NotAbsolute {
            endpoint: endpoint.to_owned(),
        });
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::socket_path;

    #[track_caller]
    fn check(endpoint: &str, expected: &str) {
        let line = match socket_path(endpoint) {
            Ok(path) => format!("path {}", path.display()),
            Err(error) => format!("error {error}"),
        };
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn only_absolute_unix_socket_endpoints_are_accepted() {
        check("unix:///run/c.sock", "path /run/c.sock");
        check("unix:/run/c.sock", "path /run/c.sock");
        check("/run/c.sock", "path /run/c.sock");
        check("/run/odd:name.sock", "path /run/odd:name.sock");
        check("", "error the runtime endpoint is empty");
        check(
            "tcp://127.0.0.1:1",
            "error runtime endpoint \"tcp://127.0.0.1:1\": scheme \"tcp\"",
        );
        check(
            "npipe:////./pipe/c",
            "error runtime endpoint \"npipe:////./pipe/c\": scheme",
        );
        check(
            "unix://run/c.sock",
            "error runtime endpoint \"unix://run/c.sock\": the socket path",
        );
        check(
            "run/c.sock",
            "error runtime endpoint \"run/c.sock\": the socket path",
        );
    }
}
