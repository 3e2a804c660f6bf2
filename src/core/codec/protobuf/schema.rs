//! Parses `schema.txt`, which describes how protobuf messages are converted to JSON.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How one protobuf field is converted to JSON.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// The field becomes the member `name` of the message's JSON object.
    Member {
        name: &'static str,
        shape: Shape,
        kind: Kind,
    },
    /// The field is a message that Go embeds: its fields become members of the containing object.
    OfOwner { message: &'static str },
}

/// Whether a field is single, a list or a map, and whether a zero value is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    UnlessZero,
    EvenZero,
    List,
    /// A map whose keys are text.
    Map,
}

/// The type of a value, or of the items of a list or map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Integer,
    Boolean,
    Bytes,
    Time,
    PreciseTime,
    Quantity,
    NumberOrText,
    /// A message that contains JSON text, which is inserted as JSON.
    Raw,
    Message(&'static str),
}

/// The rules of one message, by field number.
pub(super) type Rules = HashMap<u32, Rule>;

/// The rules of all messages, by message name such as `core.Pod`.
pub(super) static SCHEMA: LazyLock<HashMap<&str, Rules>> = LazyLock::new(|| {
    let lines = include_str!("schema.txt").lines();
    let messages = lines.filter(|line| !line.starts_with('#')).map(message);
    let messages = messages.collect::<Option<_>>();
    messages.expect("every line of schema.txt is valid")
});

fn message(line: &'static str) -> Option<(&'static str, Rules)> {
    let mut parts = line.split('|');
    let name = parts.next()?;
    let rules = parts.map(rule).collect::<Option<_>>()?;
    Some((name, rules))
}

fn rule(text: &'static str) -> Option<(u32, Rule)> {
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?;
    let marks = words.next()?;
    if let Some(message) = marks.strip_prefix("^@") {
        return Some((number, Rule::OfOwner { message }));
    }
    let (single, marks) = match marks.strip_prefix(['*', '!']) {
        Some(rest) => (Shape::EvenZero, rest),
        None => (Shape::UnlessZero, marks),
    };
    let (shape, kind) = match marks.split_at_checked(1)? {
        ("[", item) => (Shape::List, item),
        ("m", item) => (Shape::Map, item),
        _ => (single, marks),
    };
    let kind = Kind::parse(kind)?;
    Some((number, Rule::Member { name, shape, kind }))
}

impl Kind {
    fn parse(text: &'static str) -> Option<Self> {
        Some(match text {
            "s" => Self::Text,
            "i" => Self::Integer,
            "b" => Self::Boolean,
            "y" => Self::Bytes,
            "T" => Self::Time,
            "U" => Self::PreciseTime,
            "Q" => Self::Quantity,
            "I" => Self::NumberOrText,
            "R" => Self::Raw,
            _ => Self::Message(text.strip_prefix('@')?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_message_is_defined() {
        for (name, rules) in SCHEMA.iter() {
            for rule in rules.values() {
                if let Rule::OfOwner { message }
                | Rule::Member {
                    kind: Kind::Message(message),
                    ..
                } = rule
                {
                    assert!(SCHEMA.contains_key(message), "{name}: {message}");
                }
            }
        }
    }
}
