//! From flags to a validated [`Config`].

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_manifests::yaml::{self, YamlError};

use crate::collector;
use crate::eviction;
use crate::fields;
use crate::flags::{FlagSetting, KubeletFlags};
use crate::gates::{self, FeatureGates, Gate};
use crate::kubelet::{self, KubeletConfiguration};
use crate::layers;
use crate::node::{self, NodeError};
use crate::tls;
use crate::validate;

const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration after all layers.
    pub kubelet: KubeletConfiguration,
    /// State of the feature gates.
    pub gates: FeatureGates,
    /// The command line, for what has no configuration field.
    pub flags: KubeletFlags,
    /// Warnings to log at startup.
    pub warnings: Vec<Warning>,
}

/// A problem that does not prevent the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// File or flag that set the value.
    pub origin: String,
    /// Path of the field; empty for the whole file or flag.
    pub field: String,
    /// Text.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "{}: {}", self.origin, self.message),
            field => write!(f, "{}: {field}: {}", self.origin, self.message),
        }
    }
}

/// An error that prevents the start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or directory could not be read.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file is not valid YAML.
    #[error("{}: {source}", path.display())]
    Parse {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: YamlError,
    },
    /// A file has another kind or version.
    #[error(
        "{}: {field} must be {expected:?}, got {found}",
        path.display(), expected = expected
    )]
    Kind {
        /// Path.
        path: PathBuf,
        /// `kind` or `apiVersion`.
        field: &'static str,
        /// Actual value.
        found: String,
        /// Required value.
        expected: &'static str,
    },
    /// A file is too large.
    #[error("{}: larger than {MAX_FILE_BYTES} bytes", path.display())]
    TooLarge {
        /// Path.
        path: PathBuf,
    },
    /// A node flag is invalid.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The in-tree cloud provider was removed.
    #[error(
        "--cloud-provider: in-tree cloud provider {name:?} was removed; set external or remove \
         the flag"
    )]
    CloudProvider {
        /// Name.
        name: String,
    },
    /// `--bootstrap-kubeconfig` is set without `--kubeconfig`.
    #[error("--bootstrap-kubeconfig: requires --kubeconfig, the file for the obtained credentials")]
    MissingKubeconfig,
    /// One of the two credential provider flags is missing.
    #[error(
        "--image-credential-provider-config: set both this flag and \
         --image-credential-provider-bin-dir, or neither"
    )]
    IncompleteCredentialProvider,
    /// A label in a reserved namespace.
    #[error(
        "--node-labels: {label:?} is in a reserved Kubernetes namespace; use \
         kubelet.kubernetes.io/, node.kubernetes.io/ or your own domain"
    )]
    NodeLabel {
        /// Label.
        label: String,
    },
    /// Fields are invalid.
    #[error("invalid configuration:{}", validate::list(.0))]
    Invalid(Vec<validate::InvalidField>),
}

/// Loads and validates the configuration given by the flags.
pub fn load(flags: &KubeletFlags) -> Result<Config, ConfigError> {
    gather(flags, &mut Err)?.finish(flags)
}

/// Error handler: loading stops at the first error, a report continues.
type OnError<'a> = &'a mut dyn FnMut(ConfigError) -> Result<(), ConfigError>;

