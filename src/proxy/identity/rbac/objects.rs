//! The parts of roles and bindings that rights depend on.

use kubefan_core::api::Object;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::identity::{Attributes, User};

/// A kind of object of `rbac.authorization.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RbacKind {
    /// Roles, or ClusterRoles if they have no namespace.
    Role { namespaced: bool },
    /// RoleBindings, or ClusterRoleBindings if they have no namespace.
    Binding { namespaced: bool },
}

/// The name of a role or binding. The namespace is empty for ClusterRoles and ClusterRoleBindings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A rule of a role: what the role allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

/// The role that users and groups have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) role: Name,
    pub(super) subjects: Vec<Subject>,
}

/// The name of a user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Subject<N = String> {
    User(N),
    Group(N),
}

#[derive(Deserialize)]
struct RoleBody {
    #[serde(default, deserialize_with = "null_is_empty")]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingBody {
    role_ref: RoleRef,
    #[serde(default, deserialize_with = "null_is_empty")]
    subjects: Vec<SubjectBody>,
}

#[derive(Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct SubjectBody {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

impl RbacKind {
    /// All kinds, each with the name of its resource.
    pub(super) const ALL: [(Self, &str); 4] = [
        (Self::Role { namespaced: false }, "clusterroles"),
        (Self::Role { namespaced: true }, "roles"),
        (Self::Binding { namespaced: false }, "clusterrolebindings"),
        (Self::Binding { namespaced: true }, "rolebindings"),
    ];
}

impl Name {
    pub(super) fn of(object: &Object) -> Self {
        Self {
            namespace: object.key.namespace().to_owned(),
            name: object.key.name().to_owned(),
        }
    }
}

impl Rule {
    /// Returns the rules of a role; an empty list if the role's bytes can't be read.
    pub(super) fn of_role(object: &Object) -> Vec<Self> {
        read(object).map_or_else(Vec::new, |role: RoleBody| role.rules)
    }

    /// Returns true if the rule allows what `attributes` describe, as kube-apiserver's `RuleAllows`
    /// does.
    pub(super) fn allows(&self, attributes: &Attributes) -> bool {
        if !attributes.path.is_empty() {
            return has(&self.verbs, &attributes.verb) && self.has_path(&attributes.path);
        }
        has(&self.verbs, &attributes.verb)
            && has(&self.api_groups, &attributes.group)
            && self.has_resource(attributes)
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }

    fn has_path(&self, path: &str) -> bool {
        let is_meant = |listed: &String| match listed.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => listed == path,
        };
        self.non_resource_urls.iter().any(is_meant)
    }

    fn has_resource(&self, attributes: &Attributes) -> bool {
        let (resource, subresource) = (&attributes.resource, &attributes.subresource);
        if subresource.is_empty() {
            return has(&self.resources, resource);
        }
        let is_meant = |listed: &String| match listed.split_once('/') {
            Some(("*", listed)) => listed == subresource,
            Some((parent, listed)) => parent == resource && listed == subresource,
            None => listed == "*",
        };
        self.resources.iter().any(is_meant)
    }
}

impl Binding {
    /// Returns the binding; `None` if its bytes can't be read.
    pub(super) fn of(object: &Object) -> Option<Self> {
        let body: BindingBody = read(object)?;
        let namespace = match body.role_ref.kind.as_str() {
            "Role" => object.key.namespace().to_owned(),
            _ => String::new(),
        };
        let of_binding = object.key.namespace();
        let subjects = body.subjects.into_iter();
        let subjects = subjects.filter_map(|subject| Subject::of(subject, of_binding));
        Some(Self {
            role: Name {
                namespace,
                name: body.role_ref.name,
            },
            subjects: subjects.collect(),
        })
    }
}

impl Subject {
    /// Returns `user` and its groups as subjects.
    pub(super) fn all_of(user: &User) -> impl Iterator<Item = Self> {
        let groups = user.groups.iter().cloned().map(Self::Group);
        groups.chain([Self::User(user.name.clone())])
    }

