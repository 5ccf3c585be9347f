//! Where an HTTP probe or hook goes.

use std::fmt;

/// Scheme of an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// TLS; the certificate is not verified, as upstream decides too.
    Https,
}

/// One GET request to a container.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// Scheme.
    pub scheme: Scheme,
    /// Host that is dialled: an address or a name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, begins with `/`.
    pub path: String,
    /// All headers but `Host` where it is the default, in order.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for HttpTarget {
    /// Without the values of headers, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpTarget")
            .field("scheme", &self.scheme)
            .field("host", &self.host)
            .field("port", &self.port)
            .field("path", &self.path)
            .field("headers", &names)
            .finish()
    }
}
