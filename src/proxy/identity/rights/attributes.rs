//! The attributes of a read. The API server authorizes the read by them.

use kubefan_core::api::{LabelOperator, LabelSelector, RawFieldSelector};
use serde::Serialize;
use serde_json::{Value, json};

/// Largest weight, in bytes, of the conditions in a question: some hundred conditions. Only a
/// selector with harmful intent has more.
const MAX_SELECTOR: usize = 16 << 10;
/// Largest weight, in bytes, of attributes that are remembered. All names in Kubernetes are
/// shorter.
const MAX_KEPT: usize = 4 << 10;
/// The name in a question about all names, for verbs that always have a name. The slash makes sure
/// that no object has this name. So only a right without names is a yes. An empty name will not do:
/// RBAC takes a rule with `resourceNames: [""]` for one that allows the empty name, and no other.
pub(in crate::identity) const ANY_NAME: &str = "kubefan/any-name";

/// The attributes of a read: `ResourceAttributes` of `authorization.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attributes {
    /// `get`, `list` or `watch`; for connections to pods, also `create`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The resource, such as `pods`.
    pub resource: String,
    /// The subresource, such as `log`; empty for the resource itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The namespace; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// The object's name; empty for all objects.
    pub name: String,
    /// The path of a read that names no resource, such as `/apis`; empty for resources.
    #[serde(skip)]
    pub path: String,
    /// The conditions on fields; empty if there are none, or if the question leaves them out.
    #[serde(skip_serializing_if = "Selector::is_empty")]
    pub field_selector: Selector,
    /// The conditions on labels, as `field_selector`.
    #[serde(skip_serializing_if = "Selector::is_empty")]
    pub label_selector: Selector,
}

