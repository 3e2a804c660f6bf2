//! Parses an object into a tree for a printer.

use std::fmt;

use serde::de::DeserializeSeed;
use serde::de::Deserializer;
use serde::de::IgnoredAny;
use serde::de::MapAccess;
use serde::de::Visitor;
use serde_json::Map;
use serde_json::Value;

/// The path of the member that no printer of a built-in kind reads; it is up to half of an object.
const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

/// The members of an object except the one at a path.
#[derive(Clone, Copy)]
struct Without<'a>(&'a [&'a str]);

/// Parses the canonical JSON body of an object (see `api::Object`). The tree of a built-in kind has
/// no `metadata.managedFields`.
///
/// # Errors
///
/// If the body is not JSON, or is nested too deeply.
pub(super) fn tree(body: &[u8]) -> serde_json::Result<Value> {
    if body.first() == Some(&b'{') {
        return serde_json::from_slice(body);
    }
    let whole = [b"{", body].concat();
    let mut json = serde_json::Deserializer::from_slice(&whole);
    let tree = Without(&MANAGED_FIELDS).deserialize(&mut json)?;
    json.end()?;
    Ok(tree)
}

impl<'de> DeserializeSeed<'de> for Without<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Without<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match self.0 {
                [left_out] if *left_out == key => {
                    members.next_value::<IgnoredAny>()?;
                }
                [first, rest @ ..] if *first == key => {
                    let inner = members.next_value_seed(Without(rest))?;
                    map.insert(key, inner);
                }
                _ => {
                    let value = members.next_value()?;
                    map.insert(key, value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_managed_fields_of_built_in_kinds_are_left_out() {
        let managed = r#""metadata":{"name":"a","managedFields":[{"x":1}]},"managedFields":2}"#;
        assert_eq!(
            tree(managed.as_bytes()).expect("JSON"),
            json!({ "metadata": { "name": "a" }, "managedFields": 2 })
        );
        let custom = format!("{{{managed}");
        assert_eq!(
            tree(custom.as_bytes()).expect("JSON"),
            json!({
                "metadata": { "name": "a", "managedFields": [{ "x": 1 }] },
                "managedFields": 2,
            })
        );
        for broken in [
            "",
            "\"metadata\":{}",
            "\"metadata\":{}}}",
            "\"metadata\":1}",
            "[]",
        ] {
            assert!(tree(broken.as_bytes()).is_err(), "{broken}");
        }
        let deep = format!("\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        assert!(tree(deep.as_bytes()).is_err());
    }
}
