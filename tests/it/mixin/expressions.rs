//! Finds the metrics and labels that a PromQL expression names.

use std::collections::BTreeSet;

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) metrics: BTreeSet<String>,
    pub(super) labels: BTreeSet<String>,
    /// The values that labels are compared with. Alternatives of a regular expression are separate.
    pub(super) values: BTreeSet<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Text(String),
    Symbol(char),
}

/// Words before a list of labels in parentheses.
const BEFORE_LABELS: [&str; 5] = ["by", "without", "on", "ignoring", "group_left"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// Finds what `expression` names. promtool checks whether it is valid.
pub(super) fn named(expression: &str) -> Named {
    let mut named = Named::default();
    let tokens = tokens(expression);
    let (mut in_matchers, mut in_labels) = (false, false);
    let mut label = String::new();
    for (index, token) in tokens.iter().enumerate() {
        let is_function = match tokens.get(index + 1) {
            Some(Token::Symbol(next)) => *next == '(',
            Some(Token::Name(next)) => next == "by" || next == "without",
            _ => false,
        };
        match token {
            Token::Symbol('{') => in_matchers = true,
            Token::Symbol('}') => in_matchers = false,
            Token::Symbol(')') => in_labels = false,
            Token::Symbol(_) => {}
            Token::Name(name) if in_matchers || in_labels => {
                named.labels.insert(name.clone());
                label.clone_from(name);
            }
            Token::Name(name) if BEFORE_LABELS.contains(&name.as_str()) => in_labels = is_function,
            Token::Name(name) if is_function || OPERATORS.contains(&name.as_str()) => {}
            Token::Name(name) => {
                named.metrics.insert(name.clone());
            }
            Token::Text(text) if in_matchers => {
                let values = text.split('|').map(str::to_owned);
                named
                    .values
                    .extend(values.map(|value| (label.clone(), value)));
            }
            Token::Text(_) => {}
        }
    }
    named
}

/// Splits an expression into names, strings in quotes, and other characters. Numbers and durations
/// are left out.
fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_:.".contains(c);
        let length = match first {
            '"' => rest[1..].find('"').expect("the string's end") + 2,
            c if is_part(c) => rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        match first {
            '"' => tokens.push(Token::Text(token[1..length - 1].to_owned())),
            c if c.is_ascii_alphabetic() => tokens.push(Token::Name(token.to_owned())),
            c if is_part(c) || c.is_whitespace() => {}
            other => tokens.push(Token::Symbol(other)),
        }
    }
    tokens
}

#[test]
fn metrics_labels_and_values_are_found() {
    let expression = r#"sum without (a, b) (rate(x_total{c=~"d|e", f!="g"}[5m])) > 0.5
        or on (h) label_replace(l:y:rate5m, "i", "j", "", "") offset 1h"#;
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let values = [("c", "d"), ("c", "e"), ("f", "g")];
    let values = values.map(|(label, value)| (label.to_owned(), value.to_owned()));
    let expected = Named {
        metrics: set(&["x_total", "l:y:rate5m"]),
        labels: set(&["a", "b", "c", "f", "h"]),
        values: values.into_iter().collect(),
    };
    assert_eq!(named(expression), expected);
}
