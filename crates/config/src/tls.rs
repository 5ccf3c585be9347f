//! TLS of the node's server: the names and numbers that upstream takes, and which of them are
//! possible here.
//!
//! Go's TLS library can do more that is old: TLS 1.0 and 1.1, suites with CBC, RC4 or without
//! forward secrecy. What it can and this agent cannot is a fault that says so. Suites are told of
//! and left out as long as one of the list is possible: the lists that hardening guides (CIS)
//! recommend end with some of the old ones.

use std::collections::BTreeSet;

use crate::kubelet::KubeletConfiguration;

/// Suites of TLS 1.2 that are possible, by Go's names (two have an old one) and IANA's numbers.
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

/// Suites of TLS 1.3, which are always on, as by Go.
const TLS13_SUITES: [(&str, u16); 3] = [
    ("TLS_AES_128_GCM_SHA256", 0x1301),
    ("TLS_AES_256_GCM_SHA384", 0x1302),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
];

/// Suites that Go's library knows beyond these.
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

/// Groups for the key exchange that are possible, by IANA's numbers.
pub const GROUPS: [(u16, &str); 5] = [
    (23, "P-256"),
    (24, "P-384"),
    (29, "X25519"),
    (4587, "SecP256r1MLKEM768"),
    (4588, "X25519MLKEM768"),
];
/// Groups that Go's library knows beyond these.
const GO_ONLY_GROUPS: [(u16, &str); 2] = [(25, "P-521"), (4589, "SecP384r1MLKEM1024")];

/// What the server is to offer, in IANA's numbers.
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
    /// Of a configuration that was validated.
    pub fn of(kubelet: &KubeletConfiguration) -> Self {
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

/// What is wrong with `tlsMinVersion`.
pub(crate) fn version_fault(name: &str) -> Option<String> {
    match name {
        "" | "VersionTLS12" | "VersionTLS13" => None,
        "VersionTLS10" | "VersionTLS11" => Some(format!(
            "{name} is too old for this agent's TLS library, write VersionTLS12 or VersionTLS13"
        )),
        _ => Some(format!(
            "{name:?} is not known, write one of VersionTLS12, VersionTLS13"
        )),
    }
}

/// What is wrong with `tlsCipherSuites`: names that nobody knows, or none that is possible.
pub(crate) fn suite_faults(names: &[String]) -> Vec<String> {
    let example = SUITES[2].0;
    let known = |name: &&String| is_possible(name) || GO_ONLY.contains(&name.as_str());
    let unknown = names.iter().filter(|name| !known(name));
    let mut faults: Vec<_> = unknown
        .map(|name| format!("{name:?} is not known, write a name such as {example}"))
        .collect();
    let old = old_suites(names);
    if !old.is_empty() && !names.iter().any(|name| is_possible(name)) {
        let old = old.join(", ");
        faults.push(format!(
            "none of them is possible, {old}: {TOO_OLD}, write a name such as {example}"
        ));
    }
    faults
}

/// What is to be said of suites that are left out of `tlsCipherSuites`, as others are possible.
pub(crate) fn suites_left_out(names: &[String]) -> Option<String> {
    let old = old_suites(names);
    let old = (!old.is_empty()).then(|| old.join(", "))?;
    Some(format!("left out are {old}: {TOO_OLD}, remove them"))
}

const TOO_OLD: &str = "no forward secrecy or no authenticated encryption, which this agent's TLS \
                       library requires";

fn is_possible(name: &str) -> bool {
    let mut possible = SUITES.iter().chain(&TLS13_SUITES);
    possible.any(|(known, _)| *known == name)
}

fn old_suites(names: &[String]) -> Vec<&str> {
    let names = names.iter().map(String::as_str);
    names.filter(|name| GO_ONLY.contains(name)).collect()
}

/// What is wrong with the number at `index` of `tlsCurvePreferences`.
pub(crate) fn group_fault(groups: &[i32], index: usize) -> Option<String> {
    let number = *groups.get(index)?;
    let seen: BTreeSet<_> = groups.iter().take(index).collect();
    if seen.contains(&number) {
        return Some(format!("{number} is there twice, remove one"));
    }
    let among = |known: &[(u16, &'static str)]| {
        let mut known = known.iter();
        known
            .find(|(known, _)| i32::from(*known) == number)
            .map(|it| it.1)
    };
    if among(&GROUPS).is_some() {
        return None;
    }
    Some(match among(&GO_ONLY_GROUPS) {
        Some(name) => {
            format!("{number} ({name}) is not in this agent's TLS library, remove it")
        }
        None => format!("{number} is no known group, write for example 29 (X25519)"),
    })
}
