//! TLS settings of the node API server: names and numbers, and which of them are supported.
//!
//! Unlike Go, the TLS library has no TLS 1.0 and 1.1 and no suites with CBC, RC4 or without forward
//! secrecy. Unsupported suites are skipped with a warning if the list has a supported one: the
//! recommended lists of CIS end with old suites.

use std::collections::BTreeSet;

use crate::kubelet::KubeletConfiguration;

/// Supported suites of TLS 1.2: Go name (two have an alias) and IANA number.
pub const SUITES: [(&str, u16); 8] = [
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", 0xcca8),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", 0xcca9),
];

/// Suites of TLS 1.3; always enabled, as in Go.
const TLS13_SUITES: [(&str, u16); 3] = [
    ("TLS_AES_128_GCM_SHA256", 0x1301),
    ("TLS_AES_256_GCM_SHA384", 0x1302),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
];

/// Suites that only Go supports.
const GO_ONLY: [&str; 16] = [
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// Supported key exchange groups: IANA number and name.
pub const GROUPS: [(u16, &str); 5] = [
    (23, "P-256"),
    (24, "P-384"),
    (29, "X25519"),
    (4587, "SecP256r1MLKEM768"),
    (4588, "X25519MLKEM768"),
];
/// Groups that only Go supports.
const GO_ONLY_GROUPS: [(u16, &str); 2] = [(25, "P-521"), (4589, "SecP384r1MLKEM1024")];

/// TLS settings of the server as IANA numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsNumbers {
    /// No TLS 1.2.
    pub only_tls13: bool,
    /// Cipher suites; empty for the default.
    pub suites: Vec<u16>,
    /// Groups for the key exchange; empty for the default.
    pub groups: Vec<u16>,
}

impl TlsNumbers {
    /// Converts a validated configuration.
    pub fn from_config(kubelet: &KubeletConfiguration) -> Self {
        let number = |name: &String| {
            let mut suites = SUITES.iter().chain(&TLS13_SUITES);
            suites.find(|(known, _)| known == name).map(|it| it.1)
        };
        Self {
            only_tls13: kubelet.tls_min_version == "VersionTLS13",
            suites: kubelet
                .tls_cipher_suites
                .iter()
                .filter_map(number)
                .collect(),
            groups: kubelet
                .tls_curve_preferences
                .iter()
                .filter_map(|group| u16::try_from(*group).ok())
                .collect(),
        }
    }
}

/// Returns the error of `tlsMinVersion`.
pub(crate) fn version_error(name: &str) -> Option<String> {
    match name {
        "" | "VersionTLS12" | "VersionTLS13" => None,
        "VersionTLS10" | "VersionTLS11" => Some(format!(
            "{name} is not supported; set VersionTLS12 or VersionTLS13"
        )),
        _ => Some(format!(
            "must be one of VersionTLS12, VersionTLS13, got {name:?}"
        )),
    }
}

/// Returns the errors of `tlsCipherSuites`: unknown names, or no supported suite.
pub(crate) fn suite_errors(names: &[String]) -> Vec<String> {
    let example = SUITES[2].0;
    let is_known = |name: &&String| is_supported(name) || GO_ONLY.contains(&name.as_str());
    let unknown = names.iter().filter(|name| !is_known(name));
    let mut errors: Vec<_> = unknown
        .map(|name| format!("unknown suite {name:?}; use for example {example}"))
        .collect();
    let unsupported = unsupported_suites(names);
    if !unsupported.is_empty() && !names.iter().any(|name| is_supported(name)) {
        let unsupported = unsupported.join(", ");
        errors.push(format!(
            "no supported suite: {unsupported} {UNSUPPORTED}; use for example {example}"
        ));
    }
    errors
}

/// Returns a warning for the unsupported suites of `tlsCipherSuites`.
pub(crate) fn unsupported_suites_warning(names: &[String]) -> Option<String> {
    let suites = unsupported_suites(names);
    let suites = (!suites.is_empty()).then(|| suites.join(", "))?;
    Some(format!(
        "skipping {suites}, which {UNSUPPORTED}; remove them"
    ))
}

const UNSUPPORTED: &str = "lack forward secrecy or authenticated encryption";

fn is_supported(name: &str) -> bool {
    let mut supported = SUITES.iter().chain(&TLS13_SUITES);
    supported.any(|(known, _)| *known == name)
}

fn unsupported_suites(names: &[String]) -> Vec<&str> {
    let names = names.iter().map(String::as_str);
    names.filter(|name| GO_ONLY.contains(name)).collect()
}

/// Returns the error of the group at `index` of `tlsCurvePreferences`.
pub(crate) fn group_error(groups: &[i32], index: usize) -> Option<String> {
    let number = *groups.get(index)?;
    let seen: BTreeSet<_> = groups.iter().take(index).collect();
    if seen.contains(&number) {
        return Some(format!("duplicate {number}; remove one"));
    }
    let name_in = |known: &[(u16, &'static str)]| {
        let mut known = known.iter();
        known
            .find(|(known, _)| i32::from(*known) == number)
            .map(|it| it.1)
    };
    if name_in(&GROUPS).is_some() {
        return None;
    }
    Some(match name_in(&GO_ONLY_GROUPS) {
        Some(name) => {
            format!("{number} ({name}) is not supported; remove it")
        }
        None => format!("unknown group {number}; use for example 29 (X25519)"),
    })
}
