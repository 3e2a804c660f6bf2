//! References to environment variables, as in the arguments of a container: `$(NAME)`.

/// Looks up an environment variable.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces each `$(NAME)` in `text` by the variable's value, and each `$$` by a dollar sign. Every
/// other dollar sign is not changed.
///
/// # Errors
///
/// A message that names a variable that is not set. (Kubernetes would not change such a reference.)
pub(super) fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, after)) = rest.split_once('$') {
        expanded.push_str(plain);
        let reference = after
            .strip_prefix('(')
            .and_then(|name| name.split_once(')'));
        rest = match (after.strip_prefix('$'), reference) {
            (Some(after), _) => {
                expanded.push('$');
                after
            }
            (None, Some((name, after))) => {
                let value = lookup(name);
                expanded += &value.ok_or_else(|| {
                    format!("the environment variable {name} in {text:?} is not set")
                })?;
                after
            }
            (None, None) => {
                expanded.push('$');
                after
            }
        };
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_by_kubernetes() {
        let lookup = |name: &str| match name {
            "NODE" => Some("n-1".to_owned()),
            "EMPTY" => Some(String::new()),
            "SELF" => Some("$(SELF)".to_owned()),
            _ => None,
        };
        for (text, expected) in [
            ("", ""),
            ("a=b", "a=b"),
            ("spec.nodeName=$(NODE)", "spec.nodeName=n-1"),
            ("$(NODE)$(EMPTY)$(NODE)", "n-1n-1"),
            ("$(SELF)", "$(SELF)"),
            ("$$(NODE)", "$(NODE)"),
            ("$$$(NODE)", "$n-1"),
            ("$NODE ${NODE} $", "$NODE ${NODE} $"),
            ("$(NODE", "$(NODE"),
        ] {
            assert_eq!(expand(text, &lookup).as_deref(), Ok(expected), "{text}");
        }
        let missing = expand("spec.nodeName=$(NODE_NAME)", &lookup);
        let message = missing.expect_err("it is not set");
        assert!(message.contains("variable NODE_NAME in"), "{message}");
    }
}
