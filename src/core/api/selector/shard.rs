//! Parses, prints and applies shard selectors: ranges of the hash of an object's uid or namespace.

use std::fmt;
use std::ops::RangeInclusive;

use crate::api::Object;

/// The ranges of hashes that one shard of a resource's objects has. The API server filters a LIST
/// or WATCH by them if its feature gate ShardedListAndWatch is on.
///
/// The hash is FNV-1a with 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: ShardField,
    /// The ranges in the client's order. The selector is printed in this order.
    ranges: Vec<RangeInclusive<u64>>,
    /// The hashes of `ranges` in ascending ranges that do not touch, to find a hash fast.
    merged: Vec<RangeInclusive<u64>>,
}

/// Why a text is no [`ShardSelector`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardSelectorError {
    /// The API server refuses the text, with this message.
    Invalid(String),
    /// The text is not made of plain calls of `shardRange`. It may be CEL that means such calls,
    /// which the API server reads, or no CEL at all.
    NotRead,
}

/// The hashed field, which determines the shard of an object. Neither field changes during the life
/// of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ShardField {
    Uid,
    Namespace,
}

/// A call such as `shardRange(object.metadata.uid, '0x…', '0x…')`: the function and its arguments.
type Call<'a> = (&'a str, Vec<Argument<'a>>);

/// An argument of a call.
enum Argument<'a> {
    /// Names, joined by dots.
    Path(String),
    /// The text between two quotes.
    Text(&'a str),
}

/// A part of a selector's text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    /// `(`, `)`, `,`, `.` or `||`.
    Symbol(&'a str),
    End,
}

const SYMBOLS: [&str; 5] = ["(", ")", ",", ".", "||"];
/// The API server's limit of nested parentheses is higher; no client needs any.
const MAX_DEPTH: usize = 32;
/// The largest exclusive end of a range: 2^64.
const LARGEST_END: &str = "0x10000000000000000";

// === impl ShardSelector ===

impl ShardSelector {
    /// Estimates the memory of the selector in bytes.
    pub(super) fn weight(&self) -> usize {
        (self.ranges.len() + self.merged.len()) * size_of::<RangeInclusive<u64>>()
    }

    /// Parses calls of `shardRange(FIELD, 'START', 'END')` that are joined by `||`, with the API
    /// server's messages. Other spellings with an equal meaning in CEL, such as strings with
    /// escapes, are not supported.
    ///
    /// # Errors
    /// If the text is not such a selector.
    pub fn parse(text: &str) -> Result<Self, ShardSelectorError> {
        if text.trim().is_empty() {
            let problem =
                "empty shard selector is not allowed; omit the parameter for unfiltered lists";
            return Err(problem.to_owned().into());
        }
        let calls = calls(text).ok_or(ShardSelectorError::NotRead)?;
        let ranges: Vec<_> = calls.iter().map(range).collect::<Result<_, _>>()?;
        let mut fields = ranges.iter().map(|(field, _)| *field);
        let first = fields.next().ok_or(ShardSelectorError::NotRead)?;
        if let Some(other) = fields.find(|field| *field != first) {
            let problem = format!(
                "all shard ranges must use the same field, got {:?} and {:?}",
                first.path(),
                other.path()
            );
            return Err(problem.into());
        }
        let ranges: Vec<_> = ranges.into_iter().map(|(_, range)| range).collect();
        Ok(Self {
            field: first,
            merged: merged(ranges.clone()),
            ranges,
        })
    }

    /// Returns true if `object` belongs to the shard.
    pub fn matches(&self, object: &Object) -> bool {
        let hash = match self.field {
            ShardField::Uid => hash(object.uid()),
            ShardField::Namespace => hash(object.key.namespace()),
        };
        let index = self.merged.partition_point(|range| *range.end() < hash);
        let candidate = self.merged.get(index);
        candidate.is_some_and(|range| range.contains(&hash))
    }

    /// Returns true if each object of the shard `narrower` provably belongs to this one.
    pub(super) fn contains(&self, narrower: &Self) -> bool {
        let is_within = |range: &RangeInclusive<u64>| {
            let mut ranges = self.merged.iter();
            ranges.any(|own| own.contains(range.start()) && own.contains(range.end()))
        };
        self.field == narrower.field && narrower.merged.iter().all(is_within)
    }
}

/// Prints the selector as the API server repeats it in a list.
impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            if index > 0 {
                f.write_str(" || ")?;
            }
            let (field, start) = (self.field.path(), range.start());
            let end = u128::from(*range.end()) + 1;
            write!(f, "shardRange({field}, '{start:#018x}', '{end:#018x}')")?;
        }
        Ok(())
    }
}

