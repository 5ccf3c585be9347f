//! Parsing of flag values.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::duration::GoDuration;

/// `key=value` pairs of `--node-labels`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

/// Syntax of a flag value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A switch.
    Switch,
    /// A whole number.
    Integer,
    /// A Go duration.
    Duration,
    /// Items separated by commas; repeated flags add items.
    List,
    /// `key=value` pairs separated by commas; repeated flags add pairs.
    Map,
    /// `signal<value` pairs separated by commas.
    Thresholds,
    /// `name=bool` pairs separated by commas.
    Gates,
    /// `name:value` pairs separated by commas; a name may occur more than once.
    Headers,
    /// `key=value:effect` items separated by commas.
    Taints,
    /// `node:type=quantity,…` items separated by semicolons.
    ReservedMemory,
    /// `pattern=verbosity` pairs separated by commas.
    VModule,
}

impl Kind {
    /// Parses a value.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text => Ok(json!(text)),
            Self::Switch => boolean(text).map(Value::Bool),
            Self::Integer => text
                .parse::<i64>()
                .map(|n| json!(n))
                .map_err(|_| "not a whole number".to_owned()),
            Self::Duration => text
                .parse::<GoDuration>()
                .map(|d| json!(d))
                .map_err(|e| e.to_string()),
            Self::List => Ok(json!(items(text, ',').collect::<Vec<_>>())),
            Self::Map => pairs(text, '=').map(|map| json!(map)),
            Self::Thresholds => pairs(text, '<').map(|map| json!(map)),
            Self::Gates => {
                let mut map = Map::new();
                for (name, on) in pairs(text, '=')? {
                    let on = boolean(&on).map_err(|e| format!("{name}: {e}"))?;
                    map.insert(name, Value::Bool(on));
                }
                Ok(Value::Object(map))
            }
            Self::Headers => headers(text),
            Self::Taints => items(text, ',').map(taint).collect(),
            Self::ReservedMemory => items(text, ';').map(reserved_memory).collect(),
            Self::VModule => {
                let entry = |(pattern, level): (String, String)| {
                    let level: u32 = level
                        .parse()
                        .map_err(|_| format!("{pattern}: {level:?} is not a verbosity"))?;
                    Ok(json!({"filePattern": pattern, "verbosity": level}))
                };
                pairs(text, '=')?.into_iter().map(entry).collect()
            }
        }
    }

    /// Returns the placeholder of the value in `--help`.
    pub(crate) fn placeholder(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Switch => "BOOL",
            Self::Integer => "N",
            Self::Duration => "DURATION",
            Self::List => "A,B",
            Self::Map | Self::VModule => "A=B,C=D",
            Self::Thresholds => "SIGNAL<VALUE",
            Self::Gates => "GATE=BOOL",
            Self::Headers => "NAME:VALUE",
            Self::Taints => "KEY=VALUE:EFFECT",
            Self::ReservedMemory => "NODE:TYPE=QUANTITY",
        }
    }
}

/// Joins the values of a repeated flag.
pub fn join(values: impl IntoIterator<Item = Value>) -> Option<Value> {
    values
        .into_iter()
        .reduce(|left, right| match (left, right) {
            (Value::Array(mut left), Value::Array(right)) => {
                left.extend(right);
                Value::Array(left)
            }
            (Value::Object(mut left), Value::Object(right)) => {
                left.extend(right);
                Value::Object(left)
            }
            (_, last) => last,
        })
}

/// Parses the booleans that Go accepts.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Parses a path, which may be empty.
pub fn path(text: &str) -> Result<std::path::PathBuf, std::convert::Infallible> {
    Ok(text.into())
}

/// Parses a whole number.
pub fn whole<T: std::str::FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse()
        .map_err(|_| "not a whole number or out of range")
}

/// Parses `--node-labels`.
pub fn labels(text: &str) -> Result<Labels, String> {
    pairs(text, '=').map(Labels)
}

fn items(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator)
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn pairs(text: &str, separator: char) -> Result<BTreeMap<String, String>, String> {
    items(text, ',')
        .map(|item| {
            let (key, value) = item
                .split_once(separator)
                .ok_or_else(|| format!("missing {separator:?} in {item:?}"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

fn headers(text: &str) -> Result<Value, String> {
    let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for item in items(text, ',') {
        let (name, value) = item
            .split_once(':')
            .ok_or_else(|| "headers must be name:value".to_owned())?;
        map.entry(name.trim().to_owned())
            .or_default()
            .push(value.trim().to_owned());
    }
    Ok(json!(map))
}

fn taint(item: &str) -> Result<Value, String> {
    let bad = || format!("{item:?} is not key=value:effect");
    let (key_value, effect) = item.rsplit_once(':').ok_or_else(bad)?;
    let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
    if key.is_empty() || effect.is_empty() {
        return Err(bad());
    }
    Ok(json!({"key": key, "value": value, "effect": effect}))
}

fn reserved_memory(item: &str) -> Result<Value, String> {
    let bad = || format!("{item:?} is not node:type=quantity,…");
    let (node, limits) = item.split_once(':').ok_or_else(bad)?;
    let node: i32 = node.trim().parse().map_err(|_| bad())?;
    Ok(json!({"numaNode": node, "limits": pairs(limits, '=')?}))
}