/// Merges defaults, files and flags.
fn gather(flags: &KubeletFlags, on_error: OnError<'_>) -> Result<Layers, ConfigError> {
    if flags.bootstrap_kubeconfig.is_some() && flags.kubeconfig.is_none() {
        on_error(ConfigError::MissingKubeconfig)?;
    }
    if flags.image_credential_provider_config.is_some()
        != flags.image_credential_provider_bin_dir.is_some()
    {
        on_error(ConfigError::IncompleteCredentialProvider)?;
    }
    check_node_labels(flags).or_else(&mut *on_error)?;
    for error in node::check_flags(flags).into_iter().filter_map(Result::err) {
        on_error(error.into())?;
    }
    if !["", "external"].contains(&flags.cloud_provider.as_str()) {
        let name = flags.cloud_provider.clone();
        on_error(ConfigError::CloudProvider { name })?;
    }
    let mut layers = Layers::default();
    match &flags.config_file {
        Some(path) => layers
            .add_file(path, FileKind::Main)
            .or_else(&mut *on_error)?,
        None => layers.merged = legacy_defaults(),
    }
    // defaults apply to the main file only; maps of drop-ins are merged into them
    if layers::get(&layers.merged, "evictionHard").is_none() {
        let defaults = json!(kubelet::eviction_hard_defaults());
        layers::set(&mut layers.merged, "evictionHard", defaults);
    }
    if let Some(directory) = &flags.config_dir {
        let files = layers::drop_ins(directory).or_else(|source| {
            let path = directory.clone();
            on_error(ConfigError::Read { path, source }).map(|()| Vec::new())
        })?;
        for file in files {
            layers
                .add_file(&file, FileKind::DropIn)
                .or_else(&mut *on_error)?;
        }
    }
    for setting in &flags.config.0 {
        layers.add_flag(setting);
    }
    Ok(layers)
}

/// Reserved labels that a node may set (upstream `kubeletapis.IsKubeletLabel`).
const ALLOWED_LABELS: [&str; 14] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/instance-type",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Label domains that a node may use, with their subdomains.
const ALLOWED_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Feature gates that have an effect in this version.
pub const IMPLEMENTED_GATES: [&str; 36] = [
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "CRIListStreaming",
    "ClusterTrustBundleProjection",
    "ComponentFlagz",
    "ComponentStatusz",
    "ContainerStopSignals",
    "DRAExtendedResource",
    "DRAWorkloadResourceClaims",
    "DisableCPUQuotaWithExclusiveCPUs",
    "EnvFiles",
    "ExtendWebSocketsToKubelet",
    "GenericWorkload",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "HostnameOverride",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "KubeletEnsureSecretPulledImages",
    "KubeletPodResourcesListUseActivePods",
    "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders",
    "MemoryQoS",
    "NodeDeclaredFeatures",
    "NodeLogQuery",
    "PodCertificateRequest",
    "PodLevelResourceManagers",
    "PodLevelResources",
    "PodLogsQuerySplitStreams",
    "PodsAPI",
    "QOSReserved",
    "ResourceHealthStatus",
    "ResourceHealthStatusMessage",
    "RestartAllContainersOnContainerExits",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
];

pub(crate) const UNIMPLEMENTED_GATE: &str = "not implemented in this version";
pub(crate) const FOREIGN_GATE: &str = "no effect in a kubelet";

/// Whether only other components of Kubernetes read a gate.
pub(crate) fn is_foreign_gate(name: &str) -> bool {
    gates::find(name).is_some_and(|gate| !gate.in_kubelet)
}

fn check_node_labels(flags: &KubeletFlags) -> Result<(), ConfigError> {
    let below = |domain: &str, of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    for (label, _) in flags.node_labels.iter().flat_map(|labels| &labels.0) {
        let domain = label.split_once('/').map_or("", |(domain, _)| domain);
        let reserved = below(domain, "kubernetes.io") || below(domain, "k8s.io");
        let allowed = ALLOWED_LABELS.contains(&label.as_str())
            || ALLOWED_LABEL_DOMAINS.iter().any(|of| below(domain, of));
        if reserved && !allowed {
            return Err(ConfigError::NodeLabel {
                label: label.clone(),
            });
        }
    }
    Ok(())
}

