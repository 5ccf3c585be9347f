//! From flags to a validated [`Config`].

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_manifests::yaml::{self, YamlError};

use crate::collector;
use crate::fields;
use crate::flags::{FlagSetting, KubeletFlags};
use crate::gates::{self, FeatureGates, Gate};
use crate::kubelet::{self, KubeletConfiguration};
use crate::layers;
use crate::node::{self, NodeError};
use crate::tls;
use crate::validate;

/// Largest configuration file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Everything the agent was asked for, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration after all layers.
    pub kubelet: KubeletConfiguration,
    /// State of the feature gates.
    pub gates: FeatureGates,
    /// The command line, for what has no configuration field.
    pub flags: KubeletFlags,
    /// What the operator should be told once.
    pub warnings: Vec<Warning>,
}

/// A remark about the configuration that does not stop the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// File or flag it comes from.
    pub origin: String,
    /// Path of the field; empty if it is about the whole.
    pub field: String,
    /// The remark.
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

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file or directory could not be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not valid YAML.
    #[error("{}: {source}", path.display())]
    Parse {
        /// Which.
        path: PathBuf,
        /// What and where.
        source: YamlError,
    },
    /// A file is something else than a kubelet configuration.
    #[error(
        "{}: {field} is {found}, it must be {expected:?}",
        path.display(), expected = expected
    )]
    Kind {
        /// Which.
        path: PathBuf,
        /// `kind` or `apiVersion`.
        field: &'static str,
        /// What it is now.
        found: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A file is too large to be a configuration.
    #[error("{}: larger than {MAX_FILE_BYTES} bytes, which no kubelet configuration is", path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
    },
    /// A flag that describes the node cannot be right.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// There is no such cloud provider in a kubelet any more.
    #[error("--cloud-provider: {name:?} is built in no more, write external or remove it")]
    CloudProvider {
        /// Which.
        name: String,
    },
    /// Bootstrap credentials are exchanged for others, which need a place.
    #[error(
        "--bootstrap-kubeconfig: --kubeconfig is missing: name the file that the credentials \
         obtained from the cluster are to be written to"
    )]
    BootstrapAlone,
    /// Credential providers are a configuration and programs.
    #[error(
        "--image-credential-provider-config: it and --image-credential-provider-bin-dir need each \
         other, give both or none"
    )]
    CredentialProviderHalf,
    /// A label that a node may not give itself.
    #[error(
        "--node-labels: {label:?} is in a namespace of Kubernetes that a node may not set: use \
         kubelet.kubernetes.io/, node.kubernetes.io/ or a domain of your own"
    )]
    NodeLabel {
        /// Which.
        label: String,
    },
    /// The configuration can be read, and it cannot be right.
    #[error("invalid configuration:{}", validate::list(.0))]
    Invalid(Vec<validate::Fault>),
}

/// Reads and checks everything the flags point to.
pub fn load(flags: &KubeletFlags) -> Result<Config, ConfigError> {
    gather(flags, &mut Err)?.finish(flags)
}

/// What is to be done about a fault: an error ends the reading, a report goes on.
type OnFault<'a> = &'a mut dyn FnMut(ConfigError) -> Result<(), ConfigError>;

/// Lays everything the flags point to over each other.
fn gather(flags: &KubeletFlags, on_fault: OnFault<'_>) -> Result<Layers, ConfigError> {
    if flags.bootstrap_kubeconfig.is_some() && flags.kubeconfig.is_none() {
        on_fault(ConfigError::BootstrapAlone)?;
    }
    if flags.image_credential_provider_config.is_some()
        != flags.image_credential_provider_bin_dir.is_some()
    {
        on_fault(ConfigError::CredentialProviderHalf)?;
    }
    check_node_labels(flags).or_else(&mut *on_fault)?;
    for error in node::check_flags(flags).into_iter().filter_map(Result::err) {
        on_fault(error.into())?;
    }
    if !["", "external"].contains(&flags.cloud_provider.as_str()) {
        let name = flags.cloud_provider.clone();
        on_fault(ConfigError::CloudProvider { name })?;
    }
    let mut layers = Layers::default();
    match &flags.config_file {
        Some(path) => layers
            .add_file(path, FileKind::Main)
            .or_else(&mut *on_fault)?,
        None => layers.merged = legacy_defaults(),
    }
    // only the main file is defaulted: a drop-in's map is merged into the default thresholds
    if layers::get(&layers.merged, "evictionHard").is_none() {
        let defaults = json!(kubelet::eviction_hard_defaults());
        layers::set(&mut layers.merged, "evictionHard", defaults);
    }
    if let Some(directory) = &flags.config_dir {
        let files = layers::drop_ins(directory).or_else(|source| {
            let path = directory.clone();
            on_fault(ConfigError::Read { path, source }).map(|()| Vec::new())
        })?;
        for file in files {
            layers
                .add_file(&file, FileKind::DropIn)
                .or_else(&mut *on_fault)?;
        }
    }
    for setting in &flags.config.0 {
        layers.add_flag(setting);
    }
    Ok(layers)
}

