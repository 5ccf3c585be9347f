//! Where traces go: the address of an OpenTelemetry collector, as gRPC writes addresses.

use std::path::PathBuf;
use std::str::FromStr;

/// Port of an address that names none, as gRPC has it.
const PORT: u16 = 443;

/// `tracing.endpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorAddress {
    /// `host:port`.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
    /// A Unix socket without a file.
    Abstract(String),
    /// Accepted as upstream does, though it names nothing to connect to: in `dns://host:4317` the
    /// host is in the place of a name server.
    Nowhere,
}

impl Default for CollectorAddress {
    fn default() -> Self {
        Self::Tcp("localhost:4317".to_owned())
    }
}

/// A text is no address: it has another scheme than gRPC's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has an unsupported scheme: {0}.  Options are none, dns, unix, or unix-abstract")]
pub struct UnsupportedScheme(String);

impl FromStr for CollectorAddress {
    type Err = UnsupportedScheme;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = split(text);
        let named = match rest.strip_prefix("//") {
            // a name server may stand between the second and the third slash
            Some(rest) if scheme == "dns" => rest.split_once('/').map_or("", |(_, host)| host),
            Some(rest) => rest,
            None => rest,
        };
        match scheme {
            "dns" | "unix" | "unix-abstract" if named.is_empty() => Ok(Self::Nowhere),
            "dns" => Ok(Self::Tcp(with_port(named))),
            "unix" => Ok(Self::Unix(named.into())),
            "unix-abstract" => Ok(Self::Abstract(named.to_owned())),
            other => Err(UnsupportedScheme(other.to_owned())),
        }
    }
}

/// What is to be said of an endpoint that is accepted and leads nowhere.
pub(crate) fn leads_nowhere(endpoint: &str) -> Option<String> {
    let nowhere = endpoint.parse() == Ok(CollectorAddress::Nowhere);
    nowhere.then(|| {
        let meant = endpoint.strip_prefix("dns://");
        let meant = meant.filter(|it| !it.is_empty() && !it.contains('/'));
        let meant = meant.unwrap_or("localhost:4317");
        format!("{endpoint:?} names no host or socket, so no traces are sent: write {meant}")
    })
}

/// Scheme and rest; without a scheme it is `dns`.
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
        false => format!("{host}:{PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{CollectorAddress, leads_nowhere};

    fn check(text: &str, expected: &str) {
        let read = match text.parse::<CollectorAddress>() {
            Ok(CollectorAddress::Tcp(host)) => format!("tcp {host}"),
            Ok(CollectorAddress::Unix(path)) => format!("unix {}", path.display()),
            Ok(CollectorAddress::Abstract(name)) => format!("abstract {name}"),
            Ok(CollectorAddress::Nowhere) => leads_nowhere(text).expect("a warning"),
            Err(error) => error.to_string(),
        };
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn addresses_are_read_as_grpc_writes_them() {
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
    fn other_schemes_are_refused() {
        let http =
            "has an unsupported scheme: http.  Options are none, dns, unix, or unix-abstract";
        check("http://localhost:4317", http);
    }

    #[test]
    fn what_names_no_host_or_socket_leads_nowhere_and_is_told_how_to_be_mended() {
        let nowhere = |text: &str, mended: &str| {
            let words = "names no host or socket, so no traces are sent: write";
            check(text, &format!("{text:?} {words} {mended}"));
        };
        nowhere("dns://google.com:4317", "google.com:4317");
        nowhere("dns://10.0.0.10/", "localhost:4317");
        nowhere("", "localhost:4317");
        nowhere("unix:", "localhost:4317");
        assert_eq!(leads_nowhere("localhost:4317"), None);
    }
}
