//! Parses the subset of JSONPath that finds values, for the columns of custom resources.
//!
//! The recursive `..` and the parts of the syntax that format output are not supported.

use serde_json::Value;

/// Maximum length in bytes of a path that is parsed. Users of the API server choose the paths, and
/// parsing takes time for each byte at each level.
const MAX_LENGTH: usize = 1 << 10;
/// How many brackets may be nested in each other, as each level takes room on the stack.
const MAX_DEPTH: usize = 8;

/// A path from an object to values in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(pub(super) Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Field(String),
    /// All members of an object, or all items of a list.
    Wildcard,
    Item(i64),
    Slice {
        start: i64,
        end: Option<i64>,
        step: usize,
    },
    /// The values that each of these steps finds, in the order of the steps.
    Union(Vec<Step>),
    /// The items of a list that satisfy the condition.
    Filter(Condition),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) left: JsonPath,
    /// One of `OPERATORS` and the right side; if `None`, the condition holds if `left` finds a
    /// value.
    pub(super) comparison: Option<(&'static str, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Literal(Value),
    Path(JsonPath),
}

/// All comparison operators; an operator precedes its own prefixes, such as `<=` before `<`.
const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`; `None` if the text is
    /// not a path, uses unsupported syntax, is longer than 1 KiB, or has brackets nested more than
    /// eight deep.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.len() {
            0..=MAX_LENGTH => Self::parse_nested(text, 0),
            _ => None,
        }
    }

    /// Parses a path that is inside `depth` brackets.
    fn parse_nested(text: &str, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut rest = text.trim();
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let (inner, after) = bracket(inside)?;
                steps.extend(subscript(inner.trim(), depth + 1)?);
                rest = after;
                continue;
            }
            let (field, after) = field(rest.strip_prefix('.')?);
            match field.as_str() {
                // The dot adds no step if a bracket follows it, as in `.[0]`, or if the complete
                // path is `.`, which selects the object itself.
                "" if after.starts_with('[') || (after.is_empty() && steps.is_empty()) => {}
                "" => return None,
                "*" => steps.push(Step::Wildcard),
                _ => steps.push(Step::Field(field)),
            }
            rest = after;
        }
        Some(Self(steps))
    }

    /// Returns true if the path always finds the values that the API server finds, in the API
    /// server's order.
    ///
    /// The API server finds the members of an object by a wildcard in random order. A slice of
    /// several lists ends at the first empty one, and a union takes its steps one after another for
    /// all values.
    pub(crate) fn is_exact(&self) -> bool {
        let mut may_find_several = false;
        self.0.iter().all(|step| {
            let is_exact = match step {
                Step::Slice { .. } | Step::Union(_) => !may_find_several && step.is_exact(),
                _ => step.is_exact(),
            };
            may_find_several |= step.may_find_several();
            is_exact
        })
    }
}

impl Step {
    fn is_exact(&self) -> bool {
        match self {
            Self::Wildcard => false,
            Self::Field(_) | Self::Item(_) | Self::Slice { .. } => true,
            Self::Union(steps) => steps.iter().all(Self::is_exact),
            Self::Filter(Condition { left, comparison }) => match comparison {
                Some((_, Operand::Path(right))) => left.is_exact() && right.is_exact(),
                Some((_, Operand::Literal(_))) => left.is_exact(),
                // Where a path does not fit, the API server takes the part that fits as found.
                None => left.0.iter().all(|step| matches!(step, Self::Field(_))),
            },
        }
    }

    fn may_find_several(&self) -> bool {
        match self {
            Self::Field(_) | Self::Item(_) => false,
            Self::Wildcard | Self::Slice { .. } | Self::Union(_) | Self::Filter(_) => true,
        }
    }
}

/// Splits off a field's name, which ends at the next step. A backslash escapes the next character.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => name.push(character),
        }
    }
    (name, "")
}

/// Splits a text that begins after an opening bracket at the matching closing bracket.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut depth = 0;
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            _ if is_escaped => is_escaped = false,
            (Some(_), '\\') => is_escaped = true,
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// Returns the steps of the text in a bracket, which is the bracket at `depth`.
fn subscript(inner: &str, depth: usize) -> Option<Vec<Step>> {
    if let Some(condition) = inner.strip_prefix("?(") {
        let condition = condition_of(condition.strip_suffix(')')?, depth)?;
        return Some(vec![Step::Filter(condition)]);
    }
    let parts = split(inner, ',');
    if let [only] = parts.as_slice()
        && let Some(path) = key(only.trim(), depth)
    {
        return Some(path?.0);
    }
    let steps = parts.iter().map(|part| element(part.trim(), depth));
    let mut steps: Vec<_> = steps.collect::<Option<_>>()?;
    if steps.len() > 1 {
        steps = vec![Step::Union(steps)];
    }
    Some(steps)
}

/// Returns the path for a quoted key: the API server reads `['a.b']` like `.a.b`. Returns `None` if
/// the text is not in single quotes.
fn key(text: &str, depth: usize) -> Option<Option<JsonPath>> {
    let key = text.strip_prefix('\'')?.strip_suffix('\'')?;
    let path = JsonPath::parse_nested(&format!(".{key}"), depth);
    Some(path.filter(|path| !path.0.is_empty()))
}

fn element(text: &str, depth: usize) -> Option<Step> {
    if let Some(path) = key(text, depth) {
        let mut steps = path?.0.into_iter();
        return steps.next().filter(|_| steps.len() == 0);
    }
    if text == "*" {
        let (start, end, step) = (0, None, 1);
        return Some(Step::Slice { start, end, step });
    }
    let parts: Vec<_> = text.split(':').map(str::trim).collect();
    let bound = |part: &str| match part {
        "" => Some(None),
        _ => part.parse().ok().map(Some),
    };
    match parts.as_slice() {
        [index] => index.parse().ok().map(Step::Item),
        [start, end, step @ ..] if step.len() < 2 => Some(Step::Slice {
            start: bound(start)?.unwrap_or(0),
            end: bound(end)?,
            step: match step.first() {
                None | Some(&"") => 1,
                Some(step) => step.parse().ok().filter(|step| *step > 0)?,
            },
        }),
        _ => None,
    }
}

fn condition_of(text: &str, depth: usize) -> Option<Condition> {
    let found = outside_quotes(text).find_map(|(at, _)| {
        let mut operators = OPERATORS.into_iter();
        let operator = operators.find(|operator| text[at..].starts_with(operator))?;
        Some((at, operator))
    });
    let Some((at, operator)) = found else {
        let left = path_of(text.trim(), depth)?;
        let comparison = None;
        return Some(Condition { left, comparison });
    };
    let right = text[at + operator.len()..].trim();
    let right = match quoted(right) {
        Some(literal) => Operand::Literal(literal.into()),
        None if right.starts_with('@') => Operand::Path(path_of(right, depth)?),
        None => Operand::Literal(serde_json::from_str(right).ok()?),
    };
    Some(Condition {
        left: path_of(text[..at].trim(), depth)?,
        comparison: Some((operator, right)),
    })
}

fn path_of(text: &str, depth: usize) -> Option<JsonPath> {
    JsonPath::parse_nested(text.strip_prefix('@')?, depth)
}

fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let inner = text[1..].strip_suffix(quote)?;
    Some(inner.replace("\\\"", "\"").replace("\\'", "'"))
}

fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in outside_quotes(text).filter(|(_, found)| *found == separator) {
        parts.push(&text[start..at]);
        start = at + separator.len_utf8();
    }
    parts.push(&text[start..]);
    parts
}

fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    text.char_indices().filter(move |(_, character)| {
        let was_outside = quote.is_none();
        match quote {
            Some(open) if open == *character => quote = None,
            None if ['"', '\''].contains(character) => quote = Some(*character),
            _ => {}
        }
        was_outside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_exact_where_the_api_server_finds_the_same() {
        for (path, is_exact) in [
            (".status.phase", true),
            (".a[0].b[1].c", true),
            (".a[*].b", true),
            (".a[*].b[0]", true),
            (".a[*].b[?(@.c==1)].d", true),
            (".a[?(@.type==\"Ready\")].status", true),
            (".a[?(@.b)].c", true),
            (".a[0,1].b", true),
            (".a.*", false),
            (".a[*].b[*]", false),
            (".a[0:2].b[1:]", false),
            (".a[?(@.b==1)].c[*]", false),
            (".a[*][0,1]", false),
            (".a[?(@.b[0])].c", false),
            (".a[?(@.b[*].c==1)].d", true),
        ] {
            let parsed = JsonPath::parse(path).expect(path);
            assert_eq!(parsed.is_exact(), is_exact, "{path}");
        }
    }

    #[test]
    fn long_and_deeply_nested_paths_are_not_supported() {
        let nested = |levels: usize, open: &str, inner: &str, close: &str| {
            format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
        };
        for levels in [1, MAX_DEPTH, MAX_DEPTH + 1, 100] {
            let is_supported = levels <= MAX_DEPTH;
            let filters = nested(levels, "[?(@", ".a", ")]");
            assert_eq!(
                JsonPath::parse(&filters).is_some(),
                is_supported,
                "{filters}"
            );
            let operands = nested(levels, "[?(@.a==@", ".b", ")]");
            assert_eq!(
                JsonPath::parse(&operands).is_some(),
                is_supported,
                "{operands}"
            );
            let keys = nested(levels, "['", "a", "']");
            assert_eq!(JsonPath::parse(&keys).is_some(), is_supported, "{keys}");
        }
        for length in [MAX_LENGTH, MAX_LENGTH + 1] {
            let path = format!(".{}", "a".repeat(length - 1));
            assert_eq!(JsonPath::parse(&path).is_some(), length == MAX_LENGTH);
        }
    }
}
