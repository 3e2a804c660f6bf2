//! Parses and prints label selectors such as `app=a,tier in (x,y),!canary`.

use std::collections::HashSet;
use std::fmt;
use std::iter::Peekable;
use std::vec::IntoIter;

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
        parse_requirements(&mut Tokens::scan(text)).ok_or_else(|| {
            let problem =
                format!("{text:?} is not a label selector such as app=a,tier in (x,y),!old");
            Malformed::new("labelSelector", problem)
        })
    }
}

// The parse functions below return `None` if the next tokens are not valid in a label selector.

fn parse_requirements(tokens: &mut Tokens) -> Option<LabelSelector> {
    let mut requirements = Vec::new();
    if *tokens.peek() == Token::End {
        return Some(LabelSelector::default());
    }
    loop {
        requirements.push(parse_requirement(tokens)?);
        match tokens.next() {
            Token::End => break,
            Token::Comma => {}
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

fn parse_requirement(tokens: &mut Tokens) -> Option<LabelRequirement> {
    let is_negated = tokens.skip_if(&Token::Not);
    let Token::Word(key) = tokens.next() else {
        return None;
    };
    if !is_key(&key) {
        return None;
    }
    let operator = match (is_negated, tokens.peek()) {
        (true, _) => LabelOperator::DoesNotExist,
        (false, Token::End | Token::Comma) => LabelOperator::Exists,
        (false, _) => parse_condition(tokens)?,
    };
    Some(LabelRequirement { key, operator })
}

fn parse_condition(tokens: &mut Tokens) -> Option<LabelOperator> {
    let operator = tokens.next();
    let values = match &operator {
        Token::Word(word) if matches!(word.as_str(), "in" | "notin") => parse_set(tokens)?,
        Token::Equal | Token::DoubleEqual | Token::NotEqual | Token::Greater | Token::Less => {
            vec![parse_value(tokens)?]
        }
        _ => return None,
    };
    if !values.iter().all(|value| is_value(value)) {
        return None;
    }
    Some(match operator {
        Token::NotEqual => LabelOperator::NotIn(values),
        Token::Greater => LabelOperator::GreaterThan(values[0].parse().ok()?),
        Token::Less => LabelOperator::LessThan(values[0].parse().ok()?),
        Token::Word(word) if word == "notin" => LabelOperator::NotIn(values),
        _ => LabelOperator::In(values),
    })
}

/// Parses a set such as `(a,b)` into sorted values without duplicates; a value may be empty.
fn parse_set(tokens: &mut Tokens) -> Option<Vec<String>> {
    if tokens.next() != Token::Open {
        return None;
    }
    let mut values = match tokens.peek() {
        Token::Close => vec![String::new()],
        Token::Word(_) | Token::Comma => parse_elements(tokens)?,
        _ => return None,
    };
    tokens.next();
    values.sort_unstable();
    values.dedup();
    values.shrink_to_fit();
    Some(values)
}

/// Parses the values of a set, which may be empty, and leaves the closing parenthesis unread.
fn parse_elements(tokens: &mut Tokens) -> Option<Vec<String>> {
    let mut values = Vec::new();
    loop {
        match tokens.next() {
            Token::Word(value) => {
                values.push(value);
                match tokens.peek() {
                    Token::Comma => {}
                    Token::Close => return Some(values),
                    _ => return None,
                }
            }
            Token::Comma => {
                if values.is_empty() || matches!(tokens.peek(), Token::Comma | Token::Close) {
                    values.push(String::new());
                }
                if *tokens.peek() == Token::Close {
                    return Some(values);
                }
            }
            _ => return None,
        }
    }
}

fn parse_value(tokens: &mut Tokens) -> Option<String> {
    match tokens.peek() {
        Token::End | Token::Comma => Some(String::new()),
        _ => match tokens.next() {
            Token::Word(value) => Some(value),
            _ => None,
        },
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Not,
    Equal,
    DoubleEqual,
    NotEqual,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    End,
}

/// The tokens of a label selector; after the last one, every read returns [`Token::End`].
struct Tokens(Peekable<IntoIter<Token>>);

impl Tokens {
    fn scan(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((token, after)) = scan_token(rest) {
            tokens.push(token);
            rest = after;
        }
        Self(tokens.into_iter().peekable())
    }

    fn peek(&mut self) -> &Token {
        self.0.peek().unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        self.0.next().unwrap_or(Token::End)
    }

    fn skip_if(&mut self, token: &Token) -> bool {
        self.0.next_if_eq(token).is_some()
    }
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];
const SPECIALS: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

fn scan_token(text: &str) -> Option<(Token, &str)> {
    let text = text.trim_start_matches(SPACES);
    let first = text.chars().next()?;
    if first == '\0' {
        return None;
    }
    let (token, length) = match first {
        '=' if text.starts_with("==") => (Token::DoubleEqual, 2),
        '!' if text.starts_with("!=") => (Token::NotEqual, 2),
        '=' => (Token::Equal, 1),
        '!' => (Token::Not, 1),
        '>' => (Token::Greater, 1),
        '<' => (Token::Less, 1),
        '(' => (Token::Open, 1),
        ')' => (Token::Close, 1),
        ',' => (Token::Comma, 1),
        _ => {
            let ends_word = |c: char| c == '\0' || SPACES.contains(&c) || SPECIALS.contains(&c);
            let length = text.find(ends_word).unwrap_or(text.len());
            (Token::Word(text[..length].to_owned()), length)
        }
    };
    let rest = &text[length..];
    // A NUL directly after a token is skipped; a NUL anywhere else ends the text.
    Some((token, rest.strip_prefix('\0').unwrap_or(rest)))
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
