//! Owner references: with them, the API server's garbage collector can delete what a controller
//! made, and a controller can find the owner of a changed object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::ObjectMeta;

/// Why an object cannot be owned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// Another object is already the controller. There can be only one.
    #[error("{object} is controlled by the {kind} {name} already")]
    AlreadyOwned {
        /// The name of the object.
        object: String,
        /// The kind of its controller.
        kind: String,
        /// The name of its controller.
        name: String,
    },
    /// The owner was not read from the API server, so it has no uid.
    #[error("the owner has no name or uid")]
    NoUid,
    /// The owner is in another namespace. An owner must be in the object's namespace, or
    /// cluster-scoped.
    #[error("the owner is in the namespace {owner}, not in {object:?}")]
    OtherNamespace {
        /// The namespace of the owner.
        owner: String,
        /// The namespace of the object; `None` if it has none.
        object: Option<String>,
    },
}

/// Makes `owner` the controller of `object`, with `blockOwnerDeletion`. Replaces an existing
/// reference to `owner`. The caller then writes `object`.
///
/// # Errors
///
/// If `object` has another controller, if `owner` has no uid, or if `owner` is in another
/// namespace. `object` is unchanged then.
pub fn set_controller_reference<O, K>(owner: &O, object: &mut K) -> Result<(), OwnerError>
where
    O: Resource<DynamicType = ()>,
    K: Resource,
{
    let mut reference = reference_to(owner, object.meta())?;
    reference.controller = Some(true);
    reference.block_owner_deletion = Some(true);
    if let Some(controller) = controller_of(object.meta())
        && !is_same_owner(controller, &reference)
    {
        return Err(OwnerError::AlreadyOwned {
            object: object.meta().name.clone().unwrap_or_default(),
            kind: controller.kind.clone(),
            name: controller.name.clone(),
        });
    }
    put(object.meta_mut(), reference);
    Ok(())
}

/// Makes `owner` an owner of `object` that is not its controller. Replaces an existing reference to
/// `owner`. The caller then writes `object`.
///
/// # Errors
///
/// If `owner` has no uid, or is in another namespace. `object` is unchanged then.
pub fn set_owner_reference<O, K>(owner: &O, object: &mut K) -> Result<(), OwnerError>
where
    O: Resource<DynamicType = ()>,
    K: Resource,
{
    let reference = reference_to(owner, object.meta())?;
    put(object.meta_mut(), reference);
    Ok(())
}

/// Returns the reference to the controller of an object; `None` if it has none.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// Returns the group of an `apiVersion`; empty for the core group.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

fn reference_to<O>(owner: &O, object: &ObjectMeta) -> Result<OwnerReference, OwnerError>
where
    O: Resource<DynamicType = ()>,
{
    let namespace = &owner.meta().namespace;
    if namespace.is_some() && *namespace != object.namespace {
        return Err(OwnerError::OtherNamespace {
            owner: namespace.clone().unwrap_or_default(),
            object: object.namespace.clone(),
        });
    }
    owner.owner_ref(&()).ok_or(OwnerError::NoUid)
}

/// Returns true if group, kind and name of both owners are equal; versions and uids may differ.
fn is_same_owner(a: &OwnerReference, b: &OwnerReference) -> bool {
    let key = |owner: &OwnerReference| {
        let group = group_of(&owner.api_version).to_owned();
        (group, owner.kind.clone(), owner.name.clone())
    };
    key(a) == key(b)
}

fn put(metadata: &mut ObjectMeta, reference: OwnerReference) {
    let owners = metadata.owner_references.get_or_insert_default();
    match owners
        .iter_mut()
        .find(|owner| is_same_owner(owner, &reference))
    {
        Some(owner) => *owner = reference,
        None => owners.push(reference),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn object<K: DeserializeOwned>(namespace: Option<&str>, name: &str, uid: Option<&str>) -> K {
        let metadata = json!({ "namespace": namespace, "name": name, "uid": uid });
        serde_json::from_value(json!({ "metadata": metadata })).expect("an object")
    }

    fn owners(map: &ConfigMap) -> Vec<(String, String, bool)> {
        let owners = map.metadata.owner_references.iter().flatten();
        owners
            .map(|owner| {
                let is_controller = owner.controller == Some(true);
                (owner.name.clone(), owner.uid.clone(), is_controller)
            })
            .collect()
    }

    fn owner(name: &str, uid: &str, is_controller: bool) -> (String, String, bool) {
        (name.to_owned(), uid.to_owned(), is_controller)
    }

    #[test]
    fn an_object_has_one_controller_and_many_owners() {
        let mut map: ConfigMap = object(Some("n"), "map", None);
        let a: Deployment = object(Some("n"), "a", Some("1"));
        let b: Deployment = object(Some("n"), "b", Some("2"));
        let team: Namespace = object(None, "n", Some("3"));
        assert_eq!(controller_of(&map.metadata), None);
        set_controller_reference(&a, &mut map).expect("no controller yet");
        set_owner_reference(&b, &mut map).expect("another owner");
        set_owner_reference(&team, &mut map).expect("a cluster-scoped owner");
        let all = [
            owner("a", "1", true),
            owner("b", "2", false),
            owner("n", "3", false),
        ];
        assert_eq!(owners(&map), all);
        let reference = controller_of(&map.metadata).expect("a controller");
        assert_eq!(reference.api_version, "apps/v1");
        assert_eq!(reference.block_owner_deletion, Some(true));
        let refused = set_controller_reference(&b, &mut map);
        assert_eq!(
            refused.expect_err("a is it").to_string(),
            "map is controlled by the Deployment a already"
        );
        assert_eq!(owners(&map), all);
    }

    #[test]
    fn a_reference_to_the_same_owner_is_replaced() {
        let mut map: ConfigMap = object(Some("n"), "map", None);
        let owner_of = |uid| object::<Deployment>(Some("n"), "a", Some(uid));
        set_controller_reference(&owner_of("1"), &mut map).expect("no controller yet");
        let owners_now = map.metadata.owner_references.as_mut().expect("one");
        owners_now[0].api_version = "apps/v1beta1".to_owned();
        // The owner was recreated with another uid, and read in another version.
        set_controller_reference(&owner_of("2"), &mut map).expect("the same owner");
        assert_eq!(owners(&map), [owner("a", "2", true)]);
        set_owner_reference(&owner_of("2"), &mut map).expect("the same owner");
        assert_eq!(owners(&map), [owner("a", "2", false)]);
    }

    #[test]
    fn an_owner_has_a_uid_and_is_in_the_same_namespace() {
        let cases: [(Deployment, ConfigMap, OwnerError); 3] = [
            (
                object(Some("n"), "a", None),
                object(Some("n"), "map", None),
                OwnerError::NoUid,
            ),
            (
                object(Some("m"), "a", Some("1")),
                object(Some("n"), "map", None),
                OwnerError::OtherNamespace {
                    owner: "m".to_owned(),
                    object: Some("n".to_owned()),
                },
            ),
            (
                object(Some("m"), "a", Some("1")),
                object(None, "map", None),
                OwnerError::OtherNamespace {
                    owner: "m".to_owned(),
                    object: None,
                },
            ),
        ];
        for (owner, mut map, error) in cases {
            let refused = set_controller_reference(&owner, &mut map);
            assert_eq!(refused, Err(error.clone()));
            assert_eq!(set_owner_reference(&owner, &mut map), Err(error));
            assert_eq!(map.metadata.owner_references, None);
        }
    }
}
