//! The proxy to the API server: `proxy-url` of the kubeconfig, else the environment.
//!
//! The rules are those of Go's `http.ProxyFromEnvironment`: `HTTPS_PROXY` for an `https` server
//! and `HTTP_PROXY` for an `http` one (or their lower-case names), except the hosts of `NO_PROXY`
//! and loopback addresses. `ALL_PROXY` is ignored.

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use percent_encoding::percent_decode_str;

/// A proxy; [`fmt::Debug`] and [`fmt::Display`] omit its credentials.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) protocol: ProxyProtocol,
    /// Host name or IP address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// User and password of the URL.
    pub(crate) user: Option<(String, String)>,
    /// The URL as configured, with credentials.
    url: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    /// HTTP `CONNECT`.
    Http,
    /// HTTP `CONNECT` over TLS.
    Https,
    /// SOCKS 5; the proxy resolves host names.
    Socks5,
}

impl Proxy {
    /// Parses a URL such as `http://user:password@proxy:3128`.
    ///
    /// # Errors
    /// The problem, without the URL, which may contain a password.
    pub(crate) fn parse(url: &str) -> Result<Self, &'static str> {
        const FIX: &str = "not the URL of a proxy; write it as http://proxy:3128";
        let (scheme, _) = url.split_once("://").ok_or(FIX)?;
        let (protocol, port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (ProxyProtocol::Http, 80),
            "https" => (ProxyProtocol::Https, 443),
            "socks5" | "socks5h" => (ProxyProtocol::Socks5, 1080),
            _ => return Err("unsupported scheme; use http, https or socks5"),
        };
        let uri: http::Uri = url.parse().map_err(|_| FIX)?;
        let authority = uri.authority().ok_or(FIX)?;
        let host = unbracketed(authority.host());
        if host.is_empty() {
            return Err(FIX);
        }
        let user = match authority.as_str().rsplit_once('@') {
            None => None,
            Some((user, _)) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                Some((decoded(user)?, decoded(password)?))
            }
        };
        Ok(Self {
            protocol,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(port),
            user,
            url: url.to_owned(),
        })
    }

    /// Returns the proxy from the environment for this server.
    ///
    /// # Errors
    /// The variable and its problem.
    pub(crate) fn from_environment(
        server: &http::Uri,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, (&'static str, &'static str)> {
        let first = |names: [&'static str; 2]| {
            let mut values = names.into_iter().filter_map(|name| {
                let value = variable(name)?;
                (!value.is_empty()).then_some((name, value))
            });
            values.next()
        };
        let secure = server.scheme_str() != Some("http");
        let found = match secure {
            true => first(["HTTPS_PROXY", "https_proxy"]),
            false => first(["HTTP_PROXY", "http_proxy"]),
        };
        let Some((name, value)) = found else {
            return Ok(None);
        };
        let host = unbracketed(server.host().unwrap_or_default());
        let port = server.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let exempt = first(["NO_PROXY", "no_proxy"]).map(|(_, value)| value);
        if is_exempt(host, port, &exempt.unwrap_or_default()) {
            return Ok(None);
        }
        let url = match value.contains("://") {
            true => value,
            // as in Go
            false => format!("http://{value}"),
        };
        Self::parse(&url)
            .map(Some)
            .map_err(|problem| (name, problem))
    }

    /// Returns the URL as configured, with credentials: not for logs.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the value of `Proxy-Authorization`.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.user.as_ref()?;
        let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            ProxyProtocol::Http => "http",
            ProxyProtocol::Https => "https",
            ProxyProtocol::Socks5 => "socks5",
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// The brackets of an IPv6 address belong to the URL.
pub(crate) fn unbracketed(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.unwrap_or(host)
}

fn decoded(text: &str) -> Result<String, &'static str> {
    percent_decode_str(text)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| "its user or password is not UTF-8; percent-encode it")
}

/// True if `NO_PROXY`, or Go's rule for loopback, exempts the server.
fn is_exempt(host: &str, port: u16, no_proxy: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    let address = address.map(|address| address.to_canonical());
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let entries = no_proxy.split(',').map(str::trim);
    entries
        .filter(|entry| !entry.is_empty())
        .any(|entry| exempts(&entry.to_ascii_lowercase(), &host, address, port))
}

fn exempts(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, prefix)) = entry.split_once('/')
        && let (Ok(network), Ok(prefix)) = (network.parse(), prefix.parse())
    {
        return address.is_some_and(|address| contains(network, prefix, address));
    }
    let (name, only) = match entry.parse::<IpAddr>() {
        Ok(_) => (entry, None),
        Err(_) => match entry.rsplit_once(':') {
            Some((name, only)) => (unbracketed(name), Some(only)),
            None => (unbracketed(entry), None),
        },
    };
    if name.is_empty() || only.is_some_and(|only| only.parse() != Ok(port)) {
        return false;
    }
    if let Ok(exempt) = name.parse::<IpAddr>() {
        return address == Some(exempt.to_canonical());
    }
    match name.strip_prefix('*').unwrap_or(name) {
        // names below it, not the name itself
        suffix if suffix.starts_with('.') => host.ends_with(suffix),
        name => {
            let below = host.strip_suffix(name);
            below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
    }
}

fn contains(network: IpAddr, prefix: u32, address: IpAddr) -> bool {
    let mask = |bits: u32, all: u32| all.checked_sub(bits);
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => mask(prefix, 32).is_some_and(|rest| {
            let cut = |bits: u32| bits.checked_shr(rest).unwrap_or(0);
            cut(network.to_bits()) == cut(address.to_bits())
        }),
        (IpAddr::V6(network), IpAddr::V6(address)) => mask(prefix, 128).is_some_and(|rest| {
            let cut = |bits: u128| bits.checked_shr(rest).unwrap_or(0);
            cut(network.to_bits()) == cut(address.to_bits())
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