/// Conditions. All of them hold for each object that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// A condition on one field or label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
struct Requirement {
    key: String,
    operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

impl Attributes {
    /// Returns the attributes of a GET of `path`, which names no resource.
    pub fn of_path(path: &str) -> Self {
        Self {
            verb: "get".to_owned(),
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the part of a review's `spec` that describes the read, and its key.
    pub(in crate::identity) fn of_spec(&self) -> (&'static str, Value) {
        if self.path.is_empty() {
            ("resourceAttributes", json!(self))
        } else {
            (
                "nonResourceAttributes",
                json!({"path": self.path, "verb": self.verb}),
            )
        }
    }

    /// Adds the conditions of a request's selectors that can be parsed and that a review can
    /// express, unless there are very many. Leaving out a condition makes the question more
    /// general, so that a yes still covers the read.
    #[must_use]
    pub fn with_selectors(mut self, fields: Option<&str>, labels: Option<&str>) -> Self {
        let is_short = |text: &&str| text.len() <= MAX_SELECTOR;
        let fields = fields.filter(is_short);
        let fields = fields.and_then(|text| RawFieldSelector::parse(text).ok());
        let fields = fields.map(|fields| Selector::of_fields(&fields));
        let labels = labels.filter(is_short);
        let labels = labels.and_then(|text| LabelSelector::parse(text).ok());
        let labels = labels.map(Selector::of_labels);
        let is_light = |selector: &Selector| selector.weight() <= MAX_SELECTOR;
        self.field_selector = fields.filter(is_light).unwrap_or_default();
        self.label_selector = labels.filter(is_light).unwrap_or_default();
        self
    }

    /// Returns these attributes for all objects, whatever the objects' fields and labels.
    #[must_use]
    pub fn without_selectors(&self) -> Self {
        Self {
            verb: self.verb.clone(),
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            path: self.path.clone(),
            field_selector: Selector::default(),
            label_selector: Selector::default(),
        }
    }

    /// Returns these attributes without selectors, and for all names if `names_covered`. A yes for
    /// the result covers these attributes. Returns `None` if the result would be equal to these
    /// attributes. A right to impersonate is always about its name, such as `system:masters`: what
    /// is known about the names of objects says nothing about those of users.
    pub(in crate::identity) fn more_general(&self, names_covered: bool) -> Option<Self> {
        let is_of_object = self.is_of_one_object() && self.verb != "impersonate";
        let is_name_covered = names_covered && is_of_object;
        (is_name_covered || self.has_selectors()).then(|| {
            let mut general = self.without_selectors();
            if is_name_covered {
                general.name = match self.verb.as_str() {
                    // These verbs read all objects if there is no name.
                    "list" | "watch" => String::new(),
                    _ => ANY_NAME.to_owned(),
                };
            }
            general
        })
    }

    /// Returns the bytes of memory that the attributes hold outside of themselves.
    pub fn weight(&self) -> usize {
        self.weight_of_names() + self.field_selector.weight() + self.label_selector.weight()
    }

    fn weight_of_names(&self) -> usize {
        let texts = [
            &self.verb,
            &self.group,
            &self.version,
            &self.resource,
            &self.subresource,
            &self.namespace,
            &self.name,
            &self.path,
        ];
        texts.into_iter().map(String::len).sum()
    }

    /// Returns true if the attributes are short enough to be remembered.
    pub(in crate::identity) fn may_be_kept(&self) -> bool {
        self.weight() <= MAX_KEPT
    }

    /// Returns true if the attributes are too long even without selectors.
    pub(in crate::identity) fn has_long_names(&self) -> bool {
        self.weight_of_names() > MAX_KEPT
    }

    /// Returns true if the attributes describe one object, or a part of the objects of a resource
    /// and namespace.
    pub(in crate::identity) fn is_narrow(&self) -> bool {
        self.is_of_one_object() || self.has_selectors()
    }

    /// Returns true if the attributes describe one object by its name.
    pub(in crate::identity) fn is_of_one_object(&self) -> bool {
        !self.name.is_empty() && self.name != ANY_NAME
    }

    /// Returns true if the attributes have a condition on fields or labels.
    pub fn has_selectors(&self) -> bool {
        !self.field_selector.is_empty() || !self.label_selector.is_empty()
    }
}

impl Selector {
    fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    fn weight(&self) -> usize {
        let of = |requirement: &Requirement| {
            let values = requirement.values.iter();
            let values: usize = values.map(|value| size_of::<String>() + value.len()).sum();
            size_of::<Requirement>() + requirement.key.len() + values
        };
        self.requirements.iter().map(of).sum()
    }

    fn of_fields(selector: &RawFieldSelector) -> Self {
        let requirements = selector.terms().map(|(field, equal, value)| Requirement {
            key: field.to_owned(),
            operator: if equal { "In" } else { "NotIn" },
            values: vec![value.to_owned()],
        });
        Self {
            requirements: requirements.collect(),
        }
    }

    fn of_labels(selector: LabelSelector) -> Self {
        let requirements = selector.requirements.into_iter();
        let requirements = requirements.filter_map(|requirement| {
            let (operator, values) = match requirement.operator {
                LabelOperator::In(values) => ("In", values),
                LabelOperator::NotIn(values) => ("NotIn", values),
                LabelOperator::Exists => ("Exists", Vec::new()),
                LabelOperator::DoesNotExist => ("DoesNotExist", Vec::new()),
                // A review has no operators for these conditions.
                LabelOperator::GreaterThan(_) | LabelOperator::LessThan(_) => return None,
            };
            Some(Requirement {
                key: requirement.key,
                operator,
                values,
            })
        });
        Self {
            requirements: requirements.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(fields: &str, labels: &str) -> serde_json::Value {
        let attributes = Attributes::default().with_selectors(Some(fields), Some(labels));
        let mut json = serde_json::to_value(&attributes).expect("attributes are JSON");
        let mut take = |key| json[key]["requirements"].take();
        json!([take("fieldSelector"), take("labelSelector")])
    }

    #[test]
    fn selectors_become_requirements() {
        for (fields, labels, expected) in [
            ("", "", json!([null, null])),
            (
                "spec.nodeName=n1,status.phase!=Failed",
                "",
                json!([
                    [
                        {"key": "spec.nodeName", "operator": "In", "values": ["n1"]},
                        {"key": "status.phase", "operator": "NotIn", "values": ["Failed"]}
                    ],
                    null
                ]),
            ),
            (
                "",
                "a=b,c in (e,d),f,!g,h notin (i),j>5",
                json!([
                    null,
                    [
                        {"key": "a", "operator": "In", "values": ["b"]},
                        {"key": "c", "operator": "In", "values": ["d", "e"]},
                        {"key": "f", "operator": "Exists"},
                        {"key": "g", "operator": "DoesNotExist"},
                        {"key": "h", "operator": "NotIn", "values": ["i"]}
                    ]
                ]),
            ),
            ("malformed", "=", json!([null, null])),
        ] {
            assert_eq!(requirements(fields, labels), expected, "{fields} {labels}");
        }
    }

    #[test]
    fn a_more_general_question_has_no_selectors_and_perhaps_no_name() {
        let of = |verb: &str, name: &str| Attributes {
            verb: verb.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        let selective = |verb, name| of(verb, name).with_selectors(Some("metadata.name=a"), None);
        for (attributes, names_covered, expected) in [
            (of("list", ""), false, None),
            (of("list", ""), true, None),
            (of("list", "a"), false, None),
            (of("list", "a"), true, Some(of("list", ""))),
            (selective("list", "a"), false, Some(of("list", "a"))),
            (selective("list", "a"), true, Some(of("list", ""))),
            (selective("watch", "a"), true, Some(of("watch", ""))),
            (selective("watch", ""), true, Some(of("watch", ""))),
            // An empty name is a name to these verbs.
            (of("get", "a"), false, None),
            (of("get", "a"), true, Some(of("get", ANY_NAME))),
            (of("get", ANY_NAME), true, None),
            (of("create", "a"), true, Some(of("create", ANY_NAME))),
            (of("impersonate", "system:masters"), true, None),
        ] {
            let general = attributes.more_general(names_covered);
            assert_eq!(general, expected, "{attributes:?} {names_covered}");
        }
    }

    #[test]
    fn a_selector_with_very_many_conditions_is_left_out() {
        let keys = |count| {
            let keys: Vec<_> = (0..count).map(|number| format!("key-{number}")).collect();
            keys.join(",")
        };
        let plain = Attributes::default();
        let usual = plain.clone().with_selectors(Some("a=b"), Some(&keys(100)));
        assert_eq!(usual.label_selector.requirements.len(), 100);
        assert!(usual.weight() > 100 * size_of::<Requirement>());
        for selector in [keys(1_000), format!("a={}", "x".repeat(MAX_SELECTOR))] {
            let long = Some(selector.as_str());
            let labels = plain.clone().with_selectors(Some("a=b"), long);
            assert_eq!(labels, plain.clone().with_selectors(Some("a=b"), None));
            let fields = plain.clone().with_selectors(long, Some("a"));
            assert_eq!(fields, plain.clone().with_selectors(None, Some("a")));
        }
    }

    #[test]
    fn a_question_without_selectors_has_all_other_attributes() {
        let plain = Attributes {
            verb: "list".to_owned(),
            resource: "pods".to_owned(),
            ..Attributes::default()
        };
        let selective = plain.clone().with_selectors(Some("a=b"), Some("c"));
        assert!(selective.has_selectors() && !plain.has_selectors());
        assert_eq!(selective.without_selectors(), plain);
        let (key, json) = plain.of_spec();
        assert_eq!((key, &json["verb"]), ("resourceAttributes", &json!("list")));
        assert!(json.get("fieldSelector").is_none());
    }

    #[test]
    fn a_path_is_no_resource() {
        let expected = json!({"path": "/metrics", "verb": "get"});
        let found = Attributes::of_path("/metrics").of_spec();
        assert_eq!(found, ("nonResourceAttributes", expected));
    }
}
