//! Parses and prints field selectors such as `spec.nodeName=n1,status.phase!=Running`.
//!
//! Parsing has two steps. The first checks the grammar and does not need the kind; the second looks
//! up the field names among the kind's selectable fields. Other checks of a request run in between.

use std::fmt;

use super::{FieldSelector, FieldTerm, SelectableFields};
use crate::api::Malformed;

/// A field selector with correct grammar. Its field names were not yet looked up in a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawFieldSelector {
    terms: Vec<RawTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RawTerm {
    label: String,
    /// `=`, `==` or `!=`. The first two have one meaning, but a term is printed as it was written.
    operator: &'static str,
    value: String,
}

impl RawTerm {
    fn requires_equality(&self) -> bool {
        self.operator != "!="
    }

    fn parts(&self) -> (&str, bool, &str) {
        (&self.label, self.requires_equality(), &self.value)
    }
}

impl RawFieldSelector {
    /// Parses a field selector and sorts its terms by text. The empty text selects everything.
    ///
    /// # Errors
    /// If the text is not a field selector.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = || {
            let problem =
                format!("{text:?} is not a field selector such as metadata.name=a,type!=b");
            Malformed::new("fieldSelector", problem)
        };
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (label, operator, value) = split_term(part).ok_or_else(malformed)?;
            let value = unescape(value).ok_or_else(malformed)?;
            // The API server ignores a term that has neither a field name nor a value.
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

    /// Returns true if the selector has no terms and therefore selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the terms: the field's name, whether the values must be equal, and the value.
    pub fn terms(&self) -> impl Iterator<Item = (&str, bool, &str)> {
        self.terms.iter().map(RawTerm::parts)
    }

    /// Returns the value of the first term that requires a `metadata.name`, or
    /// `None` if there is none.
    pub fn required_name(&self) -> Option<&str> {
        let by_name = |term: &&RawTerm| term.requires_equality() && term.label == "metadata.name";
        Some(&self.terms.iter().find(by_name)?.value)
    }

    /// Replaces the field names of the terms by `fields`, the selectable fields of one kind.
    ///
    /// # Errors
    /// If the kind does not have one of the fields.
    pub fn resolve(&self, fields: &SelectableFields) -> Result<FieldSelector, Malformed> {
        let resolve = |term: &RawTerm| {
            Ok(FieldTerm {
                field: fields.resolve(&term.label)?,
                equal: term.requires_equality(),
                value: term.value.clone(),
            })
        };
        let terms: Result<_, Malformed> = self.terms.iter().map(resolve).collect();
        Ok(FieldSelector { terms: terms? })
    }
}

impl FieldSelector {
    /// Parses a field selector over `fields`, the selectable fields of one kind.
    ///
    /// # Errors
    /// If the text is not a field selector, or the kind does not have one of the fields.
    pub fn parse(text: &str, fields: &SelectableFields) -> Result<Self, Malformed> {
        RawFieldSelector::parse(text)?.resolve(fields)
    }

    /// Prints the selector so that [`FieldSelector::parse`] with these `fields` returns an equal
    /// selector. Returns `None` if a term's field is not in `fields`.
    pub fn to_text(&self, fields: &SelectableFields) -> Option<String> {
        let print = |term: &FieldTerm| {
            let label = fields.label(term.field)?;
            let operator = if term.equal { "=" } else { "!=" };
            Some(print_term(label, operator, &term.value))
        };
        let terms: Option<Vec<_>> = self.terms.iter().map(print).collect();
        Some(terms?.join(","))
    }
}

impl fmt::Display for RawFieldSelector {
    /// Prints the selector so that [`RawFieldSelector::parse`] returns an equal one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let print = |term: &RawTerm| print_term(&term.label, term.operator, &term.value);
        let terms: Vec<_> = self.terms.iter().map(print).collect();
        f.write_str(&terms.join(","))
    }
}

fn print_term(label: &str, operator: &str, value: &str) -> String {
    format!("{label}{operator}{}", escape_field_value(value))
}

/// Splits a selector into terms, at each comma that is not escaped by a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut is_escaped = false;
    text.split(|character| {
        let is_separator = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_separator
    })
    .collect()
}

/// Splits a term at its first operator into field name, operator and escaped value.
fn split_term(term: &str) -> Option<(&str, &'static str, &str)> {
    let equals = term.find('=')?;
    let (label, after) = (&term[..equals], &term[equals + 1..]);
    Some(match (label.strip_suffix('!'), after.strip_prefix('=')) {
        (Some(label), _) => (label, "!=", after),
        (None, Some(value)) => (label, "==", value),
        (None, None) => (label, "=", after),
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

/// Escapes `value` for use in a field selector: a backslash before each `\`, `,` and `=`.
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
