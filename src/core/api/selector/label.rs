//! Parses and prints label selectors such as `app=a,tier in (x,y),!canary`.

use std::collections::HashSet;
use std::fmt;

use super::label_syntax::{is_key, is_value};
use super::{LabelOperator, LabelRequirement, LabelSelector};
use crate::api::Malformed;

impl LabelSelector {
    /// Parses a label selector, sorts it by key, and removes duplicates. The empty text selects
    /// everything.
    ///
    /// # Errors
    /// If the text is not a label selector.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        parse_requirements(&mut Tokens(text)).ok_or_else(|| {
            let problem =
                format!("{text:?} is not a label selector such as app=a,tier in (x,y),!old");
            Malformed::new("labelSelector", problem)
        })
    }
}

// The parse functions below return `None` if the next tokens are not valid in a label selector.

fn parse_requirements(tokens: &mut Tokens<'_>) -> Option<LabelSelector> {
    let mut requirements = Vec::new();
    if tokens.peek() == Token::End {
        return Some(LabelSelector::default());
    }
    loop {
        requirements.push(parse_requirement(tokens)?);
        match tokens.next() {
            Token::End => break,
            Token::Symbol(",") => {}
            _ => return None,
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    remove_duplicates(&mut requirements);
    requirements.shrink_to_fit();
    Some(LabelSelector { requirements })
}

/// Removes each requirement that equals an earlier one: it changes nothing.
fn remove_duplicates(requirements: &mut Vec<LabelRequirement>) {
    if requirements.len() < 2 {
        return;
    }
    let mut seen = HashSet::with_capacity(requirements.len());
    let is_first = requirements
        .iter()
        .map(|requirement| seen.insert(requirement));
    let is_first: Vec<bool> = is_first.collect();
    let mut is_first = is_first.into_iter();
    requirements.retain(|_| is_first.next().unwrap_or(true));
}

fn parse_requirement(tokens: &mut Tokens<'_>) -> Option<LabelRequirement> {
    let is_negated = tokens.peek() == Token::Symbol("!");
    if is_negated {
        tokens.next();
    }
    let key = tokens.word().filter(|key| is_key(key))?.to_owned();
    let operator = match (is_negated, tokens.peek()) {
        (true, _) => LabelOperator::DoesNotExist,
        (false, Token::End | Token::Symbol(",")) => LabelOperator::Exists,
        (false, _) => parse_condition(tokens)?,
    };
    Some(LabelRequirement { key, operator })
}

fn parse_condition(tokens: &mut Tokens<'_>) -> Option<LabelOperator> {
    let operator = tokens.next();
    let values = match operator {
        Token::Word("in" | "notin") => parse_set(tokens)?,
        Token::Symbol("=" | "==" | "!=" | ">" | "<") => vec![parse_value(tokens)?.to_owned()],
        _ => return None,
    };
    if !values.iter().all(|value| is_value(value)) {
        return None;
    }
    Some(match operator {
        Token::Symbol("!=") | Token::Word("notin") => LabelOperator::NotIn(values),
        Token::Symbol(">") => LabelOperator::GreaterThan(values[0].parse().ok()?),
        Token::Symbol("<") => LabelOperator::LessThan(values[0].parse().ok()?),
        _ => LabelOperator::In(values),
    })
}

/// Parses a set such as `(a,b)` into sorted values without duplicates; a value may be empty.
fn parse_set(tokens: &mut Tokens<'_>) -> Option<Vec<String>> {
    if tokens.next() != Token::Symbol("(") {
        return None;
    }
    let mut values = match tokens.peek() {
        Token::Symbol(")") => vec![String::new()],
        Token::Word(_) | Token::Symbol(",") => parse_elements(tokens)?,
        _ => return None,
    };
    tokens.next();
    values.sort_unstable();
    values.dedup();
    values.shrink_to_fit();
    Some(values)
}

/// Parses the values of a set, which may be empty, and leaves the closing parenthesis unread.
fn parse_elements(tokens: &mut Tokens<'_>) -> Option<Vec<String>> {
    let mut values = Vec::new();
    loop {
        match tokens.next() {
            Token::Word(value) => {
                values.push(value.to_owned());
                match tokens.peek() {
                    Token::Symbol(",") => {}
                    Token::Symbol(")") => return Some(values),
                    _ => return None,
                }
            }
            Token::Symbol(",") => {
                if values.is_empty() || matches!(tokens.peek(), Token::Symbol("," | ")")) {
                    values.push(String::new());
                }
                if tokens.peek() == Token::Symbol(")") {
                    return Some(values);
                }
            }
            _ => return None,
        }
    }
}

fn parse_value<'a>(tokens: &mut Tokens<'a>) -> Option<&'a str> {
    match tokens.peek() {
        Token::End | Token::Symbol(",") => Some(""),
        _ => tokens.word(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    End,
}

/// The unread part of a label selector; after the last token, every read returns [`Token::End`].
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        scan_token(self.0).0
    }

    fn next(&mut self) -> Token<'a> {
        let (token, rest) = scan_token(self.0);
        self.0 = rest;
        token
    }

    fn word(&mut self) -> Option<&'a str> {
        match self.next() {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];
/// The longer ones are first.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ">", "<", "(", ")", ","];
const WORD_ENDS: [char; 12] = [
    ' ', '\t', '\r', '\n', '\0', '=', '!', '(', ')', ',', '>', '<',
];

/// Returns the first token of `text`, and what follows it.
fn scan_token(text: &str) -> (Token<'_>, &str) {
    let text = text.trim_start_matches(SPACES);
    if text.is_empty() || text.starts_with('\0') {
        return (Token::End, text);
    }
    let mut symbols = SYMBOLS.into_iter();
    let (token, rest) = match symbols.find(|symbol| text.starts_with(symbol)) {
        Some(symbol) => (Token::Symbol(symbol), &text[symbol.len()..]),
        None => {
            let (word, rest) = text.split_at(text.find(WORD_ENDS).unwrap_or(text.len()));
            (Token::Word(word), rest)
        }
    };
    // A NUL directly after a token is skipped; a NUL anywhere else ends the text.
    (token, rest.strip_prefix('\0').unwrap_or(rest))
}

impl fmt::Display for LabelSelector {
    /// Prints the selector so that [`LabelSelector::parse`] returns an equal one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            LabelOperator::In(values) => match values.as_slice() {
                [value] => write!(f, "{key}={value}"),
                _ => write!(f, "{key} in ({})", values.join(",")),
            },
            LabelOperator::NotIn(values) => match values.as_slice() {
                [value] => write!(f, "{key}!={value}"),
                _ => write!(f, "{key} notin ({})", values.join(",")),
            },
            LabelOperator::Exists => f.write_str(key),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            LabelOperator::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

#[cfg(test)]
mod tests;