/// Returns the numbers in `ranges`, in ascending ranges that neither overlap nor touch.
fn merged(mut ranges: Vec<RangeInclusive<u64>>) -> Vec<RangeInclusive<u64>> {
    ranges.sort_unstable_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Returns the FNV-1a hash of `value`, with 64 bits.
fn hash(value: &str) -> u64 {
    value.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

// === impl ShardSelectorError ===

impl From<String> for ShardSelectorError {
    fn from(problem: String) -> Self {
        Self::Invalid(problem)
    }
}

// === impl ShardField ===

impl ShardField {
    const ALL: [Self; 2] = [Self::Uid, Self::Namespace];

    fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

/// Returns the range that a call means.
fn range(
    (function, arguments): &Call<'_>,
) -> Result<(ShardField, RangeInclusive<u64>), ShardSelectorError> {
    if *function != "shardRange" {
        return Err(format!(
            "unsupported function {function:?}; only shardRange() and || are allowed"
        )
        .into());
    }
    let [field, start, end] = arguments.as_slice() else {
        let count = arguments.len();
        return Err(format!("shardRange() requires exactly 3 arguments, got {count}").into());
    };
    let Argument::Path(path) = field else {
        return Err(ShardSelectorError::NotRead);
    };
    let known = ShardField::ALL.into_iter();
    let mut known = known.filter(|field| field.path() == path);
    let Some(field) = known.next() else {
        let [uid, namespace] = ShardField::ALL.map(ShardField::path);
        let problem = format!("unsupported field path {path:?}; supported: {uid}, {namespace}");
        return Err(problem.into());
    };
    let (start, end) = (start.bound("hexStart")?, end.bound("hexEnd")?);
    if start >= end {
        return Err(
            format!("shard range start {start:#018x} must be less than end {end:#018x}").into(),
        );
    }
    let within = |bound: u128| u64::try_from(bound).map_err(|_| ShardSelectorError::NotRead);
    Ok((field, within(start)?..=within(end - 1)?))
}

// === impl Argument ===

impl Argument<'_> {
    /// Returns the number that the argument `name` spells: at most 2^64.
    fn bound(&self, name: &str) -> Result<u128, ShardSelectorError> {
        let Self::Text(text) = self else {
            return Err(ShardSelectorError::NotRead);
        };
        let Some(digits) = text.strip_prefix("0x") else {
            return Err(format!("{name} must have '0x' prefix, got {text:?}").into());
        };
        let other = digits.chars().find(|digit| !is_digit(*digit));
        let problem = match (digits.len(), other) {
            (0, _) => ": hex value is required after '0x'".to_owned(),
            (count @ 18.., _) => {
                format!(": hex value too long ({count} chars, max 17): {digits:?}")
            }
            (_, Some(other)) => {
                let other = other.to_string();
                format!(": invalid hex character {other:?} in {text:?}")
            }
            (17, None) if *text != LARGEST_END => {
                format!(": 17-digit hex value must be '{LARGEST_END}' (2^64), got {text:?}")
            }
            (..16, None) => {
                let padded = format!("0x{digits:0>16}");
                format!(
                    " must be a 0x-prefixed 16-digit hex value, got {text:?} (did you mean {padded:?}?)"
                )
            }
            (16 | 17, None) => {
                let number = u128::from_str_radix(digits, 16);
                return number.map_err(|_| ShardSelectorError::NotRead);
            }
        };
        Err(format!("{name}{problem}").into())
    }
}

fn is_digit(digit: char) -> bool {
    matches!(digit, '0'..='9' | 'a'..='f')
}

/// Returns the calls in `text`, which are joined by `||` and may be in parentheses. `None` if there
/// is anything else.
fn calls(text: &str) -> Option<Vec<Call<'_>>> {
    let mut rest = text;
    let (mut calls, mut depth) = (Vec::new(), 0);
    loop {
        let mut token = next(&mut rest)?;
        while token == Token::Symbol("(") && depth < MAX_DEPTH {
            depth += 1;
            token = next(&mut rest)?;
        }
        let Token::Word(function) = token else {
            return None;
        };
        let arguments = arguments(&mut rest)?;
        calls.push((function, arguments));
        let mut token = next(&mut rest)?;
        while token == Token::Symbol(")") && depth > 0 {
            depth -= 1;
            token = next(&mut rest)?;
        }
        match token {
            Token::Symbol("||") => {}
            Token::End if depth == 0 => return Some(calls),
            _ => return None,
        }
    }
}

fn arguments<'a>(rest: &mut &'a str) -> Option<Vec<Argument<'a>>> {
    if next(rest)? != Token::Symbol("(") {
        return None;
    }
    let mut arguments = Vec::new();
    loop {
        let (argument, after) = match next(rest)? {
            Token::Symbol(")") if arguments.is_empty() => return Some(arguments),
            Token::Text(text) => (Argument::Text(text), next(rest)?),
            Token::Word(word) => path(word, rest)?,
            Token::Symbol(_) | Token::End => return None,
        };
        arguments.push(argument);
        match after {
            Token::Symbol(",") => {}
            Token::Symbol(")") => return Some(arguments),
            _ => return None,
        }
    }
}

/// Returns the path that begins with `first`, and the token after it.
fn path<'a>(first: &str, rest: &mut &'a str) -> Option<(Argument<'a>, Token<'a>)> {
    let mut path = first.to_owned();
    let mut after = next(rest)?;
    while after == Token::Symbol(".") {
        let Token::Word(word) = next(rest)? else {
            return None;
        };
        path = path + "." + word;
        after = next(rest)?;
    }
    Some((Argument::Path(path), after))
}

/// Takes the next token from `rest`; `None` if there is no token.
fn next<'a>(rest: &mut &'a str) -> Option<Token<'a>> {
    let text = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (token, after) = match text.chars().next() {
        None => (Token::End, text),
        Some(quote @ ('\'' | '"')) => {
            let (inside, after) = text[1..].split_once(quote)?;
            let is_plain = !inside.is_empty() && !inside.contains(['\\', '\n', '\r']);
            (is_plain.then_some(Token::Text(inside))?, after)
        }
        Some(first) if is_word(first) && !first.is_ascii_digit() => {
            let (word, after) = text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()));
            (Token::Word(word), after)
        }
        Some(_) => {
            let symbol = SYMBOLS
                .into_iter()
                .find(|symbol| text.starts_with(symbol))?;
            (Token::Symbol(symbol), &text[symbol.len()..])
        }
    };
    *rest = after;
    Some(token)
}

#[cfg(test)]
mod tests;
