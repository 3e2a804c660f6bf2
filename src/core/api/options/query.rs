//! Parses the query string of a request exactly like the API server.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The parameters of a query string, in order.
///
/// Pairs with a `;` or a malformed percent escape are dropped; invalid UTF-8 becomes U+FFFD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses a query string, which is the part of a URL after `?`.
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
            .filter_map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((unescape(name)?, unescape(value)?))
            })
            .collect();
        Self { pairs }
    }

    /// Returns the first value of the parameter `name`, which is case-sensitive, or
    /// `None` if it is absent.
    pub fn first(&self, name: &str) -> Option<&str> {
        let (_, value) = self.pairs.iter().find(|(given, _)| given == name)?;
        Some(value)
    }

    /// Returns the values of the parameter `name`, in order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let pairs = self.pairs.iter().filter(move |(given, _)| given == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// Returns the first value of the parameter `name`, or "" if it is absent.
    pub fn text(&self, name: &str) -> String {
        self.first(name).unwrap_or_default().to_owned()
    }

    /// Returns the first value of the parameter `name` as a boolean: `0` and `false` (in upper or
    /// lower case) are false, all other values are true. `None` if the parameter is absent.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let value = self.first(name)?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

fn unescape(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_escape = |rest: &[u8]| matches!(rest, [_, high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit());
    let is_valid = (0..bytes.len()).all(|at| bytes[at] != b'%' || is_escape(&bytes[at..]));
    let spaced: Cow<'_, str> = if text.contains('+') {
        text.replace('+', " ").into()
    } else {
        text.into()
    };
    is_valid.then(|| percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_pairs_as_go_does() {
        let query = Query::parse("limit=1&limit=5&a=b+c%20d%2B&x;y=1&bad=%zz&short=%4&&watch&e==");
        for (name, value) in [
            ("limit", Some("1")),
            ("a", Some("b c d+")),
            ("x;y", None),
            ("bad", None),
            ("short", None),
            ("watch", Some("")),
            ("e", Some("=")),
            ("Limit", None),
            ("", None),
        ] {
            assert_eq!(query.first(name), value, "{name}");
        }
    }

    #[test]
    fn reads_flags() {
        let query = Query::parse("a=0&b=FALSE&c=&d=maybe&e=f");
        let flags = ["a", "b", "c", "d", "e", "f"].map(|name| query.flag(name));
        let expected = [
            Some(false),
            Some(false),
            Some(true),
            Some(true),
            Some(true),
            None,
        ];
        assert_eq!(flags, expected);
    }

    #[test]
    fn replaces_invalid_utf8() {
        assert_eq!(Query::parse("a=%ff").first("a"), Some("\u{fffd}"));
    }
}
