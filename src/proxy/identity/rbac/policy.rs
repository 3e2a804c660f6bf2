//! All roles and bindings: which users a change affects, and what the roles allow.

use std::collections::{HashMap, HashSet};

use kubefan_core::api::Object;

use super::objects::{Binding, Name, RbacKind, Rule, Subject};
use super::replaced::Replaced;
use crate::identity::{Attributes, User};

/// The group that the API server never refuses anything.
const MASTERS: &str = "system:masters";

/// All roles and bindings that kubefan has read.
#[derive(Debug, Default)]
pub(super) struct Policy {
    roles: HashMap<Name, Vec<Rule>>,
    bindings: HashMap<Name, Binding>,
    by_role: HashMap<Name, HashSet<Name>>,
    by_subject: HashMap<Subject, HashSet<Name>>,
    replaced: Replaced,
}

/// The users and groups with rights that may have changed, each with the namespace of the change.
/// The namespace is empty for a change in all namespaces.
pub(super) type Concerned = HashSet<(Subject, String)>;

impl Policy {
    /// Adds or replaces a role or binding. Returns the users and groups with rights that may have
    /// changed.
    pub(super) fn set(&mut self, kind: RbacKind, object: &Object) -> Concerned {
        let name = Name::of(object);
        match kind {
            RbacKind::Role { .. } => self.set_role(name, Some(Rule::of_role(object))),
            RbacKind::Binding { .. } => self.set_binding(name, Binding::of(object)),
        }
    }

    /// Removes a role or binding. Returns the users and groups with rights that may have changed.
    pub(super) fn remove(&mut self, kind: RbacKind, name: &Name) -> Concerned {
        match kind {
            RbacKind::Role { .. } => self.set_role(name.clone(), None),
            RbacKind::Binding { .. } => self.set_binding(name.clone(), None),
        }
    }

    /// Returns the names of all objects of a kind.
    pub(super) fn names(&self, kind: RbacKind) -> HashSet<Name> {
        let (RbacKind::Role { namespaced } | RbacKind::Binding { namespaced }) = kind;
        let is_of_kind = |name: &&Name| name.namespace.is_empty() != namespaced;
        match kind {
            RbacKind::Role { .. } => self.roles.keys().filter(is_of_kind).cloned().collect(),
            RbacKind::Binding { .. } => self.bindings.keys().filter(is_of_kind).cloned().collect(),
        }
    }

    /// Returns true if the roles allow `user` what `attributes` describe.
    pub(super) fn allows(&self, user: &User, attributes: &Attributes) -> bool {
        if user.groups.iter().any(|group| group == MASTERS) {
            return true;
        }
        Subject::all_of(user).any(|subject| {
            let bindings = self.by_subject.get(&subject).into_iter().flatten();
            let mut bindings = bindings
                .filter(|name| name.namespace.is_empty() || name.namespace == attributes.namespace);
            bindings.any(|name| {
                let role = &self.bindings[name].role;
                let rules = self.roles.get(role);
                rules.is_some_and(|rules| rules.iter().any(|rule| rule.allows(attributes)))
            })
        })
    }

    /// Returns true if the roles allow `user` what `attributes` describe, or did a short time ago,
    /// with any combination of the current and the replaced roles and bindings.
    pub(super) fn allowed(&self, user: &User, attributes: &Attributes) -> bool {
        let allows = |(namespace, role): (&String, &Name)| {
            let is_here = namespace.is_empty() || *namespace == attributes.namespace;
            let rules = self.roles.get(role).into_iter().flatten();
            let mut rules = rules.chain(self.replaced.rules(role));
            is_here && rules.any(|rule| rule.allows(attributes))
        };
        Subject::all_of(user).any(|subject| {
            let bindings = self.by_subject.get(&subject).into_iter().flatten();
            let bindings = bindings.map(|name| (&name.namespace, &self.bindings[name].role));
            let bound = self.replaced.bound(&subject);
            let mut all = bindings.chain(bound.map(|(namespace, role)| (namespace, role)));
            all.any(allows)
        })
    }

    fn set_role(&mut self, name: Name, rules: Option<Vec<Rule>>) -> Concerned {
        let old = match rules {
            Some(rules) => self.roles.insert(name.clone(), rules),
            None => self.roles.remove(&name),
        };
        if old.as_ref() == self.roles.get(&name) {
            return Concerned::default();
        }
        if let Some(old) = old {
            self.replaced.add_role(&name, old);
        }
        let bindings = self.by_role.get(&name).into_iter().flatten();
        bindings
            .flat_map(|name| subjects(name, &self.bindings[name]))
            .collect()
    }

