//! Finalizers: an object is not deleted before its controller has cleaned up.

use std::fmt::Debug;
use std::future::Future;

use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Action;

/// What is to be done with an object that has a finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalize<K> {
    /// The object exists and has the finalizer: bring the world into the state that
    /// the object describes.
    Apply(K),
    /// The object is being deleted: undo what was done for it. The function may be called again,
    /// even after a success, so it must do nothing if nothing is left.
    Cleanup(K),
}

/// Why [`finalizer`] failed. The reconcile is to be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError<E: std::error::Error + 'static> {
    /// The object has no name.
    #[error("the object has no name")]
    NoName,
    /// The finalizer could not be added. Nothing was done for the object.
    #[error("the finalizer cannot be added")]
    Add(#[source] kube::Error),
    /// The program's own function failed.
    #[error(transparent)]
    Reconcile(E),
    /// The finalizer could not be removed. The object was cleaned up, and will be cleaned up again.
    #[error("the finalizer cannot be removed")]
    Remove(#[source] kube::Error),
}

/// What the finalizers of an object require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add,
    Apply,
    Cleanup,
    Nothing,
}

/// Reconciles an object with `reconcile`. Calls `reconcile` with [`Finalize::Apply`] only when the
/// object has the finalizer `name`, and with [`Finalize::Cleanup`] before the finalizer is removed.
/// `name` has the form `example.com/cleanup`.
///
/// Each write names the version of `object`. So if the object has changed since it was read, the
/// write is refused (409) and nothing is lost. The next reconcile sees the new version.
///
/// # Errors
///
/// If a write or `reconcile` fails.
pub async fn finalizer<K, T, E>(
    api: &Api<K>,
    name: &str,
    object: K,
    reconcile: impl FnOnce(Finalize<K>) -> T,
) -> Result<Action, FinalizerError<E>>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    T: Future<Output = Result<Action, E>>,
    E: std::error::Error + 'static,
{
    let object = match step(object.meta(), name) {
        Step::Nothing => return Ok(Action::Done),
        Step::Apply => object,
        Step::Add => {
            let mut finalizers = finalizers(object.meta());
            finalizers.push(name.to_owned());
            let added = write(api, object.meta(), finalizers)?;
            added.await.map_err(FinalizerError::Add)?
        }
        Step::Cleanup => {
            let metadata = object.meta().clone();
            let cleaned = reconcile(Finalize::Cleanup(object)).await;
            let action = cleaned.map_err(FinalizerError::Reconcile)?;
            if action != Action::Done {
                // The cleanup continues later, so the object must remain.
                return Ok(action);
            }
            let mut finalizers = finalizers(&metadata);
            finalizers.retain(|finalizer| finalizer != name);
            return match write(api, &metadata, finalizers)?.await {
                Ok(_) => Ok(Action::Done),
                // The object is gone already.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Action::Done),
                Err(error) => Err(FinalizerError::Remove(error)),
            };
        }
    };
    let applied = reconcile(Finalize::Apply(object)).await;
    applied.map_err(FinalizerError::Reconcile)
}

fn step(metadata: &ObjectMeta, name: &str) -> Step {
    let has_finalizer = finalizers(metadata)
        .iter()
        .any(|finalizer| finalizer == name);
    match (metadata.deletion_timestamp.is_some(), has_finalizer) {
        (false, false) => Step::Add,
        (false, true) => Step::Apply,
        (true, true) => Step::Cleanup,
        (true, false) => Step::Nothing,
    }
}

fn finalizers(metadata: &ObjectMeta) -> Vec<String> {
    metadata.finalizers.clone().unwrap_or_default()
}

/// Replaces the finalizers of the object with this `metadata`, if the object still has this
/// version.
fn write<K, E>(
    api: &Api<K>,
    metadata: &ObjectMeta,
    finalizers: Vec<String>,
) -> Result<impl Future<Output = Result<K, kube::Error>>, FinalizerError<E>>
where
    K: Clone + Debug + DeserializeOwned,
    E: std::error::Error + 'static,
{
    let name = metadata.name.clone().ok_or(FinalizerError::NoName)?;
    let patch = json!({ "metadata": {
        "resourceVersion": metadata.resource_version,
        "uid": metadata.uid,
        "finalizers": finalizers,
    }});
    Ok(async move {
        let params = PatchParams::default();
        api.patch(&name, &params, &Patch::Merge(patch)).await
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn the_finalizer_is_added_first_and_removed_after_the_cleanup() {
        let others = vec!["example.com/other".to_owned()];
        let own = vec!["example.com/other".to_owned(), "example.com/own".to_owned()];
        let cases = [
            (false, None, Step::Add),
            (false, Some(others.clone()), Step::Add),
            (false, Some(own.clone()), Step::Apply),
            (true, Some(own), Step::Cleanup),
            (true, Some(others), Step::Nothing),
            (true, None, Step::Nothing),
        ];
        for (is_deleted, finalizers, expected) in cases {
            let now = Time(jiff::Timestamp::UNIX_EPOCH);
            let metadata = ObjectMeta {
                deletion_timestamp: is_deleted.then_some(now),
                finalizers,
                ..ObjectMeta::default()
            };
            let found = step(&metadata, "example.com/own");
            assert_eq!(found, expected, "{metadata:?}");
        }
    }
}
