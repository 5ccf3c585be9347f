//! The target and request of an HTTP probe or hook.
//!
//! Mirrors upstream `NewRequestForHTTPGetAction` with the observable behavior of Go's `net/url` and
//! `net/http`.

use std::fmt;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_types::corev1::{Container, HTTPGetAction, HTTPHeader};

mod url;

/// Kubernetes minor version in the user agent.
const VERSION: &str = "1.36";

/// Maximum redirects of a request (Go's limit).
pub const MAX_REDIRECTS: usize = 10;

/// Headers that Go sets itself or omits.
const EXCLUDED: [&str; 5] = [
    "Host",
    "User-Agent",
    "Content-Length",
    "Transfer-Encoding",
    "Trailer",
];

windlass_types::text_enum! {
    /// Scheme of an HTTP request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Scheme {
        /// Plain.
        Http = "http",
        /// TLS without certificate verification, as upstream.
        Https = "https",
    }
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A probe.
    Probe,
    /// A lifecycle hook.
    Hook,
}

impl Purpose {
    /// Returns the user agent (upstream `userAgent`).
    pub fn user_agent(self) -> String {
        match self {
            Self::Probe => format!("kube-probe/{VERSION}"),
            Self::Hook => format!("kube-lifecycle/{VERSION}"),
        }
    }
}

/// One GET request to a container.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// Scheme.
    pub scheme: Scheme,
    /// Host to connect to: an address without brackets, or a name.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query; starts with `/`.
    pub path: String,
    /// Headers in order, names in Go's canonical form; without a default `Host`.
    pub headers: Vec<(String, String)>,
}

/// Target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// The same host; follow it.
    Follow(HttpTarget),
    /// Another host; not followed.
    OtherHost(String),
}

impl HttpTarget {
    /// Creates the target of an action. `default_host` is the pod's address.
    ///
    /// # Errors
    /// An unknown port or an invalid host, with upstream's message.
    pub fn new(
        action: &HTTPGetAction,
        container: &Container,
        default_host: Option<IpAddr>,
        purpose: Purpose,
    ) -> Result<Self, String> {
        let scheme = match action.scheme.as_deref().map(str::to_ascii_lowercase) {
            None => Scheme::Http,
            Some(name) => scheme_named(&name)?,
        };
        let port = container_port(&action.port, container)?;
        let host = host_or(action.host.as_deref(), default_host)?;
        if !url::is_host(&host) {
            return Err(format!("invalid host name {host:?}"));
        }
        Ok(Self {
            scheme,
            host,
            port,
            path: url::request_path(action.path.as_deref().unwrap_or_default())?,
            headers: headers(action.http_headers.as_deref().unwrap_or_default(), purpose),
        })
    }

    /// Returns host and port as in a URL.
    pub fn authority(&self) -> String {
        join_host_port(&self.host, self.port)
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        format!(
            "{}://{}{}",
            self.scheme.as_str(),
            self.authority(),
            self.path
        )
    }

    /// Returns the request without TLS and credentials, for the retry of a hook over plain HTTP.
    pub fn plain(&self) -> Self {
        let mut plain = self.clone();
        plain.scheme = Scheme::Http;
        plain.headers.retain(|(name, _)| name != "Authorization");
        plain
    }