    /// Returns the subject of a binding in the namespace `of_binding`, which is empty for a
    /// ClusterRoleBinding. As for kube-apiserver, this is also the namespace of a service account
    /// without a namespace.
    fn of(subject: SubjectBody, of_binding: &str) -> Option<Self> {
        let name = subject.name;
        let namespace = match subject.namespace.as_str() {
            "" => of_binding,
            namespace => namespace,
        };
        match subject.kind.as_str() {
            "User" => Some(Self::User(name)),
            "Group" => Some(Self::Group(name)),
            "ServiceAccount" if !namespace.is_empty() => Some(Self::User(format!(
                "system:serviceaccount:{namespace}:{name}"
            ))),
            _ => None,
        }
    }
}

fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    let parsed = object.decode_json();
    parsed
        .inspect_err(
            |error| tracing::warn!(object = %object.key, %error, "cannot read a role or a binding"),
        )
        .ok()
}

fn has(listed: &[String], value: &str) -> bool {
    listed.iter().any(|listed| listed == "*" || listed == value)
}

/// Reads `null` as an empty list. The API server encodes a role without rules as `"rules": null`.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_about_paths_is_read() {
        let rule = |urls: &[&str]| -> Rule {
            let rule = json!({"verbs": ["get"], "nonResourceURLs": urls});
            serde_json::from_value(rule).expect("a rule")
        };
        assert!(rule(&["/metrics"]) != rule(&["/version"]), "it has changed");
        for (urls, path, expected) in [
            (&["/metrics"][..], "/metrics", true),
            (&["/metrics"], "/metrics/a", false),
            (&["/a", "/metrics/*"], "/metrics/a", true),
            (&["*"], "/metrics", true),
            (&[], "/metrics", false),
        ] {
            let allows = rule(urls).allows(&Attributes::of_path(path));
            assert_eq!(allows, expected, "{urls:?} {path}");
        }
        let pods = Attributes {
            verb: "get".to_owned(),
            resource: "pods".to_owned(),
            ..Attributes::default()
        };
        assert!(!rule(&["*"]).allows(&pods));
    }

    #[test]
    fn rules_allow_what_kube_apiservers_rules_allow() {
        let attributes = |words: &str| {
            let mut words = words.split(' ').map(str::to_owned);
            let mut next = || words.next().unwrap_or_default();
            Attributes {
                verb: next(),
                group: next(),
                resource: next(),
                subresource: next(),
                name: next(),
                ..Attributes::default()
            }
        };
        for (verbs, group, resources, names, words, expected) in [
            ("watch", "", "pods", "", "watch  pods", true),
            ("watch", "", "pods", "", "list  pods", false),
            ("*", "*", "*", "", "watch apps deployments", true),
            (
                "watch",
                "apps",
                "deployments",
                "",
                "watch  deployments",
                false,
            ),
            ("create", "", "pods/exec", "", "create  pods exec", true),
            ("create", "", "pods", "", "create  pods exec", false),
            ("create", "", "*/exec", "", "create  pods exec", true),
            ("create", "", "*/log", "", "create  pods exec", false),
            ("create", "", "*", "", "create  pods exec", true),
            ("watch", "", "pods", "a", "watch  pods  a", true),
            ("watch", "", "pods", "a", "watch  pods  b", false),
            ("watch", "", "pods", "a", "watch  pods", false),
        ] {
            let list = |text: &str| {
                json!(
                    text.split(',')
                        .filter(|t| !t.is_empty())
                        .collect::<Vec<_>>()
                )
            };
            let rule: Rule = serde_json::from_value(json!({
                "verbs": list(verbs),
                "apiGroups": [group],
                "resources": list(resources),
                "resourceNames": list(names),
            }))
            .expect("a rule");
            let allows = rule.allows(&attributes(words));
            assert_eq!(allows, expected, "{verbs} {resources} {names}: {words}");
        }
    }
}
