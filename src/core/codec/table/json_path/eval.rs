//! Evaluates a JSONPath on an object.

use serde_json::Value;

use super::path::{Condition, JsonPath, Operand, Step};
use crate::codec::table::part::Part;

impl JsonPath {
    /// Returns all values at the path. An absent field contributes no value. Returns `None` if a
    /// value on the path has the wrong type, or if an index is outside its list.
    pub(in crate::codec::table) fn find<'a>(&self, object: &'a Value) -> Option<Vec<&'a Value>> {
        Self::find_in(object, &self.0)
    }

    /// Returns the first value at the path, or `None` if there is none, or if a value on the path
    /// has the wrong type. Only the value at the leading fields of the path becomes a tree.
    pub(in crate::codec::table) fn first(&self, object: Part<'_>) -> Option<Value> {
        let (mut at, mut steps) = (object, self.0.as_slice());
        while let [Step::Field(name), rest @ ..] = steps {
            (at, steps) = (at.at(name), rest);
        }
        let value = at.tree()?;
        let found = Self::find_in(&value, steps)?;
        found.first().map(|&first| first.clone())
    }

    fn find_in<'a>(object: &'a Value, steps: &[Step]) -> Option<Vec<&'a Value>> {
        let mut found = vec![object];
        for step in steps {
            let mut next = Vec::new();
            for value in found {
                step.find(value, &mut next)?;
            }
            found = next;
        }
        Some(found)
    }
}

impl Step {
    fn find<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) -> Option<()> {
        if value.is_null() {
            return Some(());
        }
        match self {
            Self::Field(name) => found.extend(value.get(name)),
            Self::Wildcard => match value {
                Value::Array(items) => found.extend(items),
                Value::Object(members) => found.extend(members.values()),
                _ => {}
            },
            Self::Item(index) => {
                let items = items(value)?;
                let at = resolve_index(*index, items.len())?;
                found.push(items.get(at)?);
            }
            Self::Slice { start, end, step } => {
                let items = items(value)?;
                let start = resolve_index(*start, items.len())?;
                let end = end.map_or(Some(items.len()), |end| resolve_index(end, items.len()))?;
                let range = items.get(start..end)?;
                found.extend(range.iter().step_by(*step));
            }
            Self::Union(steps) => {
                for step in steps {
                    step.find(value, found)?;
                }
            }
            Self::Filter(condition) => {
                for item in items(value)? {
                    if condition.holds(item)? {
                        found.push(item);
                    }
                }
            }
        }
        Some(())
    }
}

fn items(value: &Value) -> Option<&[Value]> {
    value.as_array().map(Vec::as_slice)
}

/// Converts an index into a list of `length` items; a negative index counts from the end.
fn resolve_index(index: i64, length: usize) -> Option<usize> {
    let from_end = match index {
        ..0 => length as i64,
        0.. => 0,
    };
    usize::try_from(index + from_end).ok()
}

impl Condition {
    fn holds(&self, item: &Value) -> Option<bool> {
        let left = self.left.find(item)?;
        let Some((operator, operand)) = &self.comparison else {
            return Some(!left.is_empty());
        };
        let right = match operand {
            Operand::Literal(literal) => vec![literal],
            Operand::Path(path) => path.find(item)?,
        };
        match (left.as_slice(), right.as_slice()) {
            ([], _) | (_, []) => Some(false),
            ([left], [right]) => compare(operator, left, right),
            _ => None,
        }
    }
}

/// Compares two values of one type. Values of different types, including an integer and a float,
/// cannot be compared, and booleans have no order.
fn compare(operator: &str, left: &Value, right: &Value) -> Option<bool> {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?)?,
            _ => return None,
        },
        (Value::Bool(left), Value::Bool(right)) if ["==", "!="].contains(&operator) => {
            left.cmp(right)
        }
        _ => return None,
    };
    Some(match operator {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}
