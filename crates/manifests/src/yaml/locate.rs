//! Finds the line of a field by a second parse with positions, only for errors and warnings.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::Position;

/// Returns the position of the field at `path` (`spec.containers[0].image`) in the `document`-th
/// non-empty document, or of its deepest existing ancestor. `None` if the text is not YAML.
pub fn locate(bytes: &[u8], document: usize, path: &str) -> Option<Position> {
    Locator::new(bytes).locate(document, path)
}

/// A text parsed with positions, for several lookups.
#[derive(Debug)]
pub(crate) struct Locator(Vec<Spanned<Node>>);

impl Locator {
    /// Parses a text; a text that is not YAML has no positions.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let options = super::options(super::DuplicateKeyPolicy::LastWins);
        let documents = super::text(bytes)
            .ok()
            .and_then(|text| serde_saphyr::from_multiple_with_options(text, options).ok());
        Self(documents.unwrap_or_default())
    }

    /// See [`locate`].
    pub(crate) fn locate(&self, document: usize, path: &str) -> Option<Position> {
        let mut node = self.0.get(document)?;
        let mut rest = path;
        while let Some((child, tail)) = step(&node.value, rest) {
            (node, rest) = (child, tail);
        }
        let position = super::position(node.referenced);
        (position.line > 0).then_some(position)
    }
}

/// A value, reduced to its children.
#[derive(Debug)]
enum Node {
    Leaf,
    Sequence(Vec<Spanned<Node>>),
    Mapping(Vec<(String, Spanned<Node>)>),
}

/// Descends by the longest matching key, as keys may contain dots
/// (`metadata.annotations.kubernetes.io/x`).
fn step<'a, 'p>(node: &'a Node, path: &'p str) -> Option<(&'a Spanned<Node>, &'p str)> {
    match node {
        Node::Leaf => None,
        Node::Sequence(items) => {
            let (index, tail) = path.strip_prefix('[')?.split_once(']')?;
            let item = items.get(index.parse::<usize>().ok()?)?;
            Some((item, tail.strip_prefix('.').unwrap_or(tail)))
        }
        Node::Mapping(entries) => entries
            .iter()
            .filter_map(|(key, child)| {
                // the form `labels[app.kubernetes.io/name]`
                let bracketed = path
                    .strip_prefix('[')
                    .and_then(|p| p.strip_prefix(key.as_str()))
                    .and_then(|p| p.strip_prefix(']'));
                let tail = bracketed.or_else(|| path.strip_prefix(key.as_str()))?;
                let ends = tail.is_empty() || tail.starts_with(['.', '[']);
                ends.then(|| (key.len(), child, tail.strip_prefix('.').unwrap_or(tail)))
            })
            .max_by_key(|(length, _, _)| *length)
            .map(|(_, child, tail)| (child, tail)),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Deserialize::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Key>()? {
            match key {
                Key::Text(text) => entries.push((text, access.next_value()?)),
                Key::Other => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Node::Mapping(entries))
    }
}

/// A mapping key; only strings are part of a path.
enum Key {
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer).map_or(Self::Other, Self::Text))
    }
}
