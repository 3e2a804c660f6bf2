//! Roles and bindings that were changed or deleted in the last seconds. They show whether a change
//! has taken a right away, or whether the roles did not grant the right before either. The latter
//! applies to node agents, because their rights are not in roles.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::objects::{Binding, Name, Rule, Subject};

/// How long replaced roles and bindings are remembered. The watches of roles and of bindings are
/// independent, so kubefan may notice deletions one after the other, although they were made
/// together.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// Upper limit of the replaced roles and bindings that are remembered. If there are more, the
/// oldest are forgotten. The rights that these granted are asked about, but not first.
const MAX_KNOWN: usize = 1_000;

/// Roles and bindings before their last changes.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    roles: HashMap<Name, Vec<Vec<Rule>>>,
    /// The roles that subjects had, each with the namespace of the binding.
    bound: HashMap<Subject, Vec<(String, Name)>>,
    /// The replaced roles and bindings, oldest first. The lists in the maps have this order too.
    in_order: VecDeque<(Instant, Old)>,
}

#[derive(Debug)]
enum Old {
    Role(Name),
    Binding(Vec<Subject>),
}

impl Replaced {
    pub(super) fn add_role(&mut self, name: &Name, rules: Vec<Rule>) {
        self.roles.entry(name.clone()).or_default().push(rules);
        self.add(Old::Role(name.clone()));
    }

    /// Adds a binding in `namespace`.
    pub(super) fn add_binding(&mut self, namespace: &str, binding: &Binding) {
        for subject in &binding.subjects {
            let bound = self.bound.entry(subject.clone()).or_default();
            bound.push((namespace.to_owned(), binding.role.clone()));
        }
        self.add(Old::Binding(binding.subjects.clone()));
    }

    /// Returns the rules that a role had.
    pub(super) fn rules(&self, role: &Name) -> impl Iterator<Item = &Rule> {
        self.roles.get(role).into_iter().flatten().flatten()
    }

    /// Returns the roles that a subject had, and the namespaces of the bindings.
    pub(super) fn bound(&self, subject: &Subject) -> impl Iterator<Item = &(String, Name)> {
        self.bound.get(subject).into_iter().flatten()
    }

    fn add(&mut self, old: Old) {
        let now = Instant::now();
        self.in_order.push_back((now, old));
        while let Some((at, _)) = self.in_order.front()
            && (self.in_order.len() > MAX_KNOWN || now.duration_since(*at) > KNOWN_FOR)
            && let Some((_, oldest)) = self.in_order.pop_front()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, oldest: &Old) {
        match oldest {
            Old::Role(name) => forget_first(&mut self.roles, name),
            Old::Binding(subjects) => {
                for subject in subjects {
                    forget_first(&mut self.bound, subject);
                }
            }
        }
    }
}

/// Removes the first value of `key`. It is the oldest.
fn forget_first<K: std::hash::Hash + Eq, V>(all: &mut HashMap<K, Vec<V>>, key: &K) {
    if let Some(values) = all.get_mut(key) {
        values.drain(..1);
        if values.is_empty() {
            all.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn name(name: &str) -> Name {
        Name {
            namespace: String::new(),
            name: name.to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_replaced_is_known_for_seconds_and_is_bounded() {
        let mut replaced = Replaced::default();
        let subject = Subject::User("u".to_owned());
        let binding = Binding {
            role: name("r"),
            subjects: vec![subject.clone(), subject.clone()],
        };
        replaced.add_binding("n", &binding);
        replaced.add_role(&name("r"), vec![Rule::default()]);
        advance(KNOWN_FOR).await;
        replaced.add_role(&name("other"), Vec::new());
        assert_eq!(replaced.bound(&subject).count(), 2);
        assert_eq!(replaced.rules(&name("r")).count(), 1);
        advance(Duration::from_millis(1)).await;
        replaced.add_role(&name("other"), Vec::new());
        assert_eq!(replaced.bound(&subject).count(), 0);
        assert_eq!(replaced.rules(&name("r")).count(), 0);
        for _ in 0..2 * MAX_KNOWN {
            replaced.add_binding("n", &binding);
        }
        assert_eq!(replaced.in_order.len(), MAX_KNOWN);
        assert_eq!(replaced.bound(&subject).count(), 2 * MAX_KNOWN);
        assert!(replaced.roles.is_empty());
    }
}
