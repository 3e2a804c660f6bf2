//! Evaluates a JSONPath on an object.

use std::cmp::Ordering;

use serde_json::Value;

use super::path::{Condition, JsonPath, Operand, Operator, Step};
use crate::codec::table::part::Part;

/// The error if a step of a path does not fit its value, such as an index into a text.
#[derive(Debug)]
pub(crate) struct Mismatch;

impl JsonPath {
    /// Returns all values at the path. An absent field contributes no value.
    ///
    /// # Errors
    ///
    /// If a value on the path has the wrong type, or if an index is outside its list.
    pub(in crate::codec::table) fn find<'a>(
        &self,
        object: &'a Value,
    ) -> Result<Vec<&'a Value>, Mismatch> {
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
        let found = Self::find_in(&value, steps).ok()?;
        found.first().map(|&first| first.clone())
    }

    fn find_in<'a>(object: &'a Value, steps: &[Step]) -> Result<Vec<&'a Value>, Mismatch> {
        let mut found = vec![object];
        for step in steps {
            let mut next = Vec::new();
            for value in found {
                step.find(value, &mut next)?;
            }
            found = next;
        }
        Ok(found)
    }
}

impl Step {
    fn find<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) -> Result<(), Mismatch> {
        if value.is_null() {
            return Ok(());
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
                found.push(items.get(at).ok_or(Mismatch)?);
            }
            Self::Slice { start, end, step } => {
                let items = items(value)?;
                let start = resolve_index(*start, items.len())?;
                let end = end.map_or(Ok(items.len()), |end| resolve_index(end, items.len()))?;
                let range = items.get(start..end).ok_or(Mismatch)?;
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
        Ok(())
    }
}

fn items(value: &Value) -> Result<&[Value], Mismatch> {
    value.as_array().map(Vec::as_slice).ok_or(Mismatch)
}

/// Converts an index into a list of `length` items; a negative index counts from the end.
fn resolve_index(index: i64, length: usize) -> Result<usize, Mismatch> {
    let from_end = match index {
        ..0 => length as i64,
        0.. => 0,
    };
    usize::try_from(index + from_end).map_err(|_| Mismatch)
}

impl Condition {
    fn holds(&self, item: &Value) -> Result<bool, Mismatch> {
        let left = self.left.find(item)?;
        let Some((operator, operand)) = &self.comparison else {
            return Ok(!left.is_empty());
        };
        let right = match operand {
            Operand::Literal(literal) => vec![literal],
            Operand::Path(path) => path.find(item)?,
        };
        match (left.as_slice(), right.as_slice()) {
            ([], _) | (_, []) => Ok(false),
            ([left], [right]) => operator.holds(left, right),
            _ => Err(Mismatch),
        }
    }
}

impl Operator {
    /// Compares two values of one type. Values of different types, including an integer and a
    /// float, are a mismatch, as is an order comparison of booleans.
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Mismatch> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                (None, None) => left
                    .as_f64()
                    .zip(right.as_f64())
                    .and_then(|(left, right)| left.partial_cmp(&right)),
                _ => None,
            },
            (Value::Bool(left), Value::Bool(right)) if self.is_equality() => Some(left.cmp(right)),
            _ => None,
        };
        let order = order.ok_or(Mismatch)?;
        Ok(match self {
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::Greater => order == Ordering::Greater,
            Self::GreaterOrEqual => order != Ordering::Less,
        })
    }

    fn is_equality(self) -> bool {
        matches!(self, Self::Equal | Self::NotEqual)
    }
}
