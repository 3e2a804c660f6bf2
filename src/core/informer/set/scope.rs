//! Which objects an informer has, so that it can answer for those that a caller needs.

use super::StartError;
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

/// Returns the informer of the objects of `scope`, or of its `part`, the namespace of a read. `ready`
/// finds a ready one, and `start` starts one if necessary.
///
/// After a refusal is forgotten, another request may start the wider informer again. During an
/// outage the wider informer does not become ready, but that of the namespace can still answer.
pub(super) fn whole_or_part<T>(
    scope: &Selection,
    part: Option<Selection>,
    ready: impl Fn(&Selection) -> Option<T>,
    start: impl Fn(&Selection) -> Result<T, StartError>,
) -> Result<T, StartError> {
    if let Some(part) = &part
        && ready(scope).is_none()
        && let Some(informer) = ready(part)
    {
        return Ok(informer);
    }
    match (start(scope), part) {
        (Err(StartError::Forbidden), Some(part)) => start(&part),
        (outcome, _) => outcome,
    }
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
