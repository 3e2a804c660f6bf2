//! The text form of field selectors: `spec.nodeName=n1,status.phase!=Running`.
//!
//! Two steps, because a request is checked in between: the grammar, then the labels, which need
//! the kind.

use std::fmt;

use super::FieldSelector;
use super::FieldTerm;
use super::SelectableFields;
use crate::api::Malformed;

/// A field selector of correct grammar whose labels no kind has accepted yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawFieldSelector {
    terms: Vec<RawTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RawTerm {
    label: String,
    operator: Operator,
    value: String,
}

/// The first two mean the same, but terms are ordered by how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Equal,
    DoubleEqual,
    NotEqual,
}

impl Operator {
    fn requires_equality(self) -> bool {
        self != Self::NotEqual
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::DoubleEqual => "==",
            Self::NotEqual => "!=",
        }
    }
}

impl RawFieldSelector {
    /// Reads a selector; its terms end up in the order of their texts. The empty text selects
    /// everything.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = || {
            let problem = format!("{text:?} is no field selector such as metadata.name=a,type!=b");
            Malformed::new("fieldSelector", problem)
        };
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (label, operator, value) = split_term(part).ok_or_else(malformed)?;
            let value = unescape(value).ok_or_else(malformed)?;
            // A term without label and value means nothing to the API server.
            if !(label.is_empty() && value.is_empty()) {
                let label = label.to_owned();
                terms.push(RawTerm {
                    label,
                    operator,
                    value,
                });
            }
        }
        Ok(Self { terms })
    }

    /// True when nothing is demanded.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value that the first `metadata.name=` term demands.
    pub fn required_name(&self) -> Option<&str> {
        let by_name =
            |term: &&RawTerm| term.operator.requires_equality() && term.label == "metadata.name";
        Some(&self.terms.iter().find(by_name)?.value)
    }

    /// Finds the kind's fields that the labels name.
    ///
    /// # Errors
    ///
    /// When the kind lacks one.
    pub fn resolve(&self, fields: &SelectableFields) -> Result<FieldSelector, Malformed> {
        let resolve = |term: &RawTerm| {
            Ok(FieldTerm {
                field: fields.resolve(&term.label)?,
                equal: term.operator.requires_equality(),
                value: term.value.clone(),
            })
        };
        let terms = self
            .terms
            .iter()
            .map(resolve)
            .collect::<Result<_, Malformed>>()?;
        Ok(FieldSelector { terms })
    }
}

impl FieldSelector {
    /// Reads a selector over the fields of one kind.
    ///
    /// # Errors
    ///
    /// When it is none, or the kind lacks a field.
    pub fn parse(text: &str, fields: &SelectableFields) -> Result<Self, Malformed> {
        RawFieldSelector::parse(text)?.resolve(fields)
    }
}

impl fmt::Display for RawFieldSelector {
    /// Prints what [`RawFieldSelector::parse`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let operator = term.operator.as_str();
            write!(
                f,
                "{separator}{}{operator}{}",
                term.label,
                escape_field_value(&term.value)
            )?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut is_escaped = false;
    text.split(|character| {
        let is_separator = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_separator
    })
    .collect()
}

/// Splits at the first operator: label, operator, escaped value.
fn split_term(term: &str) -> Option<(&str, Operator, &str)> {
    let equals = term.find('=')?;
    let (label, behind) = (&term[..equals], &term[equals + 1..]);
    Some(match (label.strip_suffix('!'), behind.strip_prefix('=')) {
        (Some(label), _) => (label, Operator::NotEqual, behind),
        (None, Some(value)) => (label, Operator::DoubleEqual, value),
        (None, None) => (label, Operator::Equal, behind),
    })
}

fn unescape(value: &str) -> Option<String> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let escaped = characters.next();
                plain.push(escaped.filter(|escaped| matches!(escaped, '\\' | ',' | '='))?);
            }
            ',' | '=' => return None,
            _ => plain.push(character),
        }
    }
    Some(plain)
}

/// `value` as it is written in a field selector.
pub fn escape_field_value(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests;
