//! A YAML document as a tree. Each value in it has its line and column.
//!
//! Deserializing directly into the settings would stop at the first mistake. With a tree, all
//! mistakes can be reported.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

use crate::config::origin::Position;

/// A value and the position where it begins.
pub(super) type SpannedNode = Spanned<Node>;

/// A value of a YAML document.
pub(super) enum Node {
    /// Null, a boolean, a number or a string.
    Scalar(Value),
    Sequence(Vec<SpannedNode>),
    /// Keys and values in the order of the file. A key may occur twice.
    Mapping(Vec<(SpannedNode, SpannedNode)>),
}

/// Parses a YAML document. An empty document is null.
///
/// # Errors
///
/// If the text is not YAML, or has a second document: the position, if the parser reports one, and
/// the message.
pub(super) fn parse(text: &str) -> Result<SpannedNode, (Option<Position>, String)> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let position = error.location().as_ref().and_then(position);
        let full = error.to_string();
        let message = full.split(" at line ").next().unwrap_or_default();
        let plain = match message {
            _ if message.starts_with("multiple YAML documents") => {
                "a second document; leave it out"
            }
            _ if message.contains("budget") || message.contains("recursion") => {
                "the document is too large, or nested too deeply"
            }
            message => message,
        };
        (position, plain.to_owned())
    })
}

/// Returns the position of a value in the file; `None` if the parser reports none.
pub(super) fn position_of(node: &SpannedNode) -> Option<Position> {
    position(&node.referenced)
}

fn position(location: &Location) -> Option<Position> {
    let (line, column) = (location.line(), location.column());
    (line > 0).then_some(Position { line, column })
}

// === impl Node ===

impl Node {
    /// Converts the tree to JSON, without the positions.
    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::Sequence(elements) => elements.iter().map(|node| node.value.to_value()).collect(),
            Self::Mapping(entries) => entries
                .iter()
                .map(|(key, node)| (key.value.to_key(), node.value.to_value()))
                .collect(),
        }
    }

    /// Returns the node as the text of a key. A key that is not a string becomes its JSON text.
    pub(super) fn to_key(&self) -> String {
        match self.to_value() {
            Value::String(text) => text,
            other => other.to_string(),
        }
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
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = access.next_element()? {
            elements.push(element);
        }
        Ok(Node::Sequence(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Mapping(entries))
    }
}