    fn set_binding(&mut self, name: Name, binding: Option<Binding>) -> Concerned {
        if self.bindings.get(&name) == binding.as_ref() {
            return Concerned::default();
        }
        let mut concerned = Concerned::default();
        if let Some(old) = self.bindings.remove(&name) {
            remove_from(&mut self.by_role, &old.role, &name);
            for subject in &old.subjects {
                remove_from(&mut self.by_subject, subject, &name);
            }
            concerned.extend(subjects(&name, &old));
            self.replaced.add_binding(&name.namespace, &old);
        }
        if let Some(binding) = binding {
            let by_role = self.by_role.entry(binding.role.clone());
            by_role.or_default().insert(name.clone());
            for subject in &binding.subjects {
                let by_subject = self.by_subject.entry(subject.clone());
                by_subject.or_default().insert(name.clone());
            }
            concerned.extend(subjects(&name, &binding));
            self.bindings.insert(name, binding);
        }
        concerned
    }
}

/// Returns the users and groups of the binding `name`, each with the binding's namespace.
fn subjects(name: &Name, binding: &Binding) -> impl Iterator<Item = (Subject, String)> {
    let subjects = binding.subjects.iter().cloned();
    subjects.map(move |subject| (subject, name.namespace.clone()))
}

fn remove_from<K>(index: &mut HashMap<K, HashSet<Name>>, key: &K, name: &Name)
where
    K: std::hash::Hash + Eq,
{
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::{ObjectKey, ObjectValues, ResourceVersion};
    use serde_json::{Value, json};

    use super::*;

    const CLUSTER_ROLE: RbacKind = RbacKind::Role { namespaced: false };
    const ROLE: RbacKind = RbacKind::Role { namespaced: true };
    const CLUSTER_BINDING: RbacKind = RbacKind::Binding { namespaced: false };
    const BINDING: RbacKind = RbacKind::Binding { namespaced: true };

    fn object(namespace: &str, name: &str, body: &Value) -> Object {
        let key = ObjectKey::new(Some(namespace), name);
        let text = body.to_string();
        // As the API server's objects are stored: without the opening brace.
        let body = text[1..].to_owned().into();
        Object::new(key, ResourceVersion(1), &ObjectValues::default(), body)
    }

    fn role(namespace: &str, name: &str, resource: &str) -> Object {
        let rule = json!({"verbs": ["watch"], "apiGroups": [""], "resources": [resource]});
        object(namespace, name, &json!({"metadata": {}, "rules": [rule]}))
    }

    fn binding(namespace: &str, name: &str, role: &str, subjects: Value) -> Object {
        let kind = if namespace.is_empty() || role.starts_with("cluster") {
            "ClusterRole"
        } else {
            "Role"
        };
        let role = json!({"kind": kind, "name": role});
        let body = json!({"metadata": {}, "roleRef": role, "subjects": subjects});
        object(namespace, name, &body)
    }

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..User::default()
        }
    }

    fn watch(namespace: &str, resource: &str) -> Attributes {
        Attributes {
            verb: "watch".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            ..Attributes::default()
        }
    }

    fn shown(concerned: Concerned) -> Vec<String> {
        let shown = |(subject, namespace)| format!("{subject:?} {namespace}").trim().to_owned();
        let mut all: Vec<String> = concerned.into_iter().map(shown).collect();
        all.sort();
        all
    }

    #[test]
    fn a_change_concerns_the_subjects_before_and_after_it() {
        let mut policy = Policy::default();
        let subject =
            |kind: &str, name: &str| json!({"kind": kind, "name": name, "namespace": "n"});
        assert_eq!(
            shown(policy.set(CLUSTER_ROLE, &role("", "cluster", "pods"))),
            [""; 0]
        );
        let bound = binding(
            "",
            "b",
            "cluster",
            json!([subject("User", "u"), subject("Group", "g")]),
        );
        let both = [r#"Group("g")"#, r#"User("u")"#];
        assert_eq!(shown(policy.set(CLUSTER_BINDING, &bound)), both);
        assert_eq!(
            shown(policy.set(CLUSTER_BINDING, &bound)),
            [""; 0],
            "unchanged"
        );
        let account = binding("a", "b", "cluster", json!([subject("ServiceAccount", "s")]));
        let account_in_a = r#"User("system:serviceaccount:n:s") a"#;
        assert_eq!(shown(policy.set(BINDING, &account)), [account_in_a]);
        // A role concerns the subjects of all its bindings.
        let three = [both[0], account_in_a, both[1]];
        assert_eq!(
            shown(policy.set(CLUSTER_ROLE, &role("", "cluster", "nodes"))),
            three
        );
        assert_eq!(
            shown(policy.set(CLUSTER_ROLE, &role("", "cluster", "nodes"))),
            [""; 0]
        );
        let rebound = binding("", "b", "cluster", json!([subject("User", "v")]));
        let changed = [both[0], both[1], r#"User("v")"#];
        assert_eq!(shown(policy.set(CLUSTER_BINDING, &rebound)), changed);
        let name = Name::of(&account);
        assert_eq!(policy.names(BINDING), HashSet::from([name.clone()]));
        assert_eq!(shown(policy.remove(BINDING, &name)), [account_in_a]);
        assert_eq!(shown(policy.remove(BINDING, &name)), [""; 0]);
        let name = Name::of(&role("", "cluster", ""));
        assert_eq!(shown(policy.remove(CLUSTER_ROLE, &name)), [r#"User("v")"#]);
    }

    #[test]
    fn a_service_account_without_a_namespace_is_of_the_bindings() {
        let mut policy = Policy::default();
        let account = json!([{"kind": "ServiceAccount", "name": "s"}]);
        policy.set(CLUSTER_ROLE, &role("", "cluster", "pods"));
        let bound = binding("a", "b", "cluster", account.clone());
        let expected = [r#"User("system:serviceaccount:a:s") a"#];
        assert_eq!(shown(policy.set(BINDING, &bound)), expected);
        let user = user("system:serviceaccount:a:s", &[]);
        assert!(policy.allows(&user, &watch("a", "pods")));
        // The API server ignores such a subject of a ClusterRoleBinding.
        let bound = binding("", "b", "cluster", account);
        assert_eq!(shown(policy.set(CLUSTER_BINDING, &bound)), [""; 0]);
        assert!(!policy.allows(&user, &watch("b", "pods")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_was_there_before_its_role_or_binding_changed_in_any_order() {
        let subjects = json!([{"kind": "User", "name": "u"}]);
        let bound = binding("a", "b", "cluster", subjects);
        let granting = role("", "cluster", "pods");
        for changes in [
            &["role"][..],
            &["binding"],
            &["role", "binding"],
            &["binding", "role"],
            &["other"],
        ] {
            let mut policy = Policy::default();
            policy.set(CLUSTER_ROLE, &granting);
            policy.set(BINDING, &bound);
            for change in changes {
                match *change {
                    "role" => policy.remove(CLUSTER_ROLE, &Name::of(&granting)),
                    "binding" => policy.remove(BINDING, &Name::of(&bound)),
                    _ => policy.set(CLUSTER_ROLE, &role("", "cluster", "nodes")),
                };
            }
            let (user, other) = (user("u", &[]), user("v", &[]));
            assert!(!policy.allows(&user, &watch("a", "pods")), "{changes:?}");
            assert!(policy.allowed(&user, &watch("a", "pods")), "{changes:?}");
            // These rights were never granted.
            assert!(!policy.allowed(&user, &watch("b", "pods")), "{changes:?}");
            assert!(
                !policy.allowed(&user, &watch("a", "secrets")),
                "{changes:?}"
            );
            assert!(!policy.allowed(&other, &watch("a", "pods")), "{changes:?}");
        }
    }

    #[test]
    fn roles_allow_what_their_bindings_reach() {
        let mut policy = Policy::default();
        policy.set(CLUSTER_ROLE, &role("", "cluster", "pods"));
        policy.set(ROLE, &role("a", "local", "secrets"));
        let group = json!([{"kind": "Group", "name": "g"}]);
        let user_u = json!([{"kind": "User", "name": "u"}]);
        policy.set(
            CLUSTER_BINDING,
            &binding("", "everywhere", "cluster", group),
        );
        policy.set(BINDING, &binding("a", "local", "local", user_u.clone()));
        policy.set(BINDING, &binding("b", "cluster", "cluster", user_u));
        for (user, attributes, expected) in [
            (user("u", &[]), watch("a", "secrets"), true),
            (user("u", &[]), watch("b", "secrets"), false),
            (user("u", &[]), watch("b", "pods"), true),
            (user("u", &[]), watch("", "pods"), false),
            (user("u", &["g"]), watch("", "pods"), true),
            (user("v", &["g"]), watch("c", "pods"), true),
            (user("v", &["h"]), watch("c", "pods"), false),
            (user("v", &[MASTERS]), watch("c", "pods"), true),
        ] {
            let found = policy.allows(&user, &attributes);
            assert_eq!(found, expected, "{user:?} {attributes:?}");
        }
    }
}
