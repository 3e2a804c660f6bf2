//! Decides whether JSON answers are indented.

use super::Query;

/// Returns the `pretty` parameter: `None` if it is absent or empty, false if it is not a boolean.
pub fn pretty_parameter(query: &Query) -> Option<bool> {
    let value = query.first("pretty").filter(|value| !value.is_empty())?;
    Some(parse_bool(value).unwrap_or(false))
}

/// Returns true if JSON must be indented. `parameter` is the result of [`pretty_parameter`];
/// `accept` is true if the negotiated media type has `;pretty=1`.
///
/// If neither decides, the user agent does: JSON for `curl`, `Wget` and browsers is indented.
pub fn should_indent(parameter: Option<bool>, accept: bool, user_agent: &str) -> bool {
    let mut interactive = ["curl", "Wget", "Mozilla/5.0"].into_iter();
    let is_interactive = || interactive.any(|client| user_agent.starts_with(client));
    accept || parameter.unwrap_or_else(is_interactive)
}

/// Parses a boolean like Go's `strconv.ParseBool`; `None` if the text is not one.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_parameter() {
        for (query, expected) in [
            ("", None),
            ("pretty=", None),
            ("pretty", None),
            ("pretty=1", Some(true)),
            ("pretty=t", Some(true)),
            ("pretty=0", Some(false)),
            ("pretty=yes", Some(false)),
            ("pretty=0&pretty=1", Some(false)),
        ] {
            assert_eq!(pretty_parameter(&Query::parse(query)), expected, "{query}");
        }
    }

    #[test]
    fn indents_for_interactive_clients_or_on_request() {
        for (user_agent, expected) in [
            ("kubectl/v1.36.0", false),
            ("curl/8.5.0", true),
            ("Wget/1.21", true),
            ("Mozilla/5.0 (X11)", true),
            ("Mozilla/4.0", false),
        ] {
            assert_eq!(
                should_indent(None, false, user_agent),
                expected,
                "{user_agent}"
            );
        }
        // The parameter decides before the user agent, and the media type before both.
        assert!(!should_indent(Some(false), false, "curl/8.5.0"));
        assert!(should_indent(Some(true), false, ""));
        assert!(should_indent(Some(false), true, ""));
    }
}