/// Labels in the namespaces of Kubernetes that a node may give itself (upstream
/// `kubeletapis.IsKubeletLabel`); the API server refuses the others.
const OWN_LABELS: [&str; 14] = [
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
/// Label namespaces a node may use freely, with everything below them.
const OWN_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// The feature gates that decide something in this version.
pub const ACTED_UPON: [&str; 20] = [
    "CRIListStreaming",
    "ClusterTrustBundleProjection",
    "ComponentFlagz",
    "ComponentStatusz",
    "ContainerStopSignals",
    "EnvFiles",
    "ExtendWebSocketsToKubelet",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "HostnameOverride",
    "KubeletEnsureSecretPulledImages",
    "KubeletPodResourcesListUseActivePods",
    "KubeletServiceAccountTokenForCredentialProviders",
    "NodeDeclaredFeatures",
    "NodeLogQuery",
    "PodCertificateRequest",
    "PodLevelResources",
    "PodLogsQuerySplitStreams",
    "PodsAPI",
    "RestartAllContainersOnContainerExits",
];

/// Said of a gate that other components of Kubernetes read.
pub(crate) const FOREIGN_GATE: &str = "accepted, without effect in a kubelet";

/// Whether only other components of Kubernetes read a gate.
pub(crate) fn is_foreign_gate(name: &str) -> bool {
    gates::find(name).is_some_and(|gate| !gate.in_kubelet)
}

fn check_node_labels(flags: &KubeletFlags) -> Result<(), ConfigError> {
    let below = |domain: &str, of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    for (label, _) in flags.node_labels.iter().flat_map(|labels| &labels.0) {
        let domain = label.split_once('/').map_or("", |(domain, _)| domain);
        let reserved = below(domain, "kubernetes.io") || below(domain, "k8s.io");
        let own = OWN_LABELS.contains(&label.as_str())
            || OWN_LABEL_DOMAINS.iter().any(|of| below(domain, of));
        if reserved && !own {
            return Err(ConfigError::NodeLabel {
                label: label.clone(),
            });
        }
    }
    Ok(())
}

/// Defaults of an agent that is given no configuration file.
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
    /// Which layer set a field last.
    origins: BTreeMap<String, String>,
    warnings: Vec<Warning>,
    /// Values of the wrong type, which are left out.
    faults: Vec<validate::Fault>,
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

        // nulls are instructions of the merge, not values of a field
        let mut values = Value::Null;
        layers::merge_patch(&mut values, &layer);
        let origin = path.display().to_string();
        self.warnings.extend(duplicate.map(|error| Warning {
            origin: origin.clone(),
            field: String::new(),
            message: format!("{error}: the last one counts, remove the others"),
        }));
        for (leaf, error) in misfits(&values) {
            self.faults
                .push(misfit(origin.clone(), error.located(&bytes, 0, "")));
            for layer in [&mut layer, &mut values] {
                layers::set(layer, &leaf, Value::Null);
            }
        }
        let (_, unknown) = yaml::decode::<KubeletConfiguration>(&values)
            .map_err(|error| parse_error(error.located(&bytes, 0, "")))?;
        for field in unknown {
            let place = yaml::locate(&bytes, 0, &field)
                .map_or_else(String::new, |position| format!(" ({position})"));
            self.warnings.push(Warning {
                origin: origin.clone(),
                field,
                message: format!("unknown field{place}: it is ignored, remove or correct it"),
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
            self.faults.push(misfit(origin, error));
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
        match self.judge(flags)? {
            (config, faults) if faults.is_empty() => Ok(config),
            (_, faults) => Err(ConfigError::Invalid(faults)),
        }
    }

    /// The configuration, and what is wrong with it.
    fn judge(
        mut self,
        flags: &KubeletFlags,
    ) -> Result<(Config, Vec<validate::Fault>), ConfigError> {
        let given = |field: &str| self.origins.contains_key(field);
        let (mut kubelet, _) = yaml::decode::<KubeletConfiguration>(&self.merged).map_err(
            // each layer was decoded on its own, so this cannot tell a user anything new
            |source| ConfigError::Parse {
                path: PathBuf::from("merged configuration"),
                source,
            },
        )?;
        if !given("serializeImagePulls") && kubelet.max_parallel_image_pulls.is_some_and(|n| n > 1)
        {
            kubelet.serialize_image_pulls = false;
        }
        if !given("nodeStatusReportFrequency") && given("nodeStatusUpdateFrequency") {
            kubelet.node_status_report_frequency = kubelet.node_status_update_frequency;
        }
        if kubelet.merge_default_eviction_settings {
            let mut merged = kubelet::eviction_hard_defaults();
            merged.append(&mut kubelet.eviction_hard);
            kubelet.eviction_hard = merged;
        }

        let origin_of = |field: &str| origin_of(&self.origins, field);
        let (gates, errors) = FeatureGates::possible(&kubelet.feature_gates);
        let mut faults = std::mem::take(&mut self.faults);
        faults.extend(errors.iter().map(|error| validate::Fault {
            origin: origin_of("featureGates"),
            field: format!("featureGates.{}", error.gate()),
            message: error.to_string(),
        }));
        faults.extend(validate::validate(&kubelet, &gates, &origin_of));
        let origin = origin_of("featureGates");
        let inert = |(gate, _): &(&Gate, bool)| gate.in_kubelet && !ACTED_UPON.contains(&gate.name);
        let remark = |field: &str, message| Warning {
            origin: origin_of(field),
            field: field.to_owned(),
            message,
        };
        let suites = tls::suites_left_out(&kubelet.tls_cipher_suites);
        let suites = suites.map(|message| remark("tlsCipherSuites", message));
        let tracing = kubelet.tracing.as_ref();
        let endpoint = tracing.and_then(|it| it.endpoint.as_deref());
        let nowhere = endpoint.and_then(collector::leads_nowhere);
        let nowhere = nowhere.map(|message| remark("tracing.endpoint", message));
        let enforced = kubelet.enforce_node_allocatable.iter();
        let only_pods = enforced
            .filter(|word| !["pods", "none"].contains(&word.as_str()))
            .map(|word| format!("{word} is not enforced in this version, only pods are"))
            .map(|message| remark("enforceNodeAllocatable", message));
        let remarks: Vec<_> = suites.into_iter().chain(nowhere).chain(only_pods).collect();
        self.warn_of_inert_fields(&kubelet);
        self.warnings.extend(remarks);
        self.warnings
            .extend(gates.changed().filter(inert).map(|(gate, on)| Warning {
                origin: origin.clone(),
                field: format!("featureGates.{}", gate.name),
                message: format!("set to {on}, but nothing follows from this gate in this version"),
            }));
        let foreign = kubelet.feature_gates.keys().map(String::as_str);
        let foreign: Vec<_> = foreign.filter(|gate| is_foreign_gate(gate)).collect();
        if !foreign.is_empty() {
            self.warnings.push(Warning {
                origin,
                field: "featureGates".to_owned(),
                message: format!("{}: {FOREIGN_GATE}", foreign.join(", ")),
            });
        }
        self.warn_of_flags(flags);
        let config = Config {
            kubelet,
            gates,
            flags: flags.clone(),
            warnings: self.warnings,
        };
        Ok((config, faults))
    }

    /// A field that was set to something else than its default and does nothing is worth a word.
    fn warn_of_inert_fields(&mut self, kubelet: &KubeletConfiguration) {
        let defaults = serde_json::to_value(KubeletConfiguration::default()).unwrap_or_default();
        let present = serde_json::to_value(kubelet).unwrap_or_default();
        for (field, origin) in &self.origins {
            if layers::get(&defaults, field) == layers::get(&present, field) {
                continue;
            }
            if let Some(message) = fields::notice(field) {
                self.warnings.push(Warning {
                    origin: origin.clone(),
                    field: field.clone(),
                    message,
                });
            }
        }
    }

    fn warn_of_flags(&mut self, flags: &KubeletFlags) {
        if flags.exit_on_lock_contention {
            self.warn_flag(
                "exit-on-lock-contention",
                "accepted, but nothing follows from it in this version, which lacks an end for \
                 the next holder: the lock is kept until the agent ends",
            );
        }
        for flag in &flags.ignored.0 {
            self.warn_flag(
                flag,
                "accepted and ignored: it has no meaning any more, remove it",
            );
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

/// The settings of a layer that have the wrong type, with what is wrong.
fn misfits(values: &Value) -> Vec<(String, YamlError)> {
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

/// Says of a value with the wrong type what it should be, without the names of Rust.
fn misfit(origin: String, error: YamlError) -> validate::Fault {
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
        // the values are passwords as often as not
        (headers, _) if headers.starts_with("staticPodURLHeader") => {
            "write a list of values for each name, such as Accept: [text/plain]".to_owned()
        }
        (_, "") => found.to_owned(),
        (_, expected) => format!("{found}, expected {expected}"),
    };
    if let Some(position) = position {
        message.push_str(&format!(" ({position})"));
    }
    validate::Fault {
        origin,
        field,
        message,
    }
}

/// Who set a field, or something in it, last.
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
    // what a pipe or a device has in store is not known before
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
