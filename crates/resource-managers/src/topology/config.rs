//! Policy, scope and options.

use std::collections::BTreeMap;
use std::str::FromStr;

const PREFER_CLOSEST: &str = "prefer-closest-numa-nodes";
const MAX_NODES: &str = "max-allowable-numa-nodes";
/// Default of `max-allowable-numa-nodes`, and its smallest value.
const DEFAULT_MAX_NODES: usize = 8;

windlass_types::text_enum! {
    /// `topologyManagerPolicy`. Its text is the value in the configuration.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum TopologyPolicy {
        /// No alignment.
        #[default]
        None = "none",
        /// The best placement, whatever it is.
        BestEffort = "best-effort",
        /// Only a preferred placement.
        Restricted = "restricted",
        /// Only a placement on one node.
        SingleNumaNode = "single-numa-node",
    }
}

windlass_types::text_enum! {
    /// `topologyManagerScope`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum TopologyScope {
        /// Each container is placed separately.
        #[default]
        Container = "container",
        /// All containers of a pod are placed together.
        Pod = "pod",
    }
}

/// Configuration of the topology manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyConfig {
    /// Policy.
    pub policy: TopologyPolicy,
    /// Scope; the policy `none` has none.
    pub scope: TopologyScope,
    /// Of placements with as many nodes, the one with the smallest distances is better; not with
    /// `single-numa-node`.
    pub prefer_closest: bool,
    /// NUMA nodes that the machine may have.
    pub max_nodes: usize,
}

/// An entry of `topologyManagerPolicyOptions` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyOptionError {
    /// No such option.
    #[error(
        "unknown Topology Manager Policy option: {0:?}; the options are {PREFER_CLOSEST} and \
         {MAX_NODES}"
    )]
    Unknown(String),
    /// Not a truth value.
    #[error("bad value for option {PREFER_CLOSEST:?}: {0:?}; set \"true\" or \"false\"")]
    Boolean(String),
    /// Not a number.
    #[error("unable to convert policy option to integer {MAX_NODES:?}: {0:?}; set a number")]
    Number(String),
    /// Below the default.
    #[error("the minimum value of {MAX_NODES:?} should not be less than 8, got {0}")]
    TooFewNodes(i64),
}

impl TopologyConfig {
    /// Creates a configuration from `topologyManagerPolicyOptions`.
    ///
    /// # Errors
    /// The first invalid option. The policy `none` ignores the options.
    pub fn new(
        policy: TopologyPolicy,
        scope: TopologyScope,
        options: &BTreeMap<String, String>,
    ) -> Result<Self, TopologyOptionError> {
        let mut config = Self {
            policy,
            scope,
            ..Self::default()
        };
        if policy == TopologyPolicy::None {
            return Ok(config);
        }
        for (name, value) in options {
            match name.as_str() {
                PREFER_CLOSEST => {
                    let error = || TopologyOptionError::Boolean(value.clone());
                    config.prefer_closest = go_bool(value).ok_or_else(error)?;
                }
                MAX_NODES => config.max_nodes = max_nodes(value)?,
                _ => return Err(TopologyOptionError::Unknown(name.clone())),
            }
        }
        Ok(config)
    }
}

fn max_nodes(value: &str) -> Result<usize, TopologyOptionError> {
    let number: i64 = value
        .parse()
        .map_err(|_| TopologyOptionError::Number(value.to_owned()))?;
    usize::try_from(number)
        .ok()
        .filter(|number| *number >= DEFAULT_MAX_NODES)
        .ok_or(TopologyOptionError::TooFewNodes(number))
}

/// Parses a truth value as Go's `strconv.ParseBool`.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl Default for TopologyConfig {
    fn default() -> Self {
        Self {
            policy: TopologyPolicy::None,
            scope: TopologyScope::Container,
            prefer_closest: false,
            max_nodes: DEFAULT_MAX_NODES,
        }
    }
}

/// A text that is not a policy or scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not known")]
pub struct UnknownValue(String);

impl FromStr for TopologyPolicy {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        Self::from_text(text).ok_or_else(|| UnknownValue(text.to_owned()))
    }
}

impl FromStr for TopologyScope {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        Self::from_text(text).ok_or_else(|| UnknownValue(text.to_owned()))
    }
}
