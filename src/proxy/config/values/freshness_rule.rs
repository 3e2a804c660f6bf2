//! The rules of `--freshness` and `cache.freshness` as text: `bounded:5s`, or for one resource
//! `pods=any`.

use std::fmt;
use std::str::FromStr;

use kubefan_core::informer::{FreshnessPolicies, FreshnessPolicy};

use super::text::written_as_text;
use super::units::{PERIOD_PATTERN, Period, parse_duration};

/// A freshness policy for one resource, or for all resources without a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreshnessRule {
    /// `None` if the rule is for all resources without a rule.
    pub(in crate::config) resource: Option<String>,
    pub(in crate::config) policy: FreshnessPolicy,
}

// === impl FreshnessRule ===

impl FreshnessRule {
    /// Combines `rules`. If two rules are for the same resource, the later rule wins.
    pub(in crate::config) fn policies(rules: &[Self]) -> FreshnessPolicies {
        let mut policies = FreshnessPolicies::default();
        for rule in rules {
            match &rule.resource {
                None => policies.default = rule.policy,
                Some(resource) => policies.named.push((resource.clone(), rule.policy)),
            }
        }
        policies
    }
}

impl FromStr for FreshnessRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, policy) = match text.split_once('=') {
            Some(("", _)) => {
                return Err("no resource before =; an example is pods=any".to_owned());
            }
            Some((resource, policy)) => (Some(resource.to_owned()), policy),
            None => (None, text),
        };
        let policy = match policy.split_once(':') {
            Some(("bounded", bound)) => FreshnessPolicy::Bounded(parse_duration(bound)?),
            None if policy == "strict" => FreshnessPolicy::Strict,
            None if policy == "session" => FreshnessPolicy::Session,
            None if policy == "any" => FreshnessPolicy::Any,
            _ => {
                return Err(format!(
                    "{text:?} is not strict, session, bounded:5s or any, or such a policy for a \
                     resource, as in pods=any"
                ));
            }
        };
        Ok(Self { resource, policy })
    }
}

impl fmt::Display for FreshnessRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(resource) = &self.resource {
            write!(f, "{resource}=")?;
        }
        match self.policy {
            FreshnessPolicy::Strict => f.write_str("strict"),
            FreshnessPolicy::Session => f.write_str("session"),
            FreshnessPolicy::Any => f.write_str("any"),
            FreshnessPolicy::Bounded(bound) => write!(f, "bounded:{}", Period(bound)),
        }
    }
}

written_as_text!(FreshnessRule, "a string", FreshnessRule::from_str, None, {
    "type": "string",
    "pattern": format!("^([^=]+=)?(strict|session|any|bounded:{PERIOD_PATTERN})$"),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_printed_as_they_are_read() {
        for text in [
            "strict",
            "session",
            "any",
            "bounded:5s",
            "pods=any",
            "leases.coordination.k8s.io=bounded:500ms",
        ] {
            let rule: FreshnessRule = text.parse().expect(text);
            assert_eq!(rule.to_string(), text);
        }
        for text in [
            "",
            "loose",
            "bounded",
            "bounded:",
            "bounded:5",
            "=any",
            "pods=",
            "pods=any=any",
        ] {
            assert!(text.parse::<FreshnessRule>().is_err(), "{text}");
        }
    }
}
