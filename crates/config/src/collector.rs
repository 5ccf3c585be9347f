//! Address of the OpenTelemetry collector, in gRPC syntax.

use std::path::PathBuf;
use std::str::FromStr;

/// Default port in gRPC.
const DEFAULT_PORT: u16 = 443;

/// `tracing.endpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorAddress {
    /// `host:port`.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
    /// A Unix socket without a file.
    Abstract(String),
    /// Valid, but without a host or path; in `dns://host:4317` the host is the name server.
    Unusable,
}

impl Default for CollectorAddress {
    fn default() -> Self {
        Self::Tcp("localhost:4317".to_owned())
    }
}

/// The scheme is unknown to gRPC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has an unsupported scheme: {0}.  Options are none, dns, unix, or unix-abstract")] // lang: keep
pub struct UnsupportedScheme(String);

impl FromStr for CollectorAddress {
    type Err = UnsupportedScheme;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = split(text);
        let named = match rest.strip_prefix("//") {
            // dns://<name server>/<host>
            Some(rest) if scheme == "dns" => rest.split_once('/').map_or("", |(_, host)| host),
            Some(rest) => rest,
            None => rest,
        };
        match scheme {
            "dns" | "unix" | "unix-abstract" if named.is_empty() => Ok(Self::Unusable),
            "dns" => Ok(Self::Tcp(with_port(named))),
            "unix" => Ok(Self::Unix(named.into())),
            "unix-abstract" => Ok(Self::Abstract(named.to_owned())),
            other => Err(UnsupportedScheme(other.to_owned())),
        }
    }
}

/// Returns a warning for an endpoint that is valid but unusable.
pub(crate) fn unusable_endpoint(endpoint: &str) -> Option<String> {
    let unusable = endpoint.parse() == Ok(CollectorAddress::Unusable);
    unusable.then(|| {
        let host = endpoint.strip_prefix("dns://");
        let host = host.filter(|it| !it.is_empty() && !it.contains('/'));
        let host = host.unwrap_or("localhost:4317");
        format!("{endpoint:?} has no host or socket, no traces are sent; use {host}")
    })
}

/// Splits an address into scheme (default `dns`) and rest.
fn split(text: &str) -> (&str, &str) {
    match text.split_once(':') {
        Some((scheme @ ("dns" | "unix" | "unix-abstract"), rest)) => (scheme, rest),
        Some((scheme, rest)) if rest.starts_with("//") => (scheme, rest),
        _ => ("dns", text),
    }
}

fn with_port(host: &str) -> String {
    let after_ipv6 = host.rsplit(']').next().unwrap_or(host);
    match after_ipv6.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:{DEFAULT_PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{CollectorAddress, unusable_endpoint};

    fn check(text: &str, expected: &str) {
        let read = match text.parse::<CollectorAddress>() {
            Ok(CollectorAddress::Tcp(host)) => format!("tcp {host}"),
            Ok(CollectorAddress::Unix(path)) => format!("unix {}", path.display()),
            Ok(CollectorAddress::Abstract(name)) => format!("abstract {name}"),
            Ok(CollectorAddress::Unusable) => unusable_endpoint(text).expect("a warning"),
            Err(error) => error.to_string(),
        };
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn grpc_address_is_parsed() {
        check("localhost:4317", "tcp localhost:4317");
        check("collector.example", "tcp collector.example:443");
        check("[::1]:4317", "tcp [::1]:4317");
        check("[::1]", "tcp [::1]:443");
        check("dns:///collector:4317", "tcp collector:4317");
        check("dns://10.0.0.10/collector:4317", "tcp collector:4317");
        check("dns:collector:4317", "tcp collector:4317");
        check("unix:///run/otel.sock", "unix /run/otel.sock");
        check("unix:/run/otel.sock", "unix /run/otel.sock");
        check("unix-abstract:otel", "abstract otel");
    }

    #[test]
    fn unsupported_scheme_is_rejected() {
        let http =
            "has an unsupported scheme: http.  Options are none, dns, unix, or unix-abstract"; // lang: keep
        check("http://localhost:4317", http);
    }

    #[test]
    fn endpoint_without_host_warns_with_suggestion() {
        let unusable = |text: &str, suggestion: &str| {
            let warning = "has no host or socket, no traces are sent; use";
            check(text, &format!("{text:?} {warning} {suggestion}"));
        };
        unusable("dns://google.com:4317", "google.com:4317");
        unusable("dns://10.0.0.10/", "localhost:4317");
        unusable("", "localhost:4317");
        unusable("unix:", "localhost:4317");
        assert_eq!(unusable_endpoint("localhost:4317"), None);
    }
}
