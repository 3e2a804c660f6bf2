//! Paths of selectable fields merged into a tree, so that one walk over an object finds all.

use std::borrow::Cow;

use crate::api::FieldValue;
use crate::api::SelectableFields;

/// One step of the merged paths.
#[derive(Debug)]
pub(super) struct FieldTree<K> {
    /// Steps below, by key.
    children: Vec<(K, FieldTree<K>)>,
    /// Fields whose path ends here.
    leaves: Vec<Leaf>,
}

/// A field at the end of its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    /// Position in `SelectableFields`.
    pub(super) position: usize,
    pub(super) value: FieldValue,
}

/// Values found so far, in the order of `SelectableFields`.
pub(super) type Values<'a> = Vec<Option<Cow<'a, str>>>;

impl<K> Default for FieldTree<K> {
    fn default() -> Self {
        Self {
            children: Vec::new(),
            leaves: Vec::new(),
        }
    }
}

impl<K: PartialEq + Clone> FieldTree<K> {
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

    pub(super) fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// Counts everything at and below this step that was not found as absent for good.
    pub(super) fn fill_absent(&self, values: &mut Values<'_>) {
        for leaf in &self.leaves {
            values[leaf.position].get_or_insert_with(|| absent_value(leaf.value).into());
        }
        for (_, child) in &self.children {
            child.fill_absent(values);
        }
    }
}

/// The tree over `SelectableField::json_path`.
pub(super) fn json_tree(fields: &SelectableFields) -> FieldTree<String> {
    let mut tree = FieldTree::default();
    for (position, field) in fields.fields.iter().enumerate() {
        let value = field.value;
        tree.insert(&field.json_path, Leaf { position, value });
    }
    tree
}

/// The tree over `SelectableField::protobuf_path`.
pub(super) fn protobuf_tree(fields: &SelectableFields) -> FieldTree<u32> {
    let mut tree = FieldTree::default();
    for (position, field) in fields.fields.iter().enumerate() {
        let value = field.value;
        tree.insert(&field.protobuf_path, Leaf { position, value });
    }
    tree
}

/// What an absent value counts as.
fn absent_value(value: FieldValue) -> &'static str {
    match value {
        FieldValue::Text | FieldValue::Scalar => "",
        FieldValue::Boolean => "false",
        FieldValue::Integer => "0",
    }
}
