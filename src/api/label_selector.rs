//! The text form of label selectors: `app=a,tier in (x,y),!canary`.
//!
//! Faults are told in the API server's words, which clients see as the message of a 400.

use std::fmt;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::LabelOperator;
use super::LabelRequirement;
use super::LabelSelector;
use super::go_text::parse_int64;
use super::label_syntax::invalid;
use super::label_syntax::key_faults;
use super::label_syntax::value_faults;

impl LabelSelector {
    /// Reads a selector; requirements end up sorted by key. The empty text selects everything.
    ///
    /// # Errors
    /// The message of the 400 that the API server answers.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens::scan(text);
        let mut requirements = Vec::new();
        match tokens.peek() {
            Token::End => return Ok(Self::default()),
            Token::Word(_) | Token::Not => {}
            other => {
                return Err(format!(
                    "found '{other}', expected: !, identifier, or 'end of string'"
                ));
            }
        }
        loop {
            let requirement = parse_requirement(&mut tokens)
                .map_err(|fault| format!("unable to parse requirement: {fault}"))?;
            requirements.push(requirement);
            match tokens.next() {
                Token::End => break,
                Token::Comma => {}
                other => {
                    return Err(format!("found '{other}', expected: ',' or 'end of string'"));
                }
            }
            if !matches!(tokens.peek(), Token::Word(_) | Token::Not) {
                let found = tokens.peek();
                return Err(format!("found '{found}', expected: identifier after ','"));
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }
}

fn parse_requirement(tokens: &mut Tokens) -> Result<LabelRequirement, String> {
    let is_negated = tokens.skip_if(&Token::Not);
    let key = match tokens.next() {
        Token::Word(key) => key,
        other => return Err(format!("found '{other}', expected: identifier")),
    };
    let faults = key_faults(&key);
    if !faults.is_empty() {
        return Err(invalid("<nil>", &key, &faults.join("; ")));
    }
    let operator = match (is_negated, tokens.peek()) {
        (true, _) => LabelOperator::DoesNotExist,
        (false, Token::End | Token::Comma) => LabelOperator::Exists,
        (false, _) => parse_condition(tokens, &key)?,
    };
    Ok(LabelRequirement { key, operator })
}

fn parse_condition(tokens: &mut Tokens, key: &str) -> Result<LabelOperator, String> {
    let operator = tokens.next();
    let values = match &operator {
        Token::Word(word) if matches!(word.as_str(), "in" | "notin") => parse_set(tokens)?,
        Token::Equal | Token::DoubleEqual | Token::NotEqual | Token::Greater | Token::Less => {
            vec![parse_value(tokens)?]
        }
        other => {
            return Err(format!(
                "found '{other}', expected: in, notin, =, ==, !=, gt, lt"
            ));
        }
    };
    let bound = match operator {
        Token::Greater | Token::Less => parse_int64(&values[0]).ok(),
        _ => Some(0),
    };
    let faults = condition_faults(key, &values, bound.is_none());
    match (faults.as_slice(), bound) {
        ([], Some(bound)) => Ok(match operator {
            Token::NotEqual => LabelOperator::NotIn(values),
            Token::Greater => LabelOperator::GreaterThan(bound),
            Token::Less => LabelOperator::LessThan(bound),
            Token::Word(word) if word == "notin" => LabelOperator::NotIn(values),
            _ => LabelOperator::In(values),
        }),
        ([fault], _) => Err(fault.clone()),
        _ => Err(format!("[{}]", faults.join(", "))),
    }
}

fn condition_faults(key: &str, values: &[String], is_no_integer: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if is_no_integer {
        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
        faults.push(invalid("values[0]", &values[0], detail));
    }
    for (index, value) in values.iter().enumerate() {
        let details = value_faults(value);
        if !details.is_empty() {
            let path = format!("values[{index}][{key}]");
            faults.push(invalid(&path, value, &details.join("; ")));
        }
    }
    faults
}

/// Reads `(a,b)`: sorted, without duplicates, an empty element being the empty value.
fn parse_set(tokens: &mut Tokens) -> Result<Vec<String>, String> {
    match tokens.next() {
        Token::Open => {}
        other => return Err(format!("found '{other}' expected: '('")),
    }
    match tokens.peek() {
        Token::Word(_) | Token::Comma => {}
        Token::Close => {
            tokens.next();
            return Ok(vec![String::new()]);
        }
        other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
    }
    let mut values = parse_elements(tokens)?;
    tokens.next();
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

/// Reads up to the closing parenthesis, which is left standing; an element may be empty.
fn parse_elements(tokens: &mut Tokens) -> Result<Vec<String>, String> {
    let mut values = Vec::new();
    loop {
        match tokens.next() {
            Token::Word(value) => {
                values.push(value);
                match tokens.peek() {
                    Token::Comma => {}
                    Token::Close => return Ok(values),
                    other => return Err(format!("found '{other}', expected: ',' or ')'")),
                }
            }
            Token::Comma => {
                if values.is_empty() || matches!(tokens.peek(), Token::Comma | Token::Close) {
                    values.push(String::new());
                }
                if *tokens.peek() == Token::Close {
                    return Ok(values);
                }
            }
            other => return Err(format!("found '{other}', expected: ',', or identifier")),
        }
    }
}

fn parse_value(tokens: &mut Tokens) -> Result<String, String> {
    match tokens.peek() {
        Token::End | Token::Comma => Ok(String::new()),
        _ => match tokens.next() {
            Token::Word(value) => Ok(value),
            other => Err(format!("found '{other}', expected: identifier")),
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

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Word(word) => word,
            Self::Not => "!",
            Self::Equal => "=",
            Self::DoubleEqual => "==",
            Self::NotEqual => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::End => "",
        })
    }
}

/// The tokens of a selector; behind the last one stands [`Token::End`], ever again.
struct Tokens(Peekable<IntoIter<Token>>);

impl Tokens {
    fn scan(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((token, behind)) = scan_token(rest) {
            tokens.push(token);
            rest = behind;
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
    // A NUL right behind a token is swallowed with it; anywhere else it ends the text.
    Some((token, rest.strip_prefix('\0').unwrap_or(rest)))
}

impl fmt::Display for LabelSelector {
    /// Prints what [`LabelSelector::parse`] reads back.
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
