//! Values that are written as text: how they are read and printed, and their JSON Schema.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};

/// Implements serde's and schemars's traits for a type with `Display`. Arguments: the type, then the
/// fields of [`TextVisitor`] in their order, then the JSON Schema.
macro_rules! written_as_text {
    ($type:ident, $expected:expr, $parse:expr, $convert:expr, $schema:tt) => {
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                source.deserialize_any($crate::config::values::text::TextVisitor::<$type> {
                    expected: $expected,
                    parse: $parse,
                    convert: $convert,
                })
            }
        }

        impl ::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }
    };
}

/// Reads a value from text.
pub(super) struct TextVisitor<T> {
    /// What an error says was expected instead of another type.
    pub(super) expected: &'static str,
    pub(super) parse: fn(&str) -> Result<T, String>,
    /// Converts a number to the value; `None` if numbers are refused.
    pub(super) convert: Option<fn(u64) -> Result<T, String>>,
}

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        match self.convert {
            Some(convert) => convert(number).map_err(E::custom),
            None => Err(E::invalid_type(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }
}

pub(super) use written_as_text;
