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
}

impl Default for CollectorAddress {
    fn default() -> Self {
        Self::Tcp("localhost:4317".to_owned())
    }
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectorAddressError {
    /// Another scheme than gRPC's.
    #[error("has an unsupported scheme: {0}.  Options are none, dns, unix, or unix-abstract")]
    Scheme(String),
    /// Nothing to connect to.
    #[error("names no host or socket, write for example localhost:4317")]
    Nothing,
}

impl FromStr for CollectorAddress {
    type Err = CollectorAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = split(text);
        let some = |rest: &str| match rest.is_empty() {
            true => Err(CollectorAddressError::Nothing),
            false => Ok(rest.to_owned()),
        };
        match scheme {
            "unix" => Ok(Self::Unix(
                some(rest.strip_prefix("//").unwrap_or(rest))?.into(),
            )),
            "unix-abstract" => some(rest.strip_prefix("//").unwrap_or(rest)).map(Self::Abstract),
            "dns" => {
                // a name server may stand between the second and the third slash
                let host = match rest.strip_prefix("//") {
                    Some(rest) => rest.split_once('/').map_or("", |(_, host)| host),
                    None => rest,
                };
                some(host).map(|host| Self::Tcp(with_port(&host)))
            }
            other => Err(CollectorAddressError::Scheme(other.to_owned())),
        }
    }
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
    use super::CollectorAddress;

    fn check(text: &str, expected: &str) {
        let read = match text.parse::<CollectorAddress>() {
            Ok(CollectorAddress::Tcp(host)) => format!("tcp {host}"),
            Ok(CollectorAddress::Unix(path)) => format!("unix {}", path.display()),
            Ok(CollectorAddress::Abstract(name)) => format!("abstract {name}"),
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
    fn other_schemes_and_empty_addresses_are_refused() {
        let http =
            "has an unsupported scheme: http.  Options are none, dns, unix, or unix-abstract";
        check("http://localhost:4317", http);
        let nothing = "names no host or socket, write for example localhost:4317";
        check("", nothing);
        check("dns://localhost:4317", nothing);
        check("unix:", nothing);
    }
}
