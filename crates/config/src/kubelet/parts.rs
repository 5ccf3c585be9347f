//! The nested objects of `KubeletConfiguration`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;

/// `authentication`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Authentication {
    /// Client certificates.
    pub x509: X509,
    /// Bearer tokens.
    pub webhook: Webhook,
    /// Anonymous requests.
    pub anonymous: Anonymous,
}

/// `authentication.x509`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct X509 {
    /// CA bundle for client certificates.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: String,
}

with_defaults! {
    /// `authentication.webhook`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Webhook {
        /// Review bearer tokens with the API server.
        pub enabled: bool = true,
        /// Cache duration of a token review.
        #[serde(rename = "cacheTTL")]
        pub cache_ttl: GoDuration = GoDuration::from_secs(120),
    }
}

/// `authentication.anonymous`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Anonymous {
    /// Authenticate requests without credentials as `system:anonymous`.
    pub enabled: bool,
}

with_defaults! {
    /// `authorization`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Authorization {
        /// `AlwaysAllow` or `Webhook`.
        pub mode: String = "Webhook".to_owned(),
        /// Settings of mode `Webhook`.
        pub webhook: AuthorizationWebhook,
    }

    /// `authorization.webhook`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct AuthorizationWebhook {
        /// Cache duration of an allowed request.
        #[serde(rename = "cacheAuthorizedTTL")]
        pub cache_authorized_ttl: GoDuration = GoDuration::from_secs(300),
        /// Cache duration of a denied request.
        #[serde(rename = "cacheUnauthorizedTTL")]
        pub cache_unauthorized_ttl: GoDuration = GoDuration::from_secs(30),
    }
}

/// `memorySwap`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemorySwap {
    /// `NoSwap` or `LimitedSwap`; empty means `NoSwap`.
    pub swap_behavior: String,
}

with_defaults! {
    /// `crashLoopBackOff`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub struct CrashLoopBackOff {
        /// Maximum restart delay, 1 s to 300 s; default 300 s.
        pub max_container_restart_period: Option<GoDuration> = Some(GoDuration::from_secs(300)),
    }

    /// `userNamespaces`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct UserNamespaces {
        /// Number of IDs per pod, a multiple of 65536.
        #[serde(rename = "idsPerPod")]
        pub ids_per_pod: i64 = 65_536,
    }
}

/// One entry of `shutdownGracePeriodByPodPriority`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownByPriority {
    /// Minimum pod priority of the group.
    pub priority: i32,
    /// Shutdown grace period of these pods.
    pub shutdown_grace_period_seconds: i64,
}

/// One entry of `reservedMemory`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryReservation {
    /// NUMA node.
    pub numa_node: i32,
    /// Quantity by memory type.
    pub limits: BTreeMap<String, String>,
}

/// One entry of `registerWithTaints`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Must not be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// `tracing`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    /// Address of the collector; default `localhost:4317`.
    pub endpoint: Option<String>,
    /// Sampled spans per million; default 0.
    pub sampling_rate_per_million: Option<i32>,
}

with_defaults! {
    /// `logging`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    pub struct Logging {
        /// `text` or `json`.
        pub format: String = "text".to_owned(),
        /// Flush period of buffered lines.
        #[serde(deserialize_with = "flush_frequency")]
        pub flush_frequency: GoDuration = GoDuration::from_secs(5),
        /// Verbosity, as `-v`.
        pub verbosity: u32,
        /// Verbosity by file pattern.
        pub vmodule: Vec<VModule>,
        /// Settings of the formats.
        pub options: FormatOptions,
    }
}

/// One entry of `logging.vmodule`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VModule {
    /// Module name or pattern.
    pub file_pattern: String,
    /// Its verbosity.
    pub verbosity: u32,
}

/// `logging.options`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FormatOptions {
    /// `text`.
    pub text: TextOptions,
    /// `json`.
    pub json: JsonOptions,
}

/// `logging.options.text`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TextOptions {
    /// Write errors to stderr and the rest to stdout.
    pub split_stream: bool,
    /// Buffer size of the info stream, a quantity.
    pub info_buffer_size: serde_json::Value,
}

/// `logging.options.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JsonOptions {
    /// Write errors to stderr and the rest to stdout.
    pub split_stream: bool,
    /// Buffer size of the info stream, a quantity.
    pub info_buffer_size: serde_json::Value,
}

/// Parses a duration text or, as in old files, a number of nanoseconds.
fn flush_frequency<'de, D: serde::Deserializer<'de>>(input: D) -> Result<GoDuration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Nanoseconds(i64),
    }
    match Either::deserialize(input)? {
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Either::Nanoseconds(nanos) => format!("{nanos}ns")
            .parse()
            .map_err(serde::de::Error::custom),
    }
}
