//! Which objects an informer has, so that it can answer for those that a caller needs.

use crate::api::Selection;
use crate::informer::InformerSpec;

/// Returns the part of `scope` in `namespace`, or `None` if the scope or the read has only one
/// namespace or none.
pub(super) fn part_in(scope: &Selection, namespace: Option<&str>) -> Option<Selection> {
    let namespace = namespace.filter(|_| scope.namespace.is_none())?;
    Some(Selection {
        namespace: Some(namespace.to_owned()),
        ..scope.clone()
    })
}

/// Returns all objects of `namespace`, or of all namespaces.
pub(super) fn of_namespace(namespace: Option<&str>) -> Selection {
    Selection {
        namespace: namespace.map(str::to_owned),
        ..Selection::default()
    }
}

/// Returns the objects that the API server is asked for so that the cache has those of `selection`.
pub(super) fn upstream_scope(spec: &InformerSpec, selection: &Selection) -> Selection {
    let namespace = selection.single_namespace();
    let namespace = namespace.filter(|_| spec.resource.namespaced);
    // The API server refuses a selector with a field that the resource does not have. It is then
    // asked without the field selector.
    let fields = Some(selection.fields.clone());
    let fields = fields.filter(|fields| fields.to_text(&spec.fields).is_some());
    Selection {
        labels: selection.labels.clone(),
        fields: fields.unwrap_or_default(),
        ..of_namespace(namespace)
    }
}
