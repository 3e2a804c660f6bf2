//! Merges the paths of selectable fields into a tree, so that one pass over an object finds all.

use std::borrow::Cow;

use crate::api::{FieldValue, SelectableField, SelectableFields};

/// A node of the merged paths: one step, such as `spec`, is the edge to a child.
#[derive(Debug, Default)]
pub(super) struct FieldTree<K> {
    /// The next steps, each with its key: a JSON member name or a protobuf field number.
    children: Vec<(K, FieldTree<K>)>,
    /// The fields with a path that ends at this node.
    pub(super) leaves: Vec<Leaf>,
}

/// A selectable field, stored at the node where its path ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    /// Index of the field in `SelectableFields`.
    pub(super) position: usize,
    pub(super) value: FieldValue,
}

/// The field values of one object, in the order of `SelectableFields`; `None` if not found yet.
pub(super) type Values<'a> = Vec<Option<Cow<'a, str>>>;

impl<K: PartialEq + Clone + Default> FieldTree<K> {
    /// Merges the paths of all `fields` into a tree.
    pub(super) fn new(fields: &SelectableFields, path: impl Fn(&SelectableField) -> &[K]) -> Self {
        let mut tree = Self::default();
        for (position, field) in fields.fields.iter().enumerate() {
            let value = field.value;
            tree.insert(path(field), Leaf { position, value });
        }
        tree
    }

    fn insert(&mut self, path: &[K], leaf: Leaf) {
        let Some((key, rest)) = path.split_first() else {
            self.leaves.push(leaf);
            return;
        };
        let known = self.children.iter().position(|(child, _)| child == key);
        let position = known.unwrap_or_else(|| {
            self.children.push((key.clone(), Self::default()));
            self.children.len() - 1
        });
        self.children[position].1.insert(rest, leaf);
    }
}

impl<K> FieldTree<K> {
    pub(super) fn child(&self, is_key: impl Fn(&K) -> bool) -> Option<&Self> {
        let found = self.children.iter().find(|(key, _)| is_key(key));
        found.map(|(_, child)| child)
    }

    pub(super) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// Sets every value at and below this node that was not found to the value of an absent field.
    pub(super) fn fill_absent(&self, values: &mut Values<'_>) {
        for leaf in &self.leaves {
            values[leaf.position].get_or_insert_with(|| absent_value(leaf.value).into());
        }
        for (_, child) in &self.children {
            child.fill_absent(values);
        }
    }
}

/// Returns the value that a selector compares with if the object lacks the field.
fn absent_value(value: FieldValue) -> &'static str {
    match value {
        FieldValue::Text | FieldValue::Scalar => "",
        FieldValue::Boolean => "false",
        FieldValue::Integer => "0",
    }
}
