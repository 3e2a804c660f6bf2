//! The objects that a run creates and changes.

use kubefan_core::api::Resource;
use serde_json::{Value, json};

use super::marker::Marker;
use crate::load::selector::{Attribute, SelectorTemplate};

/// The label that names the program which created an object.
pub(crate) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`] on everything that a load test creates.
pub(crate) const LOAD_TEST: &str = "kubefan-load";
/// The label that holds the run's id.
pub(crate) const RUN_LABEL: &str = "kubefan-load/run";
/// The annotation that holds the marker and that every write changes.
const MARKER_ANNOTATION: &str = "kubefan-load/write";
/// The annotation that fills up objects to their size if their kind has no `data`.
const FILLER_ANNOTATION: &str = "kubefan-load/filler";
/// The image of the pods. It does not exist, and is never pulled: no scheduler has the name that
/// the pods ask for.
const IMAGE: &str = "kubefan-load.invalid/none";

/// A template for the objects of a run.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    pub(crate) run: String,
    api_version: String,
    kind: String,
    group_resource: String,
    selector: Option<SelectorTemplate>,
    watchers: u32,
    /// The number of filler bytes in each object.
    pub(crate) filler: usize,
}

impl Objects {
    pub(crate) fn new(
        run: &str,
        resource: &Resource,
        selector: Option<&SelectorTemplate>,
        watchers: u32,
    ) -> Self {
        Self {
            run: run.to_owned(),
            api_version: resource.gvr.api_version(),
            kind: resource.kind.clone(),
            group_resource: resource.gvr.group_resource(),
            selector: selector.cloned(),
            watchers,
            filler: 0,
        }
    }

    /// Returns the attribute and the value that make a watcher select object
    /// `number`; `None` without a selector.
    fn selected(&self, number: u32) -> Option<(Attribute<'_>, String)> {
        let selector = self.selector.as_ref()?;
        // `max(1)` avoids a division by zero; a load test has at least one watcher.
        Some((
            selector.attribute(),
            selector.value_for(number % self.watchers.max(1)),
        ))
    }

    pub(crate) fn name(&self, number: u32) -> String {
        match self.selected(number) {
            Some((Attribute::Name, name)) => name,
            _ => format!("load-{}-{number}", self.run),
        }
    }

    /// Returns the manifest to create object `number` with.
    pub(crate) fn object(&self, number: u32) -> Value {
        let mut object = json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {
                "name": self.name(number),
                "labels": { MANAGED_BY_LABEL: LOAD_TEST, RUN_LABEL: self.run },
                "annotations": { MARKER_ANNOTATION: self.first_marker(number) },
            },
        });
        let filler = "x".repeat(self.filler);
        match self.group_resource.as_str() {
            "configmaps" => object["data"] = json!({ "filler": filler }),
            // Secrets need valid base64, so the filler repeats a group of four base64 characters.
            "secrets" => object["data"] = json!({ "filler": "eHh4".repeat(self.filler / 4) }),
            _ => object["metadata"]["annotations"][FILLER_ANNOTATION] = filler.into(),
        }
        match self.group_resource.as_str() {
            "pods" => {
                object["spec"] = json!({
                    "schedulerName": LOAD_TEST,
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{ "name": "none", "image": IMAGE }],
                });
            }
            "leases.coordination.k8s.io" => object["spec"] = json!({ "holderIdentity": LOAD_TEST }),
            "services" => {
                object["spec"] = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
            }
            "endpointslices.discovery.k8s.io" => {
                object["addressType"] = "IPv4".into();
                object["endpoints"] = json!([]);
            }
            _ => {}
        }
        match self.selected(number) {
            Some((Attribute::Label(key), value)) => {
                object["metadata"]["labels"][key] = value.into()
            }
            Some((Attribute::Spec(field), value)) => object["spec"][field] = value.into(),
            _ => {}
        }
        object
    }

    /// Returns an object that has the size of the run's objects without filler. It has no marker,
    /// so watchers do not count it as an object of the run.
    pub(crate) fn probe(&self) -> Value {
        let bare = Self {
            filler: 0,
            ..self.clone()
        };
        let mut object = bare.object(0);
        let metadata = &mut object["metadata"];
        let length = self.name(0).len();
        metadata["name"] = format!("{:a<length$.length$}", format!("p{}", self.run)).into();
        let length = self.first_marker(0).len();
        metadata["annotations"][MARKER_ANNOTATION] = "x".repeat(length).into();
        object
    }

    /// Returns the JSON merge patch of a write, which sets the marker.
    pub(crate) fn patch(&self, marker: Marker) -> String {
        let marker = marker.to_text(&self.run);
        format!(r#"{{"metadata":{{"annotations":{{"{MARKER_ANNOTATION}":"{marker}"}}}}}}"#)
    }

    /// Returns the marker of the creation of an object.
    fn first_marker(&self, object: u32) -> String {
        let marker = Marker {
            object,
            ..Marker::default()
        };
        marker.to_text(&self.run)
    }

    /// Returns the label selector that matches all objects of the run.
    pub(crate) fn label_selector(&self) -> String {
        format!("{RUN_LABEL}={}", self.run)
    }
}

/// The resources that have a template with more than metadata, for error messages.
pub(crate) const WITH_TEMPLATE: &str =
    "configmaps, secrets, pods, leases, services, endpointslices";

#[cfg(test)]
mod tests {
    use kubefan_core::api::GroupVersionResource;

    use super::*;
    use crate::load::write::marker::MarkerFinder;

    fn objects(group: &str, resource: &str, kind: &str, selector: Option<&str>) -> Objects {
        let resource = Resource {
            gvr: GroupVersionResource::new(group, "v1", resource),
            kind: kind.to_owned(),
            singular: String::new(),
            short_names: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        };
        let selector = selector.map(|text| text.parse().expect("a selector"));
        Objects::new("0a1b2c3d", &resource, selector.as_ref(), 4)
    }

    #[test]
    fn objects_carry_what_selects_them() {
        let table = [
            (
                "",
                "pods",
                "Pod",
                "spec.nodeName=node-{i}",
                "/spec/nodeName",
                "node-1",
            ),
            (
                "",
                "configmaps",
                "ConfigMap",
                "app=load-{i}",
                "/metadata/labels/app",
                "load-1",
            ),
            (
                "",
                "secrets",
                "Secret",
                "metadata.name=x-{i}",
                "/metadata/name",
                "x-1",
            ),
        ];
        for (group, resource, kind, selector, path, value) in table {
            let objects = objects(group, resource, kind, Some(selector));
            assert_eq!(
                objects.object(5).pointer(path),
                Some(&value.into()),
                "{selector}"
            );
            let object = objects.object(1);
            assert_eq!(object["metadata"]["labels"][RUN_LABEL], "0a1b2c3d");
            assert_eq!(object["metadata"]["labels"][MANAGED_BY_LABEL], LOAD_TEST);
            let found = MarkerFinder::new("0a1b2c3d").find(object.to_string().as_bytes());
            assert_eq!(
                found.map(|marker| (marker.object, marker.sequence)),
                Some((1, 0))
            );
        }
    }

    #[test]
    fn filler_is_counted_in_bytes() {
        for (group, resource, kind) in [
            ("", "configmaps", "ConfigMap"),
            ("", "secrets", "Secret"),
            ("", "pods", "Pod"),
            ("coordination.k8s.io", "leases", "Lease"),
            ("example.com", "widgets", "Widget"),
        ] {
            let small = objects(group, resource, kind, None);
            let mut large = small.clone();
            large.filler = 1_000;
            let length = |objects: &Objects| objects.object(0).to_string().len();
            assert_eq!(length(&large) - length(&small), 1_000, "{resource}");
        }
    }

    #[test]
    fn the_probe_is_as_large_as_an_object_and_has_no_marker() {
        let objects = objects("", "configmaps", "ConfigMap", None);
        let (probe, object) = (objects.probe().to_string(), objects.object(0).to_string());
        assert_eq!(probe.len(), object.len());
        assert_eq!(MarkerFinder::new("0a1b2c3d").find(probe.as_bytes()), None);
        assert_ne!(
            objects.probe()["metadata"]["name"],
            objects.object(0)["metadata"]["name"]
        );
    }

    #[test]
    fn a_patch_changes_the_marker() {
        let marker = Marker {
            object: 1,
            sequence: 2,
            number: 3,
            scheduled: 4,
        };
        let objects = objects("", "configmaps", "ConfigMap", None);
        let patch: Value = serde_json::from_str(&objects.patch(marker)).expect("JSON");
        let text = patch["metadata"]["annotations"][MARKER_ANNOTATION]
            .as_str()
            .expect("a marker");
        assert_eq!(
            MarkerFinder::new("0a1b2c3d").find(text.as_bytes()),
            Some(marker)
        );
        let created = &objects.object(0)["metadata"]["annotations"][MARKER_ANNOTATION];
        assert_eq!(created.as_str().map(str::len), Some(text.len()));
    }
}