/// Defaults without a configuration file.
fn legacy_defaults() -> Value {
    json!({
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 10255,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Main,
    DropIn,
}

/// The merge in progress.
#[derive(Clone, Default)]
struct Layers {
    merged: Value,
    /// Layer that set each field last.
    origins: BTreeMap<String, String>,
    warnings: Vec<Warning>,
    /// Values of the wrong type, left out of `merged`.
    invalid: Vec<validate::InvalidField>,
}

impl Layers {
    fn add_file(&mut self, path: &Path, kind: FileKind) -> Result<(), ConfigError> {
        let bytes = read(path)?;
        let parse_error = |source: YamlError| ConfigError::Parse {
            path: path.to_owned(),
            source,
        };
        let (documents, duplicate) =
            yaml::documents_with_duplicates(&bytes).map_err(parse_error)?;
        let [document] = documents.as_slice() else {
            return Err(parse_error(YamlError::Documents {
                found: documents.len(),
            }));
        };
        let mut layer = document.clone();
        take_kind(&mut layer, path)?;

        // nulls control the merge and are not values
        let mut values = Value::Null;
        layers::merge_patch(&mut values, &layer);
        let origin = path.display().to_string();
        self.warnings.extend(duplicate.map(|error| Warning {
            origin: origin.clone(),
            field: String::new(),
            message: format!("{error}; the last value is used, remove the others"),
        }));
        for (leaf, error) in type_errors(&values) {
            self.invalid
                .push(type_error(origin.clone(), error.located(&bytes, 0, "")));
            for layer in [&mut layer, &mut values] {
                layers::set(layer, &leaf, Value::Null);
            }
        }
        let (_, unknown) = yaml::decode::<KubeletConfiguration>(&values)
            .map_err(|error| parse_error(error.located(&bytes, 0, "")))?;
        for field in unknown {
            let position = yaml::locate(&bytes, 0, &field)
                .map_or_else(String::new, |position| format!(" ({position})"));
            self.warnings.push(Warning {
                origin: origin.clone(),
                field,
                message: format!("unknown field{position} ignored; remove or correct it"),
            });
        }

        let directory = std::path::absolute(path)
            .ok()
            .and_then(|path| path.parent().map(Path::to_owned))
            .unwrap_or_default();
        layers::resolve_paths(&mut layer, &directory);
        if kind == FileKind::Main {
            layers::drop_zero_values(&mut layer);
        }
        layers::leaves(&layer, "", &mut |field, _| {
            self.origins.insert(field.to_owned(), origin.clone());
        });
        layers::merge_patch(&mut self.merged, &layer);
        Ok(())
    }

    fn add_flag(&mut self, setting: &FlagSetting) {
        let mut layer = Value::Null;
        layers::set(&mut layer, setting.path, setting.value.clone());
        let origin = format!("--{}", setting.flag);
        if let Err(error) = yaml::decode::<KubeletConfiguration>(&layer) {
            self.invalid.push(type_error(origin, error));
            return;
        }
        if setting.path == "featureGates" {
            layers::merge_patch(&mut self.merged, &layer);
        } else {
            layers::set(&mut self.merged, setting.path, setting.value.clone());
        }
        self.origins.insert(setting.path.to_owned(), origin);
    }

    fn finish(self, flags: &KubeletFlags) -> Result<Config, ConfigError> {
        match self.validate_all(flags)? {
            (config, invalid) if invalid.is_empty() => Ok(config),
            (_, invalid) => Err(ConfigError::Invalid(invalid)),
        }
    }

    /// Returns the configuration and its invalid fields.
    fn validate_all(
        mut self,
        flags: &KubeletFlags,
    ) -> Result<(Config, Vec<validate::InvalidField>), ConfigError> {
        let is_set = |field: &str| self.origins.contains_key(field);
        let (mut kubelet, _) = yaml::decode::<KubeletConfiguration>(&self.merged).map_err(
            // unreachable for users: each layer was decoded before the merge
            |source| ConfigError::Parse {
                path: PathBuf::from("merged configuration"),
                source,
            },
        )?;
        if !is_set("serializeImagePulls") && kubelet.max_parallel_image_pulls.is_some_and(|n| n > 1)
        {
            kubelet.serialize_image_pulls = false;
        }
        if !is_set("nodeStatusReportFrequency") && is_set("nodeStatusUpdateFrequency") {
            kubelet.node_status_report_frequency = kubelet.node_status_update_frequency;
        }
        if kubelet.merge_default_eviction_settings {
            let mut merged = kubelet::eviction_hard_defaults();
            merged.append(&mut kubelet.eviction_hard);
            kubelet.eviction_hard = merged;
        }

        let origin_of = |field: &str| origin_of(&self.origins, field);
        let (gates, errors) = FeatureGates::from_valid(&kubelet.feature_gates);
        let mut invalid = std::mem::take(&mut self.invalid);
        invalid.extend(errors.iter().map(|error| validate::InvalidField {
            origin: origin_of("featureGates"),
            field: format!("featureGates.{}", error.gate()),
            message: error.to_string(),
        }));
        invalid.extend(validate::validate(&kubelet, &gates, &origin_of));
        let origin = origin_of("featureGates");
        let unimplemented =
            |(gate, _): &(&Gate, bool)| gate.in_kubelet && !IMPLEMENTED_GATES.contains(&gate.name);
        let warning = |field: &str, message| Warning {
            origin: origin_of(field),
            field: field.to_owned(),
            message,
        };
        let suites = tls::unsupported_suites_warning(&kubelet.tls_cipher_suites);
        let suites = suites.map(|message| warning("tlsCipherSuites", message));
        let tracing = kubelet.tracing.as_ref();
        let endpoint = tracing.and_then(|it| it.endpoint.as_deref());
        let unusable = endpoint.and_then(collector::unusable_endpoint);
        let unusable = unusable.map(|message| warning("tracing.endpoint", message));
        let eviction = eviction::warnings(&kubelet);
        let eviction = eviction
            .into_iter()
            .map(|(field, message)| warning(field, message));
        let factor = KubeletConfiguration::default().memory_throttling_factor;
        let changes_factor = kubelet.memory_throttling_factor != factor;
        let gated = [
            (
                "qosReserved",
                !kubelet.qos_reserved.is_empty(),
                "QOSReserved",
            ),
            ("memoryThrottlingFactor", changes_factor, "MemoryQoS"),
        ];
        let ungated = gated
            .into_iter()
            .filter(|(_, is_set, gate)| *is_set && !gates.enabled(gate));
        let ungated = ungated.map(|(field, _, gate)| {
            warning(field, format!("no effect without feature gate {gate}"))
        });
        let warnings: Vec<_> = suites
            .into_iter()
            .chain(unusable)
            .chain(eviction)
            .chain(ungated)
            .collect();
        self.warn_unimplemented_fields(&kubelet);
        self.warnings.extend(warnings);
        self.warnings.extend(
            gates
                .changed()
                .filter(unimplemented)
                .map(|(gate, on)| Warning {
                    origin: origin.clone(),
                    field: format!("featureGates.{}", gate.name),
                    message: format!("set to {on}; {UNIMPLEMENTED_GATE}"),
                }),
        );
        let foreign = kubelet.feature_gates.keys().map(String::as_str);
        let foreign: Vec<_> = foreign.filter(|gate| is_foreign_gate(gate)).collect();
        if !foreign.is_empty() {
            self.warnings.push(Warning {
                origin,
                field: "featureGates".to_owned(),
                message: format!("{}: {FOREIGN_GATE}", foreign.join(", ")),
            });
        }
        self.warn_ignored_flags(flags);
        let config = Config {
            kubelet,
            gates,
            flags: flags.clone(),
            warnings: self.warnings,
        };
        Ok((config, invalid))
    }

    /// Warns of fields without full support that differ from their default.
    fn warn_unimplemented_fields(&mut self, kubelet: &KubeletConfiguration) {
        let defaults = serde_json::to_value(KubeletConfiguration::default()).unwrap_or_default();
        let current = serde_json::to_value(kubelet).unwrap_or_default();
        for (field, origin) in &self.origins {
            if layers::get(&defaults, field) == layers::get(&current, field) {
                continue;
            }
            if let Some(message) = fields::support_message(field) {
                self.warnings.push(Warning {
                    origin: origin.clone(),
                    field: field.clone(),
                    message,
                });
            }
        }
    }

    fn warn_ignored_flags(&mut self, flags: &KubeletFlags) {
        if flags.exit_on_lock_contention {
            self.warn_flag(
                "exit-on-lock-contention",
                "not implemented: the agent keeps the lock until it exits",
            );
        }
        for flag in &flags.ignored.0 {
            self.warn_flag(flag, "ignored: no longer has an effect; remove it");
        }
    }

    fn warn_flag(&mut self, flag: &str, message: &str) {
        self.warnings.push(Warning {
            origin: format!("--{flag}"),
            field: String::new(),
            message: message.to_owned(),
        });
    }
}

/// Returns the settings with a value of the wrong type.
fn type_errors(values: &Value) -> Vec<(String, YamlError)> {
    if yaml::decode::<KubeletConfiguration>(values).is_ok() {
        return Vec::new();
    }
    let mut found = Vec::new();
    layers::leaves(values, "", &mut |path, value| {
        let mut alone = Value::Null;
        layers::set(&mut alone, path, value.clone());
        if let Err(error) = yaml::decode::<KubeletConfiguration>(&alone) {
            found.push((path.to_owned(), error));
        }
    });
    found
}

/// Describes a type error without the names of Rust types.
fn type_error(origin: String, error: YamlError) -> validate::InvalidField {
    let (position, field, message) = match error {
        YamlError::Type {
            position,
            field,
            message,
        } => (position, field, message),
        other => (None, String::new(), other.to_string()),
    };
    let (found, expected) = message.split_once(", expected ").unwrap_or((&message, ""));
    let expected = match expected {
        "i32" | "u32" => "a whole number of at most 32 bits",
        "i64" | "u64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        other => other,
    };
    let mut message = match (field.as_str(), expected) {
        // the values are often passwords
        (headers, _) if headers.starts_with("staticPodURLHeader") => {
            "must be a list of values for each name, for example Accept: [text/plain]".to_owned()
        }
        (_, "") => found.to_owned(),
        (_, expected) => format!("{found}, expected {expected}"),
    };
    if let Some(position) = position {
        message.push_str(&format!(" ({position})"));
    }
    validate::InvalidField {
        origin,
        field,
        message,
    }
}

/// Returns the layer that set a field, or part of it, last.
fn origin_of(origins: &BTreeMap<String, String>, field: &str) -> String {
    let field = field.split('[').next().unwrap_or(field);
    let below = format!("{field}.");
    origins
        .iter()
        .find(|(path, _)| *path == field || path.starts_with(&below))
        .map_or_else(|| "default".to_owned(), |(_, origin)| origin.clone())
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let read_error = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    // pipes and devices have no size
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(read_error)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
        });
    }
    Ok(bytes)
}

/// Checks and removes `kind` and `apiVersion`.
fn take_kind(layer: &mut Value, path: &Path) -> Result<(), ConfigError> {
    for (field, expected) in [
        ("kind", kubelet::KIND),
        ("apiVersion", kubelet::API_VERSION),
    ] {
        let found = layer
            .as_object_mut()
            .and_then(|object| object.remove(field));
        if found.as_ref().and_then(Value::as_str) != Some(expected) {
            return Err(ConfigError::Kind {
                path: path.to_owned(),
                field,
                found: found.map_or_else(|| "absent".to_owned(), |value| value.to_string()),
                expected,
            });
        }
    }
    Ok(())
}

pub mod report;

#[cfg(test)]
mod tests;