    /// Returns the bytes of the request, with `Connection: close`.
    ///
    /// # Errors
    /// An invalid header name or value, with Go's message. This prevents header injection.
    pub fn request(&self) -> Result<Vec<u8>, String> {
        let first = |wanted: &str| {
            let mut all = self.headers.iter();
            let found = all.find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.trim_matches([' ', '\t']))
        };
        if let Some((name, _)) = self.headers.iter().find(|(name, _)| !is_token(name)) {
            return Err(format!("net/http: invalid header field name {name:?}"));
        }
        if let Some((name, _)) = self.headers.iter().find(|(_, value)| !is_value(value)) {
            return Err(format!("net/http: invalid header field value for {name:?}"));
        }
        let authority = self.authority();
        let host = first("Host").filter(|host| !host.is_empty());
        let mut text = String::with_capacity(256);
        let line = |text: &mut String, name: &str, value: &str| {
            text.extend([name, ": ", value, "\r\n"]);
        };
        text.extend(["GET ", &self.path, " HTTP/1.1\r\n"]);
        line(&mut text, "Host", host.unwrap_or(&authority));
        if let Some(agent) = first("User-Agent").filter(|agent| !agent.is_empty()) {
            line(&mut text, "User-Agent", agent);
        }
        for (name, value) in &self.headers {
            if !EXCLUDED.contains(&name.as_str()) && name != "Connection" {
                line(&mut text, name, value.trim_matches([' ', '\t']));
            }
        }
        text.push_str("Connection: close\r\n\r\n");
        Ok(text.into_bytes())
    }

    /// Returns the target of a redirect to `location` (upstream `RedirectChecker`, Go's
    /// `Client.do`).
    ///
    /// # Errors
    /// An invalid location, with Go's message.
    pub fn redirected(&self, location: &str) -> Result<Redirect, String> {
        let failed = |why: String| format!("failed to parse Location header {location:?}: {why}");
        let to = url::resolve(&self.path, location).map_err(failed)?;
        let scheme = match &to.scheme {
            None => self.scheme,
            Some(name) => match scheme_named(name) {
                Ok(scheme) => scheme,
                Err(_) if to.host.as_ref().is_some_and(|host| *host != self.host) => {
                    return Ok(Redirect::OtherHost(to.host.unwrap_or_default()));
                }
                Err(why) => return Err(why),
            },
        };
        let absolute = to.scheme.is_some();
        let (host, port) = match to.host {
            None => (self.host.clone(), self.port),
            Some(host) => {
                let default = match scheme {
                    Scheme::Http => 80,
                    Scheme::Https => 443,
                };
                (host, to.port.unwrap_or(default))
            }
        };
        if host != self.host {
            return Ok(Redirect::OtherHost(host));
        }
        let mut headers = self.headers.clone();
        if absolute {
            headers.retain(|(name, _)| name != "Host");
        }
        let downgraded = self.scheme == Scheme::Https && scheme == Scheme::Http;
        if !downgraded && !headers.iter().any(|(name, _)| name == "Referer") {
            let place = headers.partition_point(|(name, _)| name.as_str() <= "Referer");
            headers.insert(place, ("Referer".to_owned(), self.url()));
        }
        Ok(Redirect::Follow(Self {
            scheme,
            host,
            port,
            path: to.path,
            headers,
        }))
    }
}

impl fmt::Debug for HttpTarget {
    /// Omits header values, which may be secret.
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

/// Resolves a port by number or container port name (upstream `ResolveContainerPort`).
///
/// # Errors
/// An unknown name or an invalid number, with upstream's message.
pub fn container_port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            match named {
                Some(port) => i64::from(port.container_port),
                None => name
                    .parse()
                    .map_err(|_| format!("strconv.Atoi: parsing {name:?}: invalid syntax"))?,
            }
        }
    };
    match u16::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("invalid port number: {number}")),
    }
}

/// Returns the configured host, else the pod's address.
///
/// # Errors
/// The pod has no address yet.
pub(crate) fn host_or(host: Option<&str>, default: Option<IpAddr>) -> Result<String, String> {
    match host {
        Some(host) if !host.is_empty() => Ok(host.to_owned()),
        _ => default.map(|ip| ip.to_string()).ok_or_else(|| {
            "failed to find networking container: the pod has no address".to_owned()
        }),
    }
}

/// Returns `host:port`, with brackets around an IPv6 address (Go's `JoinHostPort`).
pub fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn scheme_named(name: &str) -> Result<Scheme, String> {
    match name {
        "" | "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        other => Err(format!("unsupported protocol scheme {other:?}")),
    }
}

/// Returns the headers in Go's order: sorted by name, stable for one name.
fn headers(custom: &[HTTPHeader], purpose: Purpose) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = Vec::with_capacity(custom.len() + 2);
    for header in custom {
        headers.push((canonical(&header.name), header.value.clone()));
    }
    let first = |headers: &[(String, String)], wanted: &str| {
        let mut all = headers.iter();
        all.find(|(name, _)| name == wanted).map(|(_, v)| v.clone())
    };
    if first(&headers, "User-Agent").is_none() {
        headers.push(("User-Agent".to_owned(), purpose.user_agent()));
    }
    match first(&headers, "Accept").as_deref() {
        None => headers.push(("Accept".to_owned(), "*/*".to_owned())),
        Some("") => headers.retain(|(name, _)| name != "Accept"),
        Some(_) => {}
    }
    headers.sort_by(|(a, _), (b, _)| a.cmp(b));
    headers
}

/// Returns a header name in Go's canonical form; an invalid name is unchanged.
fn canonical(name: &str) -> String {
    if !is_token(name) {
        return name.to_owned();
    }
    let mut start = true;
    let capital = |c: char| {
        let out = match start {
            true => c.to_ascii_uppercase(),
            false => c.to_ascii_lowercase(),
        };
        start = c == '-';
        out
    };
    name.chars().map(capital).collect()
}

fn is_token(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"-!#$%&'*+.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token)
}

fn is_value(value: &str) -> bool {
    value
        .bytes()
        .all(|b| b == b'\t' || (b >= b' ' && b != 0x7f))
}

#[cfg(test)]
mod tests;
